// Token loss in chunks of rows, with gradients computed in the forward pass.
#include "ops/token_loss.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/vector.h"
#include "ops/cuda_loops.h"
#include "ops/gradient_sink.h"
#include "ops/products.h"
#include "ops/softmax_rows.h"
#include "ops/token_loss_run.h"

namespace lockstep::ops {
namespace {

/// Minimum number of rows for an efficient matrix product.
constexpr int64_t kLeastHeadRows = 128;

/// Returns the maximum bytes of logits in memory. The limit is higher on a device, because its
/// products need many rows, and each chunk adds to the head's whole gradient in float32.
int64_t logits_bytes(const Tensor& hidden) {
  return int64_t{hidden.is_cpu() ? 96 : 1024} << 20;
}

at::ScalarType statistics_type(const Tensor& hidden) {
  return hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_head(const Tensor& hidden, const Tensor& weight, const Tensor& targets) {
  const bool fits = hidden.dim() == 2 && weight.dim() == 2 && targets.dim() == 1 &&
                    hidden.size(1) == weight.size(1) && hidden.size(0) == targets.size(0) &&
                    hidden.scalar_type() == weight.scalar_type() &&
                    targets.scalar_type() == at::kLong;
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "invalid token loss inputs: hidden {}, vocabulary {}, targets {}",
            fmt::join(hidden.sizes(), "x"),
            fmt::join(weight.sizes(), "x"),
            fmt::join(targets.sizes(), "x")));
  }
}

/// Returns the indices of rows with a target, int64 [n]. On a GPU, returns all rows to avoid a
/// synchronization.
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

/// Returns the number of rows per chunk, which limits the memory; `count` rows are divided into
/// chunks of equal size. The number is computed for the largest shard of the vocabulary, so that
/// ranks with shards of different sizes process the same chunks.
int64_t rows_of_a_run(
    int64_t count, const Tensor& hidden, int64_t vocabulary, const TokenLossOptions& options) {
  int64_t at_once = options.rows_at_once;
  if (at_once <= 0) {
    const int64_t tokens = options.widest_part > 0 ? options.widest_part : vocabulary;
    const auto bytes = static_cast<int64_t>(hidden.element_size());
    const int64_t row = std::max<int64_t>(tokens * bytes, 1), most = logits_bytes(hidden);
    // Several chunks of a 16-bit type require a float32 sum. If the logits are not stored in
    // float32, a single chunk may use the memory of that sum instead.
    const int64_t sum = bytes < 4 && has_vector_run(hidden) ? tokens * hidden.size(1) * 4 : 0;
    at_once = count * row <= most + sum ? count : std::max(kLeastHeadRows, most / row);
  }
  at_once = std::max<int64_t>(at_once, 1);
  const int64_t runs = std::max<int64_t>(1, (count + at_once - 1) / at_once);
  return std::max<int64_t>(1, (count + runs - 1) / runs);
}

struct Result {
  Tensor loss, hidden_gradient, weight_gradient;
  bool is_placed = false;  // the weight's gradient was written to the memory of its sink
};

struct Needs {
  bool hidden, weight;
};

/// Rows to compute: those with a target, or all rows on a GPU.
struct HeadRows {
  Tensor hidden, target;  // [n, C], [n]
  Tensor weights;         // [n], in the type of the statistics; undefined: 1
  DistributionTargets distributions;
  Tensor index;  // indices of the rows of `hidden`; undefined: all rows
};

// Applies `take` to each defined tensor.
template <class Take>
DistributionTargets of_each(const DistributionTargets& all, const Take& take) {
  const auto taken = [&](const Tensor& x) { return x.defined() ? take(x) : x; };
  return {
      taken(all.rows),
      taken(all.hidden),
      all.weight,
      taken(all.tokens),
      taken(all.lowered),
      taken(all.level),
      all.is_own};
}

DistributionTargets select(const DistributionTargets& all, const Tensor& index) {
  return of_each(all, [&](const Tensor& x) { return x.index_select(0, index); });
}

