// Errors that say what, where, why and what to do.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What went wrong, in the classes that a caller or a scheduler tells apart. Each has one exit
/// code.
enum class ErrorKind {
  kRun,          // the run failed
  kConfig,       // usage or configuration
  kEnvironment,  // no device, a busy port, a missing library
  kData,         // the user's text, a tokenizer, a model folder
  kCheckpoint,   // a checkpoint that is damaged, incomplete or does not fit; a disk that is full
  kOutOfMemory,
  kNumeric,   // NaN, infinity, divergence
  kPeerLost,  // another rank died or did not answer
  kInternal,  // a defect of ours
};

/// The process exit code of a kind (the table at the end of docs/errors.md).
int exit_code(ErrorKind kind);
/// Saved and stopped on request (EX_TEMPFAIL): schedulers requeue.
inline constexpr int kExitPreempted = 75;

/// An error with a cause, the contexts it passed through (innermost first) and a remedy.
/// what() is the whole text, one screen at most.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::string remedy = "");

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& remedy() const { return remedy_; }
  const std::vector<std::string>& contexts() const { return contexts_; }
  /// Adds what was being done ("reading model.safetensors"), from the inside out.
  void add_context(std::string context);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  void compose();

  ErrorKind kind_;
  std::string message_, remedy_, text_;
  std::vector<std::string> contexts_;
};

/// Runs `body`; an Error that leaves it is told that it happened while `context` was done.
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
