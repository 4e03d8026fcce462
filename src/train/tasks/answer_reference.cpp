// Computes and caches the reference scores of answers, and computes the KTO baseline.
#include "train/tasks/answer_reference.h"

#include <algorithm>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "train/batches/inputs.h"
#include "train/weights/model_fingerprint.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using Rows = std::shared_ptr<const data::SequenceView>;

constexpr std::string_view kScoresRecipe = "reference scores, 2";
constexpr std::string_view kEndOfScores = "end\n";

fs::path scores_file(const fs::path& folder, const std::string& key) {
  return folder / fmt::format("{}-reference.scores", key);
}

std::string first_line(const std::string& key) {
  return fmt::format("{} {}\n", kScoresRecipe, key);
}

/// Reads a file of scores. Returns null if it does not exist or is incomplete.
std::unique_ptr<objective::StoredScores> read_scores(const fs::path& path, const std::string& key) {
  if (!fs::exists(path)) {
    return nullptr;
  }
  try {
    const MappedFile file(path);
    std::string_view text = file.text();
    const std::string first = first_line(key);
    if (text.starts_with(first) && text.ends_with(kEndOfScores)) {
      text.remove_prefix(first.size());
      text.remove_suffix(kEndOfScores.size());
      auto scores = std::make_unique<objective::StoredScores>();
      scores->add(text);
      return scores;
    }
    log_warning("{} does not contain the reference scores: computing them again", path.string());
  } catch (const Error& error) {
    log_warning("{}; computing the reference scores again", error.message());
  }
  return nullptr;
}

/// Returns the number of tokens in the longest row of a draw, or 0 if the rows of a draw are not
/// fixed.
int64_t longest_of(const data::SequenceView& rows, int64_t drawn) {
  int64_t longest = 0;
  const int64_t count = rows.answers().partners ? 0 : rows.rows_at_once();
  for (int64_t i = 0; i < count; ++i) {
    longest = std::max(longest, rows.tokens(drawn * count + i));
  }
  return longest;
}

/// Scores the rows of one set. Batches are distributed over the data-parallel ranks.
void score_rows(
    parallel::ParallelModel& model,
    const data::SequenceView& rows,
    int64_t batch_size,
    c10::Device device,
    objective::StoredScores& scores) {
  constexpr int64_t kBatchesOfAStage = 2;
  const comm::Communicator& data = model.axes().along(mesh::Axis::kData);
  const int64_t stages = model.mesh().pipeline;
  const int64_t at_once = stages == 1 ? 1 : kBatchesOfAStage * stages;
  const int64_t batches = (rows.size() + batch_size - 1) / batch_size;
  // Sort by length so that batches have little padding.
  std::vector<int64_t> order(static_cast<size_t>(rows.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {}, [&](int64_t drawn) { return longest_of(rows, drawn); });
  std::vector<nn::ForwardInputs> inputs;
  // All ranks must run the same number of passes. A rank without a batch repeats the last batch.
  for (int64_t first = 0; first < batches; first += data.size()) {
    const int64_t batch = std::min(first + data.rank(), batches - 1);
    std::vector<data::Draw> draws;
    for (int64_t i = batch * batch_size; i < std::min(rows.size(), (batch + 1) * batch_size); ++i) {
      const int64_t drawn = order[static_cast<size_t>(i)];
      draws.push_back({drawn, drawn});
    }
    inputs.push_back(to_device(to_inputs(data::make_micro_batch(rows, draws)), device));
    if (std::ssize(inputs) == at_once || first + data.size() >= batches) {
      scores.store(inputs, [&](auto given) { return model.row_scores(given); });
      inputs.clear();
    }
  }
}

void set_baseline(std::span<nn::ForwardInputs> inputs, const at::Tensor& gains) {
  const double count = gains[1].item<double>();
  const double mean = count > 0 ? gains[0].item<double>() / count : 0;
  for (nn::ForwardInputs& rows : inputs) {
    rows.targets.baseline = at::full({rows.targets.rows()}, std::max(mean, 0.0), at::kDouble);
  }
}

/// Sets the reference scores of a micro-batch. Padding micro-batches have no stored scores and get
/// zeros, because they do not contribute to the loss.
void refer_rows(
    objective::StoredScores& scores, nn::ForwardInputs& inputs, const data::MicroBatch& batch) {
  if (batch.draws.empty()) {
    inputs.targets.reference = at::zeros({inputs.targets.rows()}, at::kDouble);
  } else {
    scores.refer({&inputs, 1});
  }
}

}  // namespace