DistributionTargets narrow(const DistributionTargets& all, int64_t begin, int64_t count) {
  return of_each(all, [&](const Tensor& x) { return x.narrow(0, begin, count); });
}

HeadRows rows_to_compute(
    const Tensor& hidden,
    const Tensor& targets,
    const TokenLossOptions& options,
    int64_t vocabulary) {
  const Tensor& given = options.row_weights;
  const Tensor weights = given.defined() ? given.to(statistics_type(hidden)) : Tensor();
  const HeadRows all{
      hidden.contiguous(), targets.contiguous(), weights, options.distributions, Tensor()};
  if (!has_host_loops(hidden)) {
    return all;
  }
  const Tensor index = counted_rows(all.target, vocabulary);
  if (index.numel() == hidden.size(0)) {
    return all;
  }
  return {
      hidden.index_select(0, index),
      targets.index_select(0, index),
      weights.defined() ? weights.index_select(0, index) : weights,
      select(options.distributions, index),
      index};
}

std::unique_ptr<TokenLossRun> make_run(const RunInputs& inputs) {
  if (inputs.distributions.defined()) {
    return make_distribution_run(inputs);
  }
  auto run = make_vector_run(inputs);
  return run != nullptr ? std::move(run) : make_tensor_run(inputs);
}

/// Contribution of label smoothing to a chunk. It needs no logits: their mean is the product with
/// the mean row of the vocabulary, and the gradient has the same form. With a vocabulary shard,
/// this is the shard's contribution.
class Smoothing {
 public:
  Smoothing(const Tensor& weight, int64_t vocabulary, const TokenLossOptions& options)
      : share_(options.label_smoothing),
        vocabulary_(static_cast<double>(vocabulary)) {
    if (share_ > 0 && (options.softcap > 0 || options.distributions.defined())) {
      throw Error(
          ErrorKind::kInternal, "label smoothing does not support softcap or distribution targets");
    }
    if (share_ > 0) {
      mean_ = weight.sum(0, /*keepdim=*/false, statistics_type(weight)).div_(vocabulary_);
      rows_ = at::zeros_like(mean_);
    }
  }

  bool acts() const { return share_ > 0; }
  /// [n]
  Tensor mean_logits(const Tensor& hidden) const { return at::mv(hidden.to(mean_), mean_); }
  /// Adds the contribution after the chunk has written its gradients.
  void add(const Tensor& hidden, const RowGradients& gradients) {
    const Tensor spread = gradients.target_factor * (share_ / (1 - share_));  // [n]
    if (gradients.hidden.defined()) {
      Tensor written = gradients.hidden;
      written.sub_(at::outer(spread, mean_));
    }
    if (gradients.weight != nullptr) {
      rows_.add_(at::mv(hidden.t().to(rows_), spread).div_(vocabulary_));
    }
  }
  /// Subtracts the same vector from all rows of the vocabulary gradient.
  void add_to(Tensor& weight_gradient) const { weight_gradient.sub_(rows_); }

 private:
  double share_, vocabulary_;
  Tensor mean_, rows_;  // [C]
};

/// Returns the losses of a chunk and sets the factors of its gradients.
Tensor losses_of(
    const RowStatistics& whole,
    const Tensor& target,
    const Tensor& weights,
    const TokenLossOptions& options,
    RowGradients& gradients) {
  const Tensor log_sum = whole.total.log().add_(whole.maximum);
  Tensor losses = log_sum - whole.target;
  gradients.target_factor = at::ones_like(log_sum);
  gradients.softmax_factor = gradients.target_factor;
  if (options.label_smoothing > 0) {
    losses = log_sum - whole.target * (1 - options.label_smoothing) -
             whole.mean * options.label_smoothing;
    gradients.target_factor = gradients.target_factor * (1 - options.label_smoothing);
  }
  if (whole.level.defined()) {
    losses = at::where(whole.level, whole.excess.square(), losses);
    gradients.target_factor = gradients.target_factor.masked_fill(whole.level, 0);
    gradients.softmax_factor = gradients.target_factor;
    gradients.excess_factor = whole.excess * 2 * whole.level;
  }
  if (options.z_loss > 0) {
    losses.add_(log_sum.square(), options.z_loss);
    gradients.softmax_factor = log_sum.mul(2 * options.z_loss).add_(gradients.softmax_factor);
  }
  const auto for_each_factor = [&](const auto& change) {
    for (Tensor* factor :
         {&gradients.softmax_factor, &gradients.target_factor, &gradients.excess_factor}) {
      *factor = factor->defined() ? change(*factor) : *factor;
    }
  };
  if (!has_host_loops(target)) {
    const Tensor ignored = target == kIgnoredTarget;
    losses.masked_fill_(ignored, 0);
    for_each_factor([&](const Tensor& factor) { return factor.masked_fill(ignored, 0); });
  }
  if (weights.defined()) {
    losses.mul_(weights);
    for_each_factor([&](const Tensor& factor) { return factor * weights; });
  }
  return losses;
}

