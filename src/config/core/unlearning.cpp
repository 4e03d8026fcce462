// Table of unlearning methods.
#include "config/core/unlearning.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace lockstep::config {
namespace {

constexpr std::string_view kOfDifference[] = {"gamma", "alpha", "retain_loss"};
constexpr std::string_view kOfBeta[] = {"gamma", "alpha", "retain_loss", "beta"};
constexpr std::string_view kOfSimple[] = {"gamma", "alpha", "retain_loss", "beta", "delta"};
constexpr std::string_view kOfAlternates[] = {
    "gamma", "alpha", "retain_loss", "beta", "alternate_key", "refusals"};
constexpr std::string_view kOfOthers[] = {"ignore_first_n_answer_tokens"};
constexpr std::string_view kOfSaturation[] = {"gamma", "alpha", "retain_loss", "beta1", "beta2"};

constexpr std::string_view kOfStates[] = {
    "gamma", "alpha", "retain_loss", "module_regex", "steering_coeff", "trainable_params_regex"};

constexpr std::string_view kOfDual[] = {
    "gamma",
    "alpha",
    "retain_loss",
    "retain_loss_eps",
    "primal_dual",
    "dual_step_size",
    "dual_update_upon",
    "dual_warmup_epochs"};

constexpr UnlearningMethod kMethods[] = {
    {.name = "GradAscent", .alpha = 0, .keeps = false},
    {.name = "GradDiff", .keys = kOfDifference},
    {.name = "NPO", .beta = 0.1, .reads_scores = true, .keys = kOfBeta},
    {.name = "SimNPO", .gamma = 0.125, .beta = 4.5, .keys = kOfSimple},
    {.name = "DPO", .beta = 0.1, .reads_scores = true, .keys = kOfAlternates},
    {.name = "UNDIAL", .alpha = 0, .beta = 10, .reads_distributions = true, .keys = kOfBeta},
    {.name = "CEU", .alpha = 0, .keeps = false, .excludes_tokens = true, .keys = kOfOthers},
    {.name = "WGA", .keys = kOfBeta},
    {.name = "SatImp", .gamma = 0.1, .keys = kOfSaturation},
    {.name = "RMU", .steers = true, .keys = kOfStates},
    {.name = "PDU", .levels = true, .keys = kOfDual},
    {.name = "Finetune", .gamma = 0, .forgets = false},
};

}  // namespace

std::span<const UnlearningMethod> unlearning_methods() {
  return kMethods;
}

const UnlearningMethod& unlearning_method(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &UnlearningMethod::name);
  if (found == std::end(kMethods)) {
    throw Error(ErrorKind::kInternal, "unknown unlearning.method " + std::string(name));
  }
  return *found;
}

}  // namespace lockstep::config
