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

/// Bytes on the rank's device, by kind.
struct MemoryByKind {
  int64_t parameters = 0;   // stored by the rank
  int64_t gradients = 0;    // whole gradients in flight, and summed gradients
  int64_t optimizer = 0;    // master weights and moments
  int64_t activations = 0;  // everything else allocated during a step
  int64_t gathered = 0;     // parameters of other ranks, gathered temporarily
  int64_t buffers = 0;      // communication buffers
  int64_t other = 0;        // tensors of no other kind that existed before the step

  int64_t total() const;
};
/// Values and names of the kinds, in declaration order.
inline constexpr size_t kMemoryKinds = 7;
std::array<int64_t, kMemoryKinds> values_of(const MemoryByKind& memory);
std::array<std::string_view, kMemoryKinds> memory_kind_names();

enum class MemoryPhase { kIdle, kForward, kBackward, kUpdate };  // kIdle: between two steps
inline constexpr size_t kMemoryPhases = 4;

/// Memory of one phase so far.
struct PhaseMemory {
  MemoryByKind fullest;  // recorded moment with the most memory
  int64_t most = 0;      // allocator's peak, including between recorded moments
};

/// All kinds except activations and other are exact; those two are the remainder of what the
/// device's allocator counts. On the CPU that is the calling thread's count of
/// ops::keep_host_memory(); without a count they are 0.
class MemoryAccount {
 public:
  /// Returns the current bytes by kind; activations and other are 0.
  using Held = std::function<MemoryByKind()>;
  MemoryAccount(c10::Device device, Held held);

  /// Records the memory at a moment of the phase. Idle moments give the memory before a step. On a
  /// device, the allocator is queried only at the start and end of a phase, because a query locks
  /// the allocator and copies its statistics; the allocator tracks the peak in between.
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
  MemoryPhase phase_ = MemoryPhase::kIdle;  // phase of the last look()
  int64_t before_step_ = 0;                 // bytes before the step that no kind owns
  std::array<PhaseMemory, kMemoryPhases> phases_{};
};

/// Returns the moment with the most memory of all phases, by kind.
const MemoryByKind& fullest_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// Returns the peak of all phases, in bytes.
int64_t most_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// Formats a table with one row per phase and one column per kind.
std::string memory_table(const std::array<PhaseMemory, kMemoryPhases>& phases);

}  // namespace lockstep::parallel
