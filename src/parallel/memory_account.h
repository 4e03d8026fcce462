// Memory use of a rank by kind, at the peak of each phase of a training step.
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
  int64_t parameters = 0;   // parameters that this rank stores
  int64_t gradients = 0;    // unreduced gradients of whole units, and summed gradients
  int64_t optimizer = 0;    // master weights and moments of the optimizer
  int64_t activations = 0;  // all other memory allocated during a step
  int64_t gathered = 0;     // temporarily gathered parameters of other ranks
  int64_t buffers = 0;      // communication buffers
  int64_t other = 0;        // tensors of other kinds that existed before the step

  int64_t total() const;
};
/// Returns the values and the names of the kinds, in declaration order.
inline constexpr size_t kMemoryKinds = 7;
std::array<int64_t, kMemoryKinds> values_of(const MemoryByKind& memory);
std::array<std::string_view, kMemoryKinds> memory_kind_names();

enum class MemoryPhase { kIdle, kForward, kBackward, kUpdate };  // kIdle: between two steps
inline constexpr size_t kMemoryPhases = 4;

/// Peak memory of one phase so far.
struct PhaseMemory {
  MemoryByKind fullest;  // breakdown at the recorded moment with the highest total
  int64_t most = 0;      // the allocator's peak, which also covers the time between recorded
                         // moments
};

/// Memory account of one rank. All kinds except `activations` and `other` are exact; these two are
/// the difference to the device allocator's total. On the CPU that total is the calling thread's
/// count by ops::keep_host_memory(). If the thread does not count, both are 0.
class MemoryAccount {
 public:
  /// `held` returns the current bytes by kind, with `activations` and `other` set to 0.
  using Held = std::function<MemoryByKind()>;
  MemoryAccount(c10::Device device, Held held);

  /// Records the current memory for the phase. An idle phase sets the baseline before a step. On a
  /// device, the allocator is queried only at the start and the end of a phase, because a query
  /// locks the allocator and copies its statistics. The allocator itself tracks the peak in
  /// between.
  void look(MemoryPhase phase);
  const PhaseMemory& of(MemoryPhase phase) const { return phases_[static_cast<size_t>(phase)]; }
  const std::array<PhaseMemory, kMemoryPhases>& phases() const { return phases_; }
  void forget() { phases_ = {}; }

  /// Serializes the phases to integers that are sent to other ranks, and deserializes them.
  std::vector<int64_t> numbers() const;
  static std::array<PhaseMemory, kMemoryPhases> from_numbers(std::span<const int64_t> numbers);
  static constexpr int64_t kNumbers = 32;

 private:
  void record(MemoryPhase phase);

  c10::Device device_;
  Held held_;
  MemoryPhase phase_ = MemoryPhase::kIdle;  // phase of the last call of look()
  int64_t before_step_ = 0;                 // bytes before the step that belong to no kind
  std::array<PhaseMemory, kMemoryPhases> phases_{};
};

/// Returns the breakdown of the phase with the highest total.
const MemoryByKind& fullest_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// Returns the peak over all phases in bytes.
int64_t most_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// Formats a table with one row per phase and one column per kind.
std::string memory_table(const std::array<PhaseMemory, kMemoryPhases>& phases);

}  // namespace lockstep::parallel
