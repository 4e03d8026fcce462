#include "cli/report_error.h"

#include <exception>
#include <new>
#include <string>

#include <c10/util/Exception.h>

#include "base/error.h"
#include "launch/record.h"

namespace lockstep::cli {
namespace {

constexpr const char* kMemoryRemedy =
    "lower training.per_device_train_batch_size (and raise training.gradient_accumulation_steps "
    "to keep the batch), shorten data.sequence_length, or set training.bf16=true";

/// libtorch's own errors come with a page of stack: the first part says what happened. The CPU's
/// allocator has no error class of its own.
Error from_torch(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      text.find("DefaultCPUAllocator") != std::string::npos) {
    return {ErrorKind::kOutOfMemory, text, kMemoryRemedy};
  }
  return {ErrorKind::kInternal, text, "this is a defect of lockstep: please report it"};
}

}  // namespace

int with_our_errors(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kOutOfMemory, "the memory ran out", kMemoryRemedy);
  } catch (const c10::Error& error) {
    throw from_torch(error);
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kInternal, error.what());
  }
}

int report_errors(const std::function<int()>& body) {
  try {
    return with_our_errors(body);
  } catch (const Error&) {
    return launch::record_current_exception();  // on stderr, and for the launcher where there is
                                                // one
  }
}

}  // namespace lockstep::cli
