// Derives update rules from parameter names and options.
#include "optim/update_rule.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::optim {

UpdateRules::Table::Table(const std::string& key, const NumbersByName& numbers) {
  for (const auto& [text, number] : numbers) {
    patterns_.emplace_back(NamePattern(key, text), number);
  }
}

void UpdateRules::Table::check_found_in(std::span<const std::string> names) const {
  for (const auto& [pattern, number] : patterns_) {
    pattern.check_found_in(names);
  }
}

std::optional<double> UpdateRules::Table::find(const std::string& name) const {
  for (const auto& [pattern, number] : patterns_) {
    if (pattern.is_in(name)) {
      return number;
    }
  }
  return std::nullopt;
}

UpdateRules::UpdateRules(
    const RuleOptions& options, bool has_muon, std::span<const ParameterTraits> parameters)
    : options_(options),
      has_muon_(has_muon),
      learning_rates_("training.learning_rates", options.learning_rates),
      weight_decays_("training.weight_decays", options.weight_decays) {
  std::vector<std::string> names;
  for (const ParameterTraits& parameter : parameters) {
    names.push_back(parameter.name);
    deepest_ = std::max(deepest_, parameter.depth);
  }
  learning_rates_.check_found_in(names);
  weight_decays_.check_found_in(names);
  if (options_.learning_rate == 0 &&
      (!options_.learning_rates.empty() || (has_muon && options_.muon_learning_rate))) {
    throw Error(
        ErrorKind::kConfig,
        "training.learning_rate is 0, but other learning rates are set: the schedule scales them "
        "relative to training.learning_rate",
        "set training.learning_rate above 0, and use training.learning_rates to set 0 for "
        "parameters that should not change");
  }
}

UpdateRule UpdateRules::rule_of(const ParameterTraits& parameter) const {
  UpdateRule rule;
  rule.whole_matrix = has_muon_ && parameter.is_hidden_matrix;
  const double usual = rule.whole_matrix
                           ? options_.muon_learning_rate.value_or(options_.learning_rate)
                           : options_.learning_rate;
  const double rate = learning_rates_.find(parameter.name).value_or(usual);
  rule.learning_rate =
      (rate == options_.learning_rate ? 1 : rate / options_.learning_rate) *
      std::pow(options_.layer_decay, static_cast<double>(deepest_ - parameter.depth));
  rule.weight_decay = weight_decays_.find(parameter.name);
  if (!rule.weight_decay && !parameter.decays) {
    rule.weight_decay = 0;
  }
  return rule;
}

}  // namespace lockstep::optim
