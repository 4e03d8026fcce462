#include "start/tokenizer.h"

#include <chrono>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "start/parse.h"
#include "text/train_bpe.h"

namespace lockstep::start {
namespace {

void train(
    const std::vector<std::filesystem::path>& files,
    const text::BpeTrainingOptions& options,
    const std::string& output) {
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<const text::Tokenizer> tokenizer =
      text::train_byte_level_bpe(files, options, output);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{}/tokenizer.json: {} tokens, in {:.1f} s\n",
      output,
      tokenizer->vocabulary_size(),
      seconds.count());
  if (tokenizer->vocabulary_size() < options.vocabulary_size) {
    fmt::print(
        "The text has no more pairs that occur {} times: {} tokens fewer than asked for.\n",
        options.minimum_count,
        options.vocabulary_size - tokenizer->vocabulary_size());
  }
}

}  // namespace

int run_tokenizer(std::vector<std::string> arguments) {
  std::vector<std::filesystem::path> files;
  text::BpeTrainingOptions options;
  std::string output;
  CLI::App app("Makes tokenizers.", "lockstep tokenizer");
  app.require_subcommand(1);
  CLI::App* training =
      app.add_subcommand("train", "Trains a byte-level BPE on text, and writes a tokenizer.json");
  training->add_option("--files", files, "Text files")->required();
  training->add_option("--vocab-size", options.vocabulary_size, "Tokens in all")
      ->capture_default_str();
  training->add_option("--output", output, "The folder to write to")->required();
  training
      ->add_option(
          "--special-tokens",
          options.special_tokens,
          "Their ids come first; the first one ends a text")
      ->capture_default_str();
  training
      ->add_option(
          "--min-frequency", options.minimum_count, "Pairs that occur less often are not merged")
      ->capture_default_str();
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  train(files, options, output);
  return 0;
}

}  // namespace lockstep::start
