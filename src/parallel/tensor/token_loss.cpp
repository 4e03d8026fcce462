#include "parallel/tensor/token_loss.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/token_loss.h"

namespace lockstep::parallel {
namespace {

/// The bytes of logits that a rank makes at once, and the rows that keep a product efficient.
constexpr int64_t kLogitsBytes = int64_t{96} << 20;
constexpr int64_t kLeastRows = 128;

/// The rows that count. Every rank of the group finds the same, and so the same runs.
Tensor counted_rows(const Tensor& targets, int64_t vocabulary) {
  const Tensor rows = at::nonzero(targets != ops::kIgnoredTarget).squeeze(1);
  const Tensor bad = at::nonzero((targets != ops::kIgnoredTarget)
                                     .logical_and((targets < 0).logical_or(targets >= vocabulary)));
  if (bad.numel() > 0) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "label {} is not in the model's vocabulary of {}",
            targets[bad[0][0].item<int64_t>()].item<int64_t>(),
            vocabulary),
        "use the tokenizer that belongs to the model, or model.resize_embeddings=true");
  }
  return rows;
}

/// Rows of a run: by the largest shard, so that all ranks cut alike.
int64_t rows_of_a_run(const Tensor& weight, const VocabularyShard& shard) {
  const int64_t widest = mesh::split_evenly(shard.vocabulary, shard.group->size(), 0).size();
  return std::max(
      kLeastRows, kLogitsBytes / (widest * static_cast<int64_t>(weight.element_size())));
}

/// One run of rows: this rank's logits, and what the group knows of all of them.
struct Run {
  Tensor exponentials;  // [n, V/n]: e^(logit - this rank's largest)
  Tensor local;         // [n]: the target among this rank's rows; 0 where it is another's
  Tensor elsewhere;     // [n] bool: the target is another rank's
  Tensor scale;         // [n]: what makes the exponentials probabilities
  Tensor losses;        // [n]
  Tensor likeliest;     // [n] int64, where it was asked for
};

enum class Likeliest { kSkip, kFind };

Run make_run(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    Likeliest likeliest) {
  Run run;
  const bool is_double = hidden.scalar_type() == at::kDouble;
  Tensor logits = at::mm(hidden, weight.t()).to(is_double ? at::kDouble : at::kFloat);
  const Tensor local = targets - shard.rows.begin;
  run.elsewhere = (local < 0).logical_or(local >= shard.rows.size());
  run.local = local.masked_fill(run.elsewhere, 0);
  const Tensor of_target =
      logits.gather(1, run.local.unsqueeze(1)).squeeze(1).masked_fill(run.elsewhere, 0);
  const bool finds = likeliest == Likeliest::kFind;
  const Tensor index = finds ? logits.argmax(1) + shard.rows.begin : Tensor();
  const Tensor peak = logits.amax(1);
  run.exponentials = logits.sub_(peak.unsqueeze(1)).exp_();
  // One exchange of a few numbers a token, in the place of a reduction for each.
  std::vector<Tensor> told{peak, run.exponentials.sum(1), of_target};
  if (finds) {
    told = {
        peak.to(at::kDouble),
        told[1].to(at::kDouble),
        of_target.to(at::kDouble),
        index.to(at::kDouble)};
  }
  const Tensor mine = at::stack(told);  // [3 or 4, n]
  Tensor all = at::empty({shard.group->size(), mine.size(0), mine.size(1)}, mine.options());
  shard.group->communicator().all_gather(all, mine).wait();
  const Tensor peaks = all.select(1, 0);  // [ranks, n]
  const Tensor highest = peaks.amax(0);
  const Tensor sum = (all.select(1, 1) * (peaks - highest).exp()).sum(0);
  run.losses = sum.log() + highest - all.select(1, 2).sum(0);
  run.scale = (peak - highest).exp() / sum;
  if (finds) {
    const Tensor rank = peaks.argmax(0, /*keepdim=*/true);  // the first of equal ones
    run.likeliest = all.select(1, 3).gather(0, rank).squeeze(0).to(at::kLong);
  }
  return run;
}

/// The gradient of the run's losses by this rank's logits, [n, V/n], in the type of the weights.
Tensor logits_gradient(Run& run, at::ScalarType type) {
  Tensor gradient = run.exponentials.mul_(run.scale.unsqueeze(1));
  gradient.scatter_add_(
      1, run.local.unsqueeze(1), run.elsewhere.to(gradient.scalar_type()).sub_(1).unsqueeze(1));
  return gradient.to(type);
}

