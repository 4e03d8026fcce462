// The one screen that says which worker failed, how, and what it said last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/system/oom_explanation.h"
#include "launch/system/process.h"
#include "launch/workers/worker_group.h"

namespace lockstep::launch {

/// What a worker wrote of its error: TORCHELASTIC_ERROR_FILE, in either of its forms.
struct ErrorFile {
  std::string message;
  std::string callstack;  // Python's or ours
  std::string hint;
  std::optional<int64_t> timestamp;  // seconds
  std::optional<int64_t> step;
};

/// Reads it; nothing where it is missing, cut, larger than 16 MiB, or not what it should be.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& path);
/// A copy of the file with the exit code in it, as torchelastic's parents expect; failures are
/// ignored.
void copy_error_file(
    const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

/// A failed worker as the report tells it; it can travel between machines as JSON.
struct Failure {
  std::string host;
  int rank = 0, local_rank = 0;
  int64_t pid = 0;
  ExitStatus status;
  int64_t time = 0;  // seconds since 1970
  std::string error_file, message, callstack, hint, memory;
  std::optional<int64_t> step;
  std::vector<std::string> last_lines;
  bool hangs = false;  // it did not fail: the others waited for it in vain
};

/// Puts together what is known of a worker that failed.
Failure describe(
    const Worker& worker,
    const std::optional<MemoryCounters>& before,
    const std::optional<MemoryCounters>& after);

/// The rank for which a worker that gave up had waited: the last that its message says it had no
/// answer from.
std::optional<int> unanswering_rank(const std::string& message);
/// Whether a worker's message says that an operation's time was up: Lockstep's own, or Gloo's.
bool gave_up_waiting(const std::string& message);
/// The worker on which another has given up; `found`: what is known of it besides, lines.
Failure describe_hanging(
    const Worker& worker, const Failure& who_gave_up, const std::string& found = "");

/// At most 192 KiB: of longer texts the beginning is left out.
std::string to_json(const Failure& failure);
/// The inverse; nothing where the text is not one.
std::optional<Failure> failure_from_json(const std::string& text);

/// The exit code of a worker of ours that lost a peer, the last of our codes for errors.
inline constexpr int kPeerLostCode = 7;

/// Whether a worker that ended so merely lost a peer: exit code 7, or a write to a socket whose
/// other end is gone (SIGPIPE).
bool lost_a_peer(const ExitStatus& status);

/// The index of the root cause: one that hangs; else one that did not merely lose a peer; of these
/// the first that was seen, and on its machine the earliest by error file. `failures` is not empty,
/// and in the order seen.
size_t root_cause(const std::vector<Failure>& failures);

/// The report, in torchrun's shape: "NAME FAILED", the other failures, the root cause with at most
/// `lines` last lines. `others` failed beside them. Ends with a newline.
std::string report(
    const std::string& name,
    const std::vector<Failure>& failures,
    size_t lines = LineTail::kLines,
    int64_t others = 0);

}  // namespace lockstep::launch