Result compute(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    Needs needs,
    const TokenLossOptions& options) {
  const int64_t vocabulary = options.vocabulary > 0 ? options.vocabulary : weight.size(0);
  const HeadRows rows = rows_to_compute(hidden, targets, options, vocabulary);
  const Tensor words = weight.contiguous();
  const int64_t count = rows.hidden.size(0);
  const int64_t run = rows_of_a_run(count, hidden, vocabulary, options);
  Tensor total = at::zeros({}, hidden.options().dtype(at::kDouble));
  Tensor hidden_gradient = needs.hidden ? at::empty_like(rows.hidden) : Tensor();
  Smoothing smoothing(words, vocabulary, options);
  WeightGradient weight_gradient;
  if (needs.weight) {
    weight_gradient.place = memory_of_gradient(weight);
  }
  for (int64_t begin = 0; begin < count; begin += run) {
    const int64_t some = std::min(run, count - begin);
    const Tensor target = rows.target.narrow(0, begin, some);
    const Tensor weights = rows.weights.defined() ? rows.weights.narrow(0, begin, some) : Tensor();
    RunInputs inputs;
    inputs.hidden = rows.hidden.narrow(0, begin, some);
    inputs.weight = words;
    inputs.target = target - options.first_token;
    inputs.softcap = options.softcap;
    inputs.needs_gradient = needs.hidden || needs.weight;
    inputs.distributions = narrow(rows.distributions, begin, some);
    inputs.first_token = options.first_token;
    inputs.vocabulary = vocabulary;
    inputs.combine = options.combine;
    const std::unique_ptr<TokenLossRun> part = make_run(inputs);
    RowStatistics statistics = part->statistics();
    if (smoothing.acts()) {
      statistics.mean = smoothing.mean_logits(inputs.hidden);
    }
    if (options.combine) {
      options.combine(statistics);
    }
    RowGradients gradients;
    total.add_(losses_of(statistics, target, weights, options, gradients).sum(at::kDouble));
    if (!inputs.needs_gradient) {
      continue;
    }
    weight_gradient.is_last = begin + some == count;
    gradients.weight = needs.weight ? &weight_gradient : nullptr;
    gradients.hidden = needs.hidden ? hidden_gradient.narrow(0, begin, some) : Tensor();
    part->gradients(statistics, gradients);
    if (smoothing.acts()) {
      smoothing.add(inputs.hidden, gradients);
    }
  }
  if (smoothing.acts() && weight_gradient.result.defined()) {
    smoothing.add_to(weight_gradient.result);
  }
  if (needs.hidden && rows.index.defined()) {
    hidden_gradient =
        at::zeros(hidden.sizes(), hidden.options()).index_copy_(0, rows.index, hidden_gradient);
  }
  if (needs.weight && count == 0) {
    weight_gradient.result = weight_gradient.room(weight).zero_();
  }
  return {
      total.to(statistics_type(hidden)),
      hidden_gradient,
      weight_gradient.result,
      weight_gradient.place.defined()};
}

template <class T>
struct Scale {
  LOCKSTEP_INLINE static void run(T* values, int64_t count, float factor) {
    int64_t i = 0;
    for (; i + vector::kLanes <= count; i += vector::kLanes) {
      vector::store(values + i, vector::load(values + i) * factor);
    }
    for (; i < count; ++i) {
      vector::narrow(vector::widen(values[i]) * factor, values[i]);
    }
  }
};

