// `lockstep sample`: writes the sample corpus, or the files of the documentation's examples.
#include "start/sample.h"

#include <utility>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "data/sample.h"
#include "start/examples.h"
#include "start/parse.h"

namespace lockstep::start {

int run_sample(std::vector<std::string> arguments) {
  data::SampleOptions options;
  std::string folder, examples;
  CLI::App app(
      "Write a generated sample corpus: stories (train.txt, validation.txt, test.txt), "
      "instructions with answers (instructions.jsonl), labelled texts (labelled.csv). Or write the "
      "files that the commands of the documentation use.",
      "lockstep sample");
  auto* output = app.add_option("--output", folder, "Folder for the corpus. path");
  auto* seed =
      app.add_option("--seed", options.seed, "Random seed; the same seed gives the same files. int")
          ->capture_default_str();
  auto* size =
      app.add_option("--size", options.megabytes, "Total size in MB. float")->capture_default_str();
  app.add_option(
         "--examples",
         examples,
         "Folder for the files of the documentation: gpt2-folder, corpus.txt, chats.jsonl, "
         "pairs.jsonl and others. path")
      ->excludes(output)
      ->excludes(seed)
      ->excludes(size);
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  if (!examples.empty()) {
    for (const std::filesystem::path& path : write_examples(examples)) {
      fmt::print("{}\n", path.string());
    }
    return 0;
  }
  if (folder.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "lockstep sample: --output or --examples is required",
        "give --output FOLDER for a corpus, --examples FOLDER for the documentation's files");
  }
  options.folder = folder;
  const data::SampleReport report = data::write_sample_corpus(options);
  for (const auto& [path, bytes] : report.files) {
    fmt::print("{:>9}  {}\n", bytes, path.string());
  }
  return 0;
}

}  // namespace lockstep::start
