// Autoregressive generation with a key-value cache.
#include "nn/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "nn/key_value_cache.h"

namespace lockstep::nn {
namespace {

/// Separates the random stream of generation from those of dropout and initialization.
constexpr uint64_t kStream = 0x67656e6572617465ULL;

double uniform(uint64_t seed, int64_t position) {
  const uint64_t bits = random_bits(derive_key(seed, kStream), static_cast<uint64_t>(position));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

void check(
    const model::ModelConfig& config,
    const std::vector<int64_t>& prompt,
    const GenerateOptions& options) {
  const auto fail = [](const std::string& message) { throw Error(ErrorKind::kConfig, message); };
  if (config.head.classifies()) {
    fail("a classifier cannot generate tokens");
  }
  if (config.head.gives_states()) {
    fail("a truncated model that returns hidden states cannot generate tokens");
  }
  if (prompt.empty()) {
    fail("the prompt has no tokens");
  }
  for (const int64_t id : prompt) {
    if (id < 0 || id >= config.vocab_size) {
      fail(fmt::format(
          "token id {} of the prompt is outside the model's vocabulary of {}",
          id,
          config.vocab_size));
    }
  }
  if (options.max_new_tokens < 0) {
    fail(fmt::format("max_new_tokens is {}; it must be 0 or more", options.max_new_tokens));
  }
  if (options.min_new_tokens < 0 || options.min_new_tokens > options.max_new_tokens) {
    fail(fmt::format(
        "min_new_tokens is {}; it must be between 0 and max_new_tokens, which is {}",
        options.min_new_tokens,
        options.max_new_tokens));
  }
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    fail(fmt::format("temperature is {}; it must be 0 (greedy) or more", options.temperature));
  }
  if (options.top_k < 0) {
    fail(fmt::format("top_k is {}; it must be 0 (all tokens) or more", options.top_k));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    fail(fmt::format("top_p is {}; it must be more than 0 and at most 1", options.top_p));
  }
  // The last token is not fed back to the model.
  const int64_t positions =
      static_cast<int64_t>(prompt.size()) + std::max<int64_t>(options.max_new_tokens - 1, 0);
  in_context(
      fmt::format(
          "generating {} tokens after a prompt of {}", options.max_new_tokens, prompt.size()),
      [&] { model::check_positions(config, positions); });
}

[[noreturn]] void throw_diverged() {
  throw Error(
      ErrorKind::kNumeric,
      "the model's logits contain NaN",
      "check the weights: they may have diverged");
}

/// Tokens by descending probability and, for equal probabilities, by id; sampling depends on this
/// order. Sorts lazily, because usually only a short prefix of a large vocabulary is read.
class ByLikelihood {
 public:
  explicit ByLikelihood(const Tensor& logits)
      : logits_(logits.const_data_ptr<float>()),
        ids_(static_cast<size_t>(logits.numel())) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }
  int64_t operator[](size_t place) {
    if (place >= sorted_) {
      const auto from = ids_.begin() + static_cast<std::ptrdiff_t>(sorted_);
      sorted_ =
          std::min(ids_.size(), std::max<size_t>(place + 1, 8 * std::max<size_t>(sorted_, 8)));
      std::partial_sort(
          from,
          ids_.begin() + static_cast<std::ptrdiff_t>(sorted_),
          ids_.end(),
          [this](int64_t a, int64_t b) {
            return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
          });
    }
    return ids_[place];
  }

 private:
  const float* logits_;
  std::vector<int64_t> ids_;
  size_t sorted_ = 0;
};

}  // namespace

