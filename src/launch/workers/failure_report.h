// Failure report: one screen with the failed worker, its error and its last output.
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

/// Content of a worker's error file (TORCHELASTIC_ERROR_FILE), in either of its forms.
struct ErrorFile {
  std::string message;
  std::string callstack;  // Python's or Lockstep's
  std::string hint;
  std::optional<int64_t> timestamp;  // seconds
  std::optional<int64_t> step;
};

/// Reads it; nullopt if it is missing, truncated, larger than 16 MiB, or invalid.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& path);
/// Copies the file and adds the exit code, as torchelastic's parents expect. Failures are ignored.
void copy_error_file(
    const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

/// A failed worker in the report; can be sent between machines as JSON.
struct Failure {
  std::string host;
  int rank = 0, local_rank = 0;
  int64_t pid = 0;
  ExitStatus status;
  int64_t time = 0;  // seconds since 1970
  std::string error_file, message, callstack, hint, memory;
  std::optional<int64_t> step;
  std::vector<std::string> last_lines;
  bool hangs = false;  // the worker hung while its peers timed out waiting for it
};

/// Collects what is known about a failed worker.
Failure describe(
    const Worker& worker,
    const std::optional<MemoryCounters>& before,
    const std::optional<MemoryCounters>& after);

/// Returns the rank for which a timed-out worker waited: the last one that its message lists as
/// unresponsive.
std::optional<int> unanswering_rank(const std::string& message);
/// True if a worker's message reports an operation's timeout, Lockstep's or Gloo's.
bool gave_up_waiting(const std::string& message);
/// Describes the worker for which another gave up waiting; `found`: further lines about it.
Failure describe_hanging(
    const Worker& worker, const Failure& who_gave_up, const std::string& found = "");

/// At most 192 KiB: longer strings lose their beginning.
std::string to_json(const Failure& failure);
/// The inverse; nullopt if the string is invalid.
std::optional<Failure> failure_from_json(const std::string& text);

/// Exit code of a Lockstep worker that lost a peer, the highest of Lockstep's error codes.
inline constexpr int kPeerLostCode = 7;

/// True if the exit merely indicates a lost peer: exit code 7 or SIGPIPE.
bool lost_a_peer(const ExitStatus& status);

/// Returns the index of the root cause: a hanging worker, otherwise a failure that is not merely a
/// lost peer. Among several, the first to arrive wins; among failures of its machine, the earliest
/// by error file. `failures` is not empty and in the order of arrival.
size_t root_cause(const std::vector<Failure>& failures);

/// Formats the report as torchrun does: "NAME FAILED", the other failures, the root cause with at
/// most `lines` last lines. `others` more workers failed. Ends with a newline.
std::string report(
    const std::string& name,
    const std::vector<Failure>& failures,
    size_t lines = LineTail::kLines,
    int64_t others = 0);

}  // namespace lockstep::launch
