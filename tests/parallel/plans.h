// Trains a small model under a plan, with ranks as threads, and compares it with one rank.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/format.h"
#include "comm/threads.h"
#include "mesh/cut.h"
#include "numbers.h"
#include "objective/reference.h"
#include "parallel/parallelize.h"

namespace lockstep::parallel {

inline constexpr int64_t kPlanRows = 5, kPlanLength = 11;  // batch size and sequence length; primes

/// Odd sizes, with dropout everywhere: 4 heads, prime vocabulary size and MLP width.
inline const char* const kOddGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 101, "n_embd": 24, "n_layer": 2, "n_head": 4,
        "n_inner": 53, "n_positions": 32, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1,
        "initializer_range": 0.1})";
/// Two key-value heads for six query heads, an untied head.
inline const char* const kOddLlama =
    R"({"model_type": "llama", "vocab_size": 103, "hidden_size": 24, "intermediate_size": 43,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4,
        "attention_bias": true, "mlp_bias": true, "initializer_range": 0.1})";
/// Windows, query and key biases, a tied head.
inline const char* const kOddQwen2 =
    R"({"model_type": "qwen2", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 4,
        "use_sliding_window": true, "sliding_window": 4, "max_window_layers": 1,
        "tie_word_embeddings": true, "initializer_range": 0.1})";

/// Query and key norms, heads wider than hidden size / heads, two key-value heads for six query
/// heads.
inline const char* const kOddQwen3 =
    R"({"model_type": "qwen3", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6,
        "tie_word_embeddings": true, "attention_dropout": 0.1, "initializer_range": 0.1})";

/// Five experts of a prime width, two per token, and a window.
inline const char* const kOddMixtral =
    R"({"model_type": "mixtral", "vocab_size": 101, "hidden_size": 20, "intermediate_size": 13,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
        "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 6, "attention_dropout": 0.1,
        "initializer_range": 0.2})";
/// Three experts with unnormalized weights, a dense MLP layer between two mixtures, query and key
/// norms.
inline const char* const kOddQwen3Moe =
    R"({"model_type": "qwen3_moe", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4,
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 11, "mlp_only_layers": [1],
        "tie_word_embeddings": true, "attention_dropout": 0.1, "initializer_range": 0.15})";
/// Four experts and a shared expert whose width is not divisible by any number of ranks; biases; a
/// dense MLP layer.
inline const char* const kOddQwen2Moe =
    R"({"model_type": "qwen2_moe", "vocab_size": 97, "hidden_size": 18, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
        "head_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 11,
        "shared_expert_intermediate_size": 17, "mlp_only_layers": [0], "attention_dropout": 0.1,
        "initializer_range": 0.2})";
/// Five experts with biases and clamped, interleaved gate and up projections; attention sinks; a
/// window in the first and last layer.
inline const char* const kOddGptOss =
    R"({"model_type": "gpt_oss", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 11,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6,
        "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 4, "swiglu_limit": 0.2,
        "initializer_range": 0.1})";
/// Six experts in three groups, of which each token uses at most two; corrected scores; a shared
/// expert with weight 1; a dense MLP layer first; query and key norms; partial rotary embedding.
inline const char* const kOddGlm4Moe =
    R"({"model_type": "glm4_moe", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
        "n_routed_experts": 6, "n_group": 3, "topk_group": 2, "num_experts_per_tok": 2,
        "moe_intermediate_size": 11, "routed_scaling_factor": 1.5, "use_qk_norm": true,
        "attention_bias": true, "attention_dropout": 0.1, "initializer_range": 0.15})";
/// Seven experts, one per token, so that some get no tokens; norms over all query heads and over
/// all key heads; clipped queries, keys and values; fewer key-value heads than ranks in some plans.
inline const char* const kOddOlmoe =
    R"({"model_type": "olmoe", "vocab_size": 103, "hidden_size": 24, "intermediate_size": 9,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "num_experts": 7,
        "num_experts_per_tok": 1, "norm_topk_prob": false, "clip_qkv": 1.5, "pad_token_id": null,
        "initializer_range": 0.2})";

/// Three encoder and two decoder layers, five heads; dropout wherever T5 has it.
inline const char* const kOddT5 =
    R"({"model_type": "t5", "vocab_size": 101, "d_model": 20, "d_kv": 3, "d_ff": 31,
        "num_layers": 3, "num_decoder_layers": 2, "num_heads": 5, "dropout_rate": 0.1,
        "relative_attention_num_buckets": 6, "relative_attention_max_distance": 9,
        "initializer_factor": 0.4})";
