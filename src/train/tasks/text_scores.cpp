// Scores texts as prefix trees.
#include "train/tasks/text_scores.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "data/packed_rows.h"
#include "train/batches/datasets.h"

namespace lockstep::train {
namespace {

constexpr int64_t kMostTokens = 1024;  // maximum length of a tree, and of a row with several trees

/// Positions of the trees in the rows of a forward pass.
struct Layout {
  nn::ForwardInputs inputs;
  std::vector<int64_t> begins;  // start of each tree, counted over all rows
};

Layout lay_out(const std::vector<data::TokenTree>& trees, bool packs) {
  std::vector<int64_t> tokens;
  bool has_branches = false;
  for (const data::TokenTree& tree : trees) {
    tokens.push_back(std::max<int64_t>(1, std::ssize(tree.ids)));
    has_branches = has_branches || tree.paths.size() > 1;
  }
  const data::PackedRows rows =
      packs ? data::pack_rows(tokens, kMostTokens) : data::rows_of_one(tokens, kMostTokens);
  Layout result;
  nn::ForwardInputs& inputs = result.inputs;
  inputs.ids = at::zeros({rows.rows, rows.length}, at::kLong);
  const at::Tensor places = at::arange(rows.length, at::kLong).repeat({rows.rows, 1});
  const at::Tensor starts = places.clone(), until = places + 1;  // padding attends only to itself
  const at::Tensor positions = at::zeros_like(places);
  auto* id = inputs.ids.mutable_data_ptr<int64_t>();
  auto* start = starts.mutable_data_ptr<int64_t>();
  auto* end = until.mutable_data_ptr<int64_t>();
  auto* position = positions.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto [row, begin] = rows.places[i];
    const int64_t first = result.begins.emplace_back(row * rows.length + begin);
    for (size_t token = 0; token < trees[i].ids.size(); ++token) {
      const int64_t at = first + static_cast<int64_t>(token);
      id[at] = trees[i].ids[token];
      start[at] = begin;
      end[at] = begin + trees[i].seen_until[token];
      position[at] = trees[i].positions[token];
    }
  }
  if (packs) {
    inputs.document_starts = starts;
    inputs.positions = positions;
    inputs.seen_until = has_branches ? until : at::Tensor();
  }
  return result;
}

/// Returns for each token of a tree whether it is scored in at least one of the texts.
std::vector<bool> judged(
    const data::TokenTree& tree,
    std::span<const data::JudgedText> texts,
    const std::vector<size_t>& members) {
  std::vector<bool> result(tree.ids.size());
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t at = std::max<size_t>(1, texts[members[i]].begin); at < tree.paths[i].size();
         ++at) {
      result[static_cast<size_t>(tree.paths[i][at])] = true;
    }
  }
  return result;
}

/// Returns log p of each of `tokens`, as predicted at the given places of a pass, and whether the
/// token was the most likely one. Both are [N], on the CPU. A place may occur several times.
nn::Scores score_places(
    const nn::LanguageModel& model,
    const nn::ForwardInputs& inputs,
    const std::vector<int64_t>& places,
    const std::vector<int64_t>& tokens) {
  const nn::Context context = model.make_context(inputs);
  const c10::Device device = inputs.ids.device();
  const at::Tensor index = at::tensor(places, at::kLong).to(device);
  const nn::Targets targets = nn::own_tokens(at::tensor(tokens, at::kLong).unsqueeze(0)).to(device);
  const auto body = [&](const at::Tensor& hidden, const at::Tensor& vocabulary) {
    const at::Tensor asked = hidden.flatten(0, 1).index_select(0, index.to(hidden.device()));
    const nn::Scores scores = model.head->scores(asked.unsqueeze(0), vocabulary, targets);
    return nn::Tensors{scores.log_likelihoods, scores.likeliest};
  };
  const nn::Tensors found =
      model.run_head(model.forward_blocks(model.embed(context), context), context, body);
  return {
      found[0].flatten().to(at::kCPU, at::kDouble).contiguous(),
      found[1].flatten().to(at::kCPU, at::kBool).contiguous()};
}

nn::ForwardInputs on(c10::Device device, nn::ForwardInputs inputs) {
  for (at::Tensor* each :
       {&inputs.ids, &inputs.document_starts, &inputs.positions, &inputs.seen_until}) {
    *each = each->defined() ? each->to(device) : *each;
  }
  return inputs;
}

}  // namespace

double AnswerScore::log_likelihood() const {
  return std::accumulate(log_likelihoods.begin(), log_likelihoods.end(), 0.0);
}

double AnswerScore::loss() const {
  return log_likelihoods.empty() ? 0
                                 : -log_likelihood() / static_cast<double>(log_likelihoods.size());
}

std::vector<std::vector<size_t>> groups_to_read(
    const nn::LanguageModel& model, std::span<const data::JudgedText> texts) {
  if (nn::takes_trees(model.config())) {
    return data::alike(texts, kMostTokens);
  }
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < texts.size(); ++i) {
    groups.push_back({i});
  }
  std::ranges::stable_sort(
      groups, {}, [&](const auto& group) { return texts[group.front()].ids.size(); });
  return groups;
}

std::vector<AnswerScore> score_trees(
    const nn::LanguageModel& model,
    std::span<const data::JudgedText> texts,
    std::span<const std::vector<size_t>> groups,
    c10::Device device) {
  const at::NoGradGuard no_gradient;
  std::vector<data::TokenTree> trees;
  for (const std::vector<size_t>& group : groups) {
    trees.push_back(data::tree_of(texts, group));
  }
  const bool packs = packing_of_prompts(model.config()) == data::Packing::kDocuments;
  const Layout layout = lay_out(trees, packs);
  std::vector<int64_t> places, tokens;
  std::vector<std::vector<size_t>> numbers;  // index of the score of each tree token
  for (size_t i = 0; i < trees.size(); ++i) {
    const data::TokenTree& tree = trees[i];
    const std::vector<bool> is_judged = judged(tree, texts, groups[i]);
    std::vector<size_t>& of_tree = numbers.emplace_back(tree.ids.size());
    for (size_t token = 0; token < tree.ids.size(); ++token) {
      if (is_judged[token]) {
        of_tree[token] = places.size();
        places.push_back(layout.begins[i] + tree.parents[token]);
        tokens.push_back(tree.ids[token]);
      }
    }
  }
  std::vector<AnswerScore> result;
  nn::Scores scores;
  if (!places.empty()) {
    scores = score_places(model, on(device, layout.inputs), places, tokens);
  }
  for (size_t i = 0; i < trees.size(); ++i) {
    for (size_t text = 0; text < groups[i].size(); ++text) {
      AnswerScore& score = result.emplace_back();
      const std::vector<int64_t>& path = trees[i].paths[text];
      for (size_t at = std::max<size_t>(1, texts[groups[i][text]].begin); at < path.size(); ++at) {
        const size_t number = numbers[i][static_cast<size_t>(path[at])];
        score.log_likelihoods.push_back(scores.log_likelihoods.const_data_ptr<double>()[number]);
        score.likeliest.push_back(scores.likeliest.const_data_ptr<bool>()[number]);
      }
    }
  }
  return result;
}

}  // namespace lockstep::train
