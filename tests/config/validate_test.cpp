// Tests the validation of configurations.
#include "config/validate.h"

#include <gmock/gmock.h>

#include "config/core/schema.h"
#include "config/core/unsupported_keys.h"
#include "config/harness.h"

namespace lockstep::config {
namespace validate_test {

using testing::HasSubstr;
using testing::IsEmpty;

std::string error(const std::vector<std::string>& arguments) {
  return Harness().error(arguments);
}

TEST(Validate, RangesAreToldWithTheValueAndItsOrigin) {
  const std::pair<const char*, const char*> cases[] = {
      {"per_device_train_batch_size=0", "must be at least 1, not 0"},
      {"gradient_accumulation_steps=-2", "must be at least 1, not -2"},
      {"learning_rate=-1", "must be at least 0, not -1.0"},
      {"learning_rate=nan", "must be at least 0, and finite, not .nan"},
      {"learning_rate=inf", "must be at least 0, and finite, not .inf"},
      {"adam_beta1=1", "at least 0 and below 1"},
      {"adam_epsilon=-1", "at least 0"},
      {"num_train_epochs=0", "above 0"},
      {"logging_steps=0", "an integer number of steps, or a fraction"},
      {"logging_steps=1.5", "an integer number of steps, or a fraction"},
      {"warmup_steps=-1", "a number of steps, or a fraction"},
      {"data.validation_fraction=1", "at least 0 and below 1"},
      {"data.sequence_length=1", "0 or from 2"},
      {"parallel.zero_stage=4", "0, 1, 2 or 3"},
      {"parallel.tensor=0", "at least 1"},
      {"parallel.expert=0", "at least 1"},
      {"router_aux_loss=rows", "sequence"},
      {"router_z_loss_coef=-1", "at least 0"},
      {"expert_capacity_factor=0", "above 0"},
      {"expert_capacity_factor=inf", "above 0"},
      {"router_aux_loss_coef=0.1", "is only used with a load-balancing loss"},
      {"monitor.peak_tflops=0", "above 0"},
      {"report_to=[wandbb]", "Did you mean 'wandb'?"},
      {"parallel.schedule=1f1", "Did you mean '1f1b'?"},
      {"parallel.split=3,x", "not a split"},
  };
  for (const auto& [argument, text] : cases) {
    const std::string quoted =
        std::string(argument) == "parallel.split=3,x" ? "parallel.split='3,x'" : argument;
    EXPECT_THAT(error({quoted}), HasSubstr(text)) << argument;
    EXPECT_THAT(error({quoted}), HasSubstr("(command line: " + quoted + ")")) << argument;
  }
  EXPECT_EQ(error({"num_train_epochs=0", "max_steps=5"}), "");
  // Values that request nothing, as in TrainingArguments.
  EXPECT_EQ(
      error(
          {"save_total_limit=0",
           "save_steps=0",
           "eval_steps=0",
           "adam_epsilon=0",
           "max_grad_norm=-1",
           "warmup_steps=2.5"}),
      "");
}

TEST(Validate, CombinationsAreToldWithTheRemedy) {
  EXPECT_THAT(error({"bf16=true", "fp16=true"}), HasSubstr("bf16 is also set"));
  EXPECT_THAT(error({"bf16_full_eval=true"}), HasSubstr("set training.bf16=true"));
  EXPECT_THAT(error({"model.path=a", "model.preset=b"}), HasSubstr("set only one of them"));
  EXPECT_THAT(error({"eval_strategy=steps"}), HasSubstr("data.validation=FILE"));
  EXPECT_THAT(error({"do_predict=true"}), HasSubstr("data.test=FILE"));
  EXPECT_THAT(error({"save_strategy=best"}), HasSubstr("eval_strategy=steps"));
  EXPECT_THAT(error({"load_best_model_at_end=true"}), HasSubstr("eval_strategy"));
  const std::vector<std::string> evaluates = {"data.validation=v.txt", "eval_strategy=steps"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), evaluates.begin(), evaluates.end());
    return error(more);
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({"load_best_model_at_end=true", "eval_steps=100", "save_steps=300"}), "");
  EXPECT_THAT(
      with({"load_best_model_at_end=true", "eval_steps=200", "save_steps=300"}),
      HasSubstr("save_steps 300 is not a multiple of eval_steps 200"));
  EXPECT_THAT(
      with({"load_best_model_at_end=true", "save_strategy=epoch"}),
      HasSubstr("save_strategy epoch differs from eval_strategy steps"));
}

