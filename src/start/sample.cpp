#include "start/sample.h"

#include <utility>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "data/sample.h"
#include "start/parse.h"

namespace lockstep::start {

int run_sample(std::vector<std::string> arguments) {
  data::SampleOptions options;
  std::string folder;
  CLI::App app(
      "Writes a corpus to try things on, made by a grammar: stories (train.txt, validation.txt, "
      "test.txt), instructions with answers (instructions.jsonl), labelled texts (labelled.csv).",
      "lockstep sample");
  app.add_option("--output", folder, "The folder to write it in")->required();
  app.add_option("--seed", options.seed, "The same seed gives the same files")
      ->capture_default_str();
  app.add_option("--size", options.megabytes, "Megabytes, of all files together")
      ->capture_default_str();
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  options.folder = folder;
  const data::SampleReport report = data::write_sample_corpus(options);
  for (const auto& [path, bytes] : report.files) {
    fmt::print("{:>9}  {}\n", bytes, path.string());
  }
  return 0;
}

}  // namespace lockstep::start