template <class T>
void scale_on_cpu(const Tensor& tensor, float factor) {
  auto* values = static_cast<T*>(tensor.mutable_data_ptr());
  at::parallel_for(0, tensor.numel(), int64_t{1} << 15, [&](int64_t begin, int64_t end) {
    vector::dispatch<Scale<T>>(values + begin, end - begin, factor);
  });
}

/// Multiplies a tensor in host memory by `factor`, in place.
void scale(const Tensor& tensor, double factor) {
  const auto type = tensor.scalar_type();
  if (factor == 1) {
    return;
  }
  if (!tensor.is_contiguous() || (type != at::kFloat && type != at::kBFloat16)) {
    tensor.mul_(factor);
  } else if (type == at::kFloat) {
    scale_on_cpu<float>(tensor, static_cast<float>(factor));
  } else {
    scale_on_cpu<vector::Bfloat16>(tensor, static_cast<float>(factor));
  }
}

struct TokenLossFunction : torch::autograd::Function<TokenLossFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& hidden,
      const Tensor& weight,
      const Tensor& targets,
      const TokenLossOptions& options) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Result result = compute(
        hidden,
        weight,
        targets,
        {context->needs_input_grad(0), context->needs_input_grad(1)},
        options);
    context->saved_data["hidden"] = result.hidden_gradient;
    context->saved_data["weight"] = result.weight_gradient;
    context->saved_data["is_placed"] = result.is_placed;
    return result.loss;
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    // The gradients are moved out of saved_data, so that autograd can use them without a copy.
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
      if (has_host_loops(value)) {
        scale(value, gradient[0].item<double>());
        return value;
      }
      const auto type = value.scalar_type();
      const bool has_kernel = value.is_cuda() && value.is_contiguous() && value.numel() > 0 &&
                              (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) &&
                              gradient[0].scalar_type() == at::kFloat &&
                              cuda_loops().scale != nullptr;
      if (has_kernel) {  // the kernel does nothing for a factor of 1, which is the usual value
        cuda_loops().scale(value, gradient[0]);
        return value;
      }
      return value.mul_(gradient[0]);
    };
    Tensor hidden = take("hidden"), weight = take("weight");
    if (context->saved_data["is_placed"].toBool()) {
      weight.reset();
    }
    return {hidden, weight, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor token_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options) {
  check_head(hidden, weight, targets);
  const bool needs_gradient =
      at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  if (!needs_gradient) {
    return compute(hidden, weight, targets, {false, false}, options).loss;
  }
  return TokenLossFunction::apply(hidden, weight, targets, options);
}

Tensor token_loss_reference(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options) {
  check_head(hidden, weight, targets);
  Tensor logits = at::linear(hidden, weight).to(statistics_type(hidden));
  if (options.softcap > 0) {
    logits = at::tanh(logits / options.softcap) * options.softcap;
  }
  Tensor losses = at::cross_entropy_loss(
      logits, targets, {}, at::Reduction::None, kIgnoredTarget, options.label_smoothing);
  const DistributionTargets& reference = options.distributions;
  if (reference.level.defined()) {
    losses = at::where(reference.level, (logits.amax(1) - logits.mean(1)).square(), losses);
  }
  if (reference.rows.defined()) {
    Tensor others = logits.detach();
    if (!reference.is_own) {
      others = at::linear(reference.hidden, reference.weight).to(logits.scalar_type());
      others = options.softcap > 0 ? at::tanh(others / options.softcap) * options.softcap : others;
    }
    if (reference.lowered.defined()) {
      others = others.scatter_add(
          1, reference.tokens.unsqueeze(1), reference.lowered.to(others).neg().unsqueeze(1));
    }
    const Tensor log_q = at::log_softmax(others, 1), log_p = at::log_softmax(logits, 1);
    Tensor divergences = at::kl_div(log_p, log_q, at::Reduction::None, true).sum(1);
    if (reference.lowered.defined()) {
      divergences = at::where(reference.lowered.ne(0), -(log_q.exp() * log_p).sum(1), divergences);
    }
    losses = at::where(reference.rows, divergences, losses);
  }
  const Tensor log_sums = at::logsumexp(logits, 1).masked_fill(targets == kIgnoredTarget, 0);
  const Tensor each = losses + log_sums.square() * options.z_loss;
  return (options.row_weights.defined() ? each * options.row_weights : each).sum();
}

