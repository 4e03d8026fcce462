// Tests of the commands of lockstep-core: help, and errors for invalid arguments.
#include "cli/commands.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "start/commands.h"
#include "temporary_folder.h"

namespace lockstep::cli {
namespace commands_test {

using Words = std::vector<std::string>;

const Command& command_of(std::string_view name) {
  const auto all = commands();
  return *std::find_if(all.begin(), all.end(), [&](const Command& c) { return c.name == name; });
}

/// Returns the error of a command that is refused. The first word is the command's name.
Error refused(const Words& words) {
  try {
    (void)command_of(words.front()).run({words.begin() + 1, words.end()});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error;
  }
  ADD_FAILURE() << "`lockstep " << words.front() << "` was not refused";
  return {ErrorKind::kInternal, ""};
}

/// Returns the message with its hint.
std::string told(const Words& words) {
  return refused(words).what();
}

std::string printed(const std::function<void()>& body) {
  ::testing::internal::CaptureStdout();
  body();
  return ::testing::internal::GetCapturedStdout();
}

/// `lockstep` passes commands that it does not run itself to this table.
TEST(Commands, EachHasItsPlaceAmongThoseOfTheProgram) {
  std::vector<std::string_view> names;
  for (const start::Command& command : start::commands()) {
    names.push_back(command.name);
  }
  for (const Command& command : commands()) {
    EXPECT_EQ(std::ranges::count(names, command.name), 1) << command.name;
  }
}

TEST(Commands, HelpNamesTheCommandAndEndsWell) {
  for (const Command& command : commands()) {
    if (command.name == "train" || command.name == "unlearn") {
      continue;  // printed by the start program
    }
    for (const char* word : {"--help", "-h"}) {
      int code = -1;
      const std::string text = printed([&] { code = command.run({word}); });
      EXPECT_EQ(code, 0) << command.name;
      EXPECT_NE(text.find("lockstep " + std::string(command.name)), std::string::npos) << text;
      EXPECT_NE(text.find("--"), std::string::npos) << text;
    }
  }
}

TEST(Commands, AnOptionThatNobodyKnowsIsNamed) {
  // Each command with its required arguments.
  const std::vector<Words> begun{
      {"train"},
      {"unlearn"},
      {"eval"},
      {"predict"},
      {"generate", "--model", "a", "--prompt", "b"},
      {"export", "--model", "a", "--output", "b"},
      {"verify"},
      {"doctor"},
      {"selftest"},
      {"calibrate"},
      {"bench", "zero"},
      {"schedule"},
      {"models"},
      {"data", "show"}};
  EXPECT_EQ(begun.size() + 1, commands().size()) << "but replay, which wants a checkpoint";
  for (Words words : begun) {
    words.emplace_back("--no-such-option");
    EXPECT_NE(told(words).find("no-such-option"), std::string::npos)
        << words.front() << ": " << told(words);
  }
}

TEST(Bench, TakesOneOfTwoComparisonsAndSizesThatCanBe) {
  EXPECT_NE(told({"bench"}).find("what"), std::string::npos);
  EXPECT_NE(told({"bench", "three"}).find("use zero or dp-vs-ddp"), std::string::npos);
  const std::vector<Words> sizes{
      {"--nproc", "0"},
      {"--steps", "0"},
      {"--warm", "-1"},
      {"--layers", "0"},
      {"--width", "0"},
      {"--width", "65"},
      {"--width", "96"},
      {"--length", "1"},
      {"--rows", "0"},
      {"--vocabulary", "-5"}};
  for (const Words& size : sizes) {
    EXPECT_NE(
        told({"bench", "zero", size[0], size[1]}).find("sizes of at least 1"), std::string::npos)
        << size[0];
  }
  EXPECT_NE(told({"bench", "zero", "--nproc", "two"}).find("--nproc"), std::string::npos);
}

TEST(Calibrate, TakesTimesAndRanksThatCanBe) {
  for (const char* seconds : {"0", "-1", "61", "nan", "inf", "x", ""}) {
    EXPECT_NE(told({"calibrate", "--seconds", seconds}).find("--seconds"), std::string::npos)
        << seconds;
  }
  for (const char* ranks : {"0", "4097", "1.5", "x"}) {
    EXPECT_NE(told({"calibrate", "--nproc", ranks}).find("--nproc"), std::string::npos) << ranks;
  }
  EXPECT_EQ(refused({"calibrate", "--nproc", "0"}).remedy(), "see `lockstep calibrate --help`");
}

TEST(Data, KnowsOneWord) {
  EXPECT_NE(told({"data"}).find("subcommand is required: show"), std::string::npos);
  EXPECT_NE(told({"data", "list"}).find("unknown subcommand 'list'"), std::string::npos);
  EXPECT_NE(told({"data", "show"}).find("data.train"), std::string::npos);
}

TEST(Doctor, RefusesWordsAndNumbersThatAreNone) {
  EXPECT_NE(told({"doctor", "quickly"}).find("unknown option 'quickly'"), std::string::npos);
  EXPECT_NE(told({"doctor", "--nproc", "0"}).find("nproc"), std::string::npos);
  EXPECT_NE(told({"doctor", "--nproc", "two"}).find("nproc"), std::string::npos);
  const std::string both = told({"doctor", "quickly", "--nproc", "0"});
  EXPECT_NE(both.find("quickly"), std::string::npos) << "all problems at once: " << both;
  EXPECT_NE(both.find("nproc"), std::string::npos) << both;
}

TEST(Selftest, RefusesWordsAndNumbersThatAreNone) {
  EXPECT_NE(told({"selftest", "quickly"}).find("unknown option 'quickly'"), std::string::npos);
  EXPECT_NE(told({"selftest", "--nproc", "0"}).find("nproc"), std::string::npos);
}

TEST(Eval, SaysWhatItNeedsOfAdapters) {
  EXPECT_NE(told({"eval"}).find("model.path"), std::string::npos);
  EXPECT_NE(
      told({"eval", "--model", "a", "--adapter", "b", "--adapter-weight", "half"})
          .find("'half' is not a number"),
      std::string::npos);
  EXPECT_NE(
      told({"eval", "--model", "a", "--adapter", "b", "--adapter-combination", "sum"})
          .find("'sum' is not cat or linear"),
      std::string::npos);
  EXPECT_NE(
      told({"eval", "--model", "a", "--adapter", "b", "lora.r=4"})
          .find("cannot be combined with keys of lora"),
      std::string::npos);
  EXPECT_NE(told({"eval", "--model", "a", "--nproc", "0"}).find("nproc"), std::string::npos);
}

TEST(Export, TellsWhatGoesWithWhat) {
  const Words model{"export", "--model", "a", "--output", "b"};
  const auto with = [&](const Words& more) {
    Words words = model;
    words.insert(words.end(), more.begin(), more.end());
    return told(words);
  };
  EXPECT_NE(told({"export"}).find("--model"), std::string::npos);
  EXPECT_NE(told({"export", "--model", "a"}).find("--output"), std::string::npos);
  EXPECT_NE(with({"--merge"}).find("--adapter"), std::string::npos);
  EXPECT_NE(with({"--gguf", "f16", "--dtype", "float32"}).find("--dtype"), std::string::npos);
  EXPECT_NE(with({"--gguf", "f16", "--bits", "4"}).find("--bits"), std::string::npos);
  EXPECT_NE(with({"--gguf", "q9_9"}).find("q4_k_m"), std::string::npos);
  EXPECT_NE(with({"--bits", "3"}).find("--bits"), std::string::npos);
  EXPECT_NE(with({"--quant-type", "nf4"}).find("--bits"), std::string::npos);
  EXPECT_NE(with({"--double-quant"}).find("--bits"), std::string::npos);
  EXPECT_NE(with({"--dtype", "int8"}).find("--dtype"), std::string::npos);
  EXPECT_NE(with({"--adapter-weight", "2"}).find("--adapter"), std::string::npos);
}

/// A folder with the parts of a model's and an adapter's description that are read here.
struct Folders {
  TemporaryFolder folder;
  std::string model = (folder.path() / "model").string();
  std::string adapter = (folder.path() / "adapter").string();

