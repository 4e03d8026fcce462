#include <cmath>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "published_runs/validate.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace lockstep::plan {
namespace published_runs_test {

constexpr const char* kHead =
    "system,source,model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,seq,global_batch,micro_"
    "batch,tp,pp,dp,cp,ep,"
    "zero_or_fsdp,schedule,recompute,gpu,n_gpus,precision,metric,value,unit\n";

std::vector<Run> runs_of_file(const std::string& text) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "runs.csv";
  write_file_atomically(path, text, ErrorKind::kEnvironment);
  return read_runs(path);
}

std::vector<Run> runs_of(const std::string& rows) {
  return runs_of_file(kHead + rows);
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
  EXPECT_THROW(runs_of_file(""), Error);
  EXPECT_THROW(runs_of_file("a,b\n1,2\n"), Error);
  EXPECT_THROW(runs_of("only,three,cells\n"), Error);
  EXPECT_THROW(runs_of("\"never closed\n"), Error);
  EXPECT_TRUE(runs_of("").empty());
}

TEST(Runs, StageTimesAreTheRowsOwnThenTheSourcesThenEqual) {
  const auto from = [](const std::string& row) { return stage_profile(runs_of(row)[0]).from; };
  const std::string row = ",,GPT-6.2B,,30,4096,,,,,1024,72,3,1,8,,,,,1F1B,,A100-80GB,8,bf16,";
  EXPECT_EQ(from("S" + row + "T_F,3,ms\n"), "the row's own times");
  EXPECT_EQ(
      from("zero-bubble-PP" + row + "bubble_rate,0.2,\n"), "the profile that the source publishes");
  EXPECT_EQ(from("S" + row + "bubble_rate,0.2,\n"), "equal times");
}

TEST(Validate, BubblesAreThoseOfThePublishedTimes) {
  const Validation validation =
      validate(runs_of("zero-bubble-PP,,GPT-1.5B,,22,2304,24,,,,1024,144,6,1,8,1,,,,1F1B,,A100-"
                       "80GB-SXM,8,,bubble_rate,"
                       "0.2431,\n"
                       "zero-bubble-PP,,GPT-6.2B,,30,4096,32,,,,1024,72,3,1,8,1,,,,ZB-H2,,A100-"
                       "80GB-SXM,8,,bubble_rate,"
                       "0.0698,\n"));
  ASSERT_EQ(validation.comparisons.size(), 2U);
  for (const Comparison& c : validation.comparisons) {
    EXPECT_NEAR(c.bubble, *c.measured_bubble, 5e-4);
  }
}

TEST(Validate, KnowsTheRunsThatItWasMadeFrom) {
  const std::string row = "S,,GPT,,48,1600,25,,,50257,1024,64,4,1,1,8,,,,,none,A100-80GB,8,bf16,";
  const auto runs = runs_of(row + "iter_time,900,ms\n" + row + "peak_mem,40,GB\n");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].fingerprint().size(), 16U);
  EXPECT_NE(runs[0].fingerprint(), runs_of("T" + row + "iter_time,900,ms\n")[0].fingerprint());
  EXPECT_FALSE(validate(runs).comparisons[0].lent);
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
              "Abacus-1,,MoE,,,,,,,,,64,,,,,,8,,,,H100,8,,mfu,40,%\n")));
  EXPECT_FALSE(verdict.met);
  const auto json = nlohmann::json::parse(verdict.json);
  EXPECT_EQ(json["rows"], 1);
  EXPECT_EQ(json["skipped"], 1);
  EXPECT_NE(verdict.text.find("MISSED step time of all the other sources"), std::string::npos)
      << verdict.text;
}

TEST(Validate, MixturesThatAreNamedAreToldAndNotJudged) {
  const auto runs = runs_of(
      "Abacus,,Qwen3_30B_a3B,,,,,,,,4096,512,4,1,1,8,1,8,,,,H100,8,bf16,tokens_per_s_per_gpu,"
      "10000,tokens/s\n");
  const Prepared prepared = prepare(runs[0]);
  EXPECT_EQ(prepared.skipped, "");
  EXPECT_TRUE(prepared.is_mixture);
  EXPECT_EQ(prepared.job.expert_ranks, 8);
  EXPECT_EQ(prepared.job.model.experts.count, 128);
  const auto json = nlohmann::json::parse(judge(validate(runs)).json);
  EXPECT_GT(json["median_step_time_error_mixtures"], 0);
  EXPECT_FALSE(json.contains("sources")) << json;
  EXPECT_EQ(lent_to_calibration(runs), std::vector<bool>{false});
}

