// Scores continuations of prompts with a key-value cache of the prompts' first tokens, up to the
// shortest prompt.
#include "nn/continuations.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "ops/token_loss.h"

namespace lockstep::nn {

Tensor table_of(std::span<const TokenIds> rows) {
  size_t length = 2;
  for (const TokenIds& row : rows) {
    length = std::max(length, row.size());
  }
  Tensor table = at::zeros({std::ssize(rows), static_cast<int64_t>(length)}, at::kLong);
  for (size_t row = 0; row < rows.size(); ++row) {
    std::ranges::copy(rows[row], table.mutable_data_ptr<int64_t>() + row * length);
  }
  return table;
}

ForwardInputs predicted_from(std::span<const TokenIds> rows, std::span<const size_t> begins) {
  ForwardInputs inputs;
  inputs.ids = table_of(rows);
  const Tensor labels = at::full_like(inputs.ids, ops::kIgnoredTarget);
  const auto length = static_cast<size_t>(inputs.ids.size(1));
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto begin = static_cast<std::ptrdiff_t>(begins[row]);
    std::copy(
        rows[row].begin() + begin,
        rows[row].end(),
        labels.mutable_data_ptr<int64_t>() + row * length + begins[row]);
  }
  inputs.targets = next_tokens(labels);
  return inputs;
}

Continuations::Continuations(
    const LanguageModel& model, std::vector<TokenIds> prompts, c10::Device device)
    : model_(model),
      prompts_(std::move(prompts)),
      device_(device),
      cache_(model.config()) {
  const at::NoGradGuard no_gradient;
  read_ = std::ranges::min_element(prompts_, {}, &TokenIds::size)->size() - 1;
  if (read_ == 0) {
    return;
  }
  ForwardInputs inputs;
  inputs.cache = &cache_;
  inputs.ids =
      table_of(prompts_).narrow(1, 0, static_cast<int64_t>(read_)).contiguous().to(device_);
  const Context context = model_.make_context(inputs);
  (void)model_.forward_blocks(model_.embed(context), context);
}

TokenIds Continuations::unread(int64_t row, const TokenIds& text) const {
  const TokenIds& prompt = prompts_[static_cast<size_t>(row)];
  TokenIds ids(prompt.begin() + static_cast<std::ptrdiff_t>(read_), prompt.end());
  ids.insert(ids.end(), text.begin(), text.end());
  return ids;
}

KeyValueCache Continuations::cache_of(const std::vector<int64_t>& rows) const {
  KeyValueCache cache = cache_;
  // Copies the rows, so that later tokens are appended only to this copy.
  cache.keep_rows(at::tensor(rows, at::kLong));
  return cache;
}

Tensor Continuations::log_likelihoods(std::span<const TokenIds> texts, int64_t rows_at_once) const {
  const at::NoGradGuard no_gradient;
  const int64_t prompts = std::ssize(prompts_);
  const int64_t at_once = std::max<int64_t>(1, rows_at_once / prompts);
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < std::ssize(texts); first += at_once) {
    const int64_t count = std::min(at_once, std::ssize(texts) - first);
    std::vector<int64_t> of_row;
    std::vector<TokenIds> rows;
    std::vector<size_t> begins;
    for (int64_t prompt = 0; prompt < prompts; ++prompt) {
      for (int64_t i = 0; i < count; ++i) {
        const TokenIds& text = texts[static_cast<size_t>(first + i)];
        of_row.push_back(prompt);
        rows.push_back(unread(prompt, text));
        begins.push_back(rows.back().size() - text.size());
      }
    }
    KeyValueCache cache = cache_of(of_row);
    ForwardInputs inputs = predicted_from(rows, begins);
    inputs.ids = inputs.ids.to(device_);
    inputs.targets = inputs.targets.to(device_);
    inputs.cache = &cache;
    const Tensor found = model_.scores(inputs).log_likelihoods;  // [N, T]
    parts.push_back(found.to(at::kCPU).sum(1, false, at::kDouble).view({prompts, count}));
  }
  return at::cat(parts, 1);
}

Tensor Continuations::next_logits(
    std::span<const int64_t> rows, std::span<const TokenIds> texts) const {
  const at::NoGradGuard no_gradient;
  std::vector<TokenIds> ids;
  std::vector<int64_t> last;
  for (size_t i = 0; i < rows.size(); ++i) {
    ids.push_back(unread(rows[i], texts[i]));
    last.push_back(std::ssize(ids.back()) - 1);
  }
  KeyValueCache cache = cache_of({rows.begin(), rows.end()});
  ForwardInputs inputs;
  inputs.cache = &cache;
  inputs.ids = table_of(ids).to(device_);
  const Context context = model_.make_context(inputs);
  const Tensor x = model_.forward_blocks(model_.embed(context), context).front();  // [N, T, C]
  const Tensor places = at::tensor(last, at::kLong).view({-1, 1, 1}).to(x.device());
  const auto body = [this](const Tensor& states, const Tensor& vocabulary) {
    return Tensors{model_.head->logits(states, vocabulary)};
  };
  return model_.run_head({x.gather(1, places.expand({-1, 1, x.size(2)}))}, context, body)
      .front()
      .squeeze(1)
      .to(at::kCPU, at::kFloat);
}

}  // namespace lockstep::nn
