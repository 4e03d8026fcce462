// Verifies a plan against a single rank.
#include "parallel/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "model/freeze.h"
#include "nn/forward_context.h"

namespace lockstep::parallel {
namespace {

/// Gradients below this fraction of the model's largest gradient are treated as rounding errors.
constexpr double kFloor = 1e-3;

/// AdamW's first steps divide a gradient by its own magnitude, and Lion uses only its sign. If a
/// gradient is zero except for rounding, the update and all later gradients depend on rounding. A
/// larger epsilon makes the update a smooth function of the gradient.
constexpr double kLeastEpsilon = 1e-5;
constexpr double kLionRate = 1e-2;

/// Returns a classifier's targets: rows end at random positions, and about every fifth row has no
/// target.
nn::Targets targets_of_rows(
    const model::HeadSpec& head, const VerifyOptions& options, uint64_t key, mesh::Range rows) {
  const auto outputs = static_cast<int64_t>(head.labels.size());
  const bool has_classes = head.problem == model::ProblemType::kSingleLabel;
  std::vector<int64_t> positions, classes;
  std::vector<float> numbers;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const uint64_t of_row = derive_key(key, static_cast<uint64_t>(row));
    const auto draw = [&](int64_t at) {
      return static_cast<int64_t>(random_bits(of_row, static_cast<uint64_t>(at)) >> 8);
    };
    positions.push_back(draw(0) % options.length);
    const bool has_none = row > 0 && draw(1) % 5 == 0;
    classes.push_back(has_none ? -100 : has_classes ? draw(2) % outputs : 0);
    for (int64_t k = 0; k < outputs; ++k) {
      numbers.push_back(static_cast<float>(draw(3 + k) % 2));
    }
  }
  nn::Targets targets = nn::classes_at(
      at::tensor(positions, at::kLong), at::tensor(classes, at::kLong), options.length);
  if (!has_classes) {
    targets.outputs = at::tensor(numbers, at::kFloat).view({-1, outputs});
  }
  return targets;
}

/// Sets the inputs for objectives over answers: rows alternate between chosen and rejected, prompts
/// have two or three tokens, and reference scores are close to those of an untrained model.
void judge_rows(
    const VerifyOptions& options,
    mesh::Range rows,
    double score_of_token,
    const Tensor& labels,
    nn::ForwardInputs& inputs) {
  const Tensor number = at::arange(rows.begin, rows.end, at::kLong);
  const Tensor kinds = number.remainder(2) + static_cast<int64_t>(nn::RowKind::kChosen);
  nn::Targets& targets = inputs.targets;
  if (options.are_rewarded) {
    const Tensor last = options.length - 1 - number.remainder(3);
    targets = nn::classes_at(last, at::zeros_like(number), options.length);
  } else if (options.learns_prompts) {
    const Tensor prompt = (number.remainder(2) + 2).unsqueeze(1);
    targets = nn::next_tokens(labels, at::arange(options.length).lt(prompt));
  }
  targets.kinds = kinds;
  if (options.forgets) {
    using enum nn::RowKind;
    const std::vector<nn::RowKind> of_draw = options.rows_at_once == 3
                                                 ? std::vector{kForget, kChosen, kRetain}
                                                 : std::vector{kForget, kRetain};
    const Tensor place = number.remainder(options.rows_at_once);
    for (int64_t i = 0; i < options.rows_at_once; ++i) {
      targets.kinds.masked_fill_(
          place.eq(i), static_cast<int64_t>(of_draw[static_cast<size_t>(i)]));
    }
  }
  targets.groups = (number - rows.begin).div(options.rows_at_once, "floor");
  targets.reference = targets.counts * score_of_token + number.remainder(5).to(at::kDouble) - 2;
  targets.baseline = at::full_like(targets.counts, 0.25);
}

/// Splits each row into random documents of 1 to 16 tokens. The last token of a document has no
/// target.
void cut_documents(uint64_t key, int64_t first_row, Tensor& labels, nn::ForwardInputs& inputs) {
  constexpr uint64_t kMeanLength = 8;
  constexpr int64_t kMostTokens = 16;
  Tensor starts = at::zeros_like(labels);
  auto start = starts.accessor<int64_t, 2>();
  const int64_t length = labels.size(1);
  for (int64_t row = 0; row < labels.size(0); ++row) {
    const uint64_t of_row =
        derive_key(derive_key(key, hash_name("documents")), static_cast<uint64_t>(first_row + row));
    int64_t begin = 0;
    for (int64_t t = 1; t < length; ++t) {
      const uint64_t bits = random_bits(of_row, static_cast<uint64_t>(t));
      begin = bits % kMeanLength == 0 || t - begin == kMostTokens ? t : begin;
      start[row][t] = begin;
    }
  }
  const Tensor places = at::arange(length, at::kLong);
  labels = labels.masked_fill(starts.eq(places), -100);
  inputs.document_starts = starts;
  inputs.positions = places - starts;
}

/// Packs the rows of `inputs` into one row, one document per row.
void stand_in_one_row(nn::ForwardInputs& inputs) {
  const int64_t rows = inputs.ids.size(0), length = inputs.ids.size(1);
  const Tensor number = at::arange(rows, at::kLong).repeat_interleave(length).unsqueeze(0);
  const Tensor place = at::arange(length, at::kLong).repeat({rows}).unsqueeze(0);
  nn::Targets& targets = inputs.targets;
  for (Tensor* of_tokens :
       {&inputs.ids,
        &inputs.token_types,
        &targets.tokens,
        &targets.prompts,
        &targets.distributions.positions,
        &targets.distributions.lowered,
        &targets.distributions.level}) {
    *of_tokens = of_tokens->defined() ? of_tokens->reshape({1, -1}) : *of_tokens;
  }
  const c10::Device device = inputs.ids.device();
  targets.documents = number.to(device);
  inputs.positions = place.to(device);
  inputs.document_starts = (number * length).to(device);
  inputs.token_samples = at::stack({inputs.samples.index({number}), place}, 2);
  inputs.samples = inputs.samples.narrow(0, 0, 1);
}

/// Returns the given rows of a step's batch. About every fifth label is ignored, so that ranks have
/// different numbers of targets.
nn::ForwardInputs rows_of_step(
    const model::ModelConfig& config,
    const VerifyOptions& options,
    int64_t step,
    mesh::Range units,
    c10::Device device) {
  const int64_t each = std::max<int64_t>(options.rows_at_once, 1);
  const mesh::Range rows{units.begin * each, units.end * each};
  Tensor ids = at::empty({rows.size(), options.length}, at::kLong);
  Tensor labels = at::empty_like(ids);
  auto id = ids.accessor<int64_t, 2>(), label = labels.accessor<int64_t, 2>();
  const uint64_t key = derive_key(options.seed, static_cast<uint64_t>(step));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t t = 0; t < options.length; ++t) {
      const uint64_t bits = random_bits(key, static_cast<uint64_t>(row * options.length + t));
      id[row - rows.begin][t] =
          static_cast<int64_t>((bits >> 8) % static_cast<uint64_t>(config.vocab_size));
      label[row - rows.begin][t] = bits % 5 == 0 ? -100 : id[row - rows.begin][t];
    }
  }
  nn::ForwardInputs inputs;
  if (options.has_documents) {
    cut_documents(key, rows.begin, labels, inputs);
    inputs.document_starts = inputs.document_starts.to(device);
    inputs.positions = inputs.positions.to(device);
  }
  inputs.ids = ids.to(device);
  inputs.targets = config.head.classifies() && !options.are_rewarded
                       ? targets_of_rows(config.head, options, key, rows)
                   : config.bidirectional ? nn::own_tokens(labels)
                                          : nn::next_tokens(labels);
  if (config.token_types > 1) {
    inputs.token_types = ids.remainder(config.token_types).to(device);
  }
  if (options.rows_at_once > 0) {
    const double of_token = -std::log(static_cast<double>(config.vocab_size));
    judge_rows(options, rows, of_token, labels, inputs);
  }
  if (options.mark) {
    options.mark(inputs);
  }
  inputs.targets = inputs.targets.to(device);
  if (config.is_encoder_decoder()) {
    // The source is rolled to differ from the target. About every seventh token is masked.
    inputs.source = inputs.ids.roll(1, 1);
    inputs.source_mask = inputs.source.remainder(7).ne(0);
  }
  inputs.samples = step * options.rows * each + at::arange(rows.begin, rows.end, at::kLong);
  inputs.seed = options.seed;
  inputs.step = step;
  inputs.training = true;
  if (options.are_packed && rows.size() > 0) {
    stand_in_one_row(inputs);
  }
  return inputs;
}

