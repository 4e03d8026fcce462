// Status of a rank in shared memory. The launcher and the user can read it while the rank hangs.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Environment variable with the path of a worker's status file, set by the launcher. The first
/// line of the file is defined in launch/system/step_file.h; the rank status follows.
inline constexpr const char* kStatusFileVariable = "LOCKSTEP_STEP_FILE";

/// Kinds of calls on a group. All ranks make calls of the same kind in the same order, but calls of
/// different kinds may interleave differently.
enum class CallKind { kGather, kReduction, kOther, kMessages };
inline constexpr int kMatchedKinds = 3;  // number of kinds that all ranks of a group call

/// Call for which a rank is waiting.
struct PendingCall {
  std::string operation, group, what;  // "all_gather", "data", "layer 3"
  int64_t sequence = 0;                // index of the call in the group on this rank
  std::vector<int64_t> shape;
  double since = 0;        // seconds of the machine's steady clock
  std::vector<int> ranks;  // global ranks of the group, or peers of a message
  CallKind kind = CallKind::kOther;
  int64_t index = 0;       // index of the call within its kind; unused for messages
  bool on_device = false;  // asynchronous on a device; completion is unknown
};

/// Number of calls of each kind that a rank has started on a group.
struct GroupCalls {
  std::string name;
  std::vector<int> ranks;  // global ranks
  std::array<int64_t, kMatchedKinds> begun{};
};

/// Contents of a rank's status.
struct RankStatusReading {
  int64_t process = 0;
  int rank = 0, ranks = 1;
  std::string coordinate;   // "pipeline 0, data 1, ..."; empty until known
  std::string phase;        // "forward and backward"
  double phase_since = 0;   // seconds of the machine's steady clock
  double changed = 0;       // time of the last update
  double report_after = 0;  // seconds without progress before the rank is reported; 0: never
  double end_after = 0;     // seconds without progress before the job is ended; 0: never
  std::vector<PendingCall> waits;
  std::vector<GroupCalls> groups;

  const GroupCalls* find_group(const PendingCall& wait) const;
};

/// Reads a rank's status. Returns nullopt if the process has not created one.
std::optional<RankStatusReading> read_rank_status(const std::filesystem::path& path);

/// Status writer used by a worker. A write takes a lock and copies a few hundred bytes.
/// Thread-safe. Entries beyond the limits (32 groups, 8 concurrent waits, 64 ranks of a group) are
/// dropped.
class RankStatus {
 public:
  /// Creates the status in the file at `path`, which is created if necessary; in memory if the path
  /// is empty. If neither is possible, nothing is published.
  RankStatus(const std::filesystem::path& path, int rank, int ranks);
  ~RankStatus();
  RankStatus(const RankStatus&) = delete;
  RankStatus& operator=(const RankStatus&) = delete;

  /// Returns the file that other processes on this machine can read. Empty if nothing is published.
  const std::filesystem::path& path() const { return path_; }
  void set_coordinate(std::string_view text);
  void set_limits(double report_after, double end_after);
  /// Publishes the current phase. Repeating the same text indicates progress.
  void begin_phase(std::string_view text);

  /// Adds a group and returns its index, or -1 if there is no free entry.
  int add_group(std::string_view name, std::span<const int> ranks);
  void remove_group(int group);
  /// Starts a call and returns its index within its kind.
  int64_t begin_call(int group, CallKind kind);
  /// Starts a wait and returns an id for end_wait(), or -1 if there is no free entry.
  int begin_wait(const PendingCall& wait);
  void end_wait(int wait);
  /// Marks a wait as asynchronous: a device waits while the host continues. The entry stays until
  /// kLeft later waits have been marked.
  void leave_wait(int wait);

 private:
  static constexpr size_t kLeft = 4;
  struct Page;
  template <class Change>
  void change(Change&& change);

  std::filesystem::path path_;
  int descriptor_ = -1;
  Page* page_ = nullptr;
  std::array<int, kLeft> left_{-1, -1, -1, -1};
  size_t next_left_ = 0;
};

/// Returns the status of this process, or null if it has none (ranks as threads, tools). If the
/// launcher set a status file, the first call creates the status.
RankStatus* rank_status();
/// Creates a status in memory if none exists, for a rank without a launcher.
void begin_rank_status(int rank, int ranks);

/// Publishes the current phase in the status of the process, if any, and calls the observer of this
/// thread.
void begin_phase(std::string_view text);
/// Sets this thread's observer, which is called with each phase that the thread begins. Replaces
/// the previous observer; nullptr removes it.
void observe_phases(std::function<void(std::string_view)> observer);

}  // namespace lockstep
