// How parameters are told apart by an optimizer: which of them are updated as whole matrices, each
// with what learning rate and weight decay. Pure: no libtorch, no ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/name_pattern.h"

namespace lockstep::optim {

/// Of one parameter. Parameters of the same rule lie together in a shard, and are updated at once.
struct UpdateRule {
  bool whole_matrix = false;             // Muon; else element by element
  double learning_rate = 1;              // multiplies the step's
  std::optional<double> weight_decay{};  // none: OptimizerOptions::weight_decay
  /// Adam-mini: so many neighbouring rows of a matrix, or columns, share a second moment.
  int64_t block = 0;
  bool block_by_columns = false;
  auto operator<=>(const UpdateRule&) const = default;
};

/// What a rule depends on.
struct ParameterTraits {
  std::string name{};
  bool decays = true;
  bool is_hidden_matrix = false;
  int64_t depth = 0;  // 0: the embedding; then the blocks, and behind them the head
};

/// Numbers by regular expressions that are looked for in names; the first one found says.
using NumbersByName = std::vector<std::pair<std::string, double>>;

/// What the user set.
struct RuleOptions {
  double learning_rate = 5e-5;                 // that the others are written beside
  std::optional<double> muon_learning_rate{};  // of matrices that Muon updates; none: the same
  NumbersByName learning_rates{}, weight_decays{};
  /// Clark et al., "ELECTRA" (2020), appendix A: the rate of a layer is this times that of the
  /// layer behind it; the head's is whole.
  double layer_decay = 1;
};

class UpdateRules {
 public:
  /// `has_muon`: hidden matrices are updated as wholes. `parameters` are all of the model, on every
  /// rank. Error (config) where a pattern is no regular expression or is found in no name, and
  /// where a rate is written beside a learning rate of 0.
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
