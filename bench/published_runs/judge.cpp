// The table and the verdict of a validation.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "published_runs/validate.h"

namespace lockstep::plan {

namespace {

constexpr double kTimeWithin = 0.05, kTimeOther = 0.10, kMemoryTolerance = 0.08, kTau = 0.85,
                 kBubble = 0.02;
constexpr size_t kLeastJudged = 5;  // a median of fewer says little of a source
constexpr size_t kLeastSweep = 4;

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string error_text(std::optional<double> error) {
  return error ? fmt::format("{:+.1f}%", 100 * *error) : "-";
}

std::string plan_text(const Job& job) {
  std::string text = fmt::format(
      "d{} t{} p{} c{}{} zero{} {} micro {}",
      job.mesh.data,
      job.mesh.tensor,
      job.mesh.pipeline,
      job.mesh.context,
      job.expert_ranks > 1 ? fmt::format(" e{}", job.expert_ranks) : "",
      job.zero_stage,
      recompute_name(job.recompute),
      job.micro_batch);
  if (job.mesh.pipeline > 1) {
    text += fmt::format(" {} v{}", schedule::kind_name(job.schedule), job.virtual_stages);
  }
  return text;
}

struct Source {
  std::vector<const Comparison*> all;
  std::vector<double> time, memory, bubble;  // absolute errors of tested configurations
  bool lent = false;
};

class Judge {
 public:
  explicit Judge(const Validation& validation) : validation_(validation) {
    for (const Comparison& c : validation.comparisons) {
      Source& source = sources_[c.prepared.system];
      source.all.push_back(&c);
      source.lent = source.lent || c.system_lent;
      rows_ += c.rows;
    }
    for (auto& [name, source] : sources_) {
      for (const Comparison* c : source.all) {
        collect(*c, source);
      }
    }
  }

  Verdict run() {
    print_sources();
    print_skipped();
    judge_time();
    judge_memory();
    judge_ranking();
    judge_bubbles();
    json_["rows"] = rows_;
    json_["configurations"] = validation_.comparisons.size();
    json_["skipped"] = skipped_rows_;
    json_["met"] = verdict_.met;
    verdict_.json = json_.dump();
    return std::move(verdict_);
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> text, Args&&... args) {
    verdict_.text += fmt::format(text, std::forward<Args>(args)...) + "\n";
  }

  void target(bool met, const std::string& text) {
    verdict_.met = verdict_.met && met;
    print("{} {}", met ? "met   " : "MISSED", text);
  }

  static bool tested(const Comparison& c) {
    return !c.lent && c.prepared.contradiction.empty() && !c.prepared.is_mixture;
  }

  void collect(const Comparison& c, Source& source) {
    if (c.prepared.is_mixture && c.time_error()) {
      mixtures_.push_back(std::abs(*c.time_error()));
    }
    if (!tested(c)) {
      return;
    }
    if (c.time_error()) {
      source.time.push_back(std::abs(*c.time_error()));
    }
    if (c.memory_error()) {
      source.memory.push_back(std::abs(*c.memory_error()));
    }
  }

  void print_sources() {
    for (const auto& [name, source] : sources_) {
      print("\n{}{}", name, source.lent ? " (lent rows to the calibration, marked *)" : "");
      for (const Comparison* c : source.all) {
        print_one(*c);
      }
    }
  }

  void print_one(const Comparison& c) {
    const Job& job = c.prepared.job;
    std::string text = fmt::format(
        "  {} L{} h{} s{} batch {} on {} {}: {}",
        c.lent ? "*" : " ",
        job.model.layers,
        job.model.hidden_size,
        job.sequence,
        job.global_batch,
        job.mesh.ranks(),
        c.prepared.device.name,
        plan_text(job));
    if (c.measured_seconds) {
      text += fmt::format(
          "; step {:.4g} s, measured {:.4g} s, {}",
          c.seconds,
          *c.measured_seconds,
          error_text(c.time_error()));
    }
    if (c.measured_bytes) {
      text += fmt::format(
          "; memory {:.1f} GB, measured {:.1f} GB, {}",
          c.bytes / 1e9,
          *c.measured_bytes / 1e9,
          error_text(c.memory_error()));
    }
    if (c.measured_bubble) {
      text += fmt::format(
          "; {}: bubble {:.4f} ({}), published {:.4f}",
          c.prepared.published_schedule,
          c.bubble,
          c.bubble_times,
          *c.measured_bubble);
    }
    if (c.measured_fits && *c.measured_fits != c.fits) {
      text += c.fits ? "; said to fit, and ran out of memory" : "; said not to fit, and ran";
    } else if (c.measured_fits && !*c.measured_fits) {
      text += "; ran out of memory, as predicted";
    }
    if (!c.prepared.contradiction.empty()) {
      text += "; not tested: " + c.prepared.contradiction;
    }
    print("{}", text);
  }

  void print_skipped() {
    print("\nskipped:");
    std::map<std::string, int> by_reason;
    for (const Skipped& skipped : validation_.skipped) {
      print("  {} ({} rows): {}", skipped.what, skipped.rows, skipped.reason);
      skipped_rows_ += skipped.rows;
    }
    print(
        "\nsummary of the tested rows (those that lent themselves to the calibration are left "
        "out)");
  }

