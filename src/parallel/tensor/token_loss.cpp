// Cross-entropy over a sharded vocabulary.
#include "parallel/tensor/token_loss.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/products.h"

namespace lockstep::parallel {
namespace {

/// Maximum bytes of logits per chunk, and minimum number of rows for efficient products.
constexpr int64_t kLogitsBytes = int64_t{96} << 20;
constexpr int64_t kLeastRows = 128;

/// Returns the rows that have a target. The result is equal on every rank of the group, so all
/// ranks use the same chunks.
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
        "use the model's tokenizer, or model.resize_embeddings=true");
  }
  return rows;
}

/// Returns the width of the largest shard. All ranks derive the number of rows per chunk from it,
/// so that their chunks agree.
int64_t widest_part(const VocabularyShard& shard) {
  return mesh::split_evenly(shard.vocabulary, shard.group->size(), 0).size();
}

int64_t rows_of_a_run(const Tensor& weight, const VocabularyShard& shard) {
  const int64_t row = widest_part(shard) * static_cast<int64_t>(weight.element_size());
  return std::max(kLeastRows, kLogitsBytes / row);
}

/// Combines the ranks' statistics of each row's logits in one exchange of three or four numbers per
/// row, instead of one reduction per statistic.
void combine(ops::RowStatistics& part, comm::Communicator& group) {
  std::vector<Tensor> known{part.maximum, part.total, part.target};
  if (part.mean.defined()) {
    known.push_back(part.mean);
  }
  const Tensor mine = at::stack(known);  // [3, n], or [4, n]
  Tensor all = at::empty({group.size(), mine.size(0), mine.size(1)}, mine.options());
  group.all_gather(all, mine).wait();
  const Tensor peaks = all.select(1, 0);  // [ranks, n]
  part.maximum = peaks.amax(0);
  part.total = (all.select(1, 1) * (peaks - part.maximum).exp()).sum(0);
  part.target = all.select(1, 2).sum(0);
  if (part.mean.defined()) {
    part.mean = all.select(1, 3).sum(0);
  }
}

/// Statistics of a chunk of rows.
struct Run {
  Tensor losses;     // [n]
  Tensor likeliest;  // [n] int64
};

Run make_run(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    double softcap) {
  const bool is_double = hidden.scalar_type() == at::kDouble;
  Tensor logits = ops::matrix_product(hidden, weight.t()).to(is_double ? at::kDouble : at::kFloat);
  if (softcap > 0) {
    logits.div_(softcap).tanh_().mul_(softcap);
  }
  const Tensor local = targets - shard.rows.begin;
  const Tensor elsewhere = (local < 0).logical_or(local >= shard.rows.size());
  const Tensor of_target = logits.gather(1, local.masked_fill(elsewhere, 0).unsqueeze(1))
                               .squeeze(1)
                               .masked_fill(elsewhere, 0);
  const Tensor index = logits.argmax(1) + shard.rows.begin;
  const Tensor peak = logits.amax(1);
  const Tensor sum = logits.sub_(peak.unsqueeze(1)).exp_().sum(1);
  const Tensor mine = at::stack(
      {peak.to(at::kDouble),
       sum.to(at::kDouble),
       of_target.to(at::kDouble),
       index.to(at::kDouble)});  // [4, n]
  Tensor all = at::empty({shard.group->size(), mine.size(0), mine.size(1)}, mine.options());
  shard.group->communicator().all_gather(all, mine).wait();
  const Tensor peaks = all.select(1, 0);  // [ranks, n]
  const Tensor highest = peaks.amax(0);
  const Tensor whole = (all.select(1, 1) * (peaks - highest).exp()).sum(0);
  const Tensor rank = peaks.argmax(0, /*keepdim=*/true);  // the first rank that has the maximum
  return {
      whole.log() + highest - all.select(1, 2).sum(0),
      all.select(1, 3).gather(0, rank).squeeze(0).to(at::kLong)};
}

/// Returns the options for this rank's vocabulary shard.
ops::TokenLossOptions with_part(ops::TokenLossOptions options, const VocabularyShard& shard) {
  options.first_token = shard.rows.begin;
  options.vocabulary = shard.vocabulary;
  options.widest_part = widest_part(shard);
  options.combine = [group = shard.group](ops::RowStatistics& part) {
    combine(part, group->communicator());
  };
  return options;
}

}  // namespace

Tensor vocabulary_parallel_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    ops::TokenLossOptions options) {
  return ops::token_loss(hidden, weight, targets, with_part(std::move(options), shard));
}

Tensor vocabulary_parallel_divergences(
    const Tensor& hidden,
    const Tensor& weight,
    const VocabularyShard& shard,
    ops::TokenLossOptions options) {
  return ops::token_divergences(hidden, weight, with_part(std::move(options), shard));
}

ops::TokenScores vocabulary_parallel_scores(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    double softcap) {
  const at::NoGradGuard no_gradient;
  const Tensor rows = counted_rows(targets, shard.vocabulary);
  const auto type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const ops::TokenScores result{
      at::zeros(targets.sizes(), hidden.options().dtype(type)),
      at::zeros(targets.sizes(), hidden.options().dtype(at::kBool))};
  const int64_t size = rows_of_a_run(weight, shard);
  for (int64_t begin = 0; begin < rows.numel(); begin += size) {
    const Tensor index = rows.narrow(0, begin, std::min(size, rows.numel() - begin));
    const Tensor goal = targets.index_select(0, index);
    const Run run = make_run(hidden.index_select(0, index), weight, goal, shard, softcap);
    result.log_likelihoods.index_copy_(0, index, run.losses.neg().to(type));
    result.likeliest.index_copy_(0, index, run.likeliest.eq(goal));
  }
  return result;
}

}  // namespace lockstep::parallel
