// Suggests configuration changes for out-of-memory errors.
#include "cli/memory_advice.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "monitor/progress.h"
#include "plan/from_config/planned_job.h"
#include "plan/from_config/planned_model.h"
#include "plan/memory/memory.h"

namespace lockstep::cli {
namespace {

constexpr size_t kShown = 3;
constexpr double kWorthwhile = 0.03;  // minimum saving to report, relative to all memory

struct Change {
  std::string words;
  std::function<bool(config::Config&)> apply;  // returns false if already set
};

/// Returns the changes in order of their cost in step time, cheapest first.
std::vector<Change> changes_of(const config::Config& config) {
  const auto stage = [](int64_t to) {
    return Change{fmt::format("parallel.zero_stage={}", to), [to](config::Config& c) {
                    return std::exchange(c.parallel.zero_stage, to) < to;
                  }};
  };
  const int64_t batch = config.training.per_device_train_batch_size;
  const int64_t accumulation = config.training.gradient_accumulation_steps;
  return {
      {"bf16=true",
       [](config::Config& c) { return !std::exchange(c.training.bf16, true) && !c.training.fp16; }},
      stage(1),
      stage(2),
      {fmt::format(
           "per_device_train_batch_size={} gradient_accumulation_steps={}",
           (batch + 1) / 2,
           accumulation * 2),
       [](config::Config& c) {
         int64_t& micro_batch = c.training.per_device_train_batch_size;
         c.training.gradient_accumulation_steps *= 2;
         return std::exchange(micro_batch, (micro_batch + 1) / 2) > 1;
       }},
      stage(3),
      {"gradient_checkpointing=true",
       [](config::Config& c) {
         return std::exchange(c.parallel.recompute, "full") != "full" &&
                !std::exchange(c.training.gradient_checkpointing, true);
       }},
      {"optim=adamw_8bit",
       [](config::Config& c) {
         const bool is_adamw = c.training.optim.starts_with("adamw_torch");
         c.training.optim = "adamw_8bit";
         return is_adamw;
       }},
      {"parallel.offload_optimizer.device=cpu", [](config::Config& c) {
         return !c.training.use_cpu &&
                std::exchange(c.parallel.offload_optimizer.device, "cpu") == "none";
       }}};
}

double bytes_of(const config::Config& config, int64_t ranks) {
  return plan::largest(plan::estimate_memory(
                           plan::planned_job(config, plan::planned_model(config), ranks, ranks)))
      .peak.total();
}

std::string advice(const config::Config& config, int64_t ranks) {
  const double now = bytes_of(config, ranks);
  std::string text;
  size_t shown = 0;
  for (const Change& change : changes_of(config)) {
    config::Config changed = config;
    const double saved = change.apply(changed) ? now - bytes_of(changed, ranks) : 0;
    if (saved > kWorthwhile * now && shown < kShown) {
      text += fmt::format(
          "\n  {:<55} saves about {}",
          change.words,
          monitor::format_bytes(static_cast<int64_t>(saved)));
      ++shown;
    }
  }
  return text.empty() ? "no single setting saves much of it: use more ranks with "
                        "parallel.zero_stage=3, or a smaller model"
                      : "each of these changes reduces it, cheapest first:" + text;
}

}  // namespace

Error with_cheapest_changes(const Error& error, const config::Config& config, int64_t ranks) {
  std::string remedy;
  try {
    remedy = advice(config, ranks);
  } catch (const Error&) {  // without an estimate, the error is returned unchanged
  }
  if (!remedy.empty() && error.remedy().find("--force") != std::string::npos) {
    remedy += "\n--force starts the run anyway";  // the run was refused before it started
  }
  Error told(error.kind(), error.message(), remedy.empty() ? error.remedy() : remedy);
  for (const std::string& context : error.contexts()) {
    told.add_context(context);
  }
  return told;
}

}  // namespace lockstep::cli
