#include "plan/validate.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "shared_data.h"

namespace lockstep::plan {
namespace {

constexpr const char* kHead =
    "system,source,model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,seq,global_batch,micro_"
    "batch,tp,pp,dp,cp,ep,"
    "zero_or_fsdp,schedule,recompute,gpu,n_gpus,precision,metric,value,unit\n";

std::vector<Run> runs_of(const std::string& rows) {
  return parse_runs(kHead + rows, "runs.csv");
}

TEST(Runs, GatherMetricsByConfigurationAndKeepBlanks) {
  const auto runs = runs_of(
      "S,\"a, "
      "\"\"b\"\"\",GPT,1.5,48,1600,,,,,1024,64,4,1,1,8,,,,,,A100-80GB,8,bf16,iter_time,900,ms\n"
      "S,\"a, "
      "\"\"b\"\"\",GPT,1.5,48,1600,,,,,1024,64,4,1,1,8,,,,,,A100-80GB,8,bf16,peak_mem,40,GB\r\n");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].cell("source"), "a, \"b\"");
  EXPECT_EQ(runs[0].rows, 2);
  EXPECT_EQ(runs[0].number("heads"), std::nullopt);
  const Prepared prepared = prepare(runs[0]);
  EXPECT_EQ(prepared.skipped, "");
  EXPECT_EQ(prepared.job.mesh.data, 8);
  EXPECT_DOUBLE_EQ(*measured_seconds(runs[0], prepared.job), 0.9);
  EXPECT_DOUBLE_EQ(*measured_bytes(runs[0]), 40e9);
}

TEST(Runs, SaysWhyRowsAreSkipped) {
  const auto reason = [](const std::string& row) { return prepare(runs_of(row)[0]).skipped; };
  EXPECT_EQ(reason("S,,M,,,,,,,,,64,,,,,,,,,,H100,8,,mfu,40,%\n"), "no layers or hidden size");
  EXPECT_EQ(reason("S,,M,,10,1024,,,,,,64,,,,,,8,,,,H100,8,,mfu,40,%\n"), "mixture of experts");
  EXPECT_EQ(reason("S,,M,,10,1024,,,,,,,,,,,,,,,,H100,8,,mfu,40,%\n"), "no global batch");
  EXPECT_EQ(reason("S,,M,,10,1024,,,,,,64,,,,,,,,,,Abacus,8,,mfu,40,%\n"), "an unknown device");
}

TEST(Runs, RefusesWhatIsNoTable) {
  EXPECT_THROW(parse_runs("", "x"), Error);
  EXPECT_THROW(parse_runs("a,b\n1,2\n", "x"), Error);
  EXPECT_THROW(runs_of("only,three,cells\n"), Error);
  EXPECT_THROW(runs_of("\"never closed\n"), Error);
  EXPECT_TRUE(runs_of("").empty());
}

TEST(Validate, RanksAndIgnoresNoise) {
  EXPECT_EQ(kendall_tau({1, 2, 3}, {1, 2, 3}, 0), 1.0);
  EXPECT_EQ(kendall_tau({3, 2, 1}, {1, 2, 3}, 0), -1.0);
  EXPECT_EQ(kendall_tau({2, 1, 3, 4}, {1, 1.01, 3, 4}, 0.03), 1.0);
  EXPECT_EQ(kendall_tau({1, 2}, {1, 2}, 0), std::nullopt);
}

TEST(Validate, JudgesRowsOfSystemsNeverSeen) {
  const Verdict verdict = judge(validate(
      runs_of("Abacus-1,,GPT,1.5,48,1600,25,,,50257,1024,64,4,1,1,8,,,,,none,A100-80GB,8,bf16,iter_"
              "time,0.001,ms\n"
              "Abacus-1,,MoE,,,,,,,,,64,,,,,,8,,,,H100,8,,mfu,40,%\n"),
      false));
  EXPECT_FALSE(verdict.met);
  const auto json = nlohmann::json::parse(verdict.json);
  EXPECT_EQ(json["rows"], 1);
  EXPECT_EQ(json["skipped"], 1);
  EXPECT_NE(verdict.text.find("MISSED step time of Abacus-1"), std::string::npos) << verdict.text;
}

TEST(Validate, TheLentRowsAreAboutAFifth) {
  const auto path = shared_data() / ".." / "plan" / "published_runs.csv";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there";
  }
  const auto runs = read_runs(path);
  const std::vector<bool> lent = lent_to_calibration(runs);
  double usable = 0;
  double lenders = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Prepared prepared = prepare(runs[i]);
    usable += prepared.skipped.empty() && measured_seconds(runs[i], prepared.job) ? 1 : 0;
    lenders += lent[i] ? 1 : 0;
  }
  EXPECT_GT(usable, 300);
  EXPECT_NEAR(lenders / usable, 0.2, 0.03);
  const auto json = nlohmann::json::parse(judge(validate(runs, true)).json);
  EXPECT_LT(json["median_step_time_error_sources_that_lent"], 0.06);
  EXPECT_LT(json["median_memory_error"], 0.08);
  EXPECT_EQ(json["ran_out_but_said_to_fit"], 0);
}

TEST(Fit, WritesASourceFile) {
  const std::string text = calibration_source(calibration());
  EXPECT_NE(text.find(".link_efficiency = "), std::string::npos);
  EXPECT_NE(text.find("{\"h100-80gb\""), std::string::npos);
}

}  // namespace
}  // namespace lockstep::plan