/// A gated MLP, an untied head, one encoder and three decoder layers.
inline const char* const kOddT5Gated =
    R"({"model_type": "t5", "vocab_size": 97, "d_model": 18, "d_kv": 4, "d_ff": 29,
        "num_layers": 1, "num_decoder_layers": 3, "num_heads": 3, "dropout_rate": 0.1,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11,
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "initializer_factor": 0.4})";

/// Encoders: a tied head with bias; an untied head without segments.
inline const char* const kOddBert =
    R"({"model_type": "bert", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
        "num_hidden_layers": 3, "num_attention_heads": 5, "max_position_embeddings": 24,
        "type_vocab_size": 3, "initializer_range": 0.2})";
inline const char* const kOddDistilBert =
    R"({"model_type": "distilbert", "vocab_size": 97, "dim": 24, "hidden_dim": 31, "n_layers": 3,
        "n_heads": 6, "max_position_embeddings": 24, "tie_word_embeddings": false,
        "initializer_range": 0.1})";

/// Initial values. The score correction of routers, which has no gradient and is initialized to
/// zero, gets nonzero values.
inline ModelSpec::Fill plan_fill(const model::ModelConfig& config) {
  auto specs = model::parameters_by_name(config);
  for (auto& [name, spec] : specs) {
    if (name.ends_with("e_score_correction_bias")) {
      spec.init = {model::Initialization::Kind::kNormal, 0.2, -1};
    }
  }
  return fill_at_random(std::move(specs), 3);
}

struct PlanCase {
  mesh::Mesh mesh = {};
  int64_t accumulation = 1;
  Plan plan = {};
};

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::map<std::string, Tensor>> gradients;  // whole gradients of each step
  std::vector<std::optional<ExpertLoad>> loads;          // per step
  std::vector<Tensor> sums;  // sums of the objective per step, then those of an evaluation
  std::map<std::string, int64_t> owned;  // gradient elements that ranks own, over all steps
};

/// Returns the rows of a data-parallel rank and micro-batch. Some labels are masked, so that ranks
/// have different numbers of targets.
inline nn::ForwardInputs plan_inputs(
    const model::ModelConfig& config, int64_t step, mesh::Range rows, int64_t length) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + static_cast<uint64_t>(step));
  const Tensor ids =
      at::empty({kPlanRows, length}, at::kLong).random_(0, config.vocab_size, generator);
  Tensor labels = ids.clone();
  labels.index_put_({0, torch::indexing::Slice(0, length / 2)}, -100);
  labels.index_put_({3, torch::indexing::Slice(length - 2)}, -100);
  nn::ForwardInputs inputs;
  if (config.is_encoder_decoder()) {  // sources have a different length, and some are padded
    const Tensor source =
        at::empty({kPlanRows, length + 2}, at::kLong).random_(0, config.vocab_size, generator);
    Tensor mask = at::ones({kPlanRows, length + 2}, at::kBool);
    mask.index_put_({1, torch::indexing::Slice(length / 2)}, false);
    mask.index_put_({4, torch::indexing::Slice(length)}, false);
    inputs.source = source.slice(0, rows.begin, rows.end);
    inputs.source_mask = mask.slice(0, rows.begin, rows.end);
  }
  inputs.ids = ids.slice(0, rows.begin, rows.end);
  if (config.token_types > 0) {
    inputs.token_types = at::empty({kPlanRows, length}, at::kLong)
                             .random_(0, config.token_types, generator)
                             .slice(0, rows.begin, rows.end);
  }
  const Tensor own = labels.slice(0, rows.begin, rows.end);
  inputs.targets = config.bidirectional ? nn::own_tokens(own) : nn::next_tokens(own);
  inputs.samples = at::arange(step * kPlanRows + rows.begin, step * kPlanRows + rows.end);
  inputs.seed = 5;
  inputs.step = step;
  inputs.training = true;
  return inputs;
}