std::string reference_key(
    const config::Config& config,
    const model::ModelSource& source,
    WithAdapter adapter,
    std::span<const Rows> rows) {
  Hasher hasher;
  hasher.update_field(kScoresRecipe);
  for (const Rows& set : rows) {
    hasher.update_field(set->dataset().content_hash());
    hasher.update_field(fmt::format("{}", set->dataset().vocabulary_size()));
  }
  hasher.update_field(model_fingerprint(config, source, adapter));
  return hasher.hex();
}

std::unique_ptr<objective::StoredScores> score_reference(
    parallel::ParallelModel& model,
    std::span<const Rows> rows,
    int64_t batch_size,
    const fs::path& folder,
    const std::string& key,
    RankContext& rank_context) {
  const at::NoGradGuard no_gradient;
  const fs::path path = scores_file(folder, key);
  const bool is_there = on_first_rank(rank_context.communicator, [&]() -> std::string {
                          return read_scores(path, key) != nullptr ? "there" : "";
                        }) == "there";
  if (is_there) {
    auto found = read_scores(path, key);
    if (found == nullptr) {
      throw Error(
          ErrorKind::kData,
          fmt::format("rank {} cannot read {}, but rank 0 can", rank_context.rank(), path.string()),
          "set data.cache_dir to a file system that all nodes share");
    }
    if (rank_context.is_first()) {
      log_info("read {} reference scores from {}", found->size(), path.string());
    }
    return found;
  }
  auto scores = std::make_unique<objective::StoredScores>();
  for (const Rows& set : rows) {
    score_rows(model, *set, batch_size, rank_context.device, *scores);
  }
  for (const std::string& text :
       comm::gather_strings(model.axes().along(mesh::Axis::kData), scores->text())) {
    scores->add(text);
  }
  on_first_rank(rank_context.communicator, [&]() -> std::string {
    create_folders(folder, ErrorKind::kData);
    write_file_atomically(path, first_line(key) + scores->text() + std::string(kEndOfScores));
    log_info("scored {} answers with the reference, the initial model", scores->size());
    return "";
  });
  return scores;
}

std::vector<Rows> AnswerSets::all() const {
  std::vector<Rows> sets;
  for (const Datasets* each : {&rows, &mismatched}) {
    for (const Rows& set : {each->train, each->validation, each->test}) {
      if (set != nullptr) {
        sets.push_back(set);
      }
    }
  }
  return sets;
}

const data::SequenceView* AnswerSets::mismatched_of(const data::SequenceView& set) const {
  return &set == rows.train.get()        ? mismatched.train.get()
         : &set == rows.validation.get() ? mismatched.validation.get()
                                         : mismatched.test.get();
}

at::Tensor AnswerReference::gains(
    std::span<const data::MicroBatch> batches, const data::SequenceView& rows) {
  const at::NoGradGuard no_gradient;
  std::vector<nn::ForwardInputs> inputs, there;
  for (const data::MicroBatch& batch : batches) {
    inputs.push_back(to_inputs(data::make_micro_batch(rows, batch.draws)));
    there.push_back(to_device(inputs.back(), device_));
  }
  const at::Tensor sums = at::zeros({2}, at::kDouble);
  const std::vector<at::Tensor> scored = model_.row_scores(there);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (batches[i].draws.empty()) {
      continue;  // padding, which has no score
    }
    scores_->refer({&inputs[i], 1});
    sums[0].add_((scored[i] - inputs[i].targets.reference).sum());
    sums[1].add_(static_cast<double>(batches[i].draws.size()));
  }
  return sums;
}

void AnswerReference::refer_step(
    std::span<nn::ForwardInputs> inputs, std::span<const data::MicroBatch> batches) {
  if (scores_ == nullptr) {
    return;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    refer_rows(*scores_, inputs[i], batches[i]);
  }
  if (sets_.mismatched.train != nullptr) {
    const at::Tensor sums = gains(batches, *sets_.mismatched.train);
    model_.axes().along(mesh::Axis::kData).all_reduce(sums).wait();
    set_baseline(inputs, sums);
  }
}

void AnswerReference::refer_batch(
    nn::ForwardInputs& inputs, const data::MicroBatch& batch, const data::SequenceView& set) {
  if (scores_ == nullptr) {
    return;
  }
  refer_rows(*scores_, inputs, batch);
  if (const data::SequenceView* mismatched = sets_.mismatched_of(set)) {
    set_baseline({&inputs, 1}, gains({&batch, 1}, *mismatched));
  }
}

}  // namespace lockstep::train
