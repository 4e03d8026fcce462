// Prints errors of commands.
#include "cli/report_error.h"

#include <exception>
#include <string>
#include <utility>

#include <c10/util/Exception.h>

#include "base/error.h"
#include "launch/record.h"
#include "train/machine/out_of_memory.h"

namespace lockstep::cli {
namespace {

/// Converts an error of libtorch. Only its first part contains the reason; it is followed by a long
/// stack trace.
Error from_torch(const c10::Error& error) {
  return {
      ErrorKind::kInternal,
      error.what_without_backtrace(),
      "this is a bug in Lockstep: please report it"};
}

}  // namespace

int with_our_errors(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (auto memory = train::current_out_of_memory()) {
      throw std::move(*memory);
    }
    if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
      throw from_torch(*torch);
    }
    throw Error(ErrorKind::kInternal, error.what());
  }
}

int report_errors(const std::function<int()>& body) {
  try {
    return with_our_errors(body);
  } catch (const Error&) {
    return launch::record_current_exception();  // prints the error and writes the launcher's error
                                                // file
  }
}

}  // namespace lockstep::cli
