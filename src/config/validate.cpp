// Validates the sections of the configuration.
#include "config/validate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "base/text.h"
#include "config/core/checker.h"
#include "config/core/class_weights.h"
#include "config/core/scalar.h"
#include "config/resolve.h"
#include "config/tasks.h"
#include "mesh/mesh.h"

namespace lockstep::config {
namespace {

void validate_model(const Config& config, Checker& check) {
  const ModelSection& model = config.model;
  if (!model.path.empty() && !model.preset.empty()) {
    check.fail(
        "model.preset",
        fmt::format("{} and model.path {} are both set", model.preset, model.path),
        "set only one of them");
  }
}

void validate_checkpoint(const Config& config, Checker& check) {
  check.require(
      config.checkpoint.compare_replicas >= 0, "checkpoint.compare_replicas", "at least 0");
  check.require(
      config.checkpoint.in_memory_replicas == 0 || config.checkpoint.in_memory_replicas == 1,
      "checkpoint.in_memory_replicas",
      "0 or 1");
  check.require(config.checkpoint.replica_steps >= 1, "checkpoint.replica_steps", "at least 1");
}

void validate_mixture(const Config& config, Checker& check) {
  const DataSection& data = config.data;
  constexpr const char* kKey = "data.mixture";
  if (data.mixture.empty()) {
    return;
  }
  if (!data.train.empty()) {
    check.fail(
        kKey,
        "data.train is also set, but data.mixture replaces it",
        "remove one; the files of data.train can be a source");
  }
  if (trains_on_answers(config.task) || unlearns(config.task)) {
    check.fail(
        kKey,
        fmt::format("not supported with task.type={}", *config.task.type),
        "use data.train; mixtures are supported for language_modeling (texts, instructions, "
        "chats), masked_lm and labelled rows");
  }
  double sum = 0;
  std::vector<std::string> names;
  for (const MixtureSource& source : data.mixture) {
    const std::string name = fmt::format("source '{}'", source.name);
    if (source.files.empty() ||
        std::any_of(source.files.begin(), source.files.end(), [](auto& f) { return f.empty(); })) {
      check.fail(kKey, name + " has no files", "set files: [FILE, ...]");
    }
    if (!std::isfinite(source.weight) || source.weight < 0) {
      check.fail(
          kKey,
          fmt::format("{}: weight {} must be at least 0", name, source.weight),
          "weights are relative to their sum: 0.7 and 0.3, or 7 and 3");
    }
    if (source.max_epochs.value_or(1) < 1) {
      check.fail(
          kKey,
          fmt::format("{}: max_epochs {} must be at least 1", name, *source.max_epochs),
          "remove the source, or remove max_epochs to repeat it without a limit");
    }
    if (std::find(names.begin(), names.end(), source.name) != names.end()) {
      check.fail(kKey, name + " is listed twice", "give each source a unique name");
    }
    names.push_back(source.name);
    sum += source.weight > 0 ? source.weight : 0;
  }
  if (!(sum > 0)) {
    check.fail(kKey, "the weights sum to 0", "set the weight of a source above 0");
  }
}

void validate_data(const Config& config, Checker& check) {
  validate_mixture(config, check);
  const DataSection& data = config.data;
  check.require(
      data.sequence_length == 0 || (data.sequence_length >= 2 && data.sequence_length <= 1 << 26),
      "data.sequence_length",
      "0 or from 2 to 67108864");
  const auto is_share = [](double share) { return share >= 0 && share < 1; };
  check.require(
      is_share(data.validation_fraction), "data.validation_fraction", "at least 0 and below 1");
  check.require(is_share(data.test_fraction), "data.test_fraction", "at least 0 and below 1");
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
        {"data.validation_mm", &data.validation_mm},
        {"data.test", &data.test},
        {"data.test_mm", &data.test_mm}}) {
    if (std::any_of(files->begin(), files->end(), [](const auto& file) { return file.empty(); })) {
      check.fail(key, "a file name is empty");
    }
  }
  const bool classifies =
      config.task.type.value_or("sequence_classification") == "sequence_classification";
  for (const auto& [key, files] :
       {std::pair{"data.validation_mm", &data.validation_mm}, {"data.test_mm", &data.test_mm}}) {
    if (!files->empty() && !classifies) {
      check.fail(
          key,
          "only used with task.type=sequence_classification",
          "set data.validation or data.test to the files");
    }
  }
  const bool is_answered = writes_labels(config.task) && config.generative.chat;
  const bool is_language = config.task.type.value_or("language_modeling") == "language_modeling";
  const bool may_be_chats = data.prompt == "chat" || (data.prompt == "auto" && is_language);
  if (!data.chat_template.empty() && !may_be_chats && !trains_on_answers(config.task) &&
      !is_answered) {
    check.fail(
        "data.chat_template",
        "only used with data.prompt=chat and with preference data",
        "set data.prompt=chat, or remove it");
  }
  if (data.chat_loss != "assistant" && !may_be_chats) {
    check.fail("data.chat_loss", "only used with data.prompt=chat", "set it, or remove this key");
  }
}