int64_t choose_token(const Tensor& logits, const GenerateOptions& options, double draw) {
  const Tensor values =
      logits.to(at::TensorOptions().dtype(at::kFloat).device(at::kCPU)).contiguous();
  const auto* const value = values.const_data_ptr<float>();
  const auto likeliest = at::argmax(values).item<int64_t>();  // argmax treats NaN as the largest
                                                              // value
  if (std::isnan(value[likeliest])) {
    throw_diverged();
  }
  if (options.temperature == 0) {
    return likeliest;
  }
  const auto weight = [&](int64_t id) {  // relative to the largest weight, which is 1
    return std::exp((static_cast<double>(value[id]) - value[likeliest]) / options.temperature);
  };
  ByLikelihood order(values);
  const auto all = static_cast<size_t>(values.numel());
  size_t count = options.top_k > 0 ? std::min(static_cast<size_t>(options.top_k), all) : all;
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    total += weight(count < all ? order[i] : static_cast<int64_t>(i));
  }
  if (options.top_p < 1) {
    // A token is included if the total of the previous tokens is below p. The first token is
    // therefore always included.
    const double enough = options.top_p * total;
    size_t kept = 0;
    for (total = 0; kept < count && total < enough; ++kept) {
      total += weight(order[kept]);
    }
    count = kept;
  }
  double left = draw * total;
  for (size_t i = 0; i < count; ++i) {
    left -= weight(order[i]);
    if (left < 0) {
      return order[i];
    }
  }
  return order[count - 1];  // reached only because of rounding errors
}

namespace {

/// Rows that are decoded together. All of them have been processed up to the same position.
class RowsInStep {
 public:
  RowsInStep(
      const LanguageModel& model,
      const std::vector<std::vector<int64_t>>& prompts,
      const std::vector<int64_t>& max_new_tokens,
      const std::vector<int64_t>& stop_tokens)
      : model_(model),
        stop_tokens_(stop_tokens),
        cache_(model.config()),
        results_(prompts.size()) {
    for (size_t row = 0; row < prompts.size(); ++row) {
      check(model.config(), prompts[row], {.max_new_tokens = max_new_tokens[row]});
      if (max_new_tokens[row] > 0) {
        going_.push_back({row, prompts[row], max_new_tokens[row]});
      }
    }
  }

  std::vector<Generated> run() {
    int64_t read = 0;  // number of processed tokens in every row
    while (!going_.empty()) {
      int64_t next = read == 0 ? length_of(going_.front()) : read + 1;
      for (const Row& row : going_) {
        next = std::min(next, length_of(row));
      }
      const Tensor chosen = likeliest_behind(read, next);
      read = next;
      take(chosen, read);
    }
    return std::move(results_);
  }

 private:
  struct Row {
    size_t number = 0;
    std::vector<int64_t> ids;  // the prompt, then the generated tokens
    int64_t left = 0;          // number of tokens that remain to be generated
  };
  static int64_t length_of(const Row& row) { return std::ssize(row.ids); }

  /// Processes the tokens [begin, end) of each row and returns the most likely next tokens, int64
  /// [rows].
  Tensor likeliest_behind(int64_t begin, int64_t end) {
    ForwardInputs inputs;
    inputs.cache = &cache_;
    inputs.ids = at::empty({std::ssize(going_), end - begin}, at::kLong);
    auto id = inputs.ids.accessor<int64_t, 2>();
    for (int64_t row = 0; row < std::ssize(going_); ++row) {
      for (int64_t at = begin; at < end; ++at) {
        id[row][at - begin] = going_[static_cast<size_t>(row)].ids[static_cast<size_t>(at)];
      }
    }
    const Tensor logits = model_.last_logits(inputs);
    const Tensor chosen = at::argmax(logits, 1);
    // argmax treats NaN as the largest value, so any NaN is chosen and detected here.
    if (at::isnan(logits.gather(1, chosen.unsqueeze(1))).any().item<bool>()) {
      throw_diverged();
    }
    return chosen.to(at::kCPU).contiguous();
  }
  /// Appends the next token to each row whose prompt has been processed, and removes finished rows
  /// from the cache.
  void take(const Tensor& chosen, int64_t read) {
    const auto* id = chosen.const_data_ptr<int64_t>();
    std::vector<bool> goes_on;
    for (size_t at = 0; at < going_.size(); ++at) {
      goes_on.push_back(length_of(going_[at]) != read || goes_on_with(going_[at], id[at]));
    }
    close_up(goes_on);
  }
  bool goes_on_with(Row& row, int64_t id) {
    Generated& result = results_[row.number];
    result.ids.push_back(id);
    row.ids.push_back(id);
    --row.left;
    if (std::ranges::find(stop_tokens_, id) != stop_tokens_.end()) {
      result.reason = StopReason::kStopToken;
      return false;
    }
    return row.left > 0;
  }
  /// Moves the last unfinished rows to the positions of finished rows.
  void close_up(const std::vector<bool>& goes_on) {
    const auto kept = static_cast<size_t>(std::ranges::count(goes_on, true));
    if (kept == going_.size()) {
      return;
    }
    std::vector<int64_t> from, to;
    size_t last = going_.size();
    for (size_t at = 0; at < kept; ++at) {
      if (!goes_on[at]) {
        do {
          --last;
        } while (!goes_on[last]);
        going_[at] = std::move(going_[last]);
        from.push_back(static_cast<int64_t>(last));
        to.push_back(static_cast<int64_t>(at));
      }
    }
    going_.resize(kept);
    cache_.move_rows(
        at::tensor(from, at::kLong), at::tensor(to, at::kLong), static_cast<int64_t>(kept));
  }

