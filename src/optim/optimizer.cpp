// Optimizer base class and the table of optimizers.
#include "optim/optimizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "optim/adafactor.h"
#include "optim/adam_mini.h"
#include "optim/adamw.h"
#include "optim/adamw_8bit.h"
#include "optim/ademamix.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "optim/schedule_free.h"
#include "optim/sgd.h"
#include "optim/stochastic_rounding.h"

namespace lockstep::optim {
namespace {

using Maker = std::unique_ptr<Optimizer> (*)(const OptimizerOptions&);

/// Returns the available optimizers by option name.
const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> table{
      {"adafactor", make_adafactor},
      {"adam_mini", make_adam_mini},
      {"adamw", make_adamw},
      {"adamw_8bit", make_adamw_8bit},
      {"adamw_bnb_8bit", make_adamw_8bit},
      {"adamw_torch", make_adamw},
      {"adamw_torch_fused", make_adamw},
      {"ademamix", make_ademamix},
      {"lion_32bit", make_lion},
      {"muon", make_muon},
      {"paged_adamw_8bit", make_adamw_8bit},
      {"schedule_free_adamw", make_schedule_free_adamw},
      {"sgd", make_sgd},
  };
  return table;
}

void check_betas_and_co(const OptimizerOptions& options, std::vector<std::string>& problems) {
  const auto beta = [&](const char* name, double value) {
    if (!(value >= 0 && value < 1)) {
      problems.push_back(fmt::format("training.{} is {}; it must be in [0, 1)", name, value));
    }
  };
  beta("adam_beta1", options.adam_beta1);
  beta("adam_beta2", options.adam_beta2);
  if (!(options.adam_epsilon >= 0)) {
    problems.push_back(
        fmt::format("training.adam_epsilon is {}; it must not be negative", options.adam_epsilon));
  }
  if (!(options.weight_decay >= 0)) {
    problems.push_back(
        fmt::format("training.weight_decay is {}; it must not be negative", options.weight_decay));
  }
}

void check_muon(const MuonOptions& muon, std::vector<std::string>& problems) {
  if (!(muon.momentum >= 0 && muon.momentum < 1)) {
    problems.push_back(
        fmt::format("training.muon_momentum is {}; it must be in [0, 1)", muon.momentum));
  }
  if (muon.ns_steps < 1 || muon.ns_steps >= 100) {
    problems.push_back(
        fmt::format("training.muon_ns_steps is {}; it must be from 1 to 99", muon.ns_steps));
  }
  if (muon.adjust_lr_fn != "original" && muon.adjust_lr_fn != "match_rms_adamw") {
    problems.push_back(fmt::format(
        "training.muon_adjust_lr_fn is '{}', which is neither original nor match_rms_adamw",
        muon.adjust_lr_fn));
  }
}

void check_ademamix(const AdEMAMixOptions& ademamix, std::vector<std::string>& problems) {
  if (!(ademamix.beta3 >= 0 && ademamix.beta3 < 1)) {
    problems.push_back(
        fmt::format("training.ademamix_beta3 is {}; it must be in [0, 1)", ademamix.beta3));
  }
  if (!(ademamix.alpha >= 0) || !(ademamix.t_alpha >= 0) || !(ademamix.t_beta3 >= 0)) {
    problems.push_back(fmt::format(
        "training.ademamix_alpha, ademamix_t_alpha and ademamix_t_beta3 are {}, {} and {}; none "
        "may "
        "be negative",
        ademamix.alpha,
        ademamix.t_alpha,
        ademamix.t_beta3));
  }
}

void check_shard(const Shard& shard, bool wants_master) {
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorKind::kInternal, fmt::format("the shard {}: {}", shard.name, message));
  };
  if (!shard.parameter.defined()) {
    fail("it has no parameter buffer");
  }
  const int64_t count = shard.parameter.numel();
  int64_t end = 0;
  for (const Segment& segment : shard.layout) {
    if (segment.count > 0 && (segment.offset < end || segment.offset + segment.count > count)) {
      fail(fmt::format("{} is outside its {} elements", segment.parameter, count));
    }
    end = segment.count > 0 ? segment.offset + segment.count : end;
  }
  if (wants_master && !shard.master.defined()) {
    fail(fmt::format(
        "its parameters are {} and have no float32 master",
        c10::toString(shard.parameter.scalar_type())));
  }
  if (shard.master.defined() &&
      (shard.master.numel() != count || shard.master.scalar_type() != at::kFloat)) {
    fail(fmt::format(
        "its master has {} elements of {} for {} parameters",
        shard.master.numel(),
        c10::toString(shard.master.scalar_type()),
        count));
  }
}

}  // namespace

int64_t Optimizer::add(Shard shard) {
  if (shard.layout.empty() && shard.parameter.defined()) {
    const int64_t count = shard.parameter.numel();
    shard.layout.push_back({shard.name, {count}, 0, 0, count});
  }
  check_shard(shard, shard.parameter.defined() && wants_master(shard.parameter.scalar_type()));
  const int64_t index = size();
  runs_.push_back(runs_of(shard));
  make_state(index, shard);
  shards_.push_back(std::move(shard));
  return index;
}

