// Stage times that publications give for their own pipelines.
#include <array>

#include "published_runs/runs.h"

namespace lockstep::plan {

namespace {

struct Published {
  const char* system;
  const char* model;
  double forward, input, weight, message;  // ms
};

// Qi et al. (2023), "Zero Bubble Pipeline Parallelism", the profile that their bubble rates are
// computed from: T_F, T_B, T_W and T_comm of each model on A100s.
constexpr std::array<Published, 4> kPublished{{
    {"zero-bubble", "GPT-1.5B", 18.522, 18.086, 9.337, 0.601},
    {"zero-bubble", "GPT-6.2B", 29.718, 29.444, 19.927, 0.527},
    {"zero-bubble", "GPT-14.6B", 11.347, 11.248, 8.132, 0.377},
    {"zero-bubble", "GPT-28.3B", 10.419, 10.207, 7.715, 0.408},
}};

double metric_or(const Run& run, std::string_view name, double fallback) {
  for (const Run::Metric& metric : run.metrics) {
    if (metric.name == name && metric.value > 0) {
      return metric.value;
    }
  }
  return fallback;
}

}  // namespace

StageProfile stage_profile(const Run& run) {
  const double forward = metric_or(run, "T_F", 0);
  if (forward > 0) {
    return {
        {forward, metric_or(run, "T_B", forward), metric_or(run, "T_W", forward)},
        metric_or(run, "T_comm", 0),
        "the row's own times"};
  }
  for (const Published& p : kPublished) {
    if (run.cell("system").find(p.system) != std::string::npos && run.cell("model") == p.model) {
      return {{p.forward, p.input, p.weight}, p.message, "the profile that the source publishes"};
    }
  }
  return {{1, 1, 1}, 0, "equal times"};
}

}  // namespace lockstep::plan