TokenScores token_scores(
    const Tensor& hidden, const Tensor& weight, const Tensor& targets, double softcap) {
  check_head(hidden, weight, targets);
  const at::NoGradGuard no_gradient;
  const bool on_cpu = has_host_loops(hidden);
  const Tensor rows = on_cpu ? counted_rows(targets.contiguous(), weight.size(0))
                             : at::nonzero(targets != kIgnoredTarget).squeeze(1);
  const TokenScores result{
      at::zeros(targets.sizes(), hidden.options().dtype(statistics_type(hidden))),
      at::zeros(targets.sizes(), hidden.options().dtype(at::kBool))};
  const int64_t bytes = weight.size(0) * static_cast<int64_t>(weight.element_size());
  const int64_t run = std::max(kLeastHeadRows, logits_bytes(hidden) / std::max<int64_t>(bytes, 1));
  for (int64_t begin = 0; begin < rows.numel(); begin += run) {
    const Tensor index = rows.narrow(0, begin, std::min(run, rows.numel() - begin));
    const Tensor goal = targets.index_select(0, index);
    Tensor logits = matrix_product(hidden.index_select(0, index), weight.t());
    if (softcap > 0) {
      cap_logits(logits, softcap);
    }
    const Tensor right =
        has_row_loops(logits) ? likeliest_on_cpu(logits, goal) : at::argmax(logits, 1).eq(goal);
    RowGradients unused;
    const Tensor losses = losses_of(row_statistics(logits, goal), goal, {}, {}, unused);
    result.log_likelihoods.index_copy_(0, index, losses.neg());
    result.likeliest.index_copy_(0, index, right);
  }
  return result;
}

Tensor token_divergences(
    const Tensor& hidden, const Tensor& weight, const TokenLossOptions& options) {
  const at::NoGradGuard no_gradient;
  const int64_t vocabulary = options.vocabulary > 0 ? options.vocabulary : weight.size(0);
  const Tensor rows = at::nonzero(options.distributions.all()).squeeze(1);
  const Tensor result =
      at::zeros({hidden.size(0)}, hidden.options().dtype(statistics_type(hidden)));
  const int64_t run = rows_of_a_run(rows.numel(), hidden, vocabulary, options);
  for (int64_t begin = 0; begin < rows.numel(); begin += run) {
    const Tensor index = rows.narrow(0, begin, std::min(run, rows.numel() - begin));
    RunInputs inputs;
    inputs.hidden = hidden.index_select(0, index);
    inputs.weight = weight.contiguous();
    inputs.target = at::zeros_like(index);
    inputs.softcap = options.softcap;
    inputs.distributions = select(options.distributions, index);
    inputs.first_token = options.first_token;
    inputs.vocabulary = vocabulary;
    inputs.combine = options.combine;
    RowStatistics statistics = make_distribution_run(inputs)->statistics();
    if (options.combine) {
      options.combine(statistics);
    }
    RowGradients unused;
    const Tensor divergences = losses_of(statistics, inputs.target, {}, {}, unused);
    result.index_copy_(0, index, divergences.to(result.scalar_type()));
  }
  return result;
}

Tensor DistributionTargets::all() const {
  return !level.defined() ? rows : rows.defined() ? rows.logical_or(level) : level;
}

RowStatistics combine_statistics(const RowStatistics& a, const RowStatistics& b) {
  const Tensor maximum = at::maximum(a.maximum, b.maximum);
  return {
      maximum,
      a.total * (a.maximum - maximum).exp() + b.total * (b.maximum - maximum).exp(),
      a.target + b.target,
      a.mean.defined() ? a.mean + b.mean : a.mean};
}

}  // namespace lockstep::ops