TEST(Validate, TasksAndTheirLabels) {
  const auto with = [&](std::vector<std::string> more) {
    more.emplace_back("task.type=sequence_classification");
    return error(more);
  };
  EXPECT_EQ(with({"task.labels=[no,yes]"}), "");
  EXPECT_THAT(with({"task.labels=[no]"}), HasSubstr("there is only one label"));
  EXPECT_THAT(with({"task.labels=[no,yes,no]"}), HasSubstr("\"no\" is listed twice"));
  EXPECT_THAT(with({"data.packing=true"}), HasSubstr("concatenation would cut off labels"));
  EXPECT_EQ(with({"data.packing=documents"}), "");
  EXPECT_EQ(with({"data.packing=none"}), "");
  EXPECT_THAT(with({"data.prompt=alpaca"}), HasSubstr("not used with sequence_classification"));
  EXPECT_EQ(with({"task.class_weights=balanced"}), "");
  EXPECT_EQ(with({"task.class_weights=[1,2.5]", "task.focal_gamma=2"}), "");
  EXPECT_THAT(with({"task.class_weights=[1,-2]"}), HasSubstr("'-2' is not a weight"));
  EXPECT_EQ(with({"task.class_weights={spam: 3, ham: 0.5}", "task.labels=[ham,spam,eggs]"}), "");
  EXPECT_THAT(with({"task.class_weights={spam: -3}"}), HasSubstr("'spam=-3' is not a weight"));
  EXPECT_THAT(with({"task.class_weights=['spam=3',1]"}), HasSubstr("'1' is not a weight"));
  EXPECT_THAT(
      with({"task.class_weights=[1,2]", "task.labels=[a,b,c]"}),
      HasSubstr("2 weights for 3 labels"));
  EXPECT_THAT(error({"task.type=sequence_clasification"}), HasSubstr("Did you mean"));
  EXPECT_THAT(
      error({"task.type=language_modeling", "task.labels=[a,b]"}),
      HasSubstr("only used with task.type=sequence_classification"));
}

TEST(Validate, WhatIsOfChatsAloneIsNotPassedOver) {
  EXPECT_EQ(error({"data.prompt=chat", "data.chat_template=a.jinja", "data.chat_loss=last"}), "");
  for (const char* key : {"data.chat_template=a.jinja", "data.chat_loss=last"}) {
    EXPECT_EQ(error({key}), "") << "data.prompt=auto depends on the rows";
    for (const char* other : {"data.prompt=none", "task.type=masked_lm"}) {
      EXPECT_THAT(error({key, other}), HasSubstr("only used with data.prompt=chat")) << other;
    }
  }
  EXPECT_THAT(error({"data.packing=bins"}), HasSubstr("bins is not one of auto, documents"));
}

TEST(Validate, PreferencesAndTheirLosses) {
  const auto with = [](std::vector<std::string> more) {
    more.emplace_back("task.type=preference");
    return error(more);
  };
  EXPECT_EQ(with({"preference.loss_type=robust", "preference.label_smoothing=0.1"}), "");
  EXPECT_EQ(with({"preference.objective=cpo", "preference.loss_type=simpo"}), "");
  EXPECT_THAT(
      with({"preference.objective=kto", "preference.loss_type=hinge"}),
      AllOf(HasSubstr("not a loss of preference.objective=kto"), HasSubstr("apo_zero_unpaired")));
  EXPECT_THAT(
      with({"preference.loss_type=exo_pair"}), HasSubstr("the exo_pair loss divides by it"));
  EXPECT_THAT(with({"preference.label_smoothing=0.5"}), HasSubstr("at least 0 and below 0.5"));
  EXPECT_THAT(with({"preference.beta=0"}), HasSubstr("above 0"));
  EXPECT_THAT(
      with({"preference.simpo_gamma=1"}),
      AllOf(HasSubstr("not used with preference.objective=dpo"), HasSubstr("simpo, cpo")));
  EXPECT_THAT(with({"data.packing=true"}), HasSubstr("concatenation would cut off answers"));
  EXPECT_THAT(
      with({"preference.center_rewards_coefficient=1"}), HasSubstr("task.type=reward_model"));
  EXPECT_THAT(
      error({"preference.objective=dpo"}), HasSubstr("only used with task.type=preference"));
  EXPECT_EQ(error({"task.type=reward_model", "preference.center_rewards_coefficient=0.01"}), "");
}

TEST(Validate, SchedulesAndTheirArguments) {
  EXPECT_THAT(
      error({"lr_scheduler_kwargs.power=2"}),
      HasSubstr("lr_scheduler_type=linear does not use it"));
  EXPECT_THAT(
      error({"lr_scheduler_type=polynomial", "lr_scheduler_kwargs.num_cycles=2"}),
      HasSubstr("its arguments are lr_end, power"));
  EXPECT_THAT(error({"lr_scheduler_type=warmup_stable_decay"}), HasSubstr("num_decay_steps"));
  EXPECT_THAT(
      error({"lr_scheduler_type=cosine_with_min_lr"}), HasSubstr("either min_lr or min_lr_rate"));
  EXPECT_THAT(error({"lr_scheduler_type=reduce_lr_on_plateau"}), HasSubstr("eval_strategy=steps"));
  EXPECT_THAT(
      error({"lr_scheduler_kwargs={num_cycle: 2}"}),
      HasSubstr("Did you mean 'training.lr_scheduler_kwargs.num_cycles'?"));
  EXPECT_THAT(error({"lr_scheduler_type=cosin"}), HasSubstr("Did you mean 'cosine'?"));
  EXPECT_EQ(
      error({"lr_scheduler_type=cosine_with_min_lr", "lr_scheduler_kwargs.min_lr_rate=0.1"}), "");
  const Harness harness;
  EXPECT_TRUE(
      any_holds(harness.run({"max_steps=10", "warmup_steps=20"}).warnings, "never reaches"));
  EXPECT_TRUE(any_holds(
      harness.run({"lr_scheduler_type=constant", "warmup_steps=20"}).warnings, "no warmup"));
}

