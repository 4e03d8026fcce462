// Writes the files that the commands of the documentation use.
#include "start/examples.h"

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "data/sample.h"
#include "text/train_bpe.h"

namespace lockstep::start {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVocabulary = 512;
constexpr const char* kCorpus = "corpus.txt";
constexpr const char* kModel = "gpt2-folder";
constexpr const char* kModelConfig =
    R"({{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": {}, "n_embd": 32,
"n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0}}
)";

void refuse_existing(const fs::path& folder) {
  std::vector<std::string> names{kCorpus, kModel};
  for (const ExampleFile& file : example_files()) {
    names.emplace_back(file.name);
  }
  for (const std::string& name : names) {
    if (fs::exists(folder / name)) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{} exists", (folder / name).string()),
          "give a new folder, such as --examples examples");
    }
  }
}

/// Writes the stories of a sample corpus as one file.
void write_corpus(const fs::path& path) {
  const fs::path scratch = path.parent_path() / ".sample";
  (void)data::write_sample_corpus({.folder = scratch, .megabytes = 0.1});
  fs::rename(scratch / "train.txt", path);
  fs::remove_all(scratch);
}

}  // namespace

std::vector<fs::path> write_examples(const fs::path& folder) {
  refuse_existing(folder);
  create_folders(folder, ErrorKind::kEnvironment);
  std::vector<fs::path> written;
  const auto write = [&](const fs::path& name, std::string_view content) {
    const fs::path path = folder / name;
    create_folders(path.parent_path(), ErrorKind::kEnvironment);
    write_file_atomically(path, content, ErrorKind::kEnvironment);
    written.push_back(path);
  };
  write_corpus(folder / kCorpus);
  written.push_back(folder / kCorpus);
  text::BpeTrainingOptions tokenizer;
  tokenizer.vocabulary_size = kVocabulary;
  (void)text::train_byte_level_bpe({folder / kCorpus}, tokenizer, folder / kModel);
  written.push_back(folder / kModel / "tokenizer.json");
  write(fs::path(kModel) / "config.json", fmt::format(fmt::runtime(kModelConfig), kVocabulary));
  for (const ExampleFile& file : example_files()) {
    write(file.name, file.content);
  }
  return written;
}

}  // namespace lockstep::start