  Folders() {
    create_folders(model);
    create_folders(adapter);
    write_file_atomically(
        folder.path() / "model/config.json",
        R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 8,
            "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 8})");
    write_file_atomically(
        folder.path() / "adapter/adapter_config.json",
        R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 2,
            "target_modules": ["c_attn"], "base_model_name_or_path": ""})");
  }
};

TEST(Export, DoesNotWriteOverWhatItReads) {
  const Folders folders;
  EXPECT_NE(
      told({"export", "--model", folders.model, "--output", folders.adapter}).find("nothing to do"),
      std::string::npos);
  EXPECT_NE(
      told({"export", "--model", folders.model, "--output", folders.model, "--bits", "4"})
          .find("is the model itself"),
      std::string::npos);
  EXPECT_NE(
      told({"export",
            "--model",
            folders.model,
            "--adapter",
            folders.adapter,
            "--merge",
            "--output",
            folders.adapter + "/"})
          .find("is the adapter itself"),
      std::string::npos);
  const std::string gguf =
      told({"export", "--model", folders.model, "--output", folders.adapter, "--gguf", "f16"});
  EXPECT_NE(gguf.find("--gguf writes a file"), std::string::npos) << gguf;
  EXPECT_NE(gguf.find("adapter/model.gguf"), std::string::npos) << gguf;
}

TEST(Generate, TakesNumbersThatCanBe) {
  const auto with = [](const char* option, const char* value) {
    return told({"generate", "--model", "a", "--prompt", "b", option, value});
  };
  EXPECT_NE(told({"generate", "--model", "a"}).find("--prompt"), std::string::npos);
  EXPECT_NE(told({"generate", "--prompt", "a"}).find("--model"), std::string::npos);
  const std::vector<std::pair<const char*, std::vector<const char*>>> wrong{
      {"--temperature", {"-0.1", "nan", "inf", "hot"}},
      {"--top-p", {"0", "-0.1", "1.01", "nan", "x"}},
      {"--top-k", {"-1", "1.5"}},
      {"--max-new-tokens", {"-1", "x"}},
      {"--min-new-tokens", {"-1", "x"}},
      {"--dtype", {"float16", ""}},
      {"--device-map", {"cuda:0"}},
      {"--tensor", {"0"}},
      {"--bits", {"5"}}};
  for (const auto& [option, values] : wrong) {
    for (const char* value : values) {
      EXPECT_NE(with(option, value).find(option), std::string::npos) << option << " " << value;
    }
  }
  EXPECT_NE(
      told({"generate",
            "--model",
            "a",
            "--prompt",
            "b",
            "--min-new-tokens",
            "21",
            "--max-new-tokens",
            "20"})
          .find("--min-new-tokens is 21"),
      std::string::npos);
  EXPECT_NE(
      told({"generate", "--model", "a", "--prompt", "-", "--tensor", "2"}).find("stdin"),
      std::string::npos);
}

TEST(Generate, AnEncoderWritesNothing) {
  const TemporaryFolder folder;
  write_file_atomically(
      folder.path() / "config.json",
      R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 8,
          "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
          "intermediate_size": 8, "max_position_embeddings": 8})");
  const std::string text = told({"generate", "--model", folder.path().string(), "--prompt", "a"});
  EXPECT_NE(text.find("is an encoder"), std::string::npos) << text;
  EXPECT_NE(text.find("lockstep eval"), std::string::npos) << text;
}

