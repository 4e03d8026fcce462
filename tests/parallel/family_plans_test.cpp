// Plan tests of each model family under every axis of parallelism, compared with one rank.
#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"
#include "parallel/products.h"

namespace lockstep::parallel {
namespace family_plans_test {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kUlysses = ContextAttention::kUlysses;
constexpr auto kFull = Recompute::kFull;
constexpr auto kSelective = Recompute::kSelective;
namespace products = parallel::testing;

/// A model of odd sizes. Families with post-norms have larger weights: a post-norm divides by the
/// magnitude of the sublayer's output, and a small output would amplify rounding errors, even on
/// one rank. The weights are scaled so that sums in a different order differ by at most 7e-6 with
/// any instruction set.
struct FamilyCase {
  const char* name;
  const char* json;
};

void PrintTo(const FamilyCase& family, std::ostream* out) {
  *out << family.name;
}

const FamilyCase kFamilies[] = {
    {"gpt2", kOddGpt2},
    {"llama", kOddLlama},
    {"mistral",
     R"({"model_type": "mistral", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6,
        "sliding_window": 4, "initializer_range": 0.1})"},
    {"qwen2", kOddQwen2},
    {"qwen3", kOddQwen3},
    {"t5", kOddT5},
    {"mixtral", kOddMixtral},
    {"qwen3_moe", kOddQwen3Moe},
    {"qwen2_moe", kOddQwen2Moe},
    {"olmoe", kOddOlmoe},
    {"glm4_moe", kOddGlm4Moe},
    {"gpt_oss", kOddGptOss},
    {"gemma",
     R"({"model_type": "gemma", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 6,
        "attention_dropout": 0.1, "initializer_range": 0.1})"},
    // Active logit caps, a window shorter than the rows, pre-norms and post-norms.
    {"gemma2",
     R"({"model_type": "gemma2", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6,
        "sliding_window": 4, "query_pre_attn_scalar": 3, "attn_logit_softcapping": 0.5,
        "final_logit_softcapping": 1.5, "attention_dropout": 0.1, "initializer_range": 0.13})"},
    // Two RoPE thetas, query and key norms.
    {"gemma3_text",
     R"({"model_type": "gemma3_text", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6,
        "sliding_window": 4, "sliding_window_pattern": 2, "query_pre_attn_scalar": 3,
        "final_logit_softcapping": 2, "rope_theta": 1000, "rope_local_base_freq": 10,
        "rope_scaling": {"rope_type": "linear", "factor": 2}, "initializer_range": 0.6})"},
    // Fused projections with three key-value heads, partial rotary embedding, windows, dropout.
    {"phi3",
     R"({"model_type": "phi3", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8,
        "partial_rotary_factor": 0.5, "sliding_window": 5, "resid_pdrop": 0.1, "pad_token_id": 7,
        "attention_dropout": 0.1, "initializer_range": 0.1})"},
    // Parallel residual, five heads in an interleaved QKV projection, dropout everywhere.
    {"gpt_neox",
     R"({"model_type": "gpt_neox", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 5, "rotary_pct": 0.5, "hidden_dropout": 0.1,
        "attention_dropout": 0.1, "initializer_range": 0.1})"},
    // Unscaled attention scores, windows, learned positions.
    {"gpt_neo",
     R"({"model_type": "gpt_neo", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_layers": 3, "num_heads": 5, "attention_types": [[["global", "local"], 1], [["local"], 1]],
        "window_size": 4, "max_position_embeddings": 32, "embed_dropout": 0.1, "resid_dropout": 0.1,
        "attention_dropout": 0.1, "initializer_range": 0.1})"},
    // Norms over all heads: with three ranks some key-value heads are replicated.
    {"olmo2",
     R"({"model_type": "olmo2", "vocab_size": 97, "hidden_size": 24, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
        "attention_bias": true, "attention_dropout": 0.1, "initializer_range": 0.3})"},
    {"olmo3",
     R"({"model_type": "olmo3", "vocab_size": 97, "hidden_size": 24, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3,
        "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention",
        "sliding_attention"], "rope_scaling": {"rope_type": "linear", "factor": 2},
        "initializer_range": 0.3})"},
    {"glm",
     R"({"model_type": "glm", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 8,
        "pad_token_id": 3, "initializer_range": 0.1})"},
    // Interleaved rotary embedding, fused gate and up projection, pre-norms and post-norms.
    {"glm4",
     R"({"model_type": "glm4", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
        "pad_token_id": 3, "attention_dropout": 0.1, "initializer_range": 0.15})"},
    // Different configuration keys, a fused QKV projection with bias.
    {"chatglm",
     R"({"model_type": "chatglm", "padded_vocab_size": 97, "hidden_size": 20, "ffn_hidden_size": 31,
        "num_layers": 3, "num_attention_heads": 6, "multi_query_attention": true,
        "multi_query_group_num": 3, "kv_channels": 8, "add_qkv_bias": true, "attention_dropout": 0.1,
        "hidden_dropout": 0.1, "initializer_range": 0.1})"},
    // Encoders: a tied head with a bias whose rows are unevenly split, dropout everywhere,
    // post-norms.
    {"bert", kOddBert},
    // Positions start after the padding index.
    {"roberta",
     R"({"model_type": "roberta", "vocab_size": 97, "hidden_size": 24, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 3, "max_position_embeddings": 26,
        "type_vocab_size": 1, "pad_token_id": 5, "classifier_dropout": 0.3,
        "initializer_range": 0.1})"},
    // No segments, no dropout on the attention output, an untied head.
    {"distilbert", kOddDistilBert},
};