/// Runs forward and backward passes over this data coordinate's slice of the step's batch. Returns
/// the loss.
double run_step(
    ParallelModel& model,
    objective::Reference* reference,
    const ModelSpec& spec,
    const Plan& plan,
    const VerifyOptions& options,
    int64_t step,
    mesh::Range data) {  // this rank's data coordinate and the size of the data axis
  const auto inputs_of = [&](mesh::Range rows) {
    return rows_of_step(spec.config, options, step, rows, spec.device);
  };
  std::vector<nn::ForwardInputs> inputs;
  for (int64_t m = 0; m < plan.accumulation_steps; ++m) {
    inputs.push_back(inputs_of(mesh::split_evenly(
        options.rows,
        data.end * plan.accumulation_steps,
        data.begin * plan.accumulation_steps + m)));
  }
  if (reference != nullptr) {
    reference->refer(inputs);
  }
  const objective::Counts all = model.objective().counts(inputs_of({0, options.rows}).targets);
  return model.forward_backward(inputs, all).loss;
}

using GradientSlices = std::map<std::string, std::vector<StateSlice>>;

GradientSlices gradients_of(ParallelModel& model) {
  GradientSlices gradients;
  model.visit_gradients([&](const StateSlice& slice) { gradients[slice.name].push_back(slice); });
  return gradients;
}

