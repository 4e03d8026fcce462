#include "monitor/log_stream.h"

#include <span>

#include "base/error.h"
#include "base/log.h"

namespace lockstep::monitor {

void LogStream::append(std::string_view bytes) {
  if (gave_up_) {
    return;
  }
  try {
    file_.write_at(end_, std::as_bytes(std::span(bytes)));
    end_ += bytes.size();
  } catch (const Error& error) {
    gave_up_ = true;
    log_warning("{}; it ends here, the run goes on", error.message());
  }
}

}  // namespace lockstep::monitor