/// Checks keys that require a certain problem type, if the type is set.
void validate_problem(const Config& config, Checker& check) {
  const TaskSection& task = config.task;
  const std::string problem = task.problem_type.value_or("");
  if (problem == "regression") {
    check.require(
        task.class_weights.empty(), "task.class_weights", "empty: regression has no labels");
    check.require(task.focal_gamma == 0, "task.focal_gamma", "0: regression has no labels");
    check.require(
        task.thresholds == "fixed", "task.thresholds", "fixed: regression has no thresholds");
  }
  if (!problem.empty() && problem != "single_label_classification" &&
      config.training.label_smoothing_factor > 0) {
    check.fail(
        "training.label_smoothing_factor",
        fmt::format("label smoothing requires a single label per row, not {}", problem),
        "set it to 0");
  }
}

void validate_label_fields(const Config& config, Checker& check) {
  std::vector<std::string> fields = config.data.label_field;
  std::sort(fields.begin(), fields.end());
  if (fields.empty() || fields.front().empty()) {
    check.fail("data.label_field", "a field name is empty", "set data.label_field=label");
  } else if (const auto twice = std::adjacent_find(fields.begin(), fields.end());
             twice != fields.end()) {
    check.fail("data.label_field", fmt::format("\"{}\" is listed twice", *twice), "remove one");
  } else if (fields.size() > 1 && !config.data.label_delimiter.empty()) {
    check.fail(
        "data.label_delimiter",
        "only used with one label field, but several are set",
        "remove it, or set one field");
  } else if (fields.size() > 1 && config.task.problem_type == "single_label_classification") {
    check.fail(
        "data.label_field",
        "a single label requires one field, but several are set",
        "set one field, or task.problem_type=multi_label_classification or regression");
  } else if (
      fields.size() > 1 && !config.task.labels.empty() &&
      config.task.labels.size() != fields.size()) {
    check.fail(
        "task.labels",
        fmt::format("{} labels for {} fields", config.task.labels.size(), fields.size()),
        "list one label per field, in order, or remove them");
  }
}

void validate_masking(const DataSection& data, Checker& check) {
  const auto is_share = [](double x) { return x >= 0 && x <= 1; };
  check.require(
      data.mlm_probability > 0 && data.mlm_probability <= 1,
      "data.mlm_probability",
      "above 0 and at most 1");
  check.require(is_share(data.mask_replace_prob), "data.mask_replace_prob", "0 to 1");
  check.require(
      is_share(data.random_replace_prob) &&
          data.mask_replace_prob + data.random_replace_prob <= 1 + 1e-9,
      "data.random_replace_prob",
      "from 0 to 1, and at most 1 together with data.mask_replace_prob");
}

void validate_generative(const Config& config, Checker& check) {
  const TaskSection& task = config.task;
  const std::string instead = "remove it, or use task.type=sequence_classification";
  const auto refuse = [&](bool is_asked, const char* key, const char* why) {
    if (is_asked) {
      check.fail(key, why, instead);
    }
  };
  refuse(
      task.problem_type.value_or("single_label_classification") != "single_label_classification",
      "task.problem_type",
      "generative classification has one label per row");
  refuse(
      !task.class_weights.empty(),
      "task.class_weights",
      "all tokens of a label have the same weight");
  refuse(
      task.focal_gamma > 0, "task.focal_gamma", "the language modeling loss has no focal factor");
  refuse(task.thresholds != "fixed", "task.thresholds", "the most likely label is predicted");
  refuse(
      config.data.label_field.size() > 1,
      "data.label_field",
      "generative classification has one label field");
  refuse(has_prompt(config.data), "data.prompt", "generative.prompt_template defines the prompt");
  refuse(
      config.data.packing == "concatenate", "data.packing", "concatenation would cut off labels");
  check.require(
      config.generative.decode != "greedy" || config.generative.normalize == "none",
      "generative.normalize",
      "none with generative.decode=greedy, which compares tokens, not likelihoods");
  check.require(
      config.generative.decode != "first_token" || config.generative.normalize == "none" ||
          config.generative.normalize == "prior",
      "generative.normalize",
      "none or prior with generative.decode=first_token, which scores one token per label");
  if (!config.generative.verbalizers.empty() && task.labels.empty() &&
      check.origin("generative.verbalizers").source == Origin::Source::kCommandLine) {
    check.fail(
        "generative.verbalizers", "requires task.labels, which defines their order", "set both");
  }
}