struct Result {
  Tensor loss, hidden_gradient, weight_gradient;
};

Result compute(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    bool needs_gradients) {
  const Tensor rows = counted_rows(targets, shard.vocabulary);
  const bool is_whole = rows.numel() == hidden.size(0);
  const Tensor x = is_whole ? hidden : hidden.index_select(0, rows);
  const Tensor goal = is_whole ? targets : targets.index_select(0, rows);
  const int64_t count = x.size(0);
  const int64_t at_once = rows_of_a_run(weight, shard);
  const int64_t runs = std::max<int64_t>(1, (count + at_once - 1) / at_once);
  const int64_t size = std::max<int64_t>(1, (count + runs - 1) / runs);
  const bool is_double = hidden.scalar_type() == at::kDouble;
  Result result;
  Tensor total = at::zeros({}, hidden.options().dtype(at::kDouble));
  if (needs_gradients) {
    result.hidden_gradient = at::empty_like(x);
    result.weight_gradient =
        at::zeros(weight.sizes(), weight.options().dtype(is_double ? at::kDouble : at::kFloat));
  }
  for (int64_t begin = 0; begin < count; begin += size) {
    const int64_t some = std::min(size, count - begin);
    const Tensor part = x.narrow(0, begin, some);
    Run run = make_run(part, weight, goal.narrow(0, begin, some), shard, Likeliest::kSkip);
    total.add_(run.losses.sum(at::kDouble));
    if (needs_gradients) {
      const Tensor gradient = logits_gradient(run, weight.scalar_type());
      result.hidden_gradient.narrow(0, begin, some).copy_(at::mm(gradient, weight));
      if (result.weight_gradient.scalar_type() == weight.scalar_type()) {
        result.weight_gradient.addmm_(gradient.t(), part);
      } else {
        result.weight_gradient.add_(at::mm(gradient.t(), part));
      }
    }
  }
  if (needs_gradients) {
    if (!is_whole) {
      result.hidden_gradient = at::zeros_like(hidden).index_copy_(0, rows, result.hidden_gradient);
    }
    result.weight_gradient = result.weight_gradient.to(weight.scalar_type());
  }
  result.loss = total.to(is_double ? at::kDouble : at::kFloat);
  return result;
}

struct LossFunction : torch::autograd::Function<LossFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& hidden,
      const Tensor& weight,
      const Tensor& targets,
      const VocabularyShard& shard) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Result result = compute(hidden, weight, targets, shard, /*needs_gradients=*/true);
    context->saved_data["hidden"] = result.hidden_gradient;
    context->saved_data["weight"] = result.weight_gradient;
    return result.loss;
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    const auto take = [&](const char* name) {
      const auto found = context->saved_data.find(name);
      if (found == context->saved_data.end()) {
        throw Error(ErrorKind::kInternal, "the backward pass of a token loss ran twice");
      }
      Tensor value = found->second.toTensor();
      context->saved_data.erase(found);
      return value.mul_(gradient[0]);
    };
    Tensor hidden = take("hidden"), weight = take("weight");
    return {hidden, weight, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor vocabulary_parallel_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard) {
  const bool needs_gradients =
      at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  return needs_gradients ? LossFunction::apply(hidden, weight, targets, shard)
                         : compute(hidden, weight, targets, shard, false).loss;
}

Tensor vocabulary_parallel_statistics(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard) {
  const at::NoGradGuard no_gradient;
  const Tensor rows = counted_rows(targets, shard.vocabulary);
  Tensor result = at::zeros({3}, hidden.options().dtype(at::kDouble));
  const int64_t size = rows_of_a_run(weight, shard);
  for (int64_t begin = 0; begin < rows.numel(); begin += size) {
    const Tensor index = rows.narrow(0, begin, std::min(size, rows.numel() - begin));
    const Tensor goal = targets.index_select(0, index);
    const Run run = make_run(hidden.index_select(0, index), weight, goal, shard, Likeliest::kFind);
    result[0].add_(run.losses.sum(at::kDouble));
    result[1].add_(index.numel());
    result[2].add_(run.likeliest.eq(goal).sum(at::kDouble));
  }
  return result;
}

}  // namespace lockstep::parallel
