// Prompts of monitor.samples: checks and encoding.
#include "train/samples.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/sample_tokenizer.h"
#include "train/checkpointing.h"

namespace lockstep::train {
namespace samples_test {

/// A run of a small model with evaluations and these prompts.
struct Asked {
  Job job;

  explicit Asked(std::vector<std::string> prompts, const char* model = "gpt2-tiny") {
    job.source.config = model::preset(model);
    job.tokenizer = text::sample_tokenizer();
    job.config.monitor.samples = std::move(prompts);
    job.config.training.eval_strategy = "steps";
  }
  /// Returns the error; empty if samples are possible.
  std::string problem() const {
    try {
      check_samples(job);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_TRUE(error.message().starts_with("monitor.samples: ")) << error.message();
      EXPECT_FALSE(error.remedy().empty());
      return error.message();
    }
    return "";
  }
};

TEST(CheckSamples, TakesPromptsThatLeaveRoom) {
  EXPECT_EQ(Asked({"The quick", "x"}).problem(), "");
  Asked asked({"a"});
  const int64_t limit = *model::position_limit(asked.job.source.config);
  const auto tokens = [&](const std::string& text) {
    return std::ssize(encode_prompt(*asked.job.tokenizer, asked.job.source.config, text));
  };
  std::string longest;
  while (tokens(longest + "1") < limit) {
    longest += "1";
  }
  asked.job.config.monitor.samples = {longest};
  EXPECT_EQ(asked.problem(), "");
  asked.job.config.monitor.samples = {"x", longest + "1"};
  EXPECT_NE(asked.problem().find("prompt 2 has"), std::string::npos);
  EXPECT_NE(asked.problem().find("no room in the model's"), std::string::npos);
}

TEST(CheckSamples, AnEmptyPromptIsNamed) {
  EXPECT_NE(Asked({"a", ""}).problem().find("prompt 2 has no tokens"), std::string::npos);
  EXPECT_EQ(Asked({}).problem(), "");
}

TEST(CheckSamples, ARunWithoutEvaluationsWritesNone) {
  Asked asked({"a"});
  asked.job.config.training.eval_strategy = "no";
  EXPECT_NE(asked.problem().find("this run has none"), std::string::npos);
  asked.job.config.training.eval_on_start = true;
  EXPECT_EQ(asked.problem(), "");
}

TEST(CheckSamples, AModelThatWritesNothingIsRefused) {
  Asked classifier({"a"});
  classifier.job.task.head = {model::HeadSpec::Kind::kClassifier, {"a", "b"}};
  EXPECT_NE(classifier.problem().find("does not generate text"), std::string::npos);
  Asked steered({"a"});
  steered.job.task.head = model::states_head(1);
  EXPECT_NE(steered.problem().find("does not generate text"), std::string::npos);
  Asked encoder({"a"});
  encoder.job.source.config.bidirectional = true;
  EXPECT_NE(encoder.problem().find("does not generate text"), std::string::npos);
}

TEST(EncodePrompt, ASourceEndsAsInTraining) {
  const auto tokenizer = text::sample_tokenizer();
  const auto plain = encode_prompt(*tokenizer, model::preset("gpt2-tiny"), "The quick");
  auto source = encode_prompt(*tokenizer, model::preset("t5-small"), "The quick");
  ASSERT_TRUE(tokenizer->eos());
  EXPECT_EQ(source.back(), *tokenizer->eos());
  source.pop_back();
  EXPECT_EQ(source, plain);
  EXPECT_EQ(encode_prompt(*tokenizer, model::preset("gpt2-tiny"), "<|user|>").size(), 1U)
      << "special tokens are recognised";
}

TEST(SchedulerArguments, HaveWhatWasGivenAlone) {
  config::TrainingSection training;
  EXPECT_EQ(scheduler_arguments(training), "");
  training.lr_scheduler_kwargs.num_cycles = 0.5;
  training.lr_scheduler_kwargs.decay_type = "cosine";
  training.lr_scheduler_kwargs.num_decay_steps = 0;
  EXPECT_EQ(
      scheduler_arguments(training),
      R"({"decay_type":"cosine","num_cycles":0.5,"num_decay_steps":0})");
}

}  // namespace samples_test
}  // namespace lockstep::train
