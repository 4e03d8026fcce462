// Schedules of one pipeline, by name and from a file, for any number of micro-batches; checker
// reports; damaged files.
#include "schedule/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/file.h"
#include "schedule/check.h"
#include "schedule/file.h"
#include "temporary_folder.h"

namespace lockstep::schedule {
namespace schedules_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::array kNames{"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"};

int stages_of_a_rank(const std::string& name) {
  return name == "interleaved" || name == "zb-v" ? 2 : 1;
}

PipelineOptions options_of(const std::string& name) {
  return {.schedule = name, .virtual_stages = name == "interleaved" ? 2 : 1};
}

class SchedulesOfFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const auto path = folder_.path() / "s.txt";
    write_file_atomically(path, text);
    return path.string();
  }
  std::string error_of(const std::string& text, int ranks, int micro_batches = 1) const {
    try {
      Schedules({.schedule = write(text)}, ranks).of(micro_batches);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "no error";
  }
  TemporaryFolder folder_;
};

TEST(Schedules, ArePlacedAlikeForEveryNumberOfMicroBatches) {
  for (const std::string name : kNames) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      Schedules schedules(options_of(name), ranks);
      EXPECT_EQ(schedules.stages(), ranks * stages_of_a_rank(name)) << name;
      EXPECT_EQ(schedules.splits_backward(), name.starts_with("zb-")) << name;
      for (const int micro_batches : {1, 2, 7, 16}) {
        const Schedule& made = schedules.of(micro_batches);
        EXPECT_EQ(made.micro_batches, micro_batches);
        EXPECT_EQ(made.rank_of_stage, schedules.rank_of_stage()) << name << " " << ranks;
        EXPECT_EQ(&schedules.of(micro_batches), &made) << "made once";
      }
      for (int stage = 0; stage < schedules.stages(); ++stage) {
        const std::vector<int> held = schedules.stages_of(schedules.rank_of(stage));
        EXPECT_THAT(held, testing::Contains(stage));
        EXPECT_TRUE(std::is_sorted(held.begin(), held.end()));
      }
      EXPECT_THROW(schedules.rank_of(schedules.stages()), std::out_of_range);
    }
  }
  // V shape: the first rank has the first and the last stage.
  EXPECT_THAT(Schedules(options_of("zb-v"), 3).rank_of_stage(), ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_THAT(
      Schedules(options_of("interleaved"), 3).rank_of_stage(), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Schedules, RunForwardAloneStageByStage) {
  for (const std::string name : kNames) {
    const Schedules schedules(options_of(name), 3);
    const Schedule forward = schedules.forward_only(2);
    ASSERT_EQ(forward.actions.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<Action> expected;
      for (const int stage : schedules.stages_of(rank)) {
        expected.push_back({ActionKind::kForward, stage, 0});
        expected.push_back({ActionKind::kForward, stage, 1});
      }
      EXPECT_EQ(forward.actions[static_cast<size_t>(rank)], expected) << name << " " << rank;
    }
  }
}

TEST(Schedules, TakeVirtualStagesOfTheirKindAlone) {
  const auto made = [](const char* name, int virtual_stages) {
    try {
      return Schedules({.schedule = name, .virtual_stages = virtual_stages}, 2).stages();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return -1;
    }
  };
  EXPECT_EQ(made("interleaved", 3), 6);
  EXPECT_EQ(made("zb-v", 1), 4);  // 1 is the configuration's default
  EXPECT_EQ(made("zb-v", 2), 4);
  EXPECT_EQ(made("zb-v", 3), -1);
  EXPECT_EQ(made("1f1b", 2), -1);
  EXPECT_EQ(made("gpipe", 0), 2);
  EXPECT_EQ(made("1f1", 1), -1);
}

TEST_F(SchedulesOfFiles, OfEveryKindAreCutDownToTheMicroBatchesThatThereAre) {
  for (const std::string name : kNames) {
    Schedules of_kind(options_of(name), 3);
    Schedules of_file({.schedule = write(schedule_text(of_kind.of(6)))}, 3);
    EXPECT_EQ(of_file.rank_of_stage(), of_kind.rank_of_stage());
    EXPECT_EQ(of_file.splits_backward(), of_kind.splits_backward());
    EXPECT_EQ(of_file.of(6).actions, of_kind.of(6).actions);
    for (int micro_batches = 1; micro_batches < 6; ++micro_batches) {
      const Schedule& cut = of_file.of(micro_batches);
      EXPECT_THAT(check(cut).problems, testing::IsEmpty()) << name << " " << micro_batches;
      for (int rank = 0; rank < 3; ++rank) {
        const auto place = static_cast<size_t>(rank);
        EXPECT_EQ(cut.actions[place].size(), of_kind.of(micro_batches).actions[place].size());
      }
    }
  }
}

TEST_F(SchedulesOfFiles, ThatDoNotFitSayWhatWould) {
  const std::string two = "0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1\n";
  EXPECT_EQ(error_of(two, 2, 2), "no error");
  EXPECT_THAT(
      error_of(two, 3),
      AllOf(
          HasSubstr("s.txt is a schedule for 2 ranks, but the pipeline has 3"),
          HasSubstr("set parallel.pipeline=2, or write a file with 3 lines")));
  EXPECT_THAT(
      error_of(two, 2, 3),
      AllOf(
          HasSubstr("a schedule for 2 micro-batches, but a step has 3"),
          HasSubstr("gradient_accumulation_steps=2")));
  EXPECT_THAT(error_of("0F0 1F0 1B0 0B0\n0F1 0B1\n", 2), HasSubstr("rank 1 runs 0F1"));
  EXPECT_THAT(error_of("0F0 0B0\n0B1 0F1\n", 2), HasSubstr("0B1"));
  EXPECT_THAT(error_of("# nothing\n\n , ,\n", 1), HasSubstr("contains no actions"));
}

TEST(ScheduleFile, IsToldFromANameByADotOrASlash) {
  for (const char* file : {"./1f1b", "a.txt", "folder/s", "/s", "."}) {
    EXPECT_TRUE(names_a_file(file)) << file;
  }
  for (const std::string name : kNames) {
    EXPECT_FALSE(names_a_file(name));
  }
  EXPECT_FALSE(names_a_file(""));
}

TEST(ScheduleFile, DamagedOnesAreAnErrorOrASchedule) {
  const std::string whole =
      schedule_text(make_schedule({.kind = Kind::kZbV, .ranks = 3, .micro_batches = 4}));
  int schedules = 0, errors = 0;
  const auto read = [&](const std::string& text) {
    try {
      const Schedule schedule = parse_schedule(text, "x.txt");
      EXPECT_THAT(check(schedule).problems, testing::IsEmpty()) << text;
      ++schedules;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << text;
      EXPECT_THAT(error.what(), HasSubstr("x.txt"));
      ++errors;
    }
  };
  for (size_t end = 0; end <= whole.size(); ++end) {  // truncated file
    read(whole.substr(0, end));
  }
  constexpr std::string_view kPieces = "0123456789FBIW #,:\n-\xff";
  for (uint64_t i = 0; i < 4000; ++i) {
    std::string text = whole;
    for (uint64_t edit = 0; edit < 2; ++edit) {
      const uint64_t bits = random_bits(derive_key(5, edit), i);
      text[bits % text.size()] = kPieces[(bits >> 32) % kPieces.size()];
    }
    read(text);
  }
  EXPECT_GT(schedules, 20);
  EXPECT_GT(errors, 2000);
}

TEST(ScheduleCheck, TellsWhatIsWrongWithAnAction) {
  const Schedule good = make_schedule({.kind = Kind::kZbH1, .ranks = 2, .micro_batches = 2});
  const auto problem = [&](const auto& change) {
    Schedule schedule = good;
    change(schedule);
    const Report report = check(schedule);
    return report.problems.empty() ? std::string("none") : report.problems.front();
  };
  const auto add = [&](int rank, Action action) {
    return problem([&](Schedule& s) { s.actions[static_cast<size_t>(rank)].push_back(action); });
  };
  EXPECT_EQ(problem([](Schedule&) {}), "none");
  EXPECT_EQ(add(0, {ActionKind::kForward, 2, 0}), "rank 0 runs 2F0, which does not exist");
  EXPECT_EQ(add(0, {ActionKind::kForward, 0, 2}), "rank 0 runs 0F2, which does not exist");
  EXPECT_EQ(add(0, {ActionKind::kForward, -1, 0}), "rank 0 runs -1F0, which does not exist");
  EXPECT_EQ(add(1, {ActionKind::kForward, 0, 0}), "rank 1 runs 0F0, but stage 0 is on rank 0");
  EXPECT_EQ(
      add(0, {ActionKind::kBackward, 0, 1}),
      "stage 0 has both a whole and a split backward of micro-batch 1");
  EXPECT_EQ(
      problem([](Schedule& s) { std::reverse(s.actions[1].begin(), s.actions[1].end()); }),
      "1W1 comes before its I");
  EXPECT_EQ(
      problem([](Schedule& s) { s.held_limit.pop_back(); }),
      "the sizes of the schedule are inconsistent");
  EXPECT_EQ(
      problem([](Schedule& s) { s.rank_of_stage[1] = 2; }),
      "stage 1 is on rank 2, which does not exist");
  EXPECT_EQ(
      problem([](Schedule& s) { s.micro_batches = 0; }),
      "the sizes of the schedule are inconsistent");
}

}  // namespace schedules_test
}  // namespace lockstep::schedule