  const LanguageModel& model_;
  const std::vector<int64_t>& stop_tokens_;
  KeyValueCache cache_;
  std::vector<Generated> results_;
  std::vector<Row> going_;
};

/// Returns the logits [V] with these tokens masked. Ignores tokens outside the vocabulary, which a
/// model folder may list as stop tokens.
Tensor without(const Tensor& logits, std::vector<int64_t> tokens) {
  std::erase_if(tokens, [&](int64_t id) { return id < 0 || id >= logits.numel(); });
  const Tensor ids = at::tensor(tokens, at::kLong).to(logits.device());
  return logits.index_fill(0, ids, -std::numeric_limits<double>::infinity());
}

}  // namespace

std::vector<Generated> generate_rows(
    const LanguageModel& model,
    const std::vector<std::vector<int64_t>>& prompts,
    const std::vector<int64_t>& max_new_tokens,
    const std::vector<int64_t>& stop_tokens) {
  if (model.config().is_encoder_decoder()) {
    throw Error(ErrorKind::kInternal, "only decoders can continue several rows together");
  }
  const at::NoGradGuard no_gradient;
  return RowsInStep(model, prompts, max_new_tokens, stop_tokens).run();
}

Generated generate(
    const LanguageModel& model,
    const std::vector<int64_t>& prompt,
    const GenerateOptions& options,
    const std::function<bool(int64_t id)>& on_token) {
  check(model.config(), prompt, options);
  if (model.config().bidirectional) {
    throw Error(ErrorKind::kInternal, "an encoder cannot generate text");
  }
  const at::NoGradGuard no_gradient;
  KeyValueCache cache(model.config());
  ForwardInputs inputs;
  inputs.cache = &cache;
  const Tensor given = at::tensor(prompt, at::kLong).unsqueeze(0);  // [1, T]
  if (model.config().is_encoder_decoder()) {
    inputs.source = given;
    inputs.ids = at::full({1, 1}, model.config().decoder_start_token_id, at::kLong);
  } else {
    inputs.ids = given;
  }
  Generated result;
  while (static_cast<int64_t>(result.ids.size()) < options.max_new_tokens) {
    Tensor logits = model.last_logits(inputs)[0];
    if (std::ssize(result.ids) < options.min_new_tokens) {
      logits = without(logits, options.stop_tokens);
    }
    const int64_t id = choose_token(logits, options, uniform(options.seed, cache.length()));
    result.ids.push_back(id);
    if (on_token && !on_token(id)) {
      result.reason = StopReason::kCallback;
      return result;
    }
    if (std::ranges::find(options.stop_tokens, id) != options.stop_tokens.end()) {
      result.reason = StopReason::kStopToken;
      return result;
    }
    inputs.ids = at::full({1, 1}, id, at::kLong);
  }
  return result;
}

}  // namespace lockstep::nn