TEST(Validate, GradientCheckpointingIsRecomputation) {
  EXPECT_THAT(
      error({"gradient_checkpointing=true", "parallel.recompute=none"}),
      HasSubstr("is the same as recompute=full"));
  EXPECT_THAT(
      error({"gradient_checkpointing=false", "parallel.recompute=full"}),
      HasSubstr("is the same as recompute=full"));
  Config config;
  Origins origins{{"training.gradient_checkpointing", {.source = Origin::Source::kCommandLine}}};
  Problems problems;
  config.training.gradient_checkpointing = true;
  settle(config, origins, problems);
  EXPECT_EQ(config.parallel.recompute, "full");
  EXPECT_THAT(
      describe(origins["parallel.recompute"]), HasSubstr("from training.gradient_checkpointing"));
  config = {};
  origins = {{"parallel.recompute", {.source = Origin::Source::kCommandLine}}};
  config.parallel.recompute = "selective";
  settle(config, origins, problems);
  EXPECT_TRUE(config.training.gradient_checkpointing);
  EXPECT_TRUE(problems.empty());
}

TEST(Validate, WhatIsTypedWinsOverTheOtherNameInAFile) {
  const Harness harness;
  harness.write(
      "run.yaml", "training:\n  gradient_checkpointing: false\nparallel:\n  recompute: none\n");
  EXPECT_EQ(
      harness.run({"-c", "@/run.yaml", "gradient_checkpointing=true"}).config.parallel.recompute,
      "full");
  EXPECT_TRUE(harness.run({"-c", "@/run.yaml", "parallel.recompute=selective"})
                  .config.training.gradient_checkpointing);
}

TEST(Validate, WhatIsNotBuiltIsRefusedAndNamed) {
  for (const KeyRule& rule : unsupported_keys()) {
    const Key* key = find_key(std::string(rule.name));
    ASSERT_NE(key, nullptr) << rule.name;
    EXPECT_FALSE(rule.text.empty());
    const std::string value = key->type == Key::Type::kBool
                                  ? (key->default_value.text == "true" ? "false" : "true")
                              : !key->choices.empty()            ? key->choices.back()
                              : key->type == Key::Type::kInteger ? "2"
                                                                 : "0.5";
    EXPECT_THAT(error({key->name + "=" + value}), HasSubstr("is not supported yet")) << key->name;
    const std::string harmless = key->default_value.is_null() ? "null" : key->default_value.text;
    EXPECT_EQ(error({key->name + "=" + harmless}), "") << key->name;
  }
}

TEST(Validate, IdleKeysAreWarnedOf) {
  const Harness harness;
  const auto warnings = [&](const char* argument) { return harness.run({argument}).warnings; };
  EXPECT_TRUE(any_holds(warnings("parallel.schedule=gpipe"), "only used with parallel.pipeline"));
  EXPECT_TRUE(any_holds(warnings("run_name=first"), "report_to=wandb"));
  EXPECT_THAT(warnings("report_to=wandb"), IsEmpty());
  EXPECT_TRUE(any_holds(warnings("parallel.offload_param.path=/x"), "device=nvme"));
  EXPECT_TRUE(any_holds(warnings("ddp_backend=gloo"), "GPUs communicate through nccl"));
  EXPECT_TRUE(any_holds(warnings("dataloader_num_workers=4"), "one thread"));
  EXPECT_THAT(warnings("report_to=none"), IsEmpty());
  EXPECT_THAT(warnings("report_to=all"), IsEmpty());
  EXPECT_THAT(warnings("parallel.schedule=1f1b"), IsEmpty());
}

TEST(Validate, AllProblemsAreToldAtOnceButAScreenAtMost) {
  std::vector<std::string> arguments;
  for (int i = 0; i < 30; ++i) {
    arguments.push_back("training.x" + std::to_string(i) + "=1");
  }
  const std::string text = error(arguments);
  EXPECT_THAT(text, HasSubstr("has 30 problems"));
  EXPECT_THAT(text, HasSubstr("and 10 more"));
}

}  // namespace validate_test
}  // namespace lockstep::config
