// Implements error text and exit codes.
#include "base/error.h"

#include "base/redact.h"

namespace lockstep {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kRun:
      return 1;
    case ErrorKind::kConfig:
      return 2;
    case ErrorKind::kEnvironment:
      return 3;
    case ErrorKind::kData:
    case ErrorKind::kCheckpoint:
      return 4;
    case ErrorKind::kOutOfMemory:
      return 5;
    case ErrorKind::kNumeric:
      return 6;
    case ErrorKind::kPeerLost:
      return 7;
    case ErrorKind::kInternal:
      return 1;
  }
  return 1;
}

Error::Error(ErrorKind kind, std::string message, std::string remedy)
    : kind_(kind),
      message_(redacted(message)),
      remedy_(redacted(remedy)) {
  compose();
}

void Error::add_context(std::string context) {
  contexts_.push_back(redacted(context));
  compose();
}

void Error::compose() {
  text_ = message_;
  for (const std::string& context : contexts_) {
    text_ += "\n  while " + context;
  }
  if (!remedy_.empty()) {
    text_ += "\n  try: " + remedy_;
  }
}

}  // namespace lockstep
