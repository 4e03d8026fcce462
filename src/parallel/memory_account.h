// Memory of a rank by kind, at the peak of each phase of a step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

namespace lockstep::parallel {

/// Bytes on the rank's device.
struct MemoryByKind {
  int64_t parameters = 0;   // stored by the rank
  int64_t gradients = 0;    // whole ones while they are written, and the summed ones
  int64_t optimizer = 0;    // masters and moments
  int64_t activations = 0;  // everything else allocated during a step
  int64_t gathered = 0;     // parameters of other ranks, gathered temporarily
  int64_t buffers = 0;      // of communication
  int64_t other = 0;        // tensors of no other kind that existed before the step

  int64_t total() const;
};
/// The kinds, in their order, and their names.
inline constexpr size_t kMemoryKinds = 7;
std::array<int64_t, kMemoryKinds> values_of(const MemoryByKind& memory);
std::array<std::string_view, kMemoryKinds> memory_kind_names();

enum class MemoryPhase { kIdle, kForward, kBackward, kUpdate };  // idle: between two steps
inline constexpr size_t kMemoryPhases = 4;

/// One phase so far.
struct PhaseMemory {
  MemoryByKind fullest;  // of the moments that were looked at, the one with the most
  int64_t most = 0;      // peak of the device's allocator, including between those moments
};

/// All kinds except activations and other are exact; those two are the remainder of what the
/// device's allocator counts. On the CPU that is the calling thread's count of
/// ops::keep_host_memory(); without a count they are 0.
class MemoryAccount {
 public:
  /// Returns the current memory, with activations and other left at 0.
  using Held = std::function<MemoryByKind()>;
  MemoryAccount(c10::Device device, Held held);

  /// Records the memory at a moment of the phase. Idle moments give the memory before a step. Work
  /// moments may be frequent, so a device is queried only at the start and end of a phase: querying
  /// locks the allocator and copies its statistics, and it tracks the peak in between by itself.
  void look(MemoryPhase phase);
  const PhaseMemory& of(MemoryPhase phase) const { return phases_[static_cast<size_t>(phase)]; }
  const std::array<PhaseMemory, kMemoryPhases>& phases() const { return phases_; }
  void forget() { phases_ = {}; }

  /// Serializes to numbers for other ranks, and reads them back.
  std::vector<int64_t> numbers() const;
  static std::array<PhaseMemory, kMemoryPhases> from_numbers(std::span<const int64_t> numbers);
  static constexpr int64_t kNumbers = 32;

 private:
  void record(MemoryPhase phase);

  c10::Device device_;
  Held held_;
  MemoryPhase phase_ = MemoryPhase::kIdle;  // that was looked at last
  int64_t before_step_ = 0;                 // bytes that existed before the step and are not owned by a known kind
  std::array<PhaseMemory, kMemoryPhases> phases_{};
};

/// The fullest moment of any phase, by kind.
const MemoryByKind& fullest_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// The most of any phase.
int64_t most_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// A table: a row a phase, a column a kind.
std::string memory_table(const std::array<PhaseMemory, kMemoryPhases>& phases);

}  // namespace lockstep::parallel
