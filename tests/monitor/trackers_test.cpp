// Tests of the TensorBoard and W&B trackers.
#include "monitor/trackers.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "monitor/monitor.h"
#include "monitor/rank_file.h"
#include "monitor/tensorboard.h"
#include "monitor/wandb.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace trackers_test {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  }
  return text;
}

Record a_record() {
  return {
      .step = 7,
      .epoch = 0.5,
      .wall_time = 1010.0,
      .values = {{"loss", 2.5}, {"tokens", int64_t{512}}, {"grad_norm", std::nan("")}}};
}

TEST(Tensorboard, HasCastagnolisChecksum) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
}

TEST(Tensorboard, WritesTheBytesThatItsReaderExpects) {
  // Verified with tensorboard 2.21.
  EXPECT_EQ(
      hex(tensorboard_frame(tensorboard_version_event(1000.0))),
      "1800000000000000a37f4b22090000000000408f401a0d627261696e2e4576656e743a3273ae6b56");
  EXPECT_EQ(
      hex(tensorboard_frame(tensorboard_scalar_event(1001.0, 1, "train/loss", 2.5))),
      "200000000000000029eda950090000000000488f4010012a130a110a0a747261696e2f6c6f73731500002040d473"
      "9099");
}

TEST(Tensorboard, KeepsOneFileARunWithEachRecordAtOnce) {
  const TemporaryFolder folder;
  TensorboardFile file(folder.path() / "runs" / "a", 1000.0, R"({"seed": 1})");
  EXPECT_TRUE(
      file.path().filename().string().starts_with("events.out.tfevents.0000001000." + host_name()));
  const std::string first = tensorboard_frame(tensorboard_version_event(1000.0));
  EXPECT_TRUE(read_file(file.path()).starts_with(first));
  EXPECT_NE(read_file(file.path()).find(R"({"seed": 1})"), std::string::npos);
  file.log(a_record());
  const std::string text = read_file(file.path());
  EXPECT_NE(
      text.find(tensorboard_frame(tensorboard_scalar_event(1010.0, 7, "train/loss", 2.5))),
      std::string::npos);
  EXPECT_NE(text.find("train/tokens"), std::string::npos);
  const TensorboardFile second(folder.path() / "runs" / "a", 1000.0, "");
  EXPECT_NE(second.path(), file.path());
}

TEST(Tensorboard, WritesHistogramsInItsOwnFields) {
  // min -1, max 2, num 3, sum 1.5, sum_squares 5.25; limits and counts packed.
  const Histogram values{
      .min = -1, .max = 2, .sum = 1.5, .sum_squares = 5.25, .limits = {0, 2}, .counts = {1, 2}};
  EXPECT_NE(
      hex(tensorboard_histogram_event(1001.0, 1, "weights/w", values))
          .find("0a09776569676874732f772a51"
                "09000000000000f0bf110000000000000040190000000000000840"
                "21000000000000f83f290000000000001540"
                "321000000000000000000000000000000040"
                "3a10000000000000f03f0000000000000040"),
      std::string::npos);
}

/// Returns the records of a .wandb file; fails the test on an invalid fragment.
std::vector<std::string> wandb_records(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  EXPECT_EQ(hex(text.substr(0, 7)), "3a572642e1be00");
  std::vector<std::string> records;
  std::string partial;
  bool within = false;  // inside a record of several fragments
  size_t at = 7;
  while (at < text.size()) {
    const size_t room = 32768 - at % 32768;
    if (room < 7) {
      EXPECT_EQ(text.substr(at, room), std::string(room, '\0'));
      at += room;
      continue;
    }
    const auto byte = [&](size_t i) {
      return static_cast<uint32_t>(static_cast<uint8_t>(text.at(at + i)));
    };
    const uint32_t checksum = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
    const size_t length = byte(4) | byte(5) << 8;
    const uint32_t type = byte(6);
    EXPECT_LE(7 + length, room);
    EXPECT_EQ(
        ::crc32(
            0, reinterpret_cast<const Bytef*>(text.data() + at + 6), static_cast<uInt>(length + 1)),
        checksum);
    EXPECT_EQ(within, type == 3 || type == 4);
    within = type == 2 || type == 3;
    partial += text.substr(at + 7, length);
    if (type == 1 || type == 4) {
      records.push_back(std::move(partial));
      partial.clear();
    }
    at += 7 + length;
  }
  EXPECT_FALSE(within);
  return records;
}

TEST(WandbLog, SplitsRecordsOverBlocks) {
  const TemporaryFolder folder;
  // Sizes around the end of a block, where headers do not fit, and records across several blocks.
  for (const size_t first : {0UL, 32740UL, 32747UL, 32748UL, 32752UL, 32754UL, 32755UL, 100000UL}) {
    std::vector<std::string> written{std::string(first, 'a'), "b", std::string(40000, 'c'), "d"};
    WandbLog log(folder.path() / "a");
    for (const std::string& record : written) {
      log.append(record);
    }
    if (first == 0) {
      written.front().clear();
    }
    EXPECT_EQ(wandb_records(folder.path() / "a"), written) << first;
  }
}

