// Records a rank's memory by kind and phase.
#include "parallel/memory_account.h"

#include <algorithm>
#include <utility>

#include <c10/core/CachingDeviceAllocator.h>

#include "base/format.h"
#include "ops/host_memory.h"

namespace lockstep::parallel {
namespace {

constexpr std::array<std::string_view, kMemoryPhases> kPhaseNames = {
    "between steps", "forward", "backward", "update"};

struct Kind {
  std::string_view name;
  int64_t MemoryByKind::* bytes;
};
constexpr std::array<Kind, 7> kKinds = {{
    {"parameters", &MemoryByKind::parameters},
    {"gradients", &MemoryByKind::gradients},
    {"optimizer", &MemoryByKind::optimizer},
    {"activations", &MemoryByKind::activations},
    {"gathered", &MemoryByKind::gathered},
    {"buffers", &MemoryByKind::buffers},
    {"other", &MemoryByKind::other},
}};
static_assert(MemoryAccount::kNumbers == static_cast<int64_t>(kMemoryPhases * (kKinds.size() + 1)));

/// Returns the memory currently allocated on the device and its peak since the last call.
ops::ThreadMemory take_allocated(c10::Device device) {
  if (device.is_cpu()) {
    return ops::take_thread_memory();
  }
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  const auto index = static_cast<c10::DeviceIndex>(std::max<int>(device.index(), 0));
  const auto bytes = allocator->getDeviceStats(index).allocated_bytes.front();
  allocator->resetPeakStats(index);
  return {bytes.current, bytes.peak};
}

std::string readable(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  return bytes == 0                 ? "-"
         : bytes < int64_t{1} << 20 ? fmt::format("{:.1f} KiB", value / 1024)
         : bytes < int64_t{1} << 30 ? fmt::format("{:.1f} MiB", value / (1 << 20))
                                    : fmt::format("{:.2f} GiB", value / (1 << 30));
}

}  // namespace

int64_t MemoryByKind::total() const {
  int64_t sum = 0;
  for (const Kind& kind : kKinds) {
    sum += this->*kind.bytes;
  }
  return sum;
}

MemoryAccount::MemoryAccount(c10::Device device, Held held)
    : device_(device),
      held_(std::move(held)) {}

void MemoryAccount::look(MemoryPhase phase) {
  if (!device_.is_cpu() && phase_ != MemoryPhase::kIdle) {
    if (phase == phase_) {
      return;
    }
    record(phase_);  // record the end of the previous phase
  }
  phase_ = phase;
  record(phase);
}

void MemoryAccount::record(MemoryPhase phase) {
  const ops::ThreadMemory allocated = take_allocated(device_);
  MemoryByKind now = held_();
  if (allocated.now > 0) {
    const int64_t rest = std::max<int64_t>(allocated.now - now.total(), 0);
    if (phase == MemoryPhase::kIdle) {
      before_step_ = rest;
    }
    now.other = std::min(before_step_, rest);
    now.activations = rest - now.other;
  }
  PhaseMemory& seen = phases_[static_cast<size_t>(phase)];
  seen.most = std::max({seen.most, allocated.most, now.total()});
  if (now.total() >= seen.fullest.total()) {
    seen.fullest = now;
  }
}

std::vector<int64_t> MemoryAccount::numbers() const {
  std::vector<int64_t> numbers;
  for (const PhaseMemory& phase : phases_) {
    for (const Kind& kind : kKinds) {
      numbers.push_back(phase.fullest.*kind.bytes);
    }
    numbers.push_back(phase.most);
  }
  return numbers;
}

std::array<PhaseMemory, kMemoryPhases> MemoryAccount::from_numbers(
    std::span<const int64_t> numbers) {
  std::array<PhaseMemory, kMemoryPhases> phases{};
  size_t at = 0;
  for (PhaseMemory& phase : phases) {
    for (const Kind& kind : kKinds) {
      phase.fullest.*kind.bytes = numbers[at++];
    }
    phase.most = numbers[at++];
  }
  return phases;
}

const MemoryByKind& fullest_of(const std::array<PhaseMemory, kMemoryPhases>& phases) {
  return std::ranges::max_element(
             phases, {}, [](const PhaseMemory& phase) { return phase.fullest.total(); })
      ->fullest;
}

std::array<int64_t, kMemoryKinds> values_of(const MemoryByKind& memory) {
  std::array<int64_t, kMemoryKinds> values{};
  for (size_t i = 0; i < kMemoryKinds; ++i) {
    values.at(i) = memory.*kKinds[i].bytes;
  }
  return values;
}

std::array<std::string_view, kMemoryKinds> memory_kind_names() {
  std::array<std::string_view, kMemoryKinds> names{};
  for (size_t i = 0; i < kMemoryKinds; ++i) {
    names.at(i) = kKinds[i].name;
  }
  return names;
}

int64_t most_of(const std::array<PhaseMemory, kMemoryPhases>& phases) {
  int64_t most = 0;
  for (const PhaseMemory& phase : phases) {
    most = std::max(most, phase.most);
  }
  return most;
}

std::string memory_table(const std::array<PhaseMemory, kMemoryPhases>& phases) {
  std::string text = fmt::format("{:<14}", "");
  for (const Kind& kind : kKinds) {
    text += fmt::format("{:>12}", kind.name);
  }
  text += fmt::format("{:>12}", "peak");
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    if (phases[phase].most == 0) {
      continue;  // this phase has not been reached
    }
    text += fmt::format("\n{:<14}", kPhaseNames[phase]);
    for (const Kind& kind : kKinds) {
      text += fmt::format("{:>12}", readable(phases[phase].fullest.*kind.bytes));
    }
    text += fmt::format("{:>12}", readable(phases[phase].most));
  }
  return text;
}

}  // namespace lockstep::parallel