/// One family per kind of block for `make test`. The remaining families are similar and run with
/// the long tests.
constexpr std::string_view kKinds[] = {
    "gpt2", "llama", "t5", "qwen3_moe", "gemma2", "phi3", "gpt_neox", "gpt_oss", "bert"};

std::vector<FamilyCase> families(
    bool of_kinds, const std::function<bool(const FamilyCase&)>& wanted = nullptr) {
  std::vector<FamilyCase> result;
  for (const FamilyCase& family : kFamilies) {
    if ((std::ranges::find(kKinds, family.name) != std::end(kKinds)) == of_kinds &&
        (!wanted || wanted(family))) {
      result.push_back(family);
    }
  }
  return result;
}

/// False for encoder-decoder models.
bool is_one_stack(const FamilyCase& family) {
  return family.name != std::string_view("t5");
}

bool is_mixture(const FamilyCase& family) {
  return model::parse_model_config(family.json, "a test").experts.count > 0;
}

/// True if Ulysses attention can divide the heads among three ranks.
bool has_three_heads(const FamilyCase& family) {
  return is_one_stack(family) && model::parse_model_config(family.json, "a test").heads % 3 == 0;
}

/// Rows with a class label at the last token.
nn::ForwardInputs classified(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = plan_inputs(config, step, units, length);
  const Tensor rows = at::arange(units.begin, units.end, at::kLong);
  inputs.targets = nn::classes_at(
      length - 1 - (rows * 3).remainder(length), (rows * 7 + step).remainder(3), length);
  return inputs;
}

std::function<void(ModelSpec&)> classifying() {
  return [](ModelSpec& spec) {
    spec.config = model::with_head(
        spec.config, {model::HeadSpec::Kind::kClassifier, {"bad", "so so", "good"}});
    spec.fill = fill_at_random(spec.config, 3);
  };
}

// Each test is a column of the support table (docs/models.md), and each case is a row.
std::string name_of(const ::testing::TestParamInfo<FamilyCase>& info) {
  return info.param.name;
}

class FamilyPlans : public ::testing::TestWithParam<FamilyCase> {
 protected:
  static void expect(
      const std::vector<PlanCase>& plans,
      const std::function<void(ModelSpec&)>& vary = nullptr,
      const RowMaker& rows_of = plan_inputs) {
    std::vector<PlanCase> table = plans;
    if (GetParam().name == std::string_view("t5")) {  // T5 has dropout inside the MLP
      for (PlanCase& plan : table) {
        Recompute& kind = plan.plan.recompute.kind;
        kind = kind == kSelective ? kFull : kind;
      }
    }
    expect_table(GetParam().json, table, vary, rows_of);
  }
};
INSTANTIATE_TEST_SUITE_P(Parallel, FamilyPlans, ::testing::ValuesIn(families(true)), name_of);
INSTANTIATE_TEST_SUITE_P(Long, FamilyPlans, ::testing::ValuesIn(families(false)), name_of);

TEST_P(FamilyPlans, Tensor) {
  expect(
      {{{.tensor = 2}, 2},
       {{.tensor = 3}, 1, {.recompute = {kFull}}},
       {{.data = 2, .tensor = 3}, 1, {.zero_stage = 3, .recompute = {kSelective}}}});
}

TEST_P(FamilyPlans, Sequence) {
  expect(
      {{{.tensor = 2}, 1, {.sequence_sharding = kShards}},
       {{.tensor = 3}, 2, {.sequence_sharding = kShards}},
       {{.pipeline = 2, .data = 2, .tensor = 2},
        2,
        {.zero_stage = 1, .sequence_sharding = kShards}}});
}

TEST_P(FamilyPlans, Context) {
  expect(
      {{{.context = 2}, 2},
       {{.context = 3}, 1, {.recompute = {kFull}}},
       {{.context = 2, .tensor = 2}, 1, {.zero_stage = 2, .sequence_sharding = kShards}}});
}

