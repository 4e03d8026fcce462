// `lockstep sample`: writes the sample corpus.
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
      "Write a generated sample corpus: stories (train.txt, validation.txt, test.txt), "
      "instructions with answers (instructions.jsonl), labelled texts (labelled.csv).",
      "lockstep sample");
  app.add_option("--output", folder, "Folder to write to. path")->required();
  app.add_option("--seed", options.seed, "Random seed; the same seed gives the same files. int")
      ->capture_default_str();
  app.add_option("--size", options.megabytes, "Total size in MB. float")->capture_default_str();
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