TEST(Validate, DocumentedContradictionsAndConditionsAreNotJudgedTogether) {
  const std::string config = ",,GPT 181B,,72,14336,64,,,250000,2048,";
  const std::string rest = ",,,,1F1B,full,A100-80GB (Jean Zay),384,fp16,iter_time,";
  const auto row = [&](const char* day, const std::string& sizes, const char* seconds) {
    return std::string("BLOOM,chronicle ") + day + config.substr(1) + sizes + rest + seconds +
           ",s\n";
  };
  const auto prepared = [&](const char* day, const std::string& sizes) {
    return prepare(runs_of(row(day, sizes, "100"))[0]);
  };
  EXPECT_NE(prepared("02-24", "2048,4,8,6,8").conditions, "");
  EXPECT_GT(prepared("02-24", "2048,4,8,6,8").slowdown, 1);
  EXPECT_EQ(prepared("02-25", "2048,4,8,6,8").conditions, "");
  EXPECT_NE(prepared("02-25", "1568,4,8,6,8").contradiction, "");
  const Verdict verdict = judge(validate(runs_of(row("02-25", "1568,4,8,6,8", "1"))));
  EXPECT_NE(verdict.text.find("not tested: "), std::string::npos) << verdict.text;
  EXPECT_EQ(nlohmann::json::parse(verdict.json).contains("sources"), false) << verdict.json;
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
  const auto json = nlohmann::json::parse(judge(validate(runs)).json);
  EXPECT_LT(json["median_step_time_error_sources_that_lent"], 0.06);
  EXPECT_LT(json["median_memory_error"], 0.08);
  EXPECT_EQ(json["ran_out_but_said_to_fit"], 0);
}

TEST(Runs, ASystemNeverSeenIsTakenForWhatWasUsual) {
  const auto software = [](const std::string& source,
                           const std::string& sharding,
                           const std::string& device,
                           const std::string& system = "Abacus") {
    return prepare(runs_of(
                       system + "," + source + ",M,,24,2048,16,,,50257,2048,64,4,1,1,8,,," +
                       sharding + ",,full," + device + ",8,,iter_time,1,s\n")[0])
        .job.software;
  };
  EXPECT_FALSE(software("arXiv:2104.04473", "", "A100-80GB").fused_attention);
  EXPECT_TRUE(software("arXiv:2401.10241", "", "A100-80GB").fused_attention);
  EXPECT_FALSE(software("blog of 2021-03-08", "", "A100-80GB").fused_attention);
  EXPECT_TRUE(software("batches of 2048", "", "A100-80GB").fused_attention);
  EXPECT_FALSE(software("", "", "V100-32GB").fused_attention);
  EXPECT_TRUE(software("", "", "RTX 4090").fused_attention);
  EXPECT_TRUE(software("", "ZeRO-3", "A100-80GB").reduce_each_micro_batch);
  EXPECT_TRUE(software("arXiv:2104.04473", "ZeRO-3", "A100-80GB").flat_gather);
  EXPECT_EQ(software("", "FSDP", "A100-80GB").weight_bytes, 4);
  EXPECT_EQ(software("", "FSDP", "A100-80GB").attention_generation, 1);
  EXPECT_FALSE(software("", "FSDP2", "H100").fused_elementwise);
  EXPECT_TRUE(software("", "FSDP2", "H100", "Abacus compile").fused_elementwise);
  EXPECT_FALSE(software("arXiv:2104.04473", "", "A100-80GB", "Megatron-LM").fused_attention);
  EXPECT_TRUE(software("arXiv:2407.1", "", "H100", "Megatron-LM").fused_attention);
}

TEST(Validate, SystemsNeverSeenAreWithinATenth) {
  const auto path = shared_data() / ".." / "plan" / "published_runs.csv";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there";
  }
  auto runs = read_runs(path);
  std::map<std::string, std::string> names;  // letters alone: nothing is known of them
  for (auto& run : runs) {
    std::string& system = run.cells["system"];
    const auto letter = static_cast<char>('A' + names.size());
    system = names.try_emplace(system, std::string("Abacus ") + letter).first->second;
  }
  const auto json = nlohmann::json::parse(judge(validate(runs)).json);
  EXPECT_GT(json["configurations"], 300);
  EXPECT_LT(json["median_step_time_error_other_sources"], 0.1);
}

