// Continuations of cached prompts: their scores equal those of whole rows.
#include "nn/continuations.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "model/rope.h"
#include "nn/testing.h"
#include "numbers.h"

namespace lockstep::nn {
namespace continuations_test {

/// Prompts of 1 to 9 tokens, with different lengths or the same length.
std::vector<TokenIds> prompts_of(const model::ModelConfig& config, const std::vector<int>& sizes) {
  const Tensor ids = small_inputs(config, 1, 9).ids;
  const auto* const first = ids.const_data_ptr<int64_t>();
  std::vector<TokenIds> prompts;
  for (const int size : sizes) {
    prompts.emplace_back(first + 9 - size, first + 9);
  }
  return prompts;
}

TEST(Continuations, HaveTheScoresOfWholeRows) {
  const at::NoGradGuard no_gradient;
  const std::vector<TokenIds> texts{{3, 5}, {3, 6, 2, 1}, {7}, {1, 1, 2}};
  for (const char* json : kSmallModels) {
    const model::ModelConfig config = model::parse_model_config(json, "test");
    if (config.is_encoder_decoder() || config.bidirectional ||
        model::rope_depends_on_length(config)) {
      continue;
    }
    const auto model = small_model(config);
    for (const std::vector<int>& sizes : {std::vector{5, 9, 6}, {1, 4}, {8, 8, 8}}) {
      const std::vector<TokenIds> prompts = prompts_of(config, sizes);
      const Continuations continuations(*model, prompts, at::kCPU);
      std::vector<TokenIds> rows;
      std::vector<size_t> begins;
      std::vector<int64_t> of_prompt;
      std::vector<TokenIds> behind;
      for (size_t i = 0; i < prompts.size(); ++i) {
        for (const TokenIds& text : texts) {
          rows.push_back(prompts[i]);
          rows.back().insert(rows.back().end(), text.begin(), text.end());
          begins.push_back(prompts[i].size());
          of_prompt.push_back(static_cast<int64_t>(i));
          behind.push_back(text);
        }
      }
      const Tensor wanted = model->scores(predicted_from(rows, begins))
                                .log_likelihoods.sum(1, false, at::kDouble)
                                .view({-1, std::ssize(texts)});
      for (const int64_t rows_at_once : {1, 6, 100}) {
        numbers::expect_values(continuations.log_likelihoods(texts, rows_at_once), wanted, json);
      }
      const Tensor logits = continuations.next_logits(of_prompt, behind);
      for (size_t i = 0; i < rows.size(); ++i) {
        ForwardInputs alone;
        alone.ids = at::tensor(rows[i], at::kLong).unsqueeze(0);
        numbers::expect_values(logits[static_cast<int64_t>(i)], model->last_logits(alone)[0], json);
      }
    }
  }
}

}  // namespace continuations_test
}  // namespace lockstep::nn