void validate_task(const Config& config, Checker& check) {
  const TaskSection& task = config.task;
  validate_masking(config.data, check);
  const bool classifies = task.type == "sequence_classification" || writes_labels(task);
  if (writes_labels(task)) {
    validate_generative(config, check);
  }
  if (task.type && !classifies) {
    for (const auto& [key, is_given] :
         {std::pair{"task.labels", !task.labels.empty()},
          {"task.positive_label", !task.positive_label.empty()},
          {"task.metrics", !task.metrics.empty()},
          {"task.save_scores", task.save_scores}}) {
      if (is_given) {
        check.fail(
            key,
            "only used with task.type=sequence_classification and generative_classification",
            "set one of these, or remove it");
      }
    }
    return;
  }
  std::vector<std::string> labels = task.labels;
  std::sort(labels.begin(), labels.end());
  if (labels.size() == 1 && task.problem_type != "multi_label_classification" &&
      task.problem_type != "regression") {
    check.fail("task.labels", "there is only one label", "a classifier needs at least two classes");
  } else if (const auto twice = std::adjacent_find(labels.begin(), labels.end());
             twice != labels.end()) {
    check.fail("task.labels", fmt::format("\"{}\" is listed twice", *twice), "remove one");
  } else if (!labels.empty() && labels.front().empty()) {
    check.fail("task.labels", "a label name is empty", "set its name, or remove it");
  }
  validate_problem(config, check);
  check.require(
      std::isfinite(task.focal_gamma) && task.focal_gamma >= 0, "task.focal_gamma", "at least 0");
  const bool is_balanced = task.class_weights == std::vector<std::string>{"balanced"};
  const bool is_named = !task.class_weights.empty() && named_weight(task.class_weights.front());
  for (const std::string& weight : task.class_weights) {
    const auto named = named_weight(weight);
    const auto number = named ? std::optional(named->second) : to_double(weight);
    if (!is_balanced &&
        !(number && std::isfinite(*number) && *number >= 0 && named.has_value() == is_named)) {
      check.fail(
          "task.class_weights",
          fmt::format("'{}' is not a weight", weight),
          "use balanced, one non-negative number per label, in order, or weights by name: {spam: "
          "3}");
      break;
    }
  }
  if (!is_balanced && !is_named && !task.class_weights.empty() && !task.labels.empty() &&
      task.class_weights.size() != task.labels.size()) {
    check.fail(
        "task.class_weights",
        fmt::format("{} weights for {} labels", task.class_weights.size(), task.labels.size()),
        "set one per label, in order");
  }
  validate_label_fields(config, check);
  const bool asked = classifies || !task.labels.empty();
  // The config.yaml of a run also contains defaults, which the user did not request.
  const auto is_typed = [&](const char* key) {
    return check.origin(key).source == Origin::Source::kCommandLine;
  };
  if (asked && is_typed("data.packing") && config.data.packing == "concatenate") {
    check.fail("data.packing", "concatenation would cut off labels", "use documents or none");
  }
  if (asked && is_typed("data.long_documents") && config.data.long_documents == "split") {
    check.fail(
        "data.long_documents",
        "a classifier always truncates rows at data.sequence_length",
        "remove it");
  }
  if (asked && has_prompt(config.data)) {
    check.fail("data.prompt", "not used with sequence_classification", "remove it");
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

/// Checks the keys used with zero_stage.
void validate_sharding(const Config& config, std::optional<int64_t> ranks, Checker& check) {
  const ParallelSection& parallel = config.parallel;
  if (parallel.shard_ranks > 0 && parallel.tensor >= 1 && parallel.pipeline >= 1 && ranks) {
    const int64_t sharing = *ranks / (parallel.tensor * parallel.pipeline);
    if (sharing % parallel.shard_ranks != 0) {
      check.fail(
          "parallel.shard_ranks",
          fmt::format(
              "{} does not divide the {} ranks with the same parameters",
              parallel.shard_ranks,
              sharing),
          "use a divisor, such as the number of ranks per machine");
    }
  }
  if (parallel.pipeline > 1 && parallel.zero_stage > 1 && !parallel.zero_in_pipeline) {
    check.fail(
        "parallel.zero_stage",
        fmt::format(
            "{} with a pipeline reduces the gradients{} in every micro-batch; stage 1 reduces them "
            "once per step",
            parallel.zero_stage,
            parallel.zero_stage == 3 ? " (and gathers the parameters twice)" : ""),
        "use parallel.zero_stage=1, or set parallel.zero_in_pipeline=true");
  }
  const PrecisionSection& precision = config.precision;
  if (precision.stochastic_rounding && !config.training.bf16) {
    check.fail(
        "precision.stochastic_rounding",
        "only used with bfloat16 weights, but training.bf16 is false",
        "set training.bf16=true, or remove it");
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
  check.require(parallel.expert >= 1, "parallel.expert", "at least 1");
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
      "-1 (the ranks of a machine), 0 (all ranks), or a number of ranks");
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
  const int64_t model_ranks = parallel.pipeline * parallel.tensor;
  if (ranks && sizes && parallel.expert > 1 && *ranks % model_ranks == 0 &&
      *ranks / model_ranks % parallel.expert != 0) {
    check.fail(
        "parallel.expert",
        fmt::format(
            "{} does not divide the {} data- and context-parallel ranks",
            parallel.expert,
            *ranks / model_ranks),
        "use a divisor");
  }
  if (sizes && !is_split(parallel.split, parallel.pipeline)) {
    check.fail(
        "parallel.split",
        fmt::format("'{}' is not a split into {} stages", parallel.split, parallel.pipeline),
        "use auto, parameters, or the layers of each stage: 3,4,4,1");
  }
  const auto needs_path = [&](const char* key, const auto& offload) {
    if (offload.device == "nvme" && offload.path.empty()) {
      check.fail(key, "device=nvme requires a folder", "set path");
    }
  };
  needs_path("parallel.offload_optimizer.path", parallel.offload_optimizer);
  needs_path("parallel.offload_param.path", parallel.offload_param);
  if (parallel.offload_param.device != "none" && parallel.zero_stage != 3) {
    check.fail(
        "parallel.offload_param.device",
        fmt::format("parameter offloading requires zero_stage=3, not {}", parallel.zero_stage),
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
            "'{}' is not one of {}, and not a file.{}",
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
  // Accepts the older bool values of packing.
  if (const auto word = to_bool(config.data.packing)) {
    config.data.packing = *word ? "concatenate" : "none";
  }
  settle_quantization(config.quantization, origins, problems);
  std::string& optim = config.training.optim;  // paged variants are mapped to the plain optimizer
  optim = optim == "paged_adamw_32bit"  ? "adamw_torch_fused"
          : optim == "paged_lion_32bit" ? "lion_32bit"
                                        : optim;
  const char* checkpointing = "training.gradient_checkpointing";
  const char* recompute = "parallel.recompute";
  const auto derive = [&](const char* key, const char* from) {
    origins[key] = {
        .source = Origin::Source::kDerived,
        .place = fmt::format("{} ({})", from, describe(origins.at(from)))};
  };
  // The command line overrides a file, because the config.yaml of a run contains both keys.
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
            "{} contradicts {}={} ({})",
            wanted,
            recompute,
            config.parallel.recompute,
            describe(origins.at(recompute))),
        "gradient_checkpointing=true is the same as recompute=full; set only one of them");
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
  validate_lora(config, check);
  validate_quantization(config, check);
  validate_float8(config, check);
  validate_checkpoint(config, check);
  validate_data(config, check);
  validate_task(config, check);
  validate_preference(config, check, warnings);
  validate_unlearning(config, check, warnings);
  validate_training(config, check, warnings);
  validate_parallel(config, ranks, check, problems);
  validate_sharding(config, ranks, check);
  check.require(config.monitor.sample_tokens > 0, "monitor.sample_tokens", "at least 1");
  const std::string& otlp = config.monitor.otlp;
  check.require(
      otlp.empty() || otlp.starts_with("http://") || otlp.starts_with("https://"),
      "monitor.otlp",
      "empty or an address http://HOST:PORT");
  check.require(
      !mentions(otlp, "***"),
      "monitor.otlp",
      "an address with its credentials, which config.yaml does not contain");
  check.require(config.monitor.histograms >= 0, "monitor.histograms", "at least 0");
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
