#include "ops/token_loss.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/softmax_rows.h"

namespace lockstep::ops {
namespace {

/// The bytes of logits that are made at once, and the rows that keep a matrix product efficient.
constexpr int64_t kLogitsBytes = int64_t{96} << 20;
constexpr int64_t kLeastRows = 128;

bool has_kernel(const Tensor& hidden) {
  return hidden.device().is_cpu() &&
         (hidden.scalar_type() == at::kFloat || hidden.scalar_type() == at::kBFloat16);
}

void check(const Tensor& hidden, const Tensor& weight, const Tensor& targets) {
  const bool fits = hidden.dim() == 2 && weight.dim() == 2 && targets.dim() == 1 &&
                    hidden.size(1) == weight.size(1) && hidden.size(0) == targets.size(0) &&
                    hidden.scalar_type() == weight.scalar_type() &&
                    targets.scalar_type() == at::kLong;
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "a token loss of hidden {}, vocabulary {}, targets {}",
            fmt::join(hidden.sizes(), "x"),
            fmt::join(weight.sizes(), "x"),
            fmt::join(targets.sizes(), "x")));
  }
}

/// The rows that count, int64 [n]. On a GPU all rows are taken, so that nothing waits for it.
Tensor counted_rows(const Tensor& targets, int64_t vocabulary) {
  const auto* target = targets.const_data_ptr<int64_t>();
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < targets.numel(); ++i) {
    if (target[i] == kIgnoredTarget) {
      continue;
    }
    if (target[i] < 0 || target[i] >= vocabulary) {
      throw Error(
          ErrorKind::kData,
          fmt::format("label {} is not in the model's vocabulary of {}", target[i], vocabulary),
          "use the tokenizer that belongs to the model, or model.resize_embeddings=true");
    }
    rows.push_back(i);
  }
  return at::tensor(rows, at::kLong);
}

/// The rows of a run, so that the logits stay bounded.
int64_t rows_of_a_run(const Tensor& weight) {
  const int64_t bytes = weight.size(0) * static_cast<int64_t>(weight.element_size());
  return std::max(kLeastRows, kLogitsBytes / std::max<int64_t>(bytes, 1));
}

/// The losses of a run of rows, float32 [n]; the logits become their gradient where `use` says so.
Tensor losses_of(Tensor& logits, const Tensor& targets, LogitsUse use) {
  if (has_kernel(logits)) {
    return softmax_losses_on_cpu(logits, targets, use);
  }
  const bool is_double = logits.scalar_type() == at::kDouble;
  const Tensor likelihoods = at::log_softmax(logits.to(is_double ? at::kDouble : at::kFloat), 1);
  const Tensor ignored = targets == kIgnoredTarget;
  const Tensor index = targets.masked_fill(ignored, 0).unsqueeze(1);
  const Tensor losses = likelihoods.gather(1, index).squeeze(1).neg().masked_fill(ignored, 0);
  if (use == LogitsUse::kBecomeGradient) {
    Tensor gradient = likelihoods.exp();
    gradient.scatter_add_(1, index, gradient.new_full({}, -1).expand(index.sizes()));
    logits.copy_(gradient.masked_fill_(ignored.unsqueeze(1), 0));
  }
  return losses;
}

struct Result {
  Tensor loss, hidden_gradient, weight_gradient;
};

/// Adds run by run, in float32 where the type is a smaller one.
class WeightGradient {
 public:
  WeightGradient(const Tensor& weight, bool has_one_run) : type_(weight.scalar_type()) {
    const bool is_small = type_ == at::kBFloat16 || type_ == at::kHalf;
    if (!has_one_run) {
      sum_ = at::zeros(weight.sizes(), weight.options().dtype(is_small ? at::kFloat : type_));
    }
  }
  void add(const Tensor& logits_gradient, const Tensor& hidden) {
    if (!sum_.defined()) {
      sum_ = at::mm(logits_gradient.t(), hidden);
    } else if (sum_.scalar_type() == type_) {
      sum_.addmm_(logits_gradient.t(), hidden);
    } else {
      sum_.add_(at::mm(logits_gradient.t(), hidden));
    }
  }
  Tensor take() { return sum_.to(type_); }

 private:
  at::ScalarType type_;
  Tensor sum_;
};