TEST_P(FamilyPlans, Pipeline) {
  expect(
      {{{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}},
       {{.pipeline = 2, .tensor = 2}, 2, {.recompute = {kSelective}}},
       {{.pipeline = 2, .context = 2}, 2}});
}

TEST_P(FamilyPlans, Zero) {
  expect(
      {{{.data = 2}, 2, {.zero_stage = 1}},
       {{.data = 2}, 1, {.zero_stage = 2, .recompute = {kSelective}}},
       {{.data = 3}, 1, {.zero_stage = 3}}});
}

/// LoRA on every linear of a frozen model.
TEST_P(FamilyPlans, LowRank) {
  const products::Adapt adapt = [](nn::LanguageModel& model) {
    products::adapt_low_rank(model, products::Base::kFrozen);
  };
  expect(
      {{{.tensor = 2}, 1, {.sequence_sharding = kShards}},
       {{.data = 2, .tensor = 3}, 1, {.zero_stage = 3}},
       {{.pipeline = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}}},
      [&](ModelSpec& spec) {
        spec.adapt = adapt;
        spec.fill = products::fill_adapted(spec.config, adapt);
      });
}

/// LoRA on linears packed in 4 bits.
TEST_P(FamilyPlans, FourBit) {
  const products::Adapt adapt = [](nn::LanguageModel& model) {
    products::adapt_low_rank(model, products::Base::kFrozen);
  };
  expect(
      {{{.tensor = 2}, 1}, {{.data = 2, .tensor = 3}, 1, {.zero_stage = 3}}, {{.pipeline = 2}, 2}},
      [&](ModelSpec& spec) { products::pack(spec, {ops::PackedKind::kNf4, 64, true}, adapt); });
}

class FamilyOfOneStack : public FamilyPlans {};
INSTANTIATE_TEST_SUITE_P(
    Parallel, FamilyOfOneStack, ::testing::ValuesIn(families(true, is_one_stack)), name_of);
INSTANTIATE_TEST_SUITE_P(
    Long, FamilyOfOneStack, ::testing::ValuesIn(families(false, is_one_stack)), name_of);

TEST_P(FamilyPlans, Classifier) {
  expect(
      {{{.tensor = 2}, 2},
       {{.tensor = 3}, 1, {.sequence_sharding = kShards}},
       {{.pipeline = 2, .context = 2}, 2},
       {{.data = 2}, 1, {.zero_stage = 3}}},
      classifying(),
      classified);
}

TEST_P(FamilyOfOneStack, Documents) {
  expect(
      {{{.context = 3}, 2}, {{.pipeline = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}}},
      nullptr,
      plan_documents);
}

/// Mixtures with experts distributed over ranks of data and context.
class FamilyOfExperts : public FamilyPlans {};
INSTANTIATE_TEST_SUITE_P(
    Parallel, FamilyOfExperts, ::testing::ValuesIn(families(true, is_mixture)), name_of);
INSTANTIATE_TEST_SUITE_P(
    Long, FamilyOfExperts, ::testing::ValuesIn(families(false, is_mixture)), name_of);

TEST_P(FamilyOfExperts, Spread) {
  expect(
      {{{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2}},
       {{.data = 3}, 1, {.zero_stage = 1, .expert_ranks = 3, .expert_halves = true}},
       {{.context = 2, .tensor = 2}, 1, {.expert_ranks = 2, .sequence_sharding = kShards}}});
}

/// Ulysses attention.
class FamilyHeads : public FamilyPlans {};
INSTANTIATE_TEST_SUITE_P(
    Parallel, FamilyHeads, ::testing::ValuesIn(families(true, has_three_heads)), name_of);
INSTANTIATE_TEST_SUITE_P(
    Long, FamilyHeads, ::testing::ValuesIn(families(false, has_three_heads)), name_of);

TEST_P(FamilyHeads, Exchanged) {
  expect({{{.context = 3}, 2, {.context_attention = kUlysses}}});
}

const FamilyCase& find(std::string_view name) {
  for (const FamilyCase& family : kFamilies) {
    if (family.name == name) {
      return family;
    }
  }
  throw std::invalid_argument(std::string(name));
}

TEST(FamiliesRefuse, PackedHeadsThatRanksWouldShareAreRefused) {
  comm::run_ranks(4, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.tensor = 4});
    const model::ModelConfig config = model::parse_model_config(find("phi3").json, "a test");
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    try {
      (void)parallelize(spec, Plan{}, axes);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.message().find("3 key-value heads"), std::string::npos) << error.what();
      EXPECT_NE(error.remedy().find("at most 3"), std::string::npos) << error.remedy();
    }
  });
}

}  // namespace family_plans_test
}  // namespace lockstep::parallel
