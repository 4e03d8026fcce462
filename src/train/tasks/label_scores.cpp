// Computes label scores by tree attention, with cached prompts, or with one row per label.
#include "train/tasks/label_scores.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "nn/continuations.h"
#include "train/tasks/text_scores.h"

namespace lockstep::train {
namespace {

using nn::TokenIds;

/// Positions per forward pass if the model is called directly.
constexpr size_t kPositionsAtOnce = 16384;

std::vector<TokenIds> prompts_of(const nn::ForwardInputs& inputs) {
  const at::Tensor ids = inputs.ids.to(at::kCPU).contiguous();
  const at::Tensor real = inputs.real_tokens.defined()
                              ? inputs.real_tokens.sum(1).to(at::kCPU)
                              : at::full({ids.size(0)}, ids.size(1), at::kLong);
  std::vector<TokenIds> prompts;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const int64_t* const begin = ids.const_data_ptr<int64_t>() + row * ids.size(1);
    prompts.emplace_back(begin, begin + real.const_data_ptr<int64_t>()[row]);
  }
  return prompts;
}

/// Possible next token of a walk, with the labels that continue with it.
struct Choice {
  int64_t token;
  std::vector<size_t> labels;
};

/// Path of one prompt through the prefix tree of the labels' tokens.
class Walk {
 public:
  explicit Walk(const std::vector<TokenIds>& labels)
      : labels_(&labels),
        open_(labels.size()),
        logits_(labels.size(), 0) {
    for (size_t i = 0; i < open_.size(); ++i) {
      open_[i] = i;
    }
    look();
  }
  /// Returns the next choices, at least two. Empty if the walk has reached a label.
  const std::vector<Choice>& choices() const { return choices_; }
  const TokenIds& path() const { return path_; }
  const std::vector<double>& logits() const { return logits_; }  // one per label
  /// Selects the choice with the highest score. If several are equal, selects the first one.
  void take(const std::vector<double>& scores) {
    const auto best = std::ranges::max_element(scores);
    for (size_t i = 0; i < choices_.size(); ++i) {
      for (const size_t label : choices_[i].labels) {
        logits_[label] = scores[i] - *best;
      }
    }
    Choice taken = std::move(choices_[static_cast<size_t>(best - scores.begin())]);
    path_.push_back(taken.token);
    open_ = std::move(taken.labels);
    look();
  }

 private:
  void look() {
    choices_.clear();
    while (open_.size() > 1) {
      for (const size_t label : open_) {
        const int64_t token = (*labels_)[label].at(path_.size());
        const auto found = std::ranges::find(choices_, token, &Choice::token);
        if (found == choices_.end()) {
          choices_.push_back({token, {label}});
        } else {
          found->labels.push_back(label);
        }
      }
      if (choices_.size() > 1) {
        return;
      }
      path_.push_back(choices_.front().token);  // all open labels continue with it
      choices_.clear();
    }
  }