Result compute(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    bool needs_hidden,
    bool needs_weight,
    int64_t rows_at_once) {
  const bool on_cpu = hidden.device().is_cpu();
  const Tensor rows = on_cpu ? counted_rows(targets.contiguous(), weight.size(0)) : Tensor();
  const bool is_whole = !on_cpu || rows.numel() == hidden.size(0);
  const Tensor x = is_whole ? hidden : hidden.index_select(0, rows);
  const Tensor goal = (is_whole ? targets : targets.index_select(0, rows)).contiguous();
  const int64_t count = x.size(0);
  const int64_t at_once = rows_at_once > 0 ? rows_at_once : rows_of_a_run(weight);
  // Runs of one size, so that no small one is left over.
  const int64_t runs = std::max<int64_t>(1, (count + at_once - 1) / at_once);
  const int64_t run = std::max<int64_t>(1, (count + runs - 1) / runs);
  const bool needs_gradient = needs_hidden || needs_weight;
  Tensor total = at::zeros({}, hidden.options().dtype(at::kDouble));
  Tensor hidden_gradient = needs_hidden ? at::empty_like(x) : Tensor();
  WeightGradient weight_gradient(weight, needs_weight && runs == 1 && count > 0);
  for (int64_t begin = 0; begin < count; begin += run) {
    const int64_t some = std::min(run, count - begin);
    const Tensor part = x.narrow(0, begin, some);
    Tensor logits = at::mm(part, weight.t());  // [n, V]
    const Tensor losses = losses_of(
        logits,
        goal.narrow(0, begin, some),
        needs_gradient ? LogitsUse::kBecomeGradient : LogitsUse::kRead);
    total.add_(losses.sum(at::kDouble));
    if (needs_hidden) {
      hidden_gradient.narrow(0, begin, some).copy_(at::mm(logits, weight));
    }
    if (needs_weight) {
      weight_gradient.add(logits, part);
    }
  }
  if (needs_hidden && !is_whole) {
    hidden_gradient = at::zeros_like(hidden).index_copy_(0, rows, hidden_gradient);
  }
  const auto loss_type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {total.to(loss_type), hidden_gradient, needs_weight ? weight_gradient.take() : Tensor()};
}

struct TokenLossFunction : torch::autograd::Function<TokenLossFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& hidden,
      const Tensor& weight,
      const Tensor& targets,
      int64_t rows_at_once) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Result result = compute(
        hidden,
        weight,
        targets,
        context->needs_input_grad(0),
        context->needs_input_grad(1),
        rows_at_once);
    context->saved_data["hidden"] = result.hidden_gradient;
    context->saved_data["weight"] = result.weight_gradient;
    return result.loss;
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    // The gradients move out, so that autograd takes them without a copy.
    const auto take = [&](const char* name) {
      auto found = context->saved_data.find(name);
      if (found == context->saved_data.end()) {
        throw Error(ErrorKind::kInternal, "the backward pass of a token loss ran twice");
      }
      Tensor value = found->second.isTensor() ? found->second.toTensor() : Tensor();
      context->saved_data.erase(found);
      if (!value.defined()) {
        return value;
      }
      if (value.device().is_cpu()) {
        const auto factor = gradient[0].item<double>();
        return factor == 1 ? value : value.mul_(factor);
      }
      return value.mul_(gradient[0]);
    };
    Tensor hidden = take("hidden"), weight = take("weight");
    return {hidden, weight, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor token_loss(
    const Tensor& hidden, const Tensor& weight, const Tensor& targets, int64_t rows_at_once) {
  check(hidden, weight, targets);
  const bool needs_gradient =
      at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  if (!needs_gradient) {
    return compute(hidden, weight, targets, false, false, rows_at_once).loss;
  }
  return TokenLossFunction::apply(hidden, weight, targets, rows_at_once);
}

Tensor token_loss_reference(const Tensor& hidden, const Tensor& weight, const Tensor& targets) {
  check(hidden, weight, targets);
  const bool is_double = hidden.scalar_type() == at::kDouble;
  const Tensor logits = at::linear(hidden, weight).to(is_double ? at::kDouble : at::kFloat);
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, kIgnoredTarget);
}

Tensor token_statistics(const Tensor& hidden, const Tensor& weight, const Tensor& targets) {
  check(hidden, weight, targets);
  const at::NoGradGuard no_gradient;
  const bool on_cpu = hidden.device().is_cpu();
  const Tensor rows = on_cpu ? counted_rows(targets.contiguous(), weight.size(0))
                             : at::nonzero(targets != kIgnoredTarget).squeeze(1);
  Tensor result = at::zeros({3}, hidden.options().dtype(at::kDouble));
  const int64_t run = rows_of_a_run(weight);
  for (int64_t begin = 0; begin < rows.numel(); begin += run) {
    const Tensor index = rows.narrow(0, begin, std::min(run, rows.numel() - begin));
    const Tensor goal = targets.index_select(0, index);
    Tensor logits = at::mm(hidden.index_select(0, index), weight.t());
    const Tensor right =
        has_kernel(logits) ? likeliest_on_cpu(logits, goal) : at::argmax(logits, 1).eq(goal);
    const Tensor losses = losses_of(logits, goal, LogitsUse::kRead);
    result[0].add_(losses.sum(at::kDouble));
    result[1].add_(index.numel());
    result[2].add_(right.sum(at::kDouble));
  }
  return result;
}

}  // namespace lockstep::ops