TEST(WandbRun, WritesWhatWandbSyncReads) {
  const TemporaryFolder folder;
  WandbRun run(
      {.folder = folder.path(),
       .run_folder = folder.path(),
       .run_id = "abcd1234",
       .project = "p",
       .name = "first",
       .tags = {"x", "y"},
       .configuration_json = R"({"seed": 1, "model": {"layers": 2}})",
       .start_time = 1000.5});
  run.log(a_record());
  run.finish();
  EXPECT_TRUE(run.folder().filename().string().starts_with("offline-run-19"));
  EXPECT_TRUE(run.folder().filename().string().ends_with("-abcd1234"));
  EXPECT_EQ(
      std::filesystem::read_symlink(folder.path() / "wandb" / "latest-run"),
      run.folder().filename());
  const auto records = wandb_records(run.folder() / "run-abcd1234.wandb");
  // header, run, five metrics' definitions, history, summary, exit, final, footer
  ASSERT_EQ(records.size(), 12U);
  // num 1; header (21) {version_info {producer "0.31.0", min_consumer "0.70.0"}}; _info (200)
  // {stream_id}
  EXPECT_EQ(
      hex(records[0]), "0801aa01120a100a06302e33312e301206302e37302e30c20c0a0a086162636431323334");
  EXPECT_NE(records[1].find(R"({"layers":2})"), std::string::npos);
  EXPECT_NE(
      hex(records[1])
          .find("8a01"
                "09"
                "08e807"
                "1080cab5ee01"),
      std::string::npos)
      << hex(records[1]);  // start_time {1000 s, 500000000 ns}
  EXPECT_NE(records[4].find("train/loss"), std::string::npos);
  EXPECT_NE(records[4].find("train/global_step"), std::string::npos);  // x-axis of the charts
  // history item {nested_key "train/loss", value_json "2.5"}
  EXPECT_NE(hex(records[7]).find("0a12120a747261696e2f6c6f7373820103322e35"), std::string::npos)
      << hex(records[7]);
  for (const char* const part :
       {"_step", "_timestamp", "1010.0", "_runtime", "9.5", "NaN", "train/global_step"}) {
    EXPECT_NE(records[7].find(part), std::string::npos) << part;
  }
  EXPECT_NE(hex(records[9]).find("92010408001009"), std::string::npos) << hex(records[9]);
  EXPECT_NE(hex(records[10]).find("a20100"), std::string::npos) << hex(records[10]);  // final
  EXPECT_NE(
      read_file(run.folder() / "files" / "wandb-summary.json").find(R"("train/loss":2.5)"),
      std::string::npos);
}

/// Returns the contents of the only .wandb file in an attempt's folder.
std::string records_of(const WandbRun& run) {
  std::string all;
  for (const auto& each : std::filesystem::directory_iterator(run.folder())) {
    if (each.path().extension() == ".wandb") {
      for (const std::string& record : wandb_records(each.path())) {
        all += record + "\n";
      }
    }
  }
  return all;
}

TEST(WandbRun, GoesOnUnderItsId) {
  const TemporaryFolder folder;
  const WandbOptions options{
      .folder = folder.path(), .run_folder = folder.path(), .start_time = 1000, .resumed = true};
  std::string id;
  {
    WandbRun first(options);
    EXPECT_FALSE(first.goes_on());  // no earlier run to continue
    first.log(a_record());
    first.log(a_record());
    first.log_event("stopped", 1020);
    id = first.folder().filename().string().substr(sizeof("offline-run-19700101_000000"));
    EXPECT_NE(hex(records_of(first)).find("ba0100"), std::string::npos);  // the run will be resumed
  }
  // The state that a killed run leaves.
  EXPECT_NE(read_file(folder.path() / "wandb.json").find("2}"), std::string::npos);
  {
    WandbRun second(options);  // within the same second
    EXPECT_TRUE(second.goes_on());
    second.log(a_record());
    EXPECT_TRUE(second.folder().filename().string().ends_with(id)) << second.folder();
    EXPECT_NE(hex(records_of(second)).find(hex("_step\x82\x01\x01") + "32"), std::string::npos);
  }
  WandbOptions other = options;
  other.run_id = "another";
  EXPECT_FALSE(WandbRun(other).goes_on());
  other.run_id = "a-third";
  other.must_resume = true;
  EXPECT_THROW(WandbRun{other}, Error);
}

TEST(WandbRun, TellsEachRankInARunOfItsOwn) {
  const TemporaryFolder folder;
  WandbRun run(
      {.folder = folder.path(),
       .run_id = "job",
       .name = "n",
       .start_time = 1000,
       .of_ranks = true});
  run.log_ranks(
      {.step = 3,
       .steps = 3,
       .step_s = {1, 2},
       .data_wait_s = {0, 0},
       .communication_wait_s = {0, 0},
       .checkpoint_s = {0, 0},
       .moving_s = {0, 0},
       .memory_bytes = {8, 9}},
      1010);
  run.finish();
  for (const int rank : {0, 1}) {
    const auto path = folder.path() / "wandb" /
                      fmt::format("{}-rank{}", run.folder().filename().string(), rank) /
                      fmt::format("run-job-rank{}.wandb", rank);
    std::string all;
    for (const std::string& record : wandb_records(path)) {
      all += record;
    }
    EXPECT_NE(all.find(fmt::format("n-rank{}", rank)), std::string::npos);
    EXPECT_NE(all.find("n-job"), std::string::npos);  // group of the rank runs
    EXPECT_NE(
        hex(all).find(hex("train/step_s\x82\x01\x03") + (rank == 0 ? "31" : "32")),
        std::string::npos);
  }
}