  const std::vector<TokenIds>* labels_;
  std::vector<size_t> open_;  // labels that start with the path
  TokenIds path_;
  std::vector<Choice> choices_;
  std::vector<double> logits_;
};

/// Returns the maximum number of choices in the rest of a walk.
size_t most_choices(const Walk& walk) {
  size_t most = 0;
  for (size_t i = 0; i < walk.choices().size(); ++i) {
    std::vector<double> scores(walk.choices().size(), 0);
    scores[i] = 1;
    Walk next = walk;
    next.take(scores);
    most = std::max(most, 1 + most_choices(next));
  }
  return most;
}

/// Advances the walks of all prompts together, calling the model directly.
void walk_by_model(
    const PromptReader& reader, const std::vector<TokenIds>& prompts, std::vector<Walk>& walks) {
  const nn::Continuations continuations(*reader.cacheable, prompts, reader.device);
  for (;;) {
    std::vector<int64_t> rows;
    std::vector<TokenIds> paths;
    for (size_t row = 0; row < walks.size(); ++row) {
      if (!walks[row].choices().empty()) {
        rows.push_back(static_cast<int64_t>(row));
        paths.push_back(walks[row].path());
      }
    }
    if (rows.empty()) {
      return;
    }
    const at::Tensor logits = continuations.next_logits(rows, paths).contiguous();  // [N, V]
    for (size_t i = 0; i < rows.size(); ++i) {
      Walk& walk = walks[static_cast<size_t>(rows[i])];
      const float* const of_row =
          logits.const_data_ptr<float>() + static_cast<int64_t>(i) * logits.size(1);
      std::vector<double> scores;
      for (const Choice& choice : walk.choices()) {
        scores.push_back(of_row[choice.token]);
      }
      walk.take(scores);
    }
  }
}

nn::ForwardInputs there(
    std::span<const TokenIds> rows, std::span<const size_t> begins, c10::Device device) {
  nn::ForwardInputs inputs = nn::predicted_from(rows, begins);
  inputs.ids = inputs.ids.to(device);
  inputs.targets = inputs.targets.to(device);
  return inputs;
}

/// Advances the walks with one row per choice. The walks differ between ranks, but all ranks run
/// the same number of passes.
void walk_by_rows(
    const PromptReader& reader,
    const std::vector<std::vector<TokenIds>>& prompts,
    std::vector<std::vector<Walk>>& walks) {
  const size_t passes = most_choices(walks.front().front());
  for (size_t pass = 0; pass < passes; ++pass) {
    std::vector<nn::ForwardInputs> inputs;
    for (size_t batch = 0; batch < prompts.size(); ++batch) {
      std::vector<TokenIds> rows;
      std::vector<size_t> begins;
      for (size_t i = 0; i < walks[batch].size(); ++i) {
        for (const Choice& choice : walks[batch][i].choices()) {
          TokenIds& row = rows.emplace_back(prompts[batch][i]);
          row.insert(row.end(), walks[batch][i].path().begin(), walks[batch][i].path().end());
          row.push_back(choice.token);
          begins.push_back(row.size() - 1);
        }
      }
      if (rows.empty()) {  // all walks have ended: run an arbitrary row and ignore its score
        rows.push_back(prompts[batch].front());
        rows.back().push_back(0);
        begins.push_back(rows.back().size() - 1);
      }
      inputs.push_back(there(rows, begins, reader.device));
    }
    const std::vector<at::Tensor> scored = reader.rows(inputs);
    for (size_t batch = 0; batch < walks.size(); ++batch) {
      const double* next = scored[batch].const_data_ptr<double>();
      for (Walk& walk : walks[batch]) {
        if (const size_t count = walk.choices().size(); count > 0) {
          walk.take({next, next + count});
          next += count;
        }
      }
    }
  }
}

std::vector<at::Tensor> greedy(
    const PromptReader& reader,
    const WrittenLabels& labels,
    const std::vector<std::vector<TokenIds>>& prompts) {
  std::vector<std::vector<Walk>> walks;
  for (const std::vector<TokenIds>& batch : prompts) {
    walks.emplace_back(batch.size(), Walk(labels.ids));
    if (reader.cacheable != nullptr) {
      walk_by_model(reader, batch, walks.back());
    }
  }
  if (reader.cacheable == nullptr) {
    walk_by_rows(reader, prompts, walks);
  }
  std::vector<at::Tensor> result;
  for (const std::vector<Walk>& batch : walks) {
    std::vector<double> logits;
    for (const Walk& walk : batch) {
      logits.insert(logits.end(), walk.logits().begin(), walk.logits().end());
    }
    result.push_back(at::tensor(logits, at::kDouble).view({std::ssize(batch), -1}));
  }
  return result;
}

/// Returns float64 [B, K]. A prompt and its labels form a tree, which is read in one pass.
at::Tensor likelihoods_by_trees(
    const PromptReader& reader, const WrittenLabels& labels, const std::vector<TokenIds>& prompts) {
  const auto count = labels.ids.size();
  size_t of_labels = 0;
  for (const TokenIds& label : labels.ids) {
    of_labels += label.size();
  }
  std::vector<double> sums;
  std::vector<data::JudgedText> texts;
  std::vector<std::vector<size_t>> trees;
  size_t tokens = 0;  // upper bound for the size of the trees
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<size_t>& tree = trees.emplace_back();
    for (const TokenIds& label : labels.ids) {
      tree.push_back(texts.size());
      texts.push_back({prompts[i], prompts[i].size()});
      data::JudgedText& text = texts.back();
      text.ids.insert(text.ids.end(), label.begin(), label.end());
    }
    tokens += prompts[i].size() + of_labels;
    const bool is_last = i + 1 == prompts.size();
    if (is_last || tokens + prompts[i + 1].size() + of_labels > kPositionsAtOnce) {
      for (const AnswerScore& score : score_trees(*reader.cacheable, texts, trees, reader.device)) {
        sums.push_back(score.log_likelihood());
      }
      texts.clear();
      trees.clear();
      tokens = 0;
    }
  }
  return at::tensor(sums, at::kDouble).view({-1, static_cast<int64_t>(count)});
}