/// Rows of plan_inputs packed with documents of 1 to 7 tokens. Documents do not attend to each
/// other and do not predict the next document's first token.
inline nn::ForwardInputs plan_documents(
    const model::ModelConfig& config, int64_t step, mesh::Range rows, int64_t length) {
  nn::ForwardInputs inputs = plan_inputs(config, step, rows, length);
  Tensor starts = at::zeros({kPlanRows, length}, at::kLong);
  auto start = starts.accessor<int64_t, 2>();
  for (int64_t row = 0; row < kPlanRows; ++row) {
    for (int64_t t = 1; t < length; ++t) {
      const int64_t before = start[row][t - 1];
      start[row][t] = (t * 7 + row * 5 + step) % 4 == 0 || t - before == 7 ? t : before;
    }
  }
  const Tensor places = at::arange(length);
  inputs.document_starts = starts.slice(0, rows.begin, rows.end);
  inputs.positions = places - inputs.document_starts;
  /// The first token of a document is a target of the position before it.
  const Tensor begins = inputs.document_starts.eq(places);
  const Tensor hidden =
      at::constant_pad_nd(begins.narrow(1, 1, length - 1), {0, 1}, 0).to(at::kBool);
  inputs.targets.tokens = inputs.targets.tokens.masked_fill(hidden, ops::kIgnoredTarget);
  inputs.targets.counts = inputs.targets.tokens.ne(ops::kIgnoredTarget).sum(1).to(at::kDouble);
  return inputs;
}

/// Copies a rank's slice into the whole tensor.
inline void add_to_whole(const StateSlice& slice, Tensor& whole) {
  if (!whole.defined()) {
    whole = at::full(slice.shape, NAN);
  }
  const Tensor flat = whole.view({-1});
  mesh::visit_runs(
      slice.cut,
      slice.shape,
      slice.begin,
      slice.begin + slice.data.numel(),
      [&](int64_t local, int64_t at, int64_t count) {
        flat.narrow(0, at, count).copy_(slice.data.narrow(0, local - slice.begin, count));
      });
}

/// Builds a micro-batch from a range of the step's kPlanRows units: plan_inputs, or a function that
/// makes several rows of each unit, which stay together.
using RowMaker = std::function<nn::ForwardInputs(
    const model::ModelConfig&, int64_t step, mesh::Range units, int64_t length)>;
/// Creates the reference model of a model under a plan.
using ReferenceMaker = std::function<std::shared_ptr<objective::Reference>(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes)>;

/// Returns the cross-entropy sums over the local part of the rows.
inline Tensor sums_of(const nn::LanguageModel& model, const nn::ForwardInputs& inputs) {
  const at::NoGradGuard no_gradient;
  return objective::cross_entropy()->measure(model.scores(inputs), inputs.targets, {});
}

/// Trains under a plan. `vary` may change trained parameters and objective.
inline Trained train_under(
    const PlanCase& plan,
    const std::string& json,
    int64_t steps = 3,
    int64_t length = kPlanLength,
    const std::function<void(ModelSpec&)>& vary = nullptr,
    const RowMaker& rows_of = plan_inputs,
    const ReferenceMaker& reference_of = nullptr) {
  const model::ModelConfig config = model::parse_model_config(json, "a test");
  Trained trained;
  trained.gradients.resize(static_cast<size_t>(steps));
  std::mutex mutex;
  comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
    ParallelGroups axes(world, plan.mesh);
    Plan options = plan.plan;
    options.optimizer.weight_decay = 0.1;
    // Adam normalizes gradients that are only rounding errors to full steps, which differ by
    // processor. The epsilon suppresses them (parallel/verify.cpp).
    options.optimizer.adam_epsilon = 1e-4;
    options.accumulation_steps = plan.accumulation;
    options.bucket_megabytes = 0.01;
    options.max_gradient_norm = 0.5;
    ModelSpec spec{config, at::kFloat, at::kCPU, plan_fill(config)};
    if (vary) {
      vary(spec);
    }
    const auto model = parallelize(spec, options, axes);
    const auto reference = reference_of ? reference_of(spec, options, axes) : nullptr;
    const auto refer = [&](std::span<nn::ForwardInputs> inputs) {
      if (reference != nullptr) {
        reference->refer(inputs);
      }
    };
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<nn::ForwardInputs> inputs;
      const int64_t parts = plan.mesh.data * plan.accumulation;
      for (int64_t m = 0; m < plan.accumulation; ++m) {
        const int64_t part = axes.coordinate().data * plan.accumulation + m;
        inputs.push_back(rows_of(config, step, mesh::split_evenly(kPlanRows, parts, part), length));
      }
      refer(inputs);
      const nn::Targets all = rows_of(config, step, {0, kPlanRows}, length).targets;
      const StepResult result = model->forward_backward(inputs, model->objective().counts(all));
      {
        const std::scoped_lock lock(mutex);
        if (world.rank() == 0) {
          trained.losses.push_back(result.loss);
          trained.norms.push_back(result.gradient_norm);
          trained.sums.push_back(at::tensor(result.sums, at::kDouble));
          trained.loads.push_back(result.experts);
        }
        auto& gradients = trained.gradients[static_cast<size_t>(step)];
        model->visit_gradients([&](const StateSlice& slice) {
          add_to_whole(slice, gradients[slice.name]);
          trained.owned[slice.name] += slice.owned_end - slice.owned_begin;
        });
      }
      model->optimizer_step(1e-3);  // outside the lock: it may wait for another rank
    }
    model->compare_replicas();
    model->put_averages(true);
    nn::ForwardInputs inputs = rows_of(
        config,
        steps,
        mesh::split_evenly(kPlanRows, plan.mesh.data, axes.coordinate().data),
        length);
    inputs.training = false;
    refer({&inputs, 1});
    const Tensor evaluated = model->statistics({&inputs, 1});
    axes.data_context().all_reduce(evaluated).wait();
    if (world.rank() == 0) {
      trained.sums.push_back(evaluated);
    }
  });
  return trained;
}

