// Report of a failure, short enough for one screen: the failed worker, its error and its last
// output.
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

/// Content of a worker's error file (TORCHELASTIC_ERROR_FILE), in Lockstep's or torchelastic's
/// form.
struct ErrorFile {
  std::string message;
  std::string callstack;  // stack trace of Python or Lockstep
  std::string hint;
  std::optional<int64_t> timestamp;  // seconds
  std::optional<int64_t> step;
};

/// Reads an error file. Returns nullopt if it is missing, incomplete, larger than 16 MiB, or
/// invalid.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& path);
/// Copies an error file and adds the exit code, as parent launchers of torchelastic expect. Does
/// nothing if this fails.
void copy_error_file(
    const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

/// Failed worker in the report. Sent between machines as JSON.
struct Failure {
  std::string host;
  int rank = 0, local_rank = 0;
  int64_t pid = 0;
  ExitStatus status;
  int64_t time = 0;  // seconds since 1970
  std::string error_file, message, callstack, hint, memory;
  std::optional<int64_t> step;
  std::vector<std::string> last_lines;
  bool hangs = false;  // the worker did not respond until its peers timed out
};

/// Collects the known facts about a failed worker.
Failure describe(
    const Worker& worker,
    const std::optional<MemoryCounters>& before,
    const std::optional<MemoryCounters>& after);

/// Returns the rank for which a worker waited when it timed out: the last rank that its message
/// lists as unresponsive.
std::optional<int> unanswering_rank(const std::string& message);
/// Returns true if a worker's message reports a timeout of a Lockstep or Gloo operation.
bool gave_up_waiting(const std::string& message);
/// Describes the worker for which another worker timed out. `found` contains additional lines about
/// it.
Failure describe_hanging(
    const Worker& worker, const Failure& who_gave_up, const std::string& found = "");

/// Returns at most 192 KiB. The beginning of longer strings is cut off.
std::string to_json(const Failure& failure);
/// Parses the result of to_json(). Returns nullopt if the string is invalid.
std::optional<Failure> failure_from_json(const std::string& text);

/// Exit code of a Lockstep worker that lost a peer.
inline constexpr int kPeerLostCode = 7;

/// Returns true if the exit status only indicates a lost peer: exit code 7 or SIGPIPE.
bool lost_a_peer(const ExitStatus& status);

/// Returns the index of the root cause. Hanging workers take precedence over other failures, and
/// these over lost peers. Among several, the machine whose failure arrived first is selected, and
/// among the failures of this machine the earliest one by the times in the error files. `failures`
/// must not be empty and must be in order of arrival.
size_t root_cause(const std::vector<Failure>& failures);

/// Formats the report like torchrun: "NAME FAILED", the other failures, and the root cause with at
/// most `lines` last lines. `others` is the number of failures that are not listed. Ends with a
/// newline.
std::string report(
    const std::string& name,
    const std::vector<Failure>& failures,
    size_t lines = LineTail::kLines,
    int64_t others = 0);

}  // namespace lockstep::launch
