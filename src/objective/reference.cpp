// Reference models: stored scores, disabled adapters, frozen models and steering targets.
#include "objective/reference.h"

#include <charconv>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "ops/token_loss.h"

namespace lockstep::objective {
namespace {

/// Ids and targets of one row or document.
struct RowTokens {
  std::vector<int64_t> ids, targets;
};

std::vector<RowTokens> tokens_of(const nn::ForwardInputs& inputs) {
  const auto flat = [](const Tensor& of_tokens) { return of_tokens.cpu().flatten().contiguous(); };
  const Tensor ids = flat(inputs.ids), targets = flat(inputs.targets.tokens);
  const Tensor numbers = flat(
      inputs.targets.to_tokens(at::arange(inputs.targets.rows(), inputs.targets.tokens.options()))
          .expand_as(inputs.targets.tokens));
  std::vector<RowTokens> rows(static_cast<size_t>(inputs.targets.rows()));
  for (int64_t i = 0; i < ids.numel(); ++i) {
    RowTokens& row = rows[static_cast<size_t>(numbers.const_data_ptr<int64_t>()[i])];
    row.ids.push_back(ids.const_data_ptr<int64_t>()[i]);
    row.targets.push_back(targets.const_data_ptr<int64_t>()[i]);
  }
  return rows;
}

/// Returns hashes of the tokens up to each row's last target. Padding after it does not affect the
/// score.
std::vector<std::string> hashes_of(const nn::ForwardInputs& inputs) {
  std::vector<std::string> hashes;
  for (const RowTokens& tokens : tokens_of(inputs)) {
    const int64_t row = std::ssize(hashes);
    auto count = tokens.targets.size();
    while (count > 0 && tokens.targets[count - 1] == ops::kIgnoredTarget) {
      --count;
    }
    Hasher hasher;
    hasher.update(std::as_bytes(std::span(tokens.ids).first(count)));
    hasher.update(std::as_bytes(std::span(tokens.targets).first(count)));
    if (inputs.source.defined()) {
      const Tensor source = inputs.source[row], mask = inputs.source_mask;
      const Tensor read = (mask.defined() ? source.masked_select(mask[row]) : source).cpu();
      hasher.update(std::as_bytes(std::span(
          read.contiguous().const_data_ptr<int64_t>(), static_cast<size_t>(read.numel()))));
    }
    hashes.push_back(hasher.hex());
  }
  return hashes;
}

void set_reference(nn::ForwardInputs& inputs, const Tensor& scores) {
  inputs.targets.reference = scores.to(inputs.targets.counts.device());
}

}  // namespace

void StoredScores::store(
    std::span<const nn::ForwardInputs> micro_batches, const RowScorer& scorer) {
  const std::vector<Tensor> scored = scorer(micro_batches);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const std::vector<std::string> hashes = hashes_of(micro_batches[i]);
    const auto* score = scored[i].const_data_ptr<double>();
    for (size_t row = 0; row < hashes.size(); ++row) {
      scores_[hashes[row]] = score[row];
    }
  }
}

void StoredScores::refer(std::span<nn::ForwardInputs> micro_batches) {
  for (nn::ForwardInputs& inputs : micro_batches) {
    const Tensor& kinds = inputs.targets.kinds;
    const Tensor kept =
        kinds.defined() ? kinds.cpu().eq(static_cast<int64_t>(nn::RowKind::kRetain)) : Tensor();
    std::vector<double> scores;
    for (const std::string& hash : hashes_of(inputs)) {
      if (kept.defined() && kept[std::ssize(scores)].item<bool>()) {
        scores.push_back(0);
        continue;
      }
      const auto found = scores_.find(hash);
      if (found == scores_.end()) {
        throw Error(ErrorKind::kInternal, "a row has no stored reference score");
      }
      scores.push_back(found->second);
    }
    set_reference(inputs, at::tensor(scores, at::kDouble));
  }
}

std::string StoredScores::text() const {
  std::string text;
  for (const auto& [hash, score] : scores_) {
    text += fmt::format("{} {}\n", hash, score);  // round-trips exactly
  }
  return text;
}

void StoredScores::add(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t space = std::min(line.find(' '), line.size());
    double score = 0;
    const char* begin = line.data() + std::min(space + 1, line.size());
    const char* end = line.data() + line.size();
    if (const auto [stop, error] = std::from_chars(begin, end, score);
        error != std::errc() || stop != end || line.size() == text.size()) {
      throw Error(ErrorKind::kData, fmt::format("'{}' is not a reference score of a row", line));
    }
    scores_[std::string(line.substr(0, space))] = score;
    text.remove_prefix(line.size() + 1);
  }
}

void AdaptersOff::refer(std::span<nn::ForwardInputs> micro_batches) {
  set_adapters_(false);
  const std::vector<Tensor> scored = scorer_(micro_batches);
  set_adapters_(true);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    set_reference(micro_batches[i], scored[i]);
  }
}

void FrozenModel::refer(std::span<nn::ForwardInputs> micro_batches) {
  const HeadStates read = reader_(micro_batches);
  for (size_t i = 0; i < read.states.size(); ++i) {
    if (nn::Distributions& reference = micro_batches[i].targets.distributions;
        reference.positions.defined()) {
      reference.states = read.states[i];
      reference.vocabulary = read.vocabulary;
    }
  }
}

void Steered::refer(std::span<nn::ForwardInputs> micro_batches) {
  if (kept_ != nullptr) {
    kept_->refer(micro_batches);
  }
  for (nn::ForwardInputs& inputs : micro_batches) {
    const Tensor forget =
        inputs.targets.kinds.eq(static_cast<int64_t>(nn::RowKind::kForget)).view({-1, 1, 1});
    Tensor& states = inputs.targets.distributions.states;
    if (states.defined()) {
      states = at::where(forget.to(states.device()), target_.to(states.options()), states);
    } else {
      states = target_.expand({forget.size(0), 1, -1});
    }
  }
}

Tensor ScoreSink::measure(
    const nn::Scores& scores, const nn::Targets& /*targets*/, const Counts& /*step*/) const {
  const Tensor& made = scores.log_likelihoods;
  rows_.push_back(made.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
  return at::zeros({sums()}, made.options().dtype(at::kDouble));
}

Tensor HeadStateSink::measure(
    const nn::Scores& scores, const nn::Targets& /*targets*/, const Counts& /*step*/) const {
  states_.states.push_back(scores.log_likelihoods);
  if (!states_.vocabulary.defined()) {
    // With ZeRO, the weight is freed after the head.
    states_.vocabulary = scores.likeliest.defined() ? scores.likeliest.clone() : Tensor();
  }
  return at::zeros({sums()}, scores.log_likelihoods.options().dtype(at::kDouble));
}

}  // namespace lockstep::objective