TEST(Predict, TakesAFileOrAText) {
  EXPECT_NE(told({"predict"}).find("model.path"), std::string::npos);
  EXPECT_NE(told({"predict", "--model", "a"}).find("nothing to classify"), std::string::npos);
  EXPECT_NE(
      told({"predict", "--model", "a", "--text", "b", "--input", "c"}).find("cannot be combined"),
      std::string::npos);
}

TEST(Replay, TakesACheckpointOfARun) {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  EXPECT_NE(told({"replay"}).find("the folder of a checkpoint is required"), std::string::npos);
  EXPECT_NE(
      told({"replay", "--step", "5"}).find("the folder of a checkpoint is required"),
      std::string::npos);
  for (const char* name :
       {"",
        "checkpoint-",
        "checkpoint-x",
        "checkpoint-5x",
        "checkpoint--5",
        "5",
        "checkpoint-5/a"}) {
    EXPECT_NE(told({"replay", path(name)}).find("is not a checkpoint-STEP"), std::string::npos)
        << name;
  }
  for (const char* name : {"checkpoint-5", "checkpoint-5/"}) {
    EXPECT_NE(told({"replay", path(name)}).find("has no config.yaml"), std::string::npos);
  }
  create_folders(folder.path() / "checkpoint-5");
  write_file_atomically(
      folder.path() / "checkpoint-5/config.yaml",
      "data: {train: a.txt}\nmodel: {preset: gpt2-tiny}\ntraining: {output_dir: run}\n");
  for (const char* step : {"5", "0", "x"}) {
    EXPECT_NE(
        told({"replay", path("checkpoint-5"), "--step", step}).find("step"), std::string::npos)
        << step;
  }
}

}  // namespace commands_test
}  // namespace lockstep::cli