size_t Optimizer::number_of(const UpdateRule& rule) {
  UpdateRule given = rule;
  given.weight_decay = rule.weight_decay.value_or(options_.weight_decay);
  const auto found = std::find(rules_.begin(), rules_.end(), given);
  const auto number = static_cast<size_t>(found - rules_.begin());
  if (found == rules_.end()) {
    rules_.push_back(given);
  }
  return number;
}

std::vector<Run> Optimizer::runs_of(const Shard& shard) {
  std::vector<Run> runs;
  for (const Segment& segment : shard.layout) {
    const size_t rule = number_of(segment.rule);
    if (segment.count == 0 || (!runs.empty() && runs.back().rule == rule)) {
      continue;
    }
    if (!runs.empty()) {
      runs.back().end = segment.offset;
    }
    runs.push_back({runs.empty() ? 0 : segment.offset, 0, rule});
  }
  if (!runs.empty()) {
    runs.back().end = shard.parameter.numel();
  }
  return runs;
}

void Optimizer::change_matrices(
    std::span<const MatrixPiece> pieces, const ChangeMatrix& change) const {
  if (change_matrices_) {
    change_matrices_(pieces, change);
    return;
  }
  for (const MatrixPiece& piece : pieces) {
    const Segment& segment = *piece.segment;
    if (segment.shape.size() != 2 || piece.values.numel() != segment.shape[0] * segment.shape[1]) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format(
              "{} is not a whole matrix, and no function to gather it is set", segment.parameter));
    }
    const at::Tensor whole = piece.values.view(segment.shape);
    whole.copy_(change(whole.to(at::kFloat)));
  }
}

void Optimizer::begin_step(double gradient_scale) {
  ++steps_;
  prepare(gradient_scale);
}

at::Tensor Optimizer::numbers(double /*learning_rate*/) const {
  throw Error(ErrorKind::kInternal, options_.optim + " reads its scalars from the host");
}

void Optimizer::update_by(
    int64_t /*index*/, const at::Tensor& /*numbers*/, const at::Tensor& /*gradient_scale*/) {
  throw Error(ErrorKind::kInternal, options_.optim + " reads its scalars from the host");
}

void Optimizer::visit_elements(
    int64_t index,
    std::string_view name,
    const at::Tensor& state,
    const StateVisitor& visit) const {
  for (const Segment& segment : shards_.at(static_cast<size_t>(index)).layout) {
    visit(
        {std::string(name),
         segment.parameter,
         segment.shape,
         segment.begin,
         state.narrow(0, segment.offset, segment.count)});
  }
}

void Optimizer::step(double learning_rate, double gradient_scale) {
  begin_step(gradient_scale);
  for (int64_t index = 0; index < size(); ++index) {
    update(index, learning_rate, gradient_scale);
  }
}

void Optimizer::update(int64_t index, double learning_rate, double gradient_scale) {
  const Shard& shard = this->shard(index);
  if (!shard.gradient.defined() || shard.gradient.numel() != shard.parameter.numel()) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "shard {} of {} elements is updated with {} gradients",
            shard.name,
            shard.parameter.numel(),
            shard.gradient.defined() ? shard.gradient.numel() : 0));
  }
  if (steps_ < 1) {
    throw Error(ErrorKind::kInternal, "the optimizer updates a shard before begin_step()");
  }
  if (shard.parameter.scalar_type() == at::kFloat || shard.master.defined()) {
    update_shard(index, learning_rate, gradient_scale);
    return;
  }
  // The optimizers support only float32 weights, so a float32 copy replaces the parameter during
  // the update.
  const at::NoGradGuard no_grad;
  Shard& rounded = this->shard(index);
  const at::Tensor parameter = rounded.parameter;
  rounded.parameter = rounded.master = parameter.to(at::kFloat);
  update_shard(index, learning_rate, gradient_scale);
  const at::Tensor updated = std::exchange(rounded.parameter, parameter);
  rounded.master = at::Tensor();
  round_stochastically(updated, parameter, rounded.layout, options_.seed, steps_);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  std::vector<std::string> problems;
  const auto found = makers().find(options.optim);
  if (found == makers().end()) {
    problems.push_back(fmt::format(
        "training.optim is '{}', which is not one of {}.{}",
        options.optim,
        fmt::join(optimizer_names(), ", "),
        did_you_mean(options.optim, optimizer_names())));
  }
  check_betas_and_co(options, problems);
  check_muon(options.muon, problems);
  check_ademamix(options.ademamix, problems);
  if (!problems.empty()) {
    throw Error(ErrorKind::kConfig, fmt::format("{}", fmt::join(problems, "\n")));
  }
  return found->second(options);
}

std::span<const std::string> optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, maker] : makers()) {
      list.push_back(name);
    }
    return list;
  }();
  return names;
}

}  // namespace lockstep::optim
