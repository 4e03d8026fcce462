// Prints memory estimates as tables.
#include "plan/memory/memory_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/format.h"
#include "plan/memory/activations.h"
#include "plan/memory/phases.h"

namespace lockstep::plan {

namespace {

struct MemoryColumn {
  std::string head;
  Memory memory;
};

struct Kind {
  const char* name;
  double Memory::* bytes;
};
constexpr std::array<Kind, 11> kKinds{{
    {"parameters", &Memory::parameters},
    {"gradients", &Memory::gradients},
    {"optimizer: masters and moments", &Memory::optimizer},
    {"activations kept for backward", &Memory::activations},
    {"working memory of a block", &Memory::working},
    {"logits", &Memory::logits},
    {"gathered units", &Memory::gathered},
    {"communication buckets", &Memory::buckets},
    {"allocator fragmentation", &Memory::fragmentation},
    {"driver, libraries, communicators", &Memory::context},
    {"in-memory checkpoints", &Memory::kept},
}};

std::string table(const std::vector<MemoryColumn>& columns) {
  std::string text;
  const auto line = [&](const char* name, const auto& cell) {
    text += fmt::format("  {:<34}", name);
    for (const MemoryColumn& column : columns) {
      text += fmt::format(" {:>13}", cell(column));
    }
    text += "\n";
  };
  const auto row = [&](const char* name, const auto& bytes) {
    const bool has_some = std::any_of(
        columns.begin(), columns.end(), [&](const MemoryColumn& c) { return bytes(c.memory) > 0; });
    if (has_some) {
      line(name, [&](const MemoryColumn& c) { return bytes_text(bytes(c.memory)); });
    }
  };
  line("", [](const MemoryColumn& c) { return c.head; });
  for (const Kind& kind : kKinds) {
    row(kind.name, [&](const Memory& m) { return m.*kind.bytes; });
  }
  row("all", [](const Memory& m) { return m.total(); });
  row("in addition, in host memory", [](const Memory& m) { return m.host; });
  row("in addition, in files", [](const Memory& m) { return m.nvme; });
  return text;
}

// Returns activation memory per layer. Layers of the same kind use the same amount.
std::string layers_text(const Job& job, const StageMemory& stage) {
  std::string text;
  visit_blocks(rank_blocks(job)[stage.stage], [&](BlockKind kind, double count) {
    text += fmt::format(
        "{}{:.0f} layers × {:.4g} micro-batches in flight × {}",
        text.empty() ? "  activations: " : " + ",
        count,
        stage.in_flight,
        bytes_text(block_activations(job, kind, job.recompute)));
  });
  return text.empty() ? "" : text + "\n";
}

std::string verdict(const Memory& peak, const Device& device) {
  const double room = usable_bytes(device);
  const double most = peak.total();
  std::string text = fmt::format(
      "  {} on {} ({} usable): {}\n",
      bytes_text(most),
      device.name,
      bytes_text(room),
      most <= room ? fmt::format("fits, {} left", bytes_text(room - most))
                   : fmt::format("does NOT fit, {} too much", bytes_text(most - room)));
  if (peak.host > device.host_bytes()) {
    text += fmt::format(
        "  {} in host memory ({} per device): does NOT fit\n",
        bytes_text(peak.host),
        bytes_text(device.host_bytes()));
  }
  return text;
}

}  // namespace

std::string bytes_text(double bytes) {
  return bytes == 0       ? "-"
         : bytes < 1e8    ? fmt::format("{:.1f} MB", bytes / 1e6)
         : bytes < 9.9e13 ? fmt::format("{:.1f} GB", bytes / 1e9)
                          : fmt::format("{:.3g} TB", bytes / 1e12);
}

std::string memory_table(const Job& job, const Device& device) {
  const std::vector<StageMemory> stages = estimate_memory(job);
  const StageMemory& fullest = largest(stages);
  std::string text;
  if (stages.size() > 1) {
    // For a long pipeline, shows only the first, the largest and the last stage.
    std::vector<MemoryColumn> columns;
    for (const StageMemory& stage : stages) {
      if (stages.size() <= 8 || &stage == &stages.front() || &stage == &stages.back() ||
          &stage == &fullest) {
        columns.push_back({fmt::format("stage {}", stage.stage), stage.peak});
      }
    }
    text += "memory of a rank at its peak, by pipeline rank\n" + table(columns) + "\n";
  }
  std::vector<MemoryColumn> phases;
  for (const Phase phase : kPhases) {
    phases.push_back({std::string(phase_name(phase)), memory_in(phase, job, fullest.peak)});
  }
  text += stages.size() > 1
              ? fmt::format("memory of stage {} at the peak of each phase\n", fullest.stage)
              : "memory of a rank at the peak of each phase\n";
  text += table(phases);
  return text + layers_text(job, fullest) + verdict(fullest.peak, device);
}

}  // namespace lockstep::plan