/// Assembles the whole gradient (float64 on the CPU) from this rank's slices. Elements that this
/// rank does not hold are set to `absent`.
Tensor whole_gradient(
    const GradientSlices& gradients,
    const std::string& name,
    const std::vector<int64_t>& shape,
    double absent) {
  Tensor whole = at::full({c10::multiply_integers(shape)}, absent, at::kDouble);
  const auto found = gradients.find(name);
  if (found == gradients.end()) {
    return whole;
  }
  for (const StateSlice& slice : found->second) {
    mesh::visit_runs(
        slice.cut,
        slice.shape,
        slice.begin,
        slice.begin + slice.data.numel(),
        [&](int64_t local, int64_t at, int64_t count) {
          whole.narrow(0, at, count).copy_(slice.data.narrow(0, local - slice.begin, count));
        });
  }
  return whole;
}

/// Compares the gradient slices of all ranks with rank 0's reference gradient. The result is valid
/// on rank 0. If several ranks hold an element, the smallest and the largest of their values are
/// compared.
void compare(
    comm::Communicator& world,
    const GradientSlices& under_plan,
    const GradientSlices& on_one,
    const model::ParameterSpec& parameter,
    int64_t step,
    double floor,
    VerifiedGradient& result) {
  Tensor most = whole_gradient(under_plan, parameter.name, parameter.shape, -INFINITY);
  Tensor least = whole_gradient(under_plan, parameter.name, parameter.shape, INFINITY);
  world.all_reduce(most, comm::Reduce::kMax).wait();
  world.all_reduce(least, comm::Reduce::kMin).wait();
  if (world.rank() != 0) {
    return;
  }
  const Tensor one = whole_gradient(on_one, parameter.name, parameter.shape, NAN);
  const double largest = one.abs().max().item<double>();
  if (step == 1) {
    result.largest = largest;
  }
  const Tensor above = (most - one).abs(), below = (least - one).abs();
  const Tensor errors = at::maximum(above, below);
  const int64_t element = errors.argmax().item<int64_t>();
  const double error = errors[element].item<double>() / std::max({largest, floor, 1e-30});
  if (!(error <= result.error) || result.step == 0) {
    const bool is_above = !(below[element].item<double>() > above[element].item<double>());
    result.error = error;
    result.step = step;
    result.element = element;
    result.one = one[element].item<double>();
    result.plan = (is_above ? most : least)[element].item<double>();
  }
}

double largest_gradient(const GradientSlices& gradients) {
  double largest = 0;
  for (const auto& [name, slices] : gradients) {
    for (const StateSlice& slice : slices) {
      largest = std::max(largest, slice.data.abs().max().item<double>());
    }
  }
  return largest;
}

std::optional<std::string> first_difference(const Verification& found, double tolerance) {
  for (size_t step = 1; step <= found.losses.size(); ++step) {
    const VerifiedLoss& loss = found.losses[step - 1];
    if (!(std::abs(loss.plan - loss.one) <= tolerance * std::max(1.0, std::abs(loss.one)))) {
      return fmt::format(
          "the loss of step {}: {:.8g} under the plan, {:.8g} on one rank",
          step,
          loss.plan,
          loss.one);
    }
    for (const VerifiedGradient& gradient : found.gradients) {
      if (gradient.step == static_cast<int64_t>(step) && !(gradient.error <= tolerance)) {
        return fmt::format(
            "the gradient of {} in step {}, at element {}: {:.6g} under the plan, {:.6g} on one "
            "rank",
            gradient.name,
            step,
            gradient.element,
            gradient.plan,
            gradient.one);
      }
    }
  }
  return std::nullopt;
}

