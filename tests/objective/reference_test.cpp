// Reference models: stored scores and disabled adapters.
#include "objective/reference.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/testing.h"

namespace lockstep::objective {
namespace reference_test {

nn::ForwardInputs rows(const Tensor& ids) {
  nn::ForwardInputs inputs;
  inputs.ids = ids;
  Tensor labels = ids.clone();
  labels.slice(1, 0, 2).fill_(-100);
  inputs.targets = nn::next_tokens(labels);
  return inputs;
}

/// Scores each row by the number of its evaluations, and counts the calls.
struct CountingScorer {
  int calls = 0;
  std::vector<Tensor> operator()(std::span<const nn::ForwardInputs> batches) {
    ++calls;
    std::vector<Tensor> result;
    for (const nn::ForwardInputs& inputs : batches) {
      result.push_back(inputs.ids.select(1, 0).to(at::kDouble) / -3);
    }
    return result;
  }
};

TEST(StoredScores, AreFoundInOtherBatchesAndWithOtherPadding) {
  const Tensor ids = at::arange(20, at::kLong).view({4, 5}) + 1;
  CountingScorer scorer;
  StoredScores scores;
  const nn::ForwardInputs all = rows(ids);
  scores.store({&all, 1}, std::ref(scorer));
  EXPECT_EQ(scores.size(), 4U);

  nn::ForwardInputs later = rows(ids.slice(0, 1, 3).flip(0));
  later.ids = at::constant_pad_nd(later.ids, {0, 3}, 7);
  later.targets.tokens = at::constant_pad_nd(later.targets.tokens, {0, 3}, -100);
  StoredScores elsewhere;
  elsewhere.add(scores.text());
  for (StoredScores* each : {&scores, &elsewhere}) {
    each->refer({&later, 1});
    EXPECT_TRUE(later.targets.reference.equal(at::tensor({-11.0 / 3, -2.0}, at::kDouble)));
  }
  EXPECT_EQ(scorer.calls, 1);

  nn::ForwardInputs other = rows(ids + 1);
  EXPECT_THROW(scores.refer({&other, 1}), Error);
  for (const char* damaged : {"abc", "abc 1", "abc x\n", "abc 1.5y\n", "\n"}) {
    EXPECT_THROW(elsewhere.add(damaged), Error) << damaged;
  }
}

TEST(AdaptersOff, AreOffWhileTheReferenceIsScored) {
  bool on = true;
  AdaptersOff reference(
      [&](std::span<const nn::ForwardInputs> batches) {
        EXPECT_FALSE(on);
        return CountingScorer()(batches);
      },
      [&](bool now) { on = now; });
  nn::ForwardInputs inputs = rows(at::arange(10, at::kLong).view({2, 5}));
  reference.refer({&inputs, 1});
  EXPECT_TRUE(on);
  EXPECT_TRUE(inputs.targets.reference.equal(at::tensor({0.0, -5.0 / 3}, at::kDouble)));
}

}  // namespace reference_test
}  // namespace lockstep::objective