/// Compares losses, norms and gradients of all steps within the tolerances of numbers.h.
inline void expect_equal(const Trained& found, const Trained& one, const std::string& name) {
  ASSERT_EQ(found.losses.size(), one.losses.size()) << name;
  for (size_t step = 0; step < one.losses.size(); ++step) {
    const std::string what = fmt::format("{}, step {}", name, step);
    numbers::expect_loss(found.losses[step], one.losses[step], what);
    EXPECT_NEAR(found.norms[step], one.norms[step], numbers::kRule * one.norms[step]) << what;
  }
  ASSERT_EQ(found.sums.size(), one.sums.size()) << name;
  for (size_t i = 0; i < one.sums.size(); ++i) {
    numbers::expect_values(found.sums[i], one.sums[i], fmt::format("{}, sums {}", name, i));
  }
  for (size_t step = 0; step < one.loads.size(); ++step) {
    ASSERT_EQ(found.loads[step].has_value(), one.loads[step].has_value()) << name;
    if (const auto& load = one.loads[step]) {
      EXPECT_DOUBLE_EQ(found.loads[step]->most, load->most) << name;
      EXPECT_DOUBLE_EQ(found.loads[step]->least, load->least) << name;
      EXPECT_DOUBLE_EQ(found.loads[step]->dropped, load->dropped) << name;
      EXPECT_NEAR(found.loads[step]->balance, load->balance, numbers::kRule) << name;
      EXPECT_NEAR(found.loads[step]->z, load->z, numbers::kRule * (1 + load->z)) << name;
    }
  }
  EXPECT_EQ(found.owned, one.owned) << name;
  ASSERT_EQ(found.gradients.size(), one.gradients.size()) << name;
  for (size_t step = 0; step < one.gradients.size(); ++step) {
    numbers::expect_gradients(
        found.gradients[step], one.gradients[step], fmt::format("{}, step {}", name, step));
  }
}

inline std::string with_five_layers(std::string json) {
  for (const char* key : {"n_layer\": 2", "num_hidden_layers\": 2"}) {
    const size_t at = json.find(key);
    if (at != std::string::npos) {
      json[at + std::string(key).size() - 1] = '5';
    }
  }
  return json;
}

inline std::string plan_name(const PlanCase& plan) {
  std::string name = plan.mesh.text() + ", accumulation " + std::to_string(plan.accumulation);
  if (plan.plan.zero_stage > 0) {
    name += ", ZeRO " + std::to_string(plan.plan.zero_stage);
  }
  if (plan.mesh.pipeline > 1) {
    name += ", " + plan.plan.pipeline.schedule + " " + plan.plan.pipeline.split;
  }
  if (plan.plan.sequence_sharding == SequenceSharding::kShards) {
    name += ", sequence";
  }
  if (plan.plan.expert_halves) {
    name += ", halves";
  }
  return name;
}

/// Runs two steps and an evaluation under each plan and compares them with one rank, whose rows may
/// be laid out differently.
inline void expect_table(
    const std::string& json,
    const std::vector<PlanCase>& table,
    const std::function<void(ModelSpec&)>& vary = nullptr,
    const RowMaker& rows_of = plan_inputs,
    const ReferenceMaker& reference_of = nullptr,
    const RowMaker& rows_under_plans = nullptr) {
  constexpr int64_t kSteps = 2;
  const auto train = [&](const PlanCase& plan, const RowMaker& rows) {
    return train_under(plan, json, kSteps, kPlanLength, vary, rows, reference_of);
  };
  const Trained one = train({}, rows_of);
  for (PlanCase plan : table) {
    plan.plan.sequence_length = kPlanLength;
    expect_equal(train(plan, rows_under_plans ? rows_under_plans : rows_of), one, plan_name(plan));
  }
}

}  // namespace lockstep::parallel
