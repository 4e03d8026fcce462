// Tests of commands that run without libtorch: help, output and errors.
#include "start/commands.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "start/parse.h"
#include "temporary_folder.h"
#include "watch/control/server.h"

namespace lockstep::start {
namespace commands_test {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

/// Result of a command that this program runs itself.
struct Done {
  std::optional<int> code;
  std::string out, error;  // `error`: the message with its hint
  ErrorKind kind = ErrorKind::kInternal;
};

Done run(const Words& words) {
  const auto all = commands();
  const auto command =
      std::ranges::find_if(all, [&](const Command& each) { return each.name == words.front(); });
  Done done;
  ::testing::internal::CaptureStdout();
  try {
    done.code = command->run({words.begin() + 1, words.end()});
  } catch (const Error& error) {
    done.error = error.what();
    done.kind = error.kind();
  }
  done.out = ::testing::internal::GetCapturedStdout();
  return done;
}

std::string refused(const Words& words, ErrorKind kind = ErrorKind::kConfig) {
  const Done done = run(words);
  EXPECT_FALSE(done.error.empty()) << words.front() << " was not refused";
  EXPECT_EQ(done.kind, kind) << done.error;
  return done.error;
}

TEST(StartCommands, NamesAreOnesAndEachSaysWhatItIsFor) {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    EXPECT_FALSE(command.summary.empty()) << command.name;
    EXPECT_LE(command.name.size() + command.summary.size(), 86U) << "a line: " << command.name;
    names.push_back(command.name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST(StartCommands, HelpNamesTheCommandAndEndsWell) {
  for (const Command& command : commands()) {
    const Done done = run({std::string(command.name), "--help"});
    EXPECT_EQ(done.error, "") << command.name;
    if (done.code) {  // lockstep-core prints the help of the other commands
      EXPECT_EQ(done.code, 0) << command.name;
      EXPECT_THAT(done.out, HasSubstr("lockstep " + std::string(command.name)));
    }
  }
}

TEST(StartCommands, HelpOfThePlannersSaysWhatTheirFlagsAre) {
  EXPECT_THAT(run({"plan", "--help"}).out, HasSubstr("Sequences per step"));
  EXPECT_THAT(run({"estimate", "--help"}).out, HasSubstr("h100-80gb"));
}

TEST(StartCommands, AnOptionThatNobodyKnowsIsNamedWithWhereToLook) {
  for (const char* name :
       {"tokenizer", "tokenize", "sample", "runs", "compare", "sync", "ctl", "monitor"}) {
    const std::string text = refused({name, "--no-such-option"});
    EXPECT_THAT(text, HasSubstr("see `lockstep " + std::string(name) + " --help`"));
  }
}

TEST(Parse, NumbersAreOfTheirRange) {
  const auto problem = [](const std::string& word) {
    double value = 0;
    CLI::App app("", "lockstep test");
    app.add_option("--share", value)->check(between(0, 1));
    try {
      (void)parse(app, {"--share", word});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.message();
    }
    return std::string();
  };
  for (const char* word : {"0", "1", "0.5", "1e-3"}) {
    EXPECT_EQ(problem(word), "") << word;
  }
  for (const char* word : {"nan", "NaN", "-nan", "inf", "-0.1", "1.0001", "half", "", "0.5x"}) {
    EXPECT_THAT(problem(word), HasSubstr("--share")) << word;
  }
}

/// A run with a control socket that answers as the test specifies.
struct Listening {
  TemporaryFolder folder;
  watch::ControlServer server{folder.path(), [](const watch::Act& act) {
                                if (act.kind == watch::Act::Kind::kEvaluate) {
                                  throw Error(ErrorKind::kConfig, "nothing to evaluate on");
                                }
                              }};

  Words words(const Words& more) const {
    Words all{"ctl", folder.path().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Runs the command against the server, which stores the action in `heard` and reports success or
  /// failure.
  Done ask(const Words& more, bool is_done, watch::Act& heard) {
    std::jthread trainer([&] {
      for (;;) {
        for (watch::Asked& asked : server.take()) {
          heard = asked.act;
          asked.answer(is_done, is_done ? "it is done" : "the disk is full");
          return;
        }
        std::this_thread::yield();
      }
    });
    return run(words(more));
  }
};

TEST(Ctl, TellsTheStatusInLinesOrAsJson) {
  Listening of;
  of.server.publish(
      {{"step", 7},
       {"steps", 100},
       {"epoch", 0.5},
       {"ranks", 4},
       {"loss", 2.5},
       {"learning_rate", 1e-4},
       {"tokens_per_s", 1234.5},
       {"seconds_left", 3723.0}});
  const Done done = run(of.words({"status"}));
  EXPECT_EQ(done.code, 0);
  EXPECT_THAT(
      done.out,
      StartsWith("step 7 of 100, 0.50 epochs, 4 ranks\nloss 2.5\nlearning_rate 0.0001\n"
                 "tokens_per_s 1234.5\n1:02:03 left\nas of "));
  EXPECT_THAT(done.out, EndsWith(" s ago\n"));
  const auto json = nlohmann::json::parse(run(of.words({"status", "--json"})).out);
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_EQ(json.at("steps"), 100);
}

/// JSON has no NaN, so the loss is null.
TEST(Ctl, ALossThatIsNoNumberIsLeftOut) {
  Listening of;
  of.server.publish({{"step", 7}, {"steps", 100}, {"loss", std::nan("")}, {"learning_rate", 0.5}});
  const Done done = run(of.words({"status"}));
  EXPECT_EQ(done.error, "");
  EXPECT_EQ(done.code, 0);
  EXPECT_THAT(done.out, Not(HasSubstr("loss")));
  EXPECT_THAT(done.out, HasSubstr("learning_rate 0.5\n"));
}

TEST(Ctl, AnActIsAnsweredOrRefused) {
  Listening of;
  watch::Act heard;
  Done done = of.ask({"save"}, true, heard);
  EXPECT_EQ(done.out, "it is done\n");
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(heard.kind, watch::Act::Kind::kSave);
  done = of.ask({"trace", "3"}, true, heard);
  EXPECT_EQ(heard.kind, watch::Act::Kind::kTrace);
  EXPECT_EQ(heard.steps, 3);
  done = of.ask({"set", "training.learning_rate=2.5e-4", "--force"}, true, heard);
  EXPECT_EQ(heard.learning_rate, 2.5e-4);
  done = of.ask({"log", "debug", "--json"}, true, heard);
  EXPECT_EQ(nlohmann::json::parse(done.out).at("text"), "it is done");
  done = of.ask({"stop"}, false, heard);
  EXPECT_THAT(done.error, HasSubstr("the run refused: the disk is full"));
  EXPECT_EQ(done.kind, ErrorKind::kConfig);
  EXPECT_THAT(refused(of.words({"eval"})), HasSubstr("nothing to evaluate on"));
  EXPECT_THAT(refused(of.words({"sav"})), HasSubstr("Did you mean 'save'?"));
  EXPECT_THAT(refused(of.words({"set", "learning_rate=1"})), HasSubstr("--force"));
}

TEST(Ctl, WordsThatMakeNoActAreToldBeforeAnybodyIsAsked) {
  for (const Words& words : std::vector<Words>{
           {"save", "now"}, {"trace"}, {"trace", "1", "2"}, {"log"}, {"set"}, {"status", "x"}}) {
    Words all{"ctl", "/nowhere"};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_THAT(refused(all), HasSubstr(words[0] + " takes"));
  }
  EXPECT_THAT(
      refused({"ctl", "/nowhere", "trace", "3.5"}), HasSubstr("not a valid number of steps"));
  EXPECT_THAT(refused({"ctl", "/nowhere", "trace", ""}), HasSubstr("not a valid number of steps"));
  EXPECT_THAT(
      refused({"ctl", "/nowhere", "set", "learning_rate=fast"}),
      HasSubstr("not a valid learning rate"));
  EXPECT_THAT(
      refused({"ctl", "/nowhere", "set", "seed=7"}), HasSubstr("cannot be changed during a run"));
  EXPECT_THAT(refused({"ctl", "/nowhere", "stacks", "all"}), HasSubstr("takes no argument"));
  EXPECT_THAT(refused({"ctl", "/nowhere"}), HasSubstr("act"));
}

TEST(Ctl, AFolderInWhichNoRunListensIsAnErrorOfTheMachine) {
  const TemporaryFolder folder;
  for (const char* act : {"status", "stacks"}) {
    EXPECT_THAT(
        refused({"ctl", folder.path().string(), act}, ErrorKind::kEnvironment),
        HasSubstr(folder.path().string()));
  }
  EXPECT_THAT(
      refused({"ctl", "/nowhere", "status"}, ErrorKind::kEnvironment), HasSubstr("/nowhere"));
}

/// A text file and a tokenizer that was trained on it.
struct Text {
  TemporaryFolder folder;
  std::string file = (folder.path() / "text.txt").string();
  std::string tokenizer = (folder.path() / "tokenizer").string();

  Text() {
    std::string text;
    for (int i = 0; i < 50; ++i) {
      text += "the cat sat on the mat, and the hat was on the cat\n";
    }
    write_file_atomically(file, text);
  }
  Done train(const Words& more = {}) const {
    Words words{"tokenizer", "train", "--files", file, "--output", tokenizer};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  Done tokenize(const std::string& input, const Words& more = {}) const {
    write_file_atomically(folder.path() / "input", input);
    Words words{"tokenize", "--model", tokenizer, (folder.path() / "input").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

TEST(TokenizerCommand, TellsHowManyTokensTheTextGave) {
  const Text text;
  Done done = text.train({"--vocab-size", "270"});
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr("/tokenizer.json: 270 tokens, in "));
  EXPECT_THAT(done.out, Not(HasSubstr("fewer")));
  done = text.train({"--vocab-size", "5000"});
  EXPECT_THAT(done.out, HasSubstr("No more pairs occur 2 times"));
  EXPECT_THAT(done.out, HasSubstr("tokens fewer than requested"));
  EXPECT_TRUE(std::filesystem::exists(text.tokenizer + "/tokenizer.json"));
}

TEST(TokenizerCommand, RefusesWhatCannotBe) {
  const Text text;
  EXPECT_THAT(refused({"tokenizer"}), HasSubstr("subcommand"));
  EXPECT_THAT(refused({"tokenizer", "train", "--files", text.file}), HasSubstr("--output"));
  EXPECT_THAT(refused({"tokenizer", "train", "--output", "a"}), HasSubstr("--files"));
  EXPECT_THAT(text.train({"--vocab-size", "many"}).error, HasSubstr("--vocab-size"));
  for (const char* size : {"-1", "0", "10"}) {  // fewer than the 256 bytes
    const Done done = text.train({"--vocab-size", size});
    EXPECT_FALSE(done.error.empty()) << size;
    EXPECT_NE(done.kind, ErrorKind::kInternal) << done.error;
  }
  const Done none =
      run({"tokenizer", "train", "--files", "/nowhere/a.txt", "--output", text.tokenizer});
  EXPECT_THAT(none.error, HasSubstr("/nowhere/a.txt"));
}

TEST(TokenizeCommand, IsALineOfIdsForEachLineAndBack) {
  const Text text;
  ASSERT_EQ(text.train({"--vocab-size", "270"}).code, 0);
  const std::string lines = "the cat\n\nh\u00e9, no end";
  const Done done = text.tokenize(lines);
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_EQ(std::ranges::count(done.out, '\n'), 3);
  EXPECT_THAT(done.out, HasSubstr("\n[]\n"));
  EXPECT_EQ(text.tokenize(done.out, {"--decode"}).out, lines + "\n");
  EXPECT_EQ(
      text.tokenize(done.out, {"--decode", "--json"}).out,
      "\"the cat\"\n\"\"\n\"h\u00e9, no end\"\n");
  EXPECT_EQ(text.tokenize("\"the cat\"\n\"\"\n\"h\\u00e9, no end\"", {"--json"}).out, done.out);
  const Done whole = text.tokenize("the cat\nthe", {"--whole"});
  EXPECT_EQ(std::ranges::count(whole.out, '\n'), 1);
  EXPECT_EQ(text.tokenize(whole.out, {"--decode"}).out, "the cat\nthe\n");
  EXPECT_EQ(text.tokenize("").out, "");
  EXPECT_EQ(text.tokenize("", {"--whole"}).out, "[]\n");
}

TEST(TokenizeCommand, SpecialTokensAreTextWhereTheTextIsNotTrusted) {
  const Text text;
  ASSERT_EQ(text.train({"--vocab-size", "270"}).code, 0);
  const std::string recognised = text.tokenize("<|endoftext|>").out;
  EXPECT_EQ(recognised, "[0]\n");
  const std::string as_text = text.tokenize("<|endoftext|>", {"--specials-as-text"}).out;
  EXPECT_THAT(as_text, HasSubstr(","));
  EXPECT_EQ(text.tokenize(as_text, {"--decode"}).out, "<|endoftext|>\n");
  EXPECT_EQ(text.tokenize(recognised, {"--decode", "--skip-specials"}).out, "\n");
}

TEST(TokenizeCommand, NamesTheLineThatIsNone) {
  const Text text;
  ASSERT_EQ(text.train({"--vocab-size", "270"}).code, 0);
  const auto told = [&](const std::string& input, const Words& more) {
    const Done done = text.tokenize(input, more);
    EXPECT_EQ(done.kind, ErrorKind::kData) << done.error;
    return done.error;
  };
  for (const char* line :
       {"[-1]", "[1.5]", "[2147483648]", "[18446744073709551615]", "{}", "[[1]]", "[\"a\"]", "7"}) {
    EXPECT_THAT(
        told("[1]\n" + std::string(line), {"--decode"}), HasSubstr("line 2 is not a list of ids"));
  }
  EXPECT_THAT(told("[1]\n[1", {"--decode"}), HasSubstr("line 2"));
  EXPECT_EQ(text.tokenize("[270]", {"--decode"}).out, "\n") << "one more than there are: nothing";
  EXPECT_THAT(told("\"a\"\n[1]", {"--json"}), HasSubstr("line 2 is not a JSON string"));
  EXPECT_THAT(
      refused({"tokenize", "--model", text.tokenizer, "--whole", "--json", text.file}),
      HasSubstr("--whole"));
  const Done none = run({"tokenize", "--model", text.tokenizer, "/nowhere/input"});
  EXPECT_THAT(none.error, HasSubstr("/nowhere/input"));
}

TEST(RunsCommand, AFolderWithoutRunsSaysSoAndOneThatIsNotThereIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_EQ(run({"runs", path}).out, "no runs in " + path + "\n");
  EXPECT_EQ(run({"runs", path, "--json"}).out, "");
  EXPECT_THAT(refused({"runs", path + "/none"}), HasSubstr("none"));
  EXPECT_THAT(refused({"compare", path}), HasSubstr("second"));
  EXPECT_THAT(refused({"compare", path, path}), HasSubstr(path));
  EXPECT_THAT(refused({"sync", path}), HasSubstr(path));
}

/// A run that was copied from another machine or killed is described by its files only.
TEST(RunsCommand, ARunIsToldByItsFilesAlone) {
  const TemporaryFolder folder;
  const auto write = [&](const char* run, const std::string& metrics, const std::string& events) {
    create_folders(folder.path() / run);
    write_file_atomically(folder.path() / run / "metrics.jsonl", metrics);
    if (!events.empty()) {
      write_file_atomically(folder.path() / run / "events.jsonl", events);
    }
  };
  write("empty", "", "");
  write("torn", "{\"step\": 3, \"epoch\": 1, \"loss\": 2.5}\n{\"step\": 4, \"lo", "");
  write(
      "done",
      "{\"step\": 9, \"epoch\": 1, \"loss\": null}\n",
      "{\"time\": 1, \"step\": 0, \"event\": \"began\", \"model\": \"gpt2\", \"steps\": 9}\n"
      "{\"time\": 2, \"step\": 9, \"event\": \"finished\"}\n");
  const Done table = run({"runs", folder.path().string()});
  EXPECT_EQ(table.code, 0) << table.error;
  for (const char* word : {"empty", "torn", "done", "finished", "gpt2"}) {
    EXPECT_THAT(table.out, HasSubstr(word));
  }
  const std::string lines = run({"runs", folder.path().string(), "--json"}).out;
  EXPECT_EQ(std::ranges::count(lines, '\n'), 3);
  const Done same =
      run({"compare", (folder.path() / "torn").string(), (folder.path() / "torn").string()});
  EXPECT_EQ(same.code, 0) << same.error;
  EXPECT_EQ(run({"sync", (folder.path() / "done").string()}).out, "all records are uploaded\n");
}

TEST(SampleCommand, RefusesSizesThatCannotBe) {
  const TemporaryFolder folder;
  const std::string output = (folder.path() / "corpus").string();
  for (const char* size : {"0", "-1", "nan", "1001", "inf", "x"}) {
    EXPECT_FALSE(refused({"sample", "--output", output, "--size", size}).empty()) << size;
    EXPECT_FALSE(std::filesystem::exists(output)) << size;
  }
  EXPECT_THAT(refused({"sample"}), HasSubstr("--output"));
}

TEST(MonitorCommand, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_THAT(refused({"monitor"}), HasSubstr("folders"));
  for (const char* port : {"-1", "65536", "x"}) {
    EXPECT_THAT(refused({"monitor", path, "--port", port}), HasSubstr("--port"));
  }
  EXPECT_THAT(refused({"monitor", path, path, "--text"}), HasSubstr("--text shows one run"));
  EXPECT_THAT(refused({"monitor", path, "--once"}), HasSubstr("--text"));
  EXPECT_THAT(refused({"monitor", path, "--text", "--tui"}), HasSubstr("--tui"));
  EXPECT_THAT(
      refused({"monitor", path, "--text", "--once"}, ErrorKind::kEnvironment), HasSubstr(path));
}

}  // namespace commands_test
}  // namespace lockstep::start
