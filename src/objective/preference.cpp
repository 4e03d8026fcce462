#include <ATen/ATen.h>

#include "objective/objectives.h"
#include "objective/rows.h"

namespace lockstep::objective {
namespace {

class DirectPreference final : public Objective {
 public:
  explicit DirectPreference(const PreferenceOptions& options) : options_(options) {}
  Needs needs() const override { return Needs::kRowScores; }
  Counts counts(const nn::Targets& targets) const override {
    return of_kind(targets, nn::RowKind::kChosen).sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    const Tensor chosen = of_kind(targets, nn::RowKind::kChosen);
    const Tensor rejected = of_kind(targets, nn::RowKind::kRejected);
    const Tensor rewards =
        options_.beta * (scores.log_likelihoods - needed(targets.reference, "reference scores"));
    const auto of_groups = [&](const Tensor& rows) {  // [B] -> [B], groups that there are not: 0
      return at::zeros_like(rows).index_add(0, needed(targets.groups, "groups"), rows);
    };
    const Tensor pairs = of_groups(chosen), margins = of_groups(rewards * (chosen - rejected));
    const double flipped = options_.label_smoothing;
    const Tensor losses =
        -(1 - flipped) * at::log_sigmoid(margins) - flipped * at::log_sigmoid(-margins);
    return at::stack(
        {(losses * pairs).sum(),
         pairs.sum(),
         (margins.gt(0) * pairs).sum(),
         (margins * pairs).sum(),
         (rewards * chosen).sum(),
         (rewards * rejected).sum()});
  }
  std::vector<std::string> metrics() const override {
    return {"rewards/accuracies", "rewards/margins", "rewards/chosen", "rewards/rejected"};
  }

 private:
  PreferenceOptions options_;
};

}  // namespace

ObjectivePointer direct_preference(const PreferenceOptions& options) {
  return std::make_shared<DirectPreference>(options);
}

}  // namespace lockstep::objective
