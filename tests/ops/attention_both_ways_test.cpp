// Bidirectional attention of encoders: every implementation sees all keys of a query's document.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "numbers.h"
#include "ops/attention.h"
#include "ops/biased_attention.h"

namespace lockstep::ops {
namespace attention_both_ways_test {

constexpr int64_t kRows = 2, kHeads = 3, kLength = 13, kSize = 8;

Tensor starts() {
  return at::tensor(
             {0, 0, 0, 0, 0, 5, 5, 5, 5, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12},
             at::kLong)
      .view({kRows, kLength});
}

struct Found {
  std::vector<Tensor> values;  // output, and gradients of query, key and value
};

template <class Attend>
Found found_by(const Attend& attend) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  std::vector<Tensor> leaves;
  for (int i = 0; i < 3; ++i) {
    leaves.push_back(at::empty({kRows, kHeads, kLength, kSize})
                         .normal_(0, 1, generator)
                         .set_requires_grad(true));
  }
  const Tensor weights = at::empty({kRows, kHeads, kLength, kSize}).normal_(0, 1, generator);
  const Tensor out = attend(leaves[0], leaves[1], leaves[2]);
  (out * weights).sum().backward();
  return {{out.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()}};
}

void expect_same(const Found& found, const Found& wanted, const char* what) {
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    numbers::expect_values(found.values[i], wanted.values[i], what);
  }
}

TEST(AttentionBothWays, EveryFormIsThatOfTheFormula) {
  for (const bool has_documents : {false, true}) {
    for (const double dropout : {0.0, 0.3}) {
      AttentionOptions options;
      options.causal = false;
      options.scale = 0.4;
      options.dropout = dropout;
      options.dropout_keys = dropout > 0 ? at::tensor({11, 12}, at::kLong) : Tensor();
      options.document_starts = has_documents ? starts() : Tensor();
      const Tensor visible =
          has_documents ? starts().unsqueeze(2).eq(starts().unsqueeze(1)).unsqueeze(1) : Tensor();
      const BiasedAttentionOptions plain{0.4, dropout, options.dropout_keys};
      const Found wanted = found_by([&](const Tensor& q, const Tensor& k, const Tensor& v) {
        return biased_attention(q, k, v, {}, visible, plain);
      });
      const auto form = [&](auto attend) {
        return found_by([&](const Tensor& q, const Tensor& k, const Tensor& v) {
          return attend(q, k, v, options);
        });
      };
      expect_same(form(attention), wanted, "the one that is chosen");
      expect_same(form(tiled_attention), wanted, "by tiles");
      if (dropout == 0) {
        expect_same(form(fused_attention), wanted, "ATen's");
      }
    }
  }
}

TEST(AttentionBothWays, ADocumentEndsWhereTheNextBegins) {
  const Tensor ends = ends_of_documents(starts());
  EXPECT_TRUE(at::equal(
      ends,
      at::tensor(
          {5,  5,  5,  5,  5,  9,  9,  9,  9,  13, 13, 13, 13,
           12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 13},
          at::kLong)
          .view({kRows, kLength})));
}

}  // namespace attention_both_ways_test
}  // namespace lockstep::ops
