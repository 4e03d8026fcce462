// Token loss, through ATen products, for rows whose target is a reference distribution or a flat
// one.
#include <ATen/ATen.h>

#include "ops/products.h"
#include "ops/softmax_rows.h"
#include "ops/token_loss_run.h"

namespace lockstep::ops {
namespace {

/// Chunk of rows with distribution targets. For the reference's distribution q and the logits z,
/// KL(q || softmax(z)) is the logarithm of the sum of exp(z), minus sum(q (z - log q)). The second
/// term replaces a token's logit: it is also a sum over the shards of the vocabulary.
class DistributionRun final : public TokenLossRun {
 public:
  explicit DistributionRun(const RunInputs& inputs) : inputs_(inputs) {}

  RowStatistics statistics() override {
    logits_ = logits_of(inputs_.hidden, inputs_.weight);
    RowStatistics statistics = row_statistics(logits_, inputs_.target);
    if (inputs_.distributions.rows.defined()) {
      compare(statistics);
    }
    if (inputs_.distributions.level.defined()) {
      measure_excess(statistics);
    }
    return statistics;
  }

  void gradients(const RowStatistics& whole, const RowGradients& gradients) override {
    Tensor slope, of_excess;  // derivative of the cap
    if (inputs_.softcap > 0) {
      slope = logits_.div(inputs_.softcap).square_().neg_().add_(1);
    }
    if (gradients.excess_factor.defined()) {
      // Gradient of the excess: that of the largest logit, divided among equal logits, minus that
      // of the mean.
      const Tensor& factor = gradients.excess_factor;
      of_excess = logits_.eq(peak_.unsqueeze(1)) * (factor / peaks_).unsqueeze(1);
      of_excess.sub_((factor / static_cast<double>(inputs_.vocabulary)).unsqueeze(1));
    }
    const Tensor log_sum = whole.total.log().add_(whole.maximum);
    Tensor of_softmax = gradients.softmax_factor, of_tokens = gradients.target_factor;
    Tensor of_distributions;
    if (target_.defined()) {
      of_tokens = of_tokens.masked_fill(inputs_.distributions.rows, 0);
      of_distributions = gradients.target_factor - of_tokens;
    }
    if (inputs_.distributions.is_own) {
      // With p the probability of the excluded token, softmax - q is p at that token and -p q
      // elsewhere. The difference itself would lose digits where p is small.
      of_softmax = of_softmax - of_distributions;
      of_distributions.mul_((excluded_ - log_sum).exp_());
      of_tokens = of_tokens - of_distributions;
    }
    logits_become_gradient(logits_, inputs_.target, log_sum, of_softmax, of_tokens, /*softcap=*/0);
    if (target_.defined()) {
      logits_.sub_(target_.mul_(of_distributions.unsqueeze(1)));
    }
    if (of_excess.defined()) {
      logits_.add_(of_excess);
    }
    if (slope.defined()) {
      logits_.mul_(slope);
    }
    const Tensor of_logits = logits_.to(inputs_.weight.scalar_type());
    if (gradients.hidden.defined()) {
      write_matrix_product(gradients.hidden, of_logits, inputs_.weight);
    }
    if (gradients.weight != nullptr) {
      add_weight_gradient(of_logits, inputs_.hidden, inputs_.weight, *gradients.weight);
    }
    logits_.reset();
    target_.reset();
  }

 private:
  /// Computes the reference's logits and replaces the target's logit with the term of the
  /// distribution.
  void compare(RowStatistics& statistics) {
    const Tensor nowhere = at::full_like(inputs_.target, -1);
    const DistributionTargets& reference = inputs_.distributions;
    Tensor log_q =
        reference.is_own ? logits_.clone() : logits_of(reference.hidden, reference.weight);
    lower(log_q);
    RowStatistics of_reference = row_statistics(log_q, nowhere);
    if (reference.is_own) {
      of_reference.target = statistics.target;
    }
    if (inputs_.combine) {
      inputs_.combine(of_reference);
    }
    excluded_ = of_reference.target;
    log_q.sub_(of_reference.total.log().add_(of_reference.maximum).unsqueeze(1));
    target_ = log_q.exp();
    if (reference.lowered.defined()) {
      log_q.mul_(reference.lowered.eq(0).unsqueeze(1));  // the cross-entropy does not include log q
    }
    const Tensor compared = log_q.neg_().add_(logits_).mul_(target_).sum(1);  // q (z - log q)
    statistics.target = at::where(reference.rows, compared, statistics.target);
  }
  /// Computes, over the whole vocabulary, the largest logit, the number of logits equal to it, and
  /// the mean.
  void measure_excess(RowStatistics& statistics) {
    const Tensor none = at::zeros_like(statistics.total);
    const auto whole = [&](Tensor maximum, Tensor sum) {
      RowStatistics part{std::move(maximum), none, std::move(sum)};
      if (inputs_.combine) {
        inputs_.combine(part);
      }
      return part;
    };
    const RowStatistics all = whole(logits_.amax(1), logits_.sum(1));
    peak_ = all.maximum;
    peaks_ = whole(peak_, logits_.eq(peak_.unsqueeze(1)).sum(1).to(none)).target;
    statistics.level = inputs_.distributions.level;
    statistics.excess = peak_ - all.target / static_cast<double>(inputs_.vocabulary);
  }
  /// Reduces the specified logits if they are in this shard of the vocabulary.
  void lower(Tensor& logits) const {
    const DistributionTargets& reference = inputs_.distributions;
    if (!reference.lowered.defined()) {
      return;
    }
    const Tensor tokens = reference.tokens - inputs_.first_token;
    const Tensor are_here = tokens.ge(0).logical_and(tokens.lt(logits.size(1)));
    logits.scatter_add_(
        1,
        tokens.clamp(0, logits.size(1) - 1).unsqueeze(1),
        reference.lowered.to(logits).neg().mul_(are_here).unsqueeze(1));
  }
  /// Returns newly computed logits [n, V], float32 or float64.
  Tensor logits_of(const Tensor& hidden, const Tensor& weight) const {
    const auto type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Tensor logits = matrix_product(hidden, weight.t()).to(type);
    if (inputs_.softcap > 0) {
      cap_logits(logits, inputs_.softcap);
    }
    return logits;
  }

  RunInputs inputs_;
  Tensor logits_, target_;
  Tensor excluded_;      // [n], if the reference is the head itself: logit of the excluded token
  Tensor peak_, peaks_;  // [n], for level rows: the largest logit, and the number of equal ones
};

}  // namespace

std::unique_ptr<TokenLossRun> make_distribution_run(const RunInputs& inputs) {
  return std::make_unique<DistributionRun>(inputs);
}

}  // namespace lockstep::ops
