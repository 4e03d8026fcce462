// `lockstep tokenizer train`: trains a tokenizer.
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
        "No more pairs occur {} times: {} tokens fewer than requested.\n",
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
  CLI::App* training = app.add_subcommand(
      "train", "Train a byte-level BPE tokenizer on text and write a tokenizer.json");
  training->add_option("--files", files, "Text files")->required();
  training->add_option("--vocab-size", options.vocabulary_size, "Vocabulary size. int")
      ->capture_default_str();
  training->add_option("--output", output, "Folder to write to. path")->required();
  training
      ->add_option(
          "--special-tokens",
          options.special_tokens,
          "Special tokens; they get the first ids, and the first one is EOS. list")
      ->capture_default_str();
  training
      ->add_option(
          "--min-frequency",
          options.minimum_count,
          "Minimum number of occurrences of a merged pair. int")
      ->capture_default_str();
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  train(files, options, output);
  return 0;
}

}  // namespace lockstep::start
