// What the memory of a rank is used for, at the fullest moment of each phase of a step.
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
  int64_t parameters = 0;   // that the rank keeps
  int64_t gradients = 0;    // whole ones while they are written, and the summed ones
  int64_t optimizer = 0;    // masters and moments
  int64_t activations = 0;  // what a step has allocated beside the others
  int64_t gathered = 0;     // parameters that others keep, for a time
  int64_t buffers = 0;      // of communication
  int64_t other = 0;        // tensors that were there before the step, of no other kind

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
  int64_t most = 0;      // that the device's allocator ever gave out, between those moments too
};

/// Kinds but activations and other are what their owners hold, exactly; those two are the rest of
/// what the device's allocator counts. On the CPU that is ops::keep_host_memory()'s, for the thread
/// that calls; where nothing is counted, they are 0.
class MemoryAccount {
 public:
  /// What is held now, activations and other left at 0.
  using Held = std::function<MemoryByKind()>;
  MemoryAccount(c10::Device device, Held held);

  /// Looks at the memory, in a moment of the phase. Idle moments tell what was there before a step;
  /// of the others there may be thousands, and a device is looked at where a phase begins and where
  /// the next one finds its end: to ask its allocator locks it and copies all its figures, and what
  /// was most in between it keeps by itself.
  void look(MemoryPhase phase);
  const PhaseMemory& of(MemoryPhase phase) const { return phases_[static_cast<size_t>(phase)]; }
  const std::array<PhaseMemory, kMemoryPhases>& phases() const { return phases_; }
  void forget() { phases_ = {}; }

  /// As numbers, to be sent to other ranks; and what a rank sent.
  std::vector<int64_t> numbers() const;
  static std::array<PhaseMemory, kMemoryPhases> from_numbers(std::span<const int64_t> numbers);
  static constexpr int64_t kNumbers = 32;

 private:
  void record(MemoryPhase phase);

  c10::Device device_;
  Held held_;
  MemoryPhase phase_ = MemoryPhase::kIdle;  // that was looked at last
  int64_t before_step_ = 0;                 // bytes that were there, and not of those that are held
  std::array<PhaseMemory, kMemoryPhases> phases_{};
};

/// The fullest moment of any phase, by kind.
const MemoryByKind& fullest_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// The most of any phase.
int64_t most_of(const std::array<PhaseMemory, kMemoryPhases>& phases);
/// A table: a row a phase, a column a kind.
std::string memory_table(const std::array<PhaseMemory, kMemoryPhases>& phases);

}  // namespace lockstep::parallel