TEST(WandbRun, KeepsCheckpointsAsArtifacts) {
  const TemporaryFolder folder;
  const std::filesystem::path run_folder = folder.path() / "run";
  WandbRun run(
      {.folder = run_folder,
       .run_folder = run_folder,
       .run_id = "job",
       .name = "a name",
       .start_time = 1000,
       .artifacts = WandbOptions::Artifacts::kAll});
  run.log(a_record());
  create_folders(run_folder / "checkpoint-7" / "part");
  write_file_atomically(run_folder / "checkpoint-7" / "part" / "a.txt", "hello");
  write_file_atomically(run_folder / "checkpoint-7" / "b.txt", "");
  create_folders(run_folder / "checkpoint-8.saving");
  run.log(a_record());
  std::filesystem::remove_all(run_folder / "checkpoint-7");
  run.finish();
  const std::string records = records_of(run);
  for (const char* const part :
       {"model-a-name",
        "checkpoint_global_step_7",
        "epoch_0.5",
        "XUFAKrxLKna5cZ2REBfFkg==",
        "1B2M2Y8AsgTpgAmY7PhCfg==",
        "part/a.txt"}) {
    EXPECT_NE(records.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(read_file(run.folder() / "artifacts" / "checkpoint-7" / "part" / "a.txt"), "hello");
}

TEST(WandbRun, RefusesAnIdThatIsNoName) {
  const TemporaryFolder folder;
  EXPECT_THROW(WandbRun({.folder = folder.path(), .run_id = "../../x"}), Error);
}

TEST(WandbOptions, ComeFromTheEnvironment) {
  const WandbOptions given{.folder = "out", .project = "lockstep", .name = "n"};
  const auto options = wandb_options_from_environment(
      given,
      {{"WANDB_PROJECT", "q"}, {"WANDB_TAGS", "a,,b"}, {"WANDB_DIR", "/d"}, {"WANDB_RUN_ID", "r"}});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->project, "q");
  EXPECT_EQ(options->name, "n");
  EXPECT_EQ(options->folder, "/d");
  EXPECT_EQ(options->run_id, "r");
  EXPECT_EQ(options->tags, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options->artifacts, WandbOptions::Artifacts::kNone);
  EXPECT_EQ(
      wandb_options_from_environment(given, {{"WANDB_LOG_MODEL", "checkpoint"}})->artifacts,
      WandbOptions::Artifacts::kAll);
  EXPECT_THROW(wandb_options_from_environment(given, {{"WANDB_LOG_MODEL", "all"}}), Error);
  EXPECT_FALSE(wandb_options_from_environment(given, {{"WANDB_MODE", "disabled"}}));
  EXPECT_FALSE(wandb_options_from_environment(given, {{"WANDB_DISABLED", "true"}}));
}

TEST(Trackers, AreMadeByName) {
  EXPECT_TRUE(problems_of_report_to({}).empty());
  EXPECT_TRUE(problems_of_report_to({"none"}).empty());
  EXPECT_TRUE(problems_of_report_to({"tensorboard", "wandb", "all"}).empty());
  EXPECT_EQ(
      problems_of_report_to({"tensorbord", "comet_ml"}),
      (std::vector<std::string>{
          "training.report_to contains 'tensorbord', which is not one of tensorboard, wandb, "
          "mlflow, "
          "all, none. Did you mean 'tensorboard'?",
          "training.report_to contains 'comet_ml', which is not one of tensorboard, wandb, mlflow, "
          "all, "
          "none."}));
  const TemporaryFolder folder;
  MonitorOptions options{.output_dir = folder.path(), .report_to = {"all"}};
  options.environment = [](const char* name) {
    return std::string_view(name) == "WANDB_MODE" ? "disabled" : nullptr;
  };
  EXPECT_EQ(make_trackers(options, 1000.0, false).size(), 1U);
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "runs"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "wandb"));
  options.report_to = {"mlflow"};  // the environment names no server
  EXPECT_THROW(make_trackers(options, 1000.0, false), Error);
}

TEST(TrackerName, SplitsOffTheSplit) {
  EXPECT_EQ(tracker_name("loss"), "train/loss");
  EXPECT_EQ(tracker_name("eval_loss"), "eval/loss");
  EXPECT_EQ(tracker_name("test_token_accuracy"), "test/token_accuracy");
  EXPECT_EQ(tracker_name("evaluation"), "train/evaluation");
}

}  // namespace trackers_test
}  // namespace lockstep::monitor
