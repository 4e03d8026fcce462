// Update rules of parameters: whole-matrix updates, learning rate and weight decay. Does not depend
// on libtorch or ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/name_pattern.h"

namespace lockstep::optim {

/// Update rule of a parameter. Parameters with the same rule are contiguous in a shard and are
/// updated together.
struct UpdateRule {
  bool whole_matrix = false;             // Muon; false: element-wise
  double learning_rate = 1;              // factor for the learning rate of the step
  std::optional<double> weight_decay{};  // nullopt: OptimizerOptions::weight_decay
  /// Adam-mini: number of adjacent rows (or columns) of a matrix that share one second moment.
  int64_t block = 0;
  bool block_by_columns = false;
  auto operator<=>(const UpdateRule&) const = default;
};

/// Properties of a parameter that determine its rule.
struct ParameterTraits {
  std::string name{};
  bool decays = true;
  bool is_hidden_matrix = false;
  int64_t depth = 0;  // 0: embedding; then the blocks; highest: head
};

/// Values by regular expression. The first expression that matches part of the name applies.
using NumbersByName = std::vector<std::pair<std::string, double>>;

/// Options set by the user.
struct RuleOptions {
  double learning_rate = 5e-5;                 // base learning rate; the other rates are stored
                                               // relative to it
  std::optional<double> muon_learning_rate{};  // learning rate of Muon's matrices; nullopt:
                                               // learning_rate
  NumbersByName learning_rates{}, weight_decays{};
  /// Layer-wise learning rate decay (Clark et al., "ELECTRA", 2020, appendix A): the rate of a
  /// layer is this factor times the rate of the next layer. The head has the full rate.
  double layer_decay = 1;
};

class UpdateRules {
 public:
  /// `has_muon`: hidden matrices are updated as whole matrices. `parameters` are all parameters of
  /// the whole model, on every rank. Throws Error (config) if a pattern is not a regular expression
  /// or matches no name, and if rates are set while the base learning rate is 0.
  UpdateRules(
      const RuleOptions& options, bool has_muon, std::span<const ParameterTraits> parameters);

  UpdateRule rule_of(const ParameterTraits& parameter) const;

 private:
  class Table {
   public:
    Table(const std::string& key, const NumbersByName& numbers);
    void check_found_in(std::span<const std::string> names) const;
    std::optional<double> find(const std::string& name) const;

   private:
    std::vector<std::pair<NamePattern, double>> patterns_;
  };

  RuleOptions options_;
  bool has_muon_;
  int64_t deepest_ = 0;
  Table learning_rates_, weight_decays_;
};

}  // namespace lockstep::optim
