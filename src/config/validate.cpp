#include "config/validate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "config/core/checker.h"
#include "config/core/scalar.h"
#include "config/resolve.h"
#include "mesh/mesh.h"

namespace lockstep::config {
namespace {

void validate_model(const Config& config, Checker& check) {
  const ModelSection& model = config.model;
  if (!model.path.empty() && !model.preset.empty()) {
    check.fail(
        "model.preset",
        fmt::format("{} is given, and model.path {} too", model.preset, model.path),
        "give one of them");
  }
}

void validate_data(const Config& config, Checker& check) {
  const DataSection& data = config.data;
  check.require(
      data.sequence_length == 0 || (data.sequence_length >= 2 && data.sequence_length <= 1 << 26),
      "data.sequence_length",
      "0 or from 2 to 67108864");
  const auto is_share = [](double share) { return share >= 0 && share < 1; };
  check.require(
      is_share(data.validation_fraction), "data.validation_fraction", "from 0 to below 1");
  check.require(is_share(data.test_fraction), "data.test_fraction", "from 0 to below 1");
  if (data.validation_fraction + data.test_fraction >= 1) {
    check.fail(
        "data.validation_fraction",
        fmt::format(
            "{} and data.test_fraction {} leave nothing to train on",
            data.validation_fraction,
            data.test_fraction),
        "their sum must be below 1");
  }
  for (const auto& [key, files] :
       {std::pair{"data.train", &data.train},
        {"data.validation", &data.validation},
        {"data.test", &data.test}}) {
    if (std::any_of(files->begin(), files->end(), [](const auto& file) { return file.empty(); })) {
      check.fail(key, "a file's name is empty");
    }
  }
}

void validate_task(const Config& config, Checker& check) {
  const TaskSection& task = config.task;
  const bool classifies = task.type == "sequence_classification";
  if (task.type && !classifies) {
    if (!task.labels.empty()) {
      check.fail(
          "task.labels",
          "only used with task.type=sequence_classification",
          "set that, or leave the labels out");
    }
    return;
  }
  std::vector<std::string> labels = task.labels;
  std::sort(labels.begin(), labels.end());
  if (labels.size() == 1) {
    check.fail("task.labels", "one label alone", "a classifier tells two classes apart or more");
  } else if (const auto twice = std::adjacent_find(labels.begin(), labels.end());
             twice != labels.end()) {
    check.fail("task.labels", fmt::format("\"{}\" stands there twice", *twice), "leave one out");
  } else if (!labels.empty() && labels.front().empty()) {
    check.fail("task.labels", "a label is empty", "name it, or leave it out");
  }
  check.require(
      std::isfinite(task.focal_gamma) && task.focal_gamma >= 0, "task.focal_gamma", "at least 0");
  const bool is_balanced = task.class_weights == std::vector<std::string>{"balanced"};
  for (const std::string& weight : task.class_weights) {
    const auto number = to_double(weight);
    if (!is_balanced && !(number && std::isfinite(*number) && *number >= 0)) {
      check.fail(
          "task.class_weights",
          fmt::format("'{}' is no weight", weight),
          "give balanced, or a number from 0 for each label, in their order");
      break;
    }
  }
  if (!is_balanced && !task.class_weights.empty() && !task.labels.empty() &&
      task.class_weights.size() != task.labels.size()) {
    check.fail(
        "task.class_weights",
        fmt::format("{} weights of {} labels", task.class_weights.size(), task.labels.size()),
        "give one for each label, in their order");
  }
  check.require(!config.data.label_field.empty(), "data.label_field", "the name of a field");
  const bool asked = classifies || !task.labels.empty();
  // The config.yaml of a run states its defaults too: they ask for nothing.
  const auto is_typed = [&](const char* key) {
    return check.origin(key).source == Origin::Source::kCommandLine;
  };
  if (asked && is_typed("data.packing") && config.data.packing) {
    check.fail("data.packing", "a classifier reads each row by itself", "leave it out");
  }
  if (asked && is_typed("data.long_documents") && config.data.long_documents == "split") {
    check.fail(
        "data.long_documents",
        "a classifier reads each row as far as data.sequence_length goes, and no further",
        "leave it out");
  }
  if (asked && config.data.prompt != "none") {
    check.fail("data.prompt", "not used with sequence_classification", "leave it out");
  }
}

bool is_split(const std::string& split, int64_t stages) {
  if (split == "auto" || split == "parameters") {
    return true;
  }
  int64_t parts = 0;
  for (size_t at = 0; at <= split.size();) {
    const size_t comma = std::min(split.find(',', at), split.size());
    const auto layers = to_integer(split.substr(at, comma - at));
    if (!layers || *layers < 0) {
      return false;
    }
    ++parts;
    at = comma + 1;
  }
  return parts % stages == 0;
}

/// What zero_stage's companions ask of each other.
void validate_sharding(const Config& config, std::optional<int64_t> ranks, Checker& check) {
  const ParallelSection& parallel = config.parallel;
  if (parallel.shard_ranks > 0 && parallel.tensor >= 1 && parallel.pipeline >= 1 && ranks) {
    const int64_t sharing = *ranks / (parallel.tensor * parallel.pipeline);
    if (sharing % parallel.shard_ranks != 0) {
      check.fail(
          "parallel.shard_ranks",
          fmt::format(
              "{} does not divide the {} ranks that hold the same parameters",
              parallel.shard_ranks,
              sharing),
          "give a divisor: the ranks of one machine");
    }
  }
  if (parallel.pipeline > 1 && parallel.zero_stage > 1 && !parallel.zero_in_pipeline) {
    check.fail(
        "parallel.zero_stage",
        fmt::format(
            "{} in a pipeline sums the gradients{} in every micro-batch, where stage 1 does it "
            "once a "
            "step",
            parallel.zero_stage,
            parallel.zero_stage == 3 ? " (and gathers the parameters twice)" : ""),
        "use parallel.zero_stage=1, or set parallel.zero_in_pipeline=true");
  }
  const PrecisionSection& precision = config.precision;
  if (precision.stochastic_rounding && !config.training.bf16) {
    check.fail(
        "precision.stochastic_rounding",
        "only used with bfloat16 weights, and training.bf16 is false",
        "set training.bf16=true, or leave it out");
  }
  const LossScaleSection& scale = precision.loss_scale;
  check.require(
      std::isfinite(scale.fixed) && scale.fixed >= 0,
      "precision.loss_scale.fixed",
      "0 or a positive number");
  check.require(
      scale.initial_power >= 0 && scale.initial_power <= 120,
      "precision.loss_scale.initial_power",
      "from 0 to 120");
  check.require(scale.window >= 1, "precision.loss_scale.window", "at least 1");
  check.require(scale.hysteresis >= 1, "precision.loss_scale.hysteresis", "at least 1");
  check.require(
      std::isfinite(scale.minimum) && scale.minimum > 0, "precision.loss_scale.minimum", "above 0");
}

void validate_parallel(
    const Config& config, std::optional<int64_t> ranks, Checker& check, Problems& problems) {
  const ParallelSection& parallel = config.parallel;
  check.require(parallel.data.value_or(1) >= 1, "parallel.data", "at least 1");
  check.require(parallel.tensor >= 1, "parallel.tensor", "at least 1");
  check.require(parallel.pipeline >= 1, "parallel.pipeline", "at least 1");
  check.require(parallel.context >= 1, "parallel.context", "at least 1");
  check.require(
      parallel.zero_stage >= 0 && parallel.zero_stage <= 3, "parallel.zero_stage", "0, 1, 2 or 3");
  check.require(parallel.virtual_stages >= 1, "parallel.virtual_stages", "at least 1");
  check.require(parallel.prefetch_units >= 0, "parallel.prefetch_units", "at least 0");
  check.require(
      parallel.persistence_threshold >= 0, "parallel.persistence_threshold", "at least 0");
  check.require(
      parallel.prefetch_elements.value_or(0) >= 0, "parallel.prefetch_elements", "at least 0");
  check.require(
      parallel.shard_ranks >= -1,
      "parallel.shard_ranks",
      "-1 (the ranks of one machine), 0 (all ranks), or a number of ranks");
  check.require(
      parallel.offload_optimizer.ratio >= 0 && parallel.offload_optimizer.ratio <= 1,
      "parallel.offload_optimizer.ratio",
      "from 0 to 1");
  check.require(parallel.recompute_every >= 1, "parallel.recompute_every", "at least 1");
  const bool sizes = parallel.data.value_or(1) >= 1 && parallel.tensor >= 1 &&
                     parallel.pipeline >= 1 && parallel.context >= 1;
  if (ranks && sizes) {
    try {
      data_parallel_ranks(parallel, *ranks);
    } catch (const Error& error) {
      problems.add(error);
    }
  }
  if (sizes && !is_split(parallel.split, parallel.pipeline)) {
    check.fail(
        "parallel.split",
        fmt::format("'{}' is no split into {} stages", parallel.split, parallel.pipeline),
        "write auto, parameters, or the layers of each stage: 3,4,4,1");
  }
  const auto needs_path = [&](const char* key, const auto& offload) {
    if (offload.device == "nvme" && offload.path.empty()) {
      check.fail(key, "device=nvme needs a folder", "give its path");
    }
  };
  needs_path("parallel.offload_optimizer.path", parallel.offload_optimizer);
  needs_path("parallel.offload_param.path", parallel.offload_param);
  if (parallel.offload_param.device != "none" && parallel.zero_stage != 3) {
    check.fail(
        "parallel.offload_param.device",
        fmt::format("parameters are offloaded with zero_stage=3, not {}", parallel.zero_stage),
        "set parallel.zero_stage=3, or use parallel.offload_optimizer");
  }
  const std::vector<std::string> schedules = {
      "naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"};
  const bool is_file = parallel.schedule.find_first_of("./") != std::string::npos;
  if (!is_file &&
      std::find(schedules.begin(), schedules.end(), parallel.schedule) == schedules.end()) {
    check.fail(
        "parallel.schedule",
        fmt::format(
            "'{}' is none of {}, and no file.{}",
            parallel.schedule,
            fmt::join(schedules, ", "),
            did_you_mean(parallel.schedule, schedules)));
  }
}

}  // namespace

void settle(Config& config, Origins& origins, Problems& problems) {
  TrainingSection& training = config.training;
  if (auto& resume = training.resume_from_checkpoint) {
    const auto word = to_bool(*resume);
    if (resume->empty() || (word && !*word)) {
      resume.reset();
    } else if (word && *resume != "1") {
      resume = "true";
    }
  }
  const char* checkpointing = "training.gradient_checkpointing";
  const char* recompute = "parallel.recompute";
  const auto derive = [&](const char* key, const char* from) {
    origins[key] = {
        .source = Origin::Source::kDerived,
        .place = fmt::format("{} ({})", from, describe(origins.at(from)))};
  };
  // What is typed wins over a file: the config.yaml of a run states both.
  const auto is_typed = [&](const char* key) {
    return origins.at(key).source == Origin::Source::kCommandLine;
  };
  const bool wanted = training.gradient_checkpointing;
  const bool recomputes = config.parallel.recompute != "none";
  if (origins.count(checkpointing) == 0) {
    if (recomputes) {
      training.gradient_checkpointing = true;
      derive(checkpointing, recompute);
    }
  } else if (origins.count(recompute) == 0) {
    if (wanted) {
      config.parallel.recompute = "full";
      derive(recompute, checkpointing);
    }
  } else if (wanted != recomputes && is_typed(checkpointing) && !is_typed(recompute)) {
    config.parallel.recompute = wanted ? "full" : "none";
    derive(recompute, checkpointing);
  } else if (wanted != recomputes && is_typed(recompute) && !is_typed(checkpointing)) {
    training.gradient_checkpointing = recomputes;
    derive(checkpointing, recompute);
  } else if (wanted != recomputes) {
    problems.add(
        checkpointing,
        origins.at(checkpointing),
        fmt::format(
            "{} says otherwise than {}={} ({})",
            wanted,
            recompute,
            config.parallel.recompute,
            describe(origins.at(recompute))),
        "they are one setting: gradient_checkpointing=true is recompute=full; give one of them");
  }
}

void validate(
    const Config& config,
    const Origins& origins,
    std::optional<int64_t> ranks,
    Problems& problems,
    std::vector<std::string>& warnings) {
  Checker check(config, origins, problems);
  validate_model(config, check);
  validate_data(config, check);
  validate_task(config, check);
  validate_preference(config, check, warnings);
  validate_training(config, check, warnings);
  validate_parallel(config, ranks, check, problems);
  validate_sharding(config, ranks, check);
  if (config.monitor.peak_tflops) {
    check.require(*config.monitor.peak_tflops > 0, "monitor.peak_tflops", "above 0");
  }
}

int64_t data_parallel_ranks(const ParallelSection& parallel, int64_t ranks) {
  const mesh::MeshRequest request{
      .data = parallel.data,
      .pipeline = parallel.pipeline,
      .context = parallel.context,
      .tensor = parallel.tensor};
  return mesh::make_mesh(request, static_cast<int>(std::clamp<int64_t>(ranks, 0, 1 << 30))).data;
}

}  // namespace lockstep::config