TEST(Bars, HoldForSystemsThatDidNotLendThemselves) {
  std::vector<HeldOut> held;
  for (int s = 0; s < 20; ++s) {
    HeldOut& one = held.emplace_back(HeldOut{"system " + std::to_string(s), {}, {}, {}, {}});
    for (int run = 0; run < 10; ++run) {
      one.truths.push_back(1 + 0.01 * ((s * 7 + run * 3) % 41 - 20));
    }
  }
  const Holding holding = bars_that_hold(held);
  EXPECT_EQ(holding.runs, 200U);
  EXPECT_GE(holding.inside, 180U);
  EXPECT_LT(holding.bars.least, 0.85);
  EXPECT_GT(holding.bars.most, 1.15);
  EXPECT_LT(holding.bars.most, 1.21);
  // One that is all off widens the bars of the others, and its own runs are none of theirs.
  held.push_back({"far off", std::vector<double>(30, 3.0), {}, {}, {}});
  const Holding wider = bars_that_hold(held);
  EXPECT_GE(wider.inside * 10, wider.runs * 9 - 9 * 30);
  EXPECT_GE(wider.level, holding.level);
}

TEST(Bars, WeighASystemByTheRootOfItsRuns) {
  const std::vector<HeldOut> held{
      {"many", std::vector<double>(100, 1.1), {}, {}, {}}, {"one", {0.5}, {}, {}, {}}};
  // 10 of 11 parts of the weight are the many's.
  EXPECT_EQ(bars_of(held, 0.8).least, 1);
  EXPECT_EQ(bars_of(held, 0.9).least, 0.5);
  EXPECT_EQ(bars_of(held, 0.9).most, 1.1);
  EXPECT_NEAR(median_error(held[0].truths), 1 - 1 / 1.1, 1e-12);
  EXPECT_EQ(median_error({}), 0);
}

TEST(Bars, OfAnOrderAreOfPairsOfASweep) {
  // Each run of a sweep is predicted 1% faster than the one before.
  HeldOut one{"one", {}, {}, {}, {}};
  for (int run = 0; run < 40; ++run) {
    one.sweeps.push_back(run < 20 ? "a" : "b");
    one.rates.push_back((run < 20 ? 1 : 7) * std::pow(1.01, run));
    one.truths.push_back(1);
  }
  const Order right = order_that_holds({one});
  EXPECT_NEAR(right.apart, 0.005, 1e-9);
  EXPECT_EQ(right.further, 2U * 20 * 19 / 2);
  EXPECT_EQ(right.further_right, right.further);
  for (size_t run = 0; run < one.truths.size(); run += 2) {
    one.truths[run] = 1.05;  // slower than predicted: beside those less than 5% slower, wrong
  }
  const Order order = order_that_holds({one});
  EXPECT_GT(order.apart, 0.03);
  EXPECT_LT(order.apart, 0.05);
  EXPECT_GE(order.further_right * 10, order.further * 9);
  EXPECT_LT(order.nearer_right * 10, order.nearer * 9);
  // What all runs of a system are off by leaves their order.
  for (double& truth : one.truths) {
    truth *= 2;
  }
  EXPECT_EQ(order_that_holds({one}).apart, order.apart);
}

TEST(Bars, AreKeptInAFileAndAsSource) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "held";
  EXPECT_TRUE(read_held(file).empty());
  std::ofstream(file) << held_text(
                             {"A system (of 2021)", {1.5, 0.25}, {1, 2}, {"a, b", "c"}, {5, 6}})
                      << held_text({"B", {1}, {3}, {"c"}, {7}});
  const std::vector<HeldOut> read = read_held(file);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].system, "A system (of 2021)");
  EXPECT_EQ(read[0].truths, (std::vector<double>{1.5, 0.25}));
  EXPECT_EQ(read[0].unknown, (std::vector<double>{1, 2}));
  EXPECT_EQ(read[0].sweeps, (std::vector<std::string>{"a, b", "c"}));
  EXPECT_EQ(read[1].unknown, std::vector<double>{3});
  EXPECT_EQ(read[0].rates, (std::vector<double>{5, 6}));
  EXPECT_EQ(read[1].sweeps, std::vector<std::string>{"c"});
  const std::string source =
      error_bars_source({.time = {0.8, 1.25}, .memory = {0.9, 1.1}, .order = 1.07});
  EXPECT_NE(source.find(".order = 1.070"), std::string::npos) << source;
  EXPECT_NE(source.find(".time = {.least = 0.800, .most = 1.250}"), std::string::npos) << source;
}

TEST(Fit, WritesASourceFile) {
  const std::string text = calibration_source(calibration());
  EXPECT_NE(text.find(".link_efficiency = "), std::string::npos);
  EXPECT_NE(text.find("{\"h100-80gb\""), std::string::npos);
}

}  // namespace published_runs_test
}  // namespace lockstep::plan
