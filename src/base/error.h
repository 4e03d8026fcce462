// Error type with message, context and hint.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Kind of an error. Each kind has an exit code for callers and schedulers.
enum class ErrorKind {
  kRun,          // the run failed
  kConfig,       // invalid usage or configuration
  kEnvironment,  // missing device or library, busy port
  kData,         // invalid data file, tokenizer or model folder
  kCheckpoint,   // damaged, incomplete or incompatible checkpoint; full disk
  kOutOfMemory,
  kNumeric,   // NaN, infinity, divergence
  kPeerLost,  // another rank died or timed out
  kInternal,  // bug in Lockstep
};

/// Returns the process exit code of a kind (listed at the end of docs/errors.md).
int exit_code(ErrorKind kind);
/// Exit code after saving and stopping on request (EX_TEMPFAIL). Schedulers requeue the job.
inline constexpr int kExitPreempted = 75;

/// Error with a cause, contexts (innermost first) and a hint. what() is the whole text, at most one
/// screen.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::string remedy = "");

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& remedy() const { return remedy_; }
  const std::vector<std::string>& contexts() const { return contexts_; }
  /// Adds a context such as "reading model.safetensors". Called from the innermost context
  /// outwards.
  void add_context(std::string context);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  void compose();

  ErrorKind kind_;
  std::string message_, remedy_, text_;
  std::vector<std::string> contexts_;
};

/// Runs `body` and adds `context` to any Error that it throws.
template <class Body>
decltype(auto) in_context(const std::string& context, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (Error& error) {
    error.add_context(context);
    throw;
  }
}

}  // namespace lockstep
