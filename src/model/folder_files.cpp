// Implements the table of the files of model folders.
#include "model/folder_files.h"

#include <algorithm>
#include <array>
#include <system_error>

#include <fnmatch.h>

#include "base/file.h"
#include "base/json.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;

constexpr KnownFile kKnown[] = {
    {"config.json", FileUse::kUsed, "sizes and options of the model"},
    {"generation_config.json", FileUse::kUsed, "settings of `lockstep generate`"},
    {"model.safetensors", FileUse::kUsed, "weights"},
    {"model.safetensors.index.json", FileUse::kUsed, "names of the shards"},
    {"model-*-of-*.safetensors", FileUse::kUsed, "shards of the weights"},
    {"classification.json", FileUse::kUsed, "settings of a classifier that Lockstep trained"},
    {"tokenizer.json", FileUse::kUsed, "tokenizer"},
    {"tokenizer_config.json", FileUse::kUsed, "tokenizer"},
    {"special_tokens_map.json", FileUse::kUsed, "tokenizer"},
    {"added_tokens.json", FileUse::kUsed, "tokenizer"},
    {"chat_template.jinja", FileUse::kUsed, "chat template"},
    {"vocab.json", FileUse::kUsed, "tokenizer, if tokenizer.json does not exist"},
    {"merges.txt", FileUse::kUsed, "tokenizer, if tokenizer.json does not exist"},
    {"tokenizer.model", FileUse::kKeptWithTokenizer, "source of tokenizer.json"},
    {"spiece.model", FileUse::kKeptWithTokenizer, "source of tokenizer.json"},
    {"sentencepiece.bpe.model", FileUse::kKeptWithTokenizer, "source of tokenizer.json"},
    {"vocab.txt", FileUse::kKeptWithTokenizer, "source of tokenizer.json"},
    {"chat_template.json", FileUse::kKeptWithTokenizer, "chat template of a processor"},
    {"processor_config.json", FileUse::kKept, "settings of a processor of images or audio"},
    {"preprocessor_config.json", FileUse::kKept, "settings of a processor of images or audio"},
    {"video_preprocessor_config.json", FileUse::kKept, "settings of a processor of videos"},
    {"*.py", FileUse::kKept, "code of the model; never run"},
    {"LICENSE*", FileUse::kKept, "terms of use"},
    {"NOTICE*", FileUse::kKept, "terms of use"},
    {"USE_POLICY*", FileUse::kKept, "terms of use"},
    {"pytorch_model*.bin", FileUse::kHarmless, "the weights in another format"},
    {"pytorch_model.bin.index.json", FileUse::kHarmless, "the weights in another format"},
    {"tf_model*.h5", FileUse::kHarmless, "the weights in another format"},
    {"flax_model*.msgpack", FileUse::kHarmless, "the weights in another format"},
    {"rust_model.ot", FileUse::kHarmless, "the weights in another format"},
    {"consolidated*.safetensors", FileUse::kHarmless, "the weights in another format"},
    {"consolidated*.pth", FileUse::kHarmless, "the weights in another format"},
    {"params.json", FileUse::kHarmless, "sizes for the weights in another format"},
    {"*.gguf", FileUse::kHarmless, "the weights in another format"},
    {"training_args.bin", FileUse::kHarmless, "record of a training run"},
    {"trainer_state.json", FileUse::kHarmless, "record of a training run"},
    {"*_results.json", FileUse::kHarmless, "record of a training run"},
    {"*_report.json", FileUse::kHarmless, "record of a training run"},
    {"*.jsonl", FileUse::kHarmless, "record of a training run"},
    {"manifest.json", FileUse::kHarmless, "state of a training run"},
    {"state.json", FileUse::kHarmless, "state of a training run"},
    {"base.json", FileUse::kHarmless, "hash of an adapter's base model"},
    {"id2label.json", FileUse::kHarmless, "classes of an adapter"},
    {"optimizer*", FileUse::kHarmless, "state of a training run"},
    {"scheduler.pt", FileUse::kHarmless, "state of a training run"},
    {"scaler.pt", FileUse::kHarmless, "state of a training run"},
    {"rng_state*", FileUse::kHarmless, "state of a training run"},
    {"trace-*.json", FileUse::kHarmless, "record of a training run"},
    {"*.md", FileUse::kHarmless, "description"},
};

/// Ends of names whose files may have an effect in other programs.
constexpr std::array<const char*, 13> kKinds = {
    "*.json",
    "*.safetensors",
    "*.bin",
    "*.pt",
    "*.pth",
    "*.h5",
    "*.msgpack",
    "*.ckpt",
    "*.npz",
    "*.model",
    "*.jinja",
    "*.onnx",
    "*.py"};
constexpr const char* kFolderOfTemplates = "additional_chat_templates";

bool matches(const char* pattern, const std::string& name) {
  return ::fnmatch(pattern, name.c_str(), 0) == 0;
}

const KnownFile* find_known(const std::string& name) {
  const auto* found = std::ranges::find_if(
      kKnown, [&](const KnownFile& known) { return matches(known.pattern, name); });
  return found == std::end(kKnown) ? nullptr : found;
}

/// Calls visit(entry, name) for the entries of a folder, which may not exist.
template <class Visit>
void visit_entries(const fs::path& folder, const Visit& visit) {
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    visit(*at, at->path().filename().string());
  }
}

}  // namespace

std::span<const KnownFile> known_files() {
  return kKnown;
}

std::vector<std::string> unknown_files(const fs::path& folder) {
  std::vector<std::string> unknown;
  visit_entries(folder, [&](const fs::directory_entry& entry, const std::string& name) {
    std::error_code ignored;
    const bool is_of_kind =
        entry.is_directory(ignored)
            ? name == kFolderOfTemplates
            : std::ranges::any_of(kKinds, [&](const char* kind) { return matches(kind, name); });
    if (is_of_kind && find_known(name) == nullptr) {
      unknown.push_back(name);
    }
  });
  std::ranges::sort(unknown);
  return unknown;
}

std::map<std::string, std::string> kept_files(const fs::path& folder) {
  std::map<std::string, std::string> kept;
  visit_entries(folder, [&](const fs::directory_entry& entry, const std::string& name) {
    std::error_code ignored;
    const KnownFile* known = find_known(name);
    if (known != nullptr && known->use == FileUse::kKept && entry.is_regular_file(ignored)) {
      kept[name] = read_file(entry.path(), ErrorKind::kData, kLongestJsonTable);
    }
  });
  return kept;
}

}  // namespace lockstep::model