  void judge_time() {
    std::vector<double> lenders, others;
    for (const auto& [name, source] : sources_) {
      if (source.time.empty()) {
        continue;
      }
      const double error = median(source.time);
      const double limit = source.lent ? kTimeWithin : kTimeOther;
      json_["sources"][name]["step_time_error"] = error;
      json_["sources"][name]["configurations"] = source.time.size();
      const std::string text = fmt::format(
          "step time of {}: median error {:.1f}% of {} ({:.0f}% at most)",
          name,
          100 * error,
          source.time.size(),
          100 * limit);
      if (source.time.size() >= kLeastJudged) {
        target(error <= limit, text);
      } else {
        print("{} {}", error <= limit ? "  few:" : "  FEW:", text);
      }
      auto& all = source.lent ? lenders : others;
      all.insert(all.end(), source.time.begin(), source.time.end());
    }
    if (!mixtures_.empty()) {
      json_["median_step_time_error_mixtures"] = median(mixtures_);
      print(
          "       step time of mixtures of experts, to which nothing is fitted: median error "
          "{:.1f}% "
          "of {}",
          100 * median(mixtures_),
          mixtures_.size());
    }
    json_["median_step_time_error_sources_that_lent"] = median(lenders);
    json_["median_step_time_error_other_sources"] = median(others);
    judge_all("sources that lent", lenders, kTimeWithin);
    judge_all("the other sources", others, kTimeOther);
  }

  void judge_all(const char* which, const std::vector<double>& errors, double limit) {
    if (!errors.empty()) {
      target(
          median(errors) <= limit,
          fmt::format(
              "step time of all {} together: median error {:.1f}% of {} ({:.0f}% at most)",
              which,
              100 * median(errors),
              errors.size(),
              100 * limit));
    }
  }

  void judge_memory() {
    std::vector<double> all;
    int wrong_fit = 0;
    int wrong_out = 0;
    for (const auto& [name, source] : sources_) {
      all.insert(all.end(), source.memory.begin(), source.memory.end());
      if (!source.memory.empty()) {
        json_["sources"][name]["memory_error"] = median(source.memory);
        print(
            "       memory of {}: median error {:.1f}% of {}",
            name,
            100 * median(source.memory),
            source.memory.size());
      }
      for (const Comparison* c : source.all) {
        if (c->prepared.is_mixture) {
          continue;
        }
        wrong_fit += c->measured_fits && !*c->measured_fits && c->fits ? 1 : 0;
        wrong_out += c->measured_fits && *c->measured_fits && !c->fits ? 1 : 0;
      }
    }
    json_["median_memory_error"] = median(all);
    if (!all.empty()) {
      target(
          median(all) <= kMemoryTolerance,
          fmt::format(
              "memory: median error {:.1f}% of {} ({:.0f}% at most)",
              100 * median(all),
              all.size(),
              100 * kMemoryTolerance));
    }
    json_["ran_out_but_said_to_fit"] = wrong_fit;
    json_["ran_but_said_not_to_fit"] = wrong_out;
    target(
        wrong_fit == 0,
        fmt::format("{} configurations ran out of memory and are said to fit", wrong_fit));
    target(wrong_out == 0, fmt::format("{} configurations ran and are said not to fit", wrong_out));
  }

  // Ranked by tokens a second and device.
  struct Sweep {
    std::vector<double> predicted, measured;
    double spread = 0;
  };

  static std::map<std::string, Sweep> sweeps_of(const Source& source) {
    std::map<std::string, Sweep> sweeps;
    for (const Comparison* c : source.all) {
      if (!c->measured_seconds || !tested(*c)) {
        continue;
      }
      const Job& job = c->prepared.job;
      const double tokens = static_cast<double>(job.global_batch * job.sequence) / job.mesh.ranks();
      Sweep& sweep = sweeps[sweep_of(c->prepared)];
      sweep.predicted.push_back(tokens / c->seconds);
      sweep.measured.push_back(tokens / *c->measured_seconds);
      sweep.spread = c->prepared.spread;
    }
    return sweeps;
  }

  void judge_ranking() {
    double least = 1;
    std::vector<double> taus;
    for (const auto& [name, source] : sources_) {
      for (const auto& [sweep, values] : sweeps_of(source)) {
        const std::optional<double> tau =
            kendall_tau(values.predicted, values.measured, values.spread);
        if (!tau || values.measured.size() < kLeastSweep) {
          continue;
        }
        least = std::min(least, *tau);
        json_["sources"][name]["tau"][sweep] = *tau;
        taus.push_back(*tau);
        target(
            *tau >= kTau,
            fmt::format(
                "ranking of {}, {}: Kendall's tau {:.2f} of {} ({:.2f} at least)",
                name,
                sweep,
                *tau,
                values.measured.size(),
                kTau));
      }
    }
    json_["tau"] = median(taus);
    json_["least_tau"] = least;
    print("       median of the {} sweeps: {:.2f}", taus.size(), median(taus));
  }

  void judge_bubbles() {
    int seen = 0;
    int off = 0;
    double worst = 0;
    for (const auto& [name, source] : sources_) {
      for (const Comparison* c : source.all) {
        if (!c->measured_bubble) {
          continue;
        }
        ++seen;
        const double error = std::abs(c->bubble - *c->measured_bubble);
        worst = std::max(worst, error);
        off += error > kBubble ? 1 : 0;
      }
    }
    if (seen > 0) {
      json_["bubbles"] = seen;
      json_["bubbles_off"] = off;
      target(
          off == 0,
          fmt::format(
              "published bubble rates: {} of {} more than {:.2f} off, the worst {:.3f}",
              off,
              seen,
              kBubble,
              worst));
    }
  }

  const Validation& validation_;
  std::map<std::string, Source> sources_;
  std::vector<double> mixtures_;  // absolute errors of step times
  Verdict verdict_;
  nlohmann::json json_;
  int rows_ = 0;
  int skipped_rows_ = 0;
};

}  // namespace

Verdict judge(const Validation& validation) {
  return Judge(validation).run();
}

}  // namespace lockstep::plan
