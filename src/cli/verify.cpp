// `lockstep verify`: compares a plan with a single rank.
#include "cli/verify.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/rank_context.h"
#include "config/resolve.h"
#include "parallel/verify.h"
#include "plan/from_config/float8.h"
#include "start/completion.h"
#include "train/batches/datasets.h"
#include "train/paired_data.h"
#include "train/plan.h"
#include "train/tasks/classifier_task.h"
#include "train/tasks/preference.h"
#include "train/tasks/unlearning.h"
#include "train/weights/model_loading.h"
#include "train/weights/quantization.h"

namespace lockstep::cli {
namespace {

/// Maximum sequence length if data.sequence_length is not set.
constexpr int64_t kVerifiedLength = 64;
constexpr size_t kShownTensors = 12;

config::ResolveOptions verify_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "verify";
  options.common = {
      {"Keys",
       {"model.path",
        "model.preset",
        "data.sequence_length",
        "training.per_device_train_batch_size",
        "training.gradient_accumulation_steps",
        "training.bf16",
        "training.optim",
        "parallel.tensor",
        "parallel.pipeline",
        "parallel.context",
        "parallel.expert",
        "parallel.zero_stage",
        "parallel.recompute",
        "lora.r",
        "quantization.bits"}}};
  options.flags = {
      {"model", Kind::kKey, "The same as model.path", "model.path"},
      {"nproc", Kind::kValue, "Ranks to start. int; default: product of the sizes of `parallel`"},
      {"layers", Kind::kValue, "Use only the model's first layers. int; default: all"},
      {"steps", Kind::kValue, "Steps to compare. int; default: 2"},
      {"tolerance", Kind::kValue, "Largest accepted relative error. float; default: 1e-4"},
      {"all", Kind::kSwitch, "Print every parameter, not only the worst"},
  };
  return options;
}

double tolerance_of(const config::Resolution& resolution, double otherwise) {
  const auto text = resolution.value("tolerance");
  if (!text) {
    return otherwise;
  }
  try {
    size_t used = 0;
    const double value = std::stod(*text, &used);
    if (used == text->size() && value > 0 && std::isfinite(value)) {
      return value;
    }
  } catch (const std::exception&) {
    // reported below
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("--tolerance: '{}' is not a number above 0", *text),
      "--tolerance 1e-4");
}

parallel::ModelSpec spec_of(
    const config::Resolution& resolution, const train::RankContext& rank_context) {
  config::Config config = resolution.config;
  train::ModelRequest request;
  const model::ModelSource source = train::find_source(config.model.path, config.model.preset);
  const auto states = train::end_at_layer(config, source.config);
  request.device = rank_context.device;
  request.seed = static_cast<uint64_t>(config.training.seed);
  request.freeze = config.model.freeze;
  request.adapter = train::adapter_request(config.lora);
  request.quantization = train::quantization_of(config.quantization);
  request.float8 = plan::float8_of(config.precision);
  if (request.float8) {  // float32 sums in another order may be rounded to other 8-bit numbers
    request.dtype = at::kDouble;
  }
  if (train::trains_rewards(config.task)) {
    request.task.head = model::reward_head();
  } else if (states) {
    request.task.head = *states;
  } else {
    request.task = train::planned_task(config, source.config);
  }
  parallel::ModelSpec spec = train::model_spec(source, request);
  train::check_trainable(spec.config.quantization, spec.adapters != nullptr);
  if (train::trains_on_answers(config.task)) {
    spec.objective = train::preference_objective(config);
  } else if (train::unlearns(config.task)) {
    spec.objective = train::unlearning_objective(config.unlearning);
  }
  if (const auto layers = resolution.integer("layers", 1)) {
    spec.config = model::with_first_layers(std::move(spec.config), *layers);
  }
  return spec;
}

/// Marks the rows as in training, and sets the objective's reference model.
void set_unlearning(
    const config::Config& config,
    const parallel::ModelSpec& spec,
    int64_t micro_batches,
    parallel::VerifyOptions& options) {
  if (config.unlearning.compatibility == "upstream" && micro_batches > 1) {
    throw Error(
        ErrorKind::kConfig,
        "unlearning.compatibility=upstream averages over micro-batches, so a single rank with one "
        "micro-batch has other gradients",
        "compare with unlearning.compatibility=fixed, or with one micro-batch per step");
  }
  options.forgets = true;
  options.mark = [&config, vocabulary = spec.config.vocab_size](nn::ForwardInputs& rows) {
    const std::vector<int64_t> lengths(static_cast<size_t>(rows.ids.size(0)), rows.ids.size(1));
    train::mark_distributions(rows, lengths, config.unlearning, vocabulary);
    train::RetainWeight(config.unlearning).mark(rows.targets);
  };
  options.refer = [&config, other = spec](
                      parallel::ParallelModel& model,
                      const parallel::Plan& plan,
                      parallel::ParallelGroups& axes) mutable {
    // Use other weights: in the first step, the divergence from the unchanged model would be 0.
    const auto seed = static_cast<uint64_t>(config.training.seed) + 1;
    other.fill = parallel::fill_at_random(other.config, seed);
    return train::unlearning_reference(config, model, other, plan, axes);
  };
}

parallel::VerifyOptions options_of(
    const config::Resolution& resolution,
    const parallel::ModelSpec& spec,
    const parallel::Plan& plan,
    const mesh::Mesh& mesh) {
  const config::Config& config = resolution.config;
  parallel::VerifyOptions options;
  options.steps = resolution.integer("steps", 1).value_or(options.steps);
  options.tolerance = tolerance_of(resolution, options.tolerance);
  options.rows = std::max<int64_t>(
      4, config.training.per_device_train_batch_size * plan.accumulation_steps * mesh.data);
  options.length = config.data.sequence_length > 0
                       ? config.data.sequence_length
                       : std::min(spec.config.max_positions, kVerifiedLength);
  options.seed = static_cast<uint64_t>(config.training.seed);
  options.are_packed = (train::trains_on_answers(config.task) || train::unlearns(config.task) ||
                        spec.config.head.classifies()) &&
                       train::packs_rows(config, spec.config);
  if (train::trains_on_answers(config.task)) {
    options.rows_at_once = train::rows_of_sequence(config);
    options.are_rewarded = train::trains_rewards(config.task);
    options.learns_prompts = config.preference.objective == "orpo";
  } else if (train::unlearns(config.task)) {
    options.rows_at_once = train::rows_of_unlearning(config.unlearning);
    set_unlearning(config, spec, plan.accumulation_steps * mesh.data, options);
  } else if (!spec.config.head.classifies()) {
    options.has_documents =
        train::packing_of(config.data, spec.config) == data::Packing::kDocuments;
  }
  return options;
}

enum class Rows { kWorst, kAll };

void print(
    const parallel::Verification& found,
    const parallel::ModelSpec& spec,
    const parallel::VerifyOptions& options,
    const mesh::Mesh& mesh,
    Rows shown) {
  fmt::print(
      "{} layers{}, {} sequences of {} tokens, float32; {}\n\n",
      spec.config.layers,
      spec.config.head.classifies() ? fmt::format(", {}", model::name_of(spec.config.head.problem))
                                    : "",
      options.rows,
      options.length,
      mesh.text());
  fmt::print("{:<6} {:>14} {:>14} {:>12}\n", "step", "loss, one rank", "loss, plan", "difference");
  for (size_t step = 0; step < found.losses.size(); ++step) {
    const parallel::VerifiedLoss& loss = found.losses[step];
    fmt::print(
        "{:<6} {:>14.7f} {:>14.7f} {:>12.2e}\n",
        step + 1,
        loss.one,
        loss.plan,
        std::abs(loss.plan - loss.one));
  }
  std::vector<parallel::VerifiedGradient> rows = found.gradients;
  const auto worse = [](const auto& a, const auto& b) { return a.error > b.error; };
  if (shown == Rows::kWorst) {
    std::stable_sort(rows.begin(), rows.end(), worse);
    rows.resize(std::min(rows.size(), kShownTensors));
  }
  fmt::print("\n{:<48} {:>12} {:>10}\n", "gradient of", "largest", "error");
  for (const parallel::VerifiedGradient& row : rows) {
    fmt::print("{:<48} {:>12.3e} {:>10.2e}\n", row.name, row.largest, row.error);
  }
  if (rows.size() < found.gradients.size()) {
    fmt::print("and {} with smaller errors (--all)\n", found.gradients.size() - rows.size());
  }
  if (found.first_difference) {
    fmt::print("\nthey first differ at {}\n", *found.first_difference);
  } else {
    fmt::print("\nequal within {:g}\n", options.tolerance);
  }
}

int verify(const config::Resolution& resolution, train::RankContext& rank_context) {
  const config::Config& config = resolution.config;
  const mesh::Mesh mesh = train::mesh_of(config.parallel, rank_context.size());
  parallel::ParallelGroups axes(rank_context.communicator, mesh, rank_context.group);
  const parallel::ModelSpec spec = spec_of(resolution, rank_context);
  train::check_mixture(config, spec.config);
  const parallel::Plan plan = train::plan_of(config);
  const parallel::VerifyOptions options = options_of(resolution, spec, plan, mesh);
  const parallel::Verification found = parallel::verify(spec, plan, axes, options);
  if (!rank_context.is_first()) {
    return 0;  // a nonzero code would end rank 0 before it has printed its results
  }
  print(found, spec, options, mesh, resolution.has("all") ? Rows::kAll : Rows::kWorst);
  return found.first_difference ? exit_code(ErrorKind::kNumeric) : 0;
}

}  // namespace

int run_verify(std::vector<std::string> arguments) {
  const config::ResolveOptions options = verify_options();
  const config::Resolution resolution = config::resolve(arguments, options);
  if (resolution.help) {
    return start::print_help(options, resolution, arguments);
  }
  const config::ParallelSection& parallel = resolution.config.parallel;
  RankOptions ranks;
  ranks.command = "verify";
  ranks.arguments = std::move(arguments);
  ranks.ranks =
      resolution.integer("nproc", 1)
          .value_or(
              parallel.pipeline * parallel.data.value_or(1) * parallel.context * parallel.tensor);
  ranks.use_cpu = resolution.config.training.use_cpu;
  return run_ranks(
      ranks, [&](train::RankContext& rank_context) { return verify(resolution, rank_context); });
}

}  // namespace lockstep::cli
