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

/// The variable that names the file which a launcher gave a worker: its first line is of
/// launch/system/step_file.h, and the pulse is behind it.
inline constexpr const char* kStatusFileVariable = "LOCKSTEP_STEP_FILE";

/// Ranks come to the calls of one kind of a group in the same order, but not always to those of one
/// kind among the others.
enum class CallKind { kGather, kReduction, kOther, kMessages };
inline constexpr int kMatchedKinds = 3;  // those that all ranks of a group make

/// A call that a rank waits for.
struct PendingCall {
  std::string operation, group, what;  // "all_gather", "data", "layer 3"
  int64_t sequence = 0;                // index of the call, counted per group on this rank
  std::vector<int64_t> shape;
  double since = 0;        // seconds of the machine's steady clock
  std::vector<int> ranks;  // of the group, or those of a message's other ends; of the world
  CallKind kind = CallKind::kOther;
  int64_t index = 0;       // of the call among those of its kind; nothing for messages
  bool on_device = false;  // the host went on: whether the call has ended is not known
};

/// How many calls of each kind a rank has begun on a group.
struct GroupCalls {
  std::string name;
  std::vector<int> ranks;  // of the world
  std::array<int64_t, kMatchedKinds> begun{};
};

/// What a pulse tells.
struct RankStatusReading {
  int64_t process = 0;
  int rank = 0, ranks = 1;
  std::string coordinate;   // "pipeline 0, data 1, ..."; empty until it is known
  std::string phase;        // "forward and backward"
  double phase_since = 0;   // seconds of the machine's steady clock
  double changed = 0;       // when anything was told last
  double report_after = 0;  // seconds without progress after which a rank is named; 0: never
  double end_after = 0;     // and after which its job is ended; 0: never
  std::vector<PendingCall> waits;
  std::vector<GroupCalls> groups;

  const GroupCalls* find_group(const PendingCall& wait) const;
};

/// Reads it; nothing where the process has not begun one.
std::optional<RankStatusReading> read_rank_status(const std::filesystem::path& path);

/// A worker's side: writing costs a lock and some hundred bytes. Any thread. What does not fit (the
/// 33rd group, the 9th wait at a time, a rank beyond 64 of a group) is left out.
class RankStatus {
 public:
  /// In the file, made where it is not there; in memory where the path is empty. Where neither can
  /// be had, nothing is told.
  RankStatus(const std::filesystem::path& path, int rank, int ranks);
  ~RankStatus();
  RankStatus(const RankStatus&) = delete;
  RankStatus& operator=(const RankStatus&) = delete;

  /// What others of this machine read; empty where nothing is told.
  const std::filesystem::path& path() const { return path_; }
  void set_coordinate(std::string_view text);
  void set_limits(double report_after, double end_after);
  /// Tells what the rank does from now on; the same text again is a sign of progress.
  void begin_phase(std::string_view text);

  /// -1 where there is no room.
  int add_group(std::string_view name, std::span<const int> ranks);
  void remove_group(int group);
  /// A call begins; returns its index among those of its kind.
  int64_t begin_call(int group, CallKind kind);
  /// A number for end_wait(); -1 where there is no room.
  int begin_wait(const PendingCall& wait);
  void end_wait(int wait);
  /// The same where the host goes on and a device waits in its place: it is told until so many
  /// others (kLeft) were left.
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

/// The pulse of this process; null where it has none (ranks that are threads, tools). One that a
/// launcher asked for begins with the first call.
RankStatus* rank_status();
/// Begins one in memory where there is none: for a rank that nobody launched.
void begin_rank_status(int rank, int ranks);

/// Tells what the process does from now on: its pulse, if it has one, and who observes this
/// thread's phases.
void begin_phase(std::string_view text);
/// Called with each phase that this thread begins from now on; one at a time, nullptr for none.
void observe_phases(std::function<void(std::string_view)> observer);

}  // namespace lockstep
