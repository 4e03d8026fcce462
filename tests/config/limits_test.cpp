// Tests every limit of a number: a value beyond it is an error that names the limit, and the limit
// itself is accepted.
#include <gmock/gmock.h>

#include "base/format.h"
#include "config/harness.h"

namespace lockstep::config {
namespace limits_test {

using testing::HasSubstr;

/// `context`: arguments that make the key used.
struct Limit {
  const char* key;
  const char* refused;
  const char* must;
  const char* taken;
  std::vector<std::string> context = {};
};

std::string error(const Limit& limit, const char* value) {
  std::vector<std::string> arguments = limit.context;
  arguments.push_back(fmt::format("{}={}", limit.key, value));
  return Harness().error(arguments);
}

/// Checks that the message contains the location of the key and the allowed values.
void expect_limit(const Limit& limit) {
  const std::string text = error(limit, limit.refused);
  EXPECT_THAT(text, HasSubstr(limit.must)) << limit.key << "=" << limit.refused;
  EXPECT_THAT(text, HasSubstr(fmt::format("(command line: {}={})", limit.key, limit.refused)));
  EXPECT_EQ(error(limit, limit.taken), "") << limit.key << "=" << limit.taken;
}

TEST(Limits, OfTheTrainingSection) {
  const Limit limits[] = {
      {"training.per_device_eval_batch_size", "0", "must be at least 1, not 0", "1"},
      {"training.dataloader_num_workers", "-1", "must be at least 0, not -1", "0"},
      {"training.dataloader_prefetch_factor", "0", "must be at least 1, not 0", "1"},
      {"training.ddp_timeout", "0", "must be at least 1, not 0", "1"},
      {"training.hang_report", "-0.5", "must be at least 0, not -0.5", "0"},
      {"training.hang_timeout", "-1", "must be at least 0", "0"},
      {"training.weight_decay", "-0.1", "must be at least 0, not -0.1", "0"},
      {"training.adam_beta1", "-0.1", "must be at least 0 and below 1, not -0.1", "0"},
      {"training.adam_beta2", "1", "must be at least 0 and below 1", "0.9999"},
      {"training.adam_epsilon", "-1e-8", "must be at least 0", "0"},
      {"training.max_grad_norm", "nan", "must be a finite number", "-1"},
      {"training.neftune_noise_alpha", "-1", "must be at least 0, not -1", "0"},
      {"training.label_smoothing_factor", "1", "must be at least 0 and below 1", "0.99"},
      {"training.ddp_bucket_cap_mb", "0", "must be above 0", "0.5"},
      {"training.router_z_loss_coef", "-0.1", "must be at least 0", "0"},
      {"training.save_steps", "-1", "a fraction of all steps between 0 and 1, not -1", "0"},
      {"training.save_steps", "inf", "a fraction of all steps between 0 and 1", "0.5"},
      {"training.save_steps", "2.5", "a fraction of all steps between 0 and 1, not 2.5", "2"},
      {"training.logging_steps", "inf", "a fraction of all steps between 0 and 1", "1"},
      {"training.eval_steps", "-1", "a fraction of all steps between 0 and 1, not -1", "0"},
      {"training.warmup_steps", "-1", "a fraction of all steps between 0 and 1, not -1", "2.5"},
      {"training.warmup_epochs", "-0.1", "must be at least 0", "0.1"},
      {"training.eval_delay", "-1", "must be at least 0", "0"},
      {"training.early_stopping_threshold", "-1", "must be at least 0", "0"},
      {"training.layer_wise_learning_rate_decay", "0", "above 0, at most 1", "1"},
      {"training.layer_wise_learning_rate_decay", "1.1", "above 0, at most 1", "0.9"},
      {"training.muon_momentum", "1", "must be at least 0 and below 1", "0"},
      {"training.muon_ns_steps", "0", "must be from 1 to 99, not 0", "1"},
      {"training.muon_ns_steps", "100", "must be from 1 to 99, not 100", "99"},
      {"training.ademamix_beta3", "1", "must be at least 0 and below 1", "0"},
      {"training.ademamix_alpha", "-1", "must be at least 0", "0"},
      {"training.ademamix_t_alpha", "-1", "must be at least 0, not -1", "0"},
      {"training.ademamix_t_beta3", "-1", "must be at least 0, not -1", "0"},
      {"training.muon_learning_rate", "-1", "must be at least 0", "0", {"optim=muon"}},
      {"training.num_train_epochs", "nan", "must be above 0", "0.01"},
      {"training.learning_rates", "{a: -1}", "numbers of at least 0", "{a: 0}"},
      {"training.weight_decays", "{a: -1}", "numbers of at least 0", "{a: 0}"},
      {"training.lr_scheduler_kwargs.timescale",
       "0",
       "must be at least 1",
       "1",
       {"lr_scheduler_type=inverse_sqrt"}},
  };
  for (const Limit& limit : limits) {
    expect_limit(limit);
  }
}

TEST(Limits, OfTheLearningRatesPlateau) {
  const std::vector<std::string> plateau = {
      "lr_scheduler_type=reduce_lr_on_plateau", "data.validation=v.txt", "eval_strategy=steps"};
  for (const char* value : {"1", "-0.5"}) {
    expect_limit(
        {"training.lr_scheduler_kwargs.factor", value, "must be from 0 to below 1", "0", plateau});
  }
}

TEST(Limits, OfDataAndTasks) {
  const Limit limits[] = {
      {"data.sequence_length", "-1", "0 or from 2 to 67108864, not -1", "0"},
      {"data.sequence_length", "67108865", "0 or from 2 to 67108864", "67108864"},
      {"data.validation_fraction", "-0.1", "at least 0 and below 1, not -0.1", "0.99"},
      {"data.test_fraction", "1", "at least 0 and below 1", "0.5"},
      {"data.mlm_probability", "0", "above 0 and at most 1", "1", {"task.type=masked_lm"}},
      {"data.mlm_probability", "1.1", "above 0 and at most 1", "0.15", {"task.type=masked_lm"}},
      {"data.mask_replace_prob",
       "-0.1",
       "must be 0 to 1",
       "0",
       {"task.type=masked_lm", "data.random_replace_prob=0"}},
      {"data.random_replace_prob",
       "0.5",
       "at most 1 together with data.mask_replace_prob, not 0.5",
       "0.2",
       {"task.type=masked_lm", "data.mask_replace_prob=0.8"}},
      {"task.focal_gamma", "-1", "must be at least 0", "0", {"task.type=sequence_classification"}},
      {"task.focal_gamma",
       "1",
       "must be 0: regression has no labels",
       "0",
       {"task.type=sequence_classification", "task.problem_type=regression"}},
  };
  for (const Limit& limit : limits) {
    expect_limit(limit);
  }
}

TEST(Limits, OfPlans) {
  const Limit limits[] = {
      {"parallel.data", "0", "must be at least 1", "1"},
      {"parallel.pipeline", "0", "must be at least 1", "2"},
      {"parallel.context", "0", "must be at least 1", "2"},
      {"parallel.zero_stage", "-1", "must be 0, 1, 2 or 3, not -1", "3"},
      {"parallel.virtual_stages",
       "0",
       "must be at least 1",
       "2",
       {"parallel.schedule=interleaved", "parallel.pipeline=2"}},
      {"parallel.prefetch_units", "-1", "must be at least 0", "0", {"parallel.zero_stage=3"}},
      {"parallel.persistence_threshold",
       "-1",
       "must be at least 0",
       "0",
       {"parallel.zero_stage=3"}},
      {"parallel.prefetch_elements", "-1", "must be at least 0", "0", {"parallel.zero_stage=3"}},
      {"parallel.shard_ranks", "-2", "-1 (the ranks of a machine)", "-1"},
      {"parallel.offload_optimizer.ratio",
       "1.5",
       "must be from 0 to 1",
       "1",
       {"parallel.offload_optimizer.device=cpu"}},
      {"parallel.recompute_every", "0", "must be at least 1", "1"},
      {"precision.loss_scale.fixed", "-1", "0 or a positive number", "1", {"fp16=true"}},
      {"precision.loss_scale.initial_power", "121", "from 0 to 120", "120", {"fp16=true"}},
      {"precision.loss_scale.window", "0", "must be at least 1", "1", {"fp16=true"}},
      {"precision.loss_scale.hysteresis", "0", "must be at least 1", "1", {"fp16=true"}},
      {"precision.loss_scale.minimum", "0", "must be above 0", "0.5", {"fp16=true"}},
      {"checkpoint.compare_replicas", "-1", "must be at least 0", "0"},
      {"checkpoint.in_memory_replicas", "2", "must be 0 or 1, not 2", "1"},
      {"checkpoint.replica_steps", "0", "must be at least 1", "1"},
      {"monitor.sample_tokens", "0", "must be at least 1", "1"},
      {"monitor.histograms", "-1", "must be at least 0", "0"},
      {"monitor.peak_tflops", "0", "must be above 0", "1"},
      {"monitor.otlp", "collector:4318", "http://HOST:PORT", "http://collector:4318"},
  };
  for (const Limit& limit : limits) {
    expect_limit(limit);
  }
}

TEST(Limits, OfAdaptersAndPackedWeights) {
  const std::vector<std::string> lora = {"lora.r=8"}, packed = {"quantization.bits=4"};
  const Limit limits[] = {
      {"lora.r", "0", "must be at least 1", "1"},
      {"lora.lora_alpha", "0", "must be above 0", "0.5", lora},
      {"lora.lora_dropout", "1", "at least 0 and below 1", "0.5", lora},
      {"lora.layers_to_transform", "[0,-1]", "'-1' is not a layer index", "[0,1]", lora},
      {"lora.layers_to_transform", "[x]", "'x' is not a layer index", "[3]", lora},
      {"lora.trainable_token_indices", "[1.5]", "'1.5' is not a token index", "[1]", lora},
      {"lora.rank_pattern", "{q_proj: 0}", "numbers above 0", "{q_proj: 4}", lora},
      {"lora.rank_pattern", "{q_proj: 1.5}", "must be integers", "{q_proj: 2}", lora},
      {"lora.alpha_pattern", "{q_proj: -1}", "numbers above 0", "{q_proj: 1.5}", lora},
      {"quantization.bits", "5", "must be 4 or 8, not 5", "8"},
      {"quantization.block_size", "48", "a power of two from 32 to 4096, not 48", "32", packed},
      {"quantization.block_size", "16", "a power of two from 32 to 4096", "4096", packed},
      {"quantization.block_size", "8192", "a power of two from 32 to 4096", "64", packed},
  };
  for (const Limit& limit : limits) {
    expect_limit(limit);
  }
}

TEST(Limits, OfPreferences) {
  const auto objective = [](const char* name) {
    return std::vector<std::string>{
        "task.type=preference", fmt::format("preference.objective={}", name)};
  };
  const Limit limits[] = {
      {"preference.beta", "-1", "must be above 0", "0.01", objective("dpo")},
      {"preference.label_smoothing", "-0.1", "at least 0 and below 0.5", "0.49", objective("dpo")},
      {"preference.discopop_tau",
       "0",
       "must be above 0",
       "0.05",
       {"task.type=preference", "preference.objective=dpo", "preference.loss_type=discopop"}},
      {"preference.rpo_alpha", "-1", "must be at least 0", "0", objective("dpo")},
      {"preference.simpo_gamma", "nan", "must be a number", "-1", objective("simpo")},
      {"preference.cpo_alpha", "-1", "must be at least 0", "0", objective("cpo")},
      {"preference.desirable_weight", "-1", "must be at least 0", "0", objective("kto")},
      {"preference.undesirable_weight", "-1", "must be at least 0", "0", objective("kto")},
      {"preference.max_prompt_length", "0", "must be at least 1", "1", objective("dpo")},
      {"preference.precompute_ref_batch_size", "0", "must be at least 1", "1", objective("dpo")},
      {"preference.center_rewards_coefficient",
       "-1",
       "must be at least 0",
       "0",
       {"task.type=reward_model"}},
  };
  for (const Limit& limit : limits) {
    expect_limit(limit);
  }
}

TEST(Limits, OfUnlearning) {
  const auto method = [](const char* name) {
    return std::vector<std::string>{
        "task.type=unlearning",
        fmt::format("unlearning.method={}", name),
        "unlearning.forget=f.jsonl",
        "unlearning.retain=r.jsonl"};
  };
  const Limit limits[] = {
      {"unlearning.gamma", "-1", "must be at least 0", "0", method("NPO")},
      {"unlearning.alpha", "-1", "must be at least 0", "1", method("NPO")},
      {"unlearning.beta", "0", "must be above 0", "0.1", method("NPO")},
      {"unlearning.delta", "nan", "must be a number", "-1", method("SimNPO")},
      {"unlearning.steering_coeff", "-1", "must be at least 0", "0", method("RMU")},
      {"unlearning.max_new_tokens", "0", "must be at least 1", "1", method("NPO")},
      {"unlearning.beta1", "-1", "must be at least 0", "0", method("SatImp")},
      {"unlearning.beta2", "-1", "must be at least 0", "0", method("SatImp")},
      {"unlearning.ignore_first_n_answer_tokens",
       "-1",
       "must be at least 0",
       "0",
       {"task.type=unlearning", "unlearning.method=CEU", "unlearning.forget=f.jsonl"}},
      {"unlearning.reference_batch_size", "0", "must be at least 1", "1", method("NPO")},
  };
  for (const Limit& limit : limits) {
    expect_limit(limit);
  }
}

}  // namespace limits_test
}  // namespace lockstep::config