std::vector<model::ParameterSpec> trained_parameters(const ModelSpec& spec) {
  std::vector<model::ParameterSpec> parameters = model::parameters_of(spec.config);
  if (spec.adapters != nullptr) {
    for (const auto& [name, parameter] : model::adapter_parameters(*spec.adapters)) {
      parameters.push_back(parameter);
    }
  }
  std::vector<std::string> names;
  for (const model::ParameterSpec& parameter : parameters) {
    names.push_back(parameter.name);
  }
  const std::set<std::string> frozen = model::frozen_parameters(names, spec.freeze);
  const model::Adapters* adapters = spec.adapters.get();
  std::erase_if(parameters, [&](const model::ParameterSpec& parameter) {
    const bool is_own = adapters == nullptr || adapters->file_names.count(parameter.name) > 0;
    return !is_own || !parameter.learns || frozen.count(parameter.name) > 0;
  });
  return parameters;
}

}  // namespace

Verification verify(
    const ModelSpec& spec, const Plan& asked, ParallelGroups& axes, const VerifyOptions& options) {
  const at::NoGradGuard no_grad;
  Plan plan = asked;
  plan.optimizer.adam_epsilon = std::max(plan.optimizer.adam_epsilon, kLeastEpsilon);
  const double learning_rate =
      options.learning_rate * (plan.optimizer.optim == "lion_32bit" ? kLionRate : 1.0);
  comm::Communicator& world = axes.world();
  const mesh::Mesh& mesh = axes.mesh();
  if (options.rows < mesh.data * plan.accumulation_steps) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} sequences are too few for {} data-parallel ranks with {} micro-batches each",
            options.rows,
            mesh.data,
            plan.accumulation_steps),
        fmt::format("use at least {}", mesh.data * plan.accumulation_steps));
  }
  if (plan.router_losses.balance == nn::Balance::kBatch &&
      mesh.data * plan.accumulation_steps > 1) {
    throw Error(
        ErrorKind::kConfig,
        "training.router_aux_loss=micro_batch depends on the grouping of rows into micro-batches, "
        "so the gradients on one rank differ",
        "compare with training.router_aux_loss=sequence, or with one micro-batch per step");
  }
  if (spec.float8 && spec.float8->scaling == model::Float8::Scaling::kTensor &&
      mesh.data * plan.accumulation_steps > 1) {
    throw Error(
        ErrorKind::kConfig,
        "precision.fp8=tensor scales over a micro-batch and therefore depends on the grouping of "
        "rows into micro-batches, so the results on one rank differ",
        "compare with precision.fp8=row, or with one micro-batch per step");
  }
  comm::Communicator alone = comm::Communicator::alone();
  ParallelGroups own(alone, {});
  Plan plain;
  plain.optimizer = plan.optimizer;
  plain.max_gradient_norm = plan.max_gradient_norm;
  plain.router_losses = plan.router_losses;
  plain.expert_capacity_factor = plan.expert_capacity_factor;
  const bool leads = world.rank() == 0;
  const auto model = parallelize(spec, plan, axes);
  const auto one = leads ? parallelize(spec, plain, own) : nullptr;
  const auto refer = [&](ParallelModel& compared, const Plan& with, ParallelGroups& among) {
    return options.refer ? options.refer(compared, with, among) : nullptr;
  };
  const auto reference = refer(*model, plan, axes);
  const auto own_reference = leads ? refer(*one, plain, own) : nullptr;

  Verification found;
  const auto parameters = trained_parameters(spec);
  for (const model::ParameterSpec& parameter : parameters) {
    found.gradients.push_back({.name = parameter.name});
  }
  for (int64_t step = 0; step < options.steps; ++step) {
    const at::AutoGradMode with_grad(true);
    VerifiedLoss loss;
    GradientSlices expected;
    if (leads) {
      loss.one = run_step(*one, own_reference.get(), spec, plain, options, step, {0, 1});
      expected = gradients_of(*one);
    }
    const mesh::Range data{axes.coordinate().data, mesh.data};
    loss.plan = run_step(*model, reference.get(), spec, plan, options, step, data);
    const GradientSlices gradients = gradients_of(*model);
    const double floor = kFloor * largest_gradient(expected);
    for (size_t i = 0; i < parameters.size(); ++i) {
      compare(world, gradients, expected, parameters[i], step + 1, floor, found.gradients[i]);
    }
    found.losses.push_back(loss);
    model->optimizer_step(learning_rate);
    if (leads) {
      one->optimizer_step(learning_rate);
    }
  }
  const std::string told = comm::broadcast_string(
      world, leads ? first_difference(found, options.tolerance).value_or("") : "");
  if (!told.empty()) {
    found.first_difference = told;
  }
  return found;
}

}  // namespace lockstep::parallel
