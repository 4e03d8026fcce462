// Tests of error output: one screen of text, the exit code, and memory advice.
#include "cli/report_error.h"

#include <new>
#include <stdexcept>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/bandwidth.h"
#include "cli/memory_advice.h"

namespace lockstep::cli {
namespace report_error_test {

struct Reported {
  int code = 0;
  std::string text;
};

Reported report(const std::function<int()>& body) {
  ::testing::internal::CaptureStderr();
  const int code = report_errors(body);
  return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(ReportErrors, TheKindIsTheExitCode) {
  EXPECT_EQ(report([] { return 7; }).code, 7);
  EXPECT_EQ(report([] { return 7; }).text, "");
  for (const ErrorKind kind :
       {ErrorKind::kRun,
        ErrorKind::kConfig,
        ErrorKind::kEnvironment,
        ErrorKind::kData,
        ErrorKind::kCheckpoint,
        ErrorKind::kOutOfMemory,
        ErrorKind::kNumeric,
        ErrorKind::kPeerLost,
        ErrorKind::kInternal}) {
    const Reported found = report([&]() -> int { throw Error(kind, "this is what", "do this"); });
    EXPECT_EQ(found.code, exit_code(kind));
    EXPECT_NE(found.text.find("this is what"), std::string::npos) << found.text;
    EXPECT_NE(found.text.find("do this"), std::string::npos) << found.text;
  }
}

TEST(ReportErrors, OthersExceptionsAreOnesOfOurs) {
  const Reported memory = report([]() -> int { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code, exit_code(ErrorKind::kOutOfMemory));
  EXPECT_NE(memory.text.find("per_device_train_batch_size"), std::string::npos) << memory.text;
  const Reported torch = report([]() -> int {
    TORCH_CHECK(false, "shapes do not match");
    return 0;
  });
  EXPECT_EQ(torch.code, exit_code(ErrorKind::kInternal));
  EXPECT_NE(torch.text.find("shapes do not match"), std::string::npos) << torch.text;
  EXPECT_NE(torch.text.find("please report it"), std::string::npos) << torch.text;
  EXPECT_EQ(torch.text.find("frame #"), std::string::npos) << "no page of stack";
  const Reported other = report([]() -> int { throw std::runtime_error("a surprise"); });
  EXPECT_EQ(other.code, exit_code(ErrorKind::kInternal));
  EXPECT_NE(other.text.find("a surprise"), std::string::npos) << other.text;
}

TEST(ReportErrors, AnErrorOfOursStaysWhatItIs) {
  try {
    (void)with_our_errors([]() -> int {
      Error error(ErrorKind::kData, "what", "remedy");
      error.add_context("reading a file");
      throw error;
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_EQ(error.contexts(), (std::vector<std::string>{"reading a file"}));
  }
}

/// GPT-2 XL with a user's typical first configuration.
config::Config large() {
  config::Config config;
  config.model.preset = "gpt2-xl";
  config.training.per_device_train_batch_size = 8;
  config.data.sequence_length = 1024;
  return config;
}

Error advised(const config::Config& config, int64_t ranks, const std::string& remedy = "") {
  Error error(ErrorKind::kOutOfMemory, "the memory ran out", remedy);
  error.add_context("the forward pass");
  return with_cheapest_changes(error, config, ranks);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(MemoryAdvice, TellsThreeChangesAtMostTheCheapestFirst) {
  const Error error = advised(large(), 4);
  EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
  EXPECT_EQ(error.message(), "the memory ran out");
  EXPECT_EQ(error.contexts(), (std::vector<std::string>{"the forward pass"}));
  EXPECT_EQ(count(error.remedy(), "saves about"), 3U) << error.remedy();
  EXPECT_NE(error.remedy().find("reduces it, cheapest first"), std::string::npos);
  const size_t bf16 = error.remedy().find("bf16=true"),
               stage = error.remedy().find("parallel.zero_stage=1");
  EXPECT_LT(bf16, stage) << error.remedy();
  EXPECT_NE(stage, std::string::npos) << error.remedy();
}

TEST(MemoryAdvice, SaysNothingOfWhatIsSoAlready) {
  config::Config config = large();
  config.training.bf16 = true;
  config.parallel.zero_stage = 3;
  config.training.per_device_train_batch_size = 1;
  config.training.gradient_checkpointing = true;
  config.training.optim = "adamw_8bit";
  const Error error = advised(config, 4);
  for (const char* change :
       {"bf16=true",
        "zero_stage=1",
        "zero_stage=2",
        "per_device_train_batch_size",
        "gradient_checkpointing",
        "adamw_8bit"}) {
    EXPECT_EQ(error.remedy().find(std::string("\n  ") + change), std::string::npos)
        << change << ": " << error.remedy();
  }
  EXPECT_NE(error.remedy().find("offload_optimizer.device=cpu"), std::string::npos);
  config.training.use_cpu = true;  // offload to host memory has no use on CPUs
  EXPECT_EQ(advised(config, 4).remedy().find("offload_optimizer"), std::string::npos);
}

TEST(MemoryAdvice, WhatWasRefusedBeforeItBeganCanBeForced) {
  EXPECT_NE(
      advised(large(), 1, "with --force it starts").remedy().find("--force"), std::string::npos);
  EXPECT_EQ(advised(large(), 1, "buy more").remedy().find("--force"), std::string::npos);
}

TEST(MemoryAdvice, WithoutAnEstimateTheErrorStaysAsItIs) {
  config::Config config = large();
  config.model.preset = "no-such-model";
  EXPECT_EQ(advised(config, 1, "buy more").remedy(), "buy more");
}

TEST(Bandwidth, TravelsAsALineOfText) {
  const Measured measured{.all_reduce = 1.25e9, .expected = 3.5e9, .clocks = 1e-5};
  const std::string text = to_text(measured);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const Measured back = measured_from_text(text);
  EXPECT_EQ(back.all_reduce, measured.all_reduce);
  EXPECT_EQ(back.expected, measured.expected);
  EXPECT_EQ(back.clocks, measured.clocks);
  EXPECT_EQ(measured_from_text("").all_reduce, 0);
}

}  // namespace report_error_test
}  // namespace lockstep::cli