/// Returns the log-likelihoods of the labels, float64 [B, K] for each batch.
std::vector<at::Tensor> likelihoods(
    const PromptReader& reader,
    const WrittenLabels& labels,
    const std::vector<std::vector<TokenIds>>& prompts) {
  std::vector<at::Tensor> result;
  if (reader.cacheable != nullptr) {
    const bool as_trees = nn::takes_trees(reader.cacheable->config());
    for (const std::vector<TokenIds>& batch : prompts) {
      if (as_trees) {
        result.push_back(likelihoods_by_trees(reader, labels, batch));
        continue;
      }
      const auto longest = std::ranges::max_element(batch, {}, &TokenIds::size)->size();
      result.push_back(
          nn::Continuations(*reader.cacheable, batch, reader.device)
              .log_likelihoods(labels.ids, static_cast<int64_t>(kPositionsAtOnce / longest)));
    }
    return result;
  }
  std::vector<nn::ForwardInputs> inputs;
  for (const std::vector<TokenIds>& batch : prompts) {
    std::vector<TokenIds> rows;
    std::vector<size_t> begins;
    for (const TokenIds& prompt : batch) {
      for (const TokenIds& label : labels.ids) {
        rows.push_back(prompt);
        rows.back().insert(rows.back().end(), label.begin(), label.end());
        begins.push_back(prompt.size());
      }
    }
    inputs.push_back(there(rows, begins, reader.device));
  }
  for (const at::Tensor& sums : reader.rows(inputs)) {
    result.push_back(sums.view({-1, std::ssize(labels.ids)}));
  }
  return result;
}

/// Returns the label logits of batches of prompts.
std::vector<at::Tensor> logits_behind(
    const PromptReader& reader,
    const WrittenLabels& labels,
    const std::vector<std::vector<TokenIds>>& prompts) {
  const at::Tensor divisors = at::tensor(labels.lengths, at::kDouble);
  std::vector<at::Tensor> logits =
      labels.is_greedy ? greedy(reader, labels, prompts) : likelihoods(reader, labels, prompts);
  for (at::Tensor& each : logits) {
    each = each.div(divisors).to(at::kFloat);
  }
  return logits;
}

}  // namespace

std::vector<at::Tensor> label_logits(
    const PromptReader& reader,
    const WrittenLabels& labels,
    std::span<const nn::ForwardInputs> batches) {
  std::vector<std::vector<TokenIds>> prompts;
  for (const nn::ForwardInputs& inputs : batches) {
    prompts.push_back(prompts_of(inputs));
  }
  return logits_behind(reader, labels, prompts);
}

at::Tensor label_logits_of(
    const PromptReader& reader, const WrittenLabels& labels, const std::vector<int64_t>& prompt) {
  return logits_behind(reader, labels, {{prompt}}).front();
}

}  // namespace lockstep::train
