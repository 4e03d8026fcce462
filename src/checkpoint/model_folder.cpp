// Implements reading the tensors of a Hugging Face model folder by name.
#include "checkpoint/model_folder.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/format.h"
#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {
namespace {

/// Prefixes of the base model in a model with a head. In files of the base model alone, names have
/// no prefix.
constexpr std::string_view kBasePrefixes[] = {
    "transformer.", "model.", "gpt_neox.", "bert.", "roberta.", "distilbert."};

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns true for buffers that are not parameters: the causal masks of GPT-2 (h.3.attn.bias),
/// GPT-Neo (h.3.attn.attention.bias) and GPT-NeoX (layers.3.attention.bias), and the rotary tables
/// of old files.
bool ignored_buffer(std::string_view name) {
  for (const std::string_view suffix :
       {".rotary_emb.inv_freq",
        "rotary_pos_emb.inv_freq",
        ".attention.bias",
        ".attention.masked_bias",
        "embeddings.position_ids"}) {
    if (name.ends_with(suffix)) {
      return true;
    }
  }
  if (name.starts_with(kBasePrefixes[0])) {
    name.remove_prefix(kBasePrefixes[0].size());
  }
  if (!name.starts_with("h.")) {
    return false;
  }
  name.remove_prefix(2);
  for (const std::string_view suffix : {".attn.bias", ".attn.masked_bias"}) {
    if (name.ends_with(suffix) && all_digits(name.substr(0, name.size() - suffix.size()))) {
      return true;
    }
  }
  return false;
}

TensorFiles open_model(const std::filesystem::path& folder, ErrorKind kind) {
  std::error_code ignored;
  if (!TensorFiles::exist(folder, "model") &&
      (std::filesystem::exists(folder / "pytorch_model.bin", ignored) ||
       std::filesystem::exists(folder / "pytorch_model.bin.index.json", ignored))) {
    throw Error(
        kind,
        fmt::format(
            "{} has its weights only as a pickle (pytorch_model.bin), which is never unpickled for "
            "security",
            folder.string()),
        "convert it on a machine where you trust it: "
        "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)");
  }
  return TensorFiles(folder, "model", kind);
}

}  // namespace

ModelFolder::ModelFolder(const std::filesystem::path& folder, ErrorKind kind)
    : kind_(kind),
      files_(open_model(folder, kind)) {}

std::optional<std::string> ModelFolder::stored_name(const std::string& name) const {
  if (files_.contains(name)) {
    return name;
  }
  for (const std::string_view prefix : kBasePrefixes) {
    if (name.starts_with(prefix)) {
      std::string bare = name.substr(prefix.size());
      if (files_.contains(bare)) {
        return bare;
      }
    }
  }
  return std::nullopt;
}

std::vector<std::string> ModelFolder::match(std::span<const WantedTensor> wanted, Aliases aliases) {
  matched_.clear();
  std::vector<std::string> problems, missing;
  std::set<std::string> used;
  for (const WantedTensor& tensor : wanted) {
    auto stored = stored_name(tensor.name);
    for (const std::string& alias : tensor.aliases) {
      const auto other = stored_name(alias);
      if (!other) {
        continue;
      }
      used.insert(*other);
      if (!stored) {
        stored = other;
      } else if (aliases == Aliases::kCompare) {
        compare(*stored, *other);
      }
    }
    const bool is_stacked = !stored && tensor.stacked;
    if (is_stacked) {
      stored = stored_name(tensor.stacked->name);
    }
    if (tensor.is_optional && (!stored || files_.tensor(*stored).shape != tensor.shape)) {
      if (stored) {
        used.insert(*stored);
      }
      continue;
    }
    if (!stored) {
      missing.push_back(shown(tensor.name));
      continue;
    }
    const bool is_new = used.insert(*stored).second;
    matched_[tensor.name] = {*stored, is_stacked ? tensor.stacked->offset : 0};
    const std::vector<int64_t>& shape = is_stacked ? tensor.stacked->shape : tensor.shape;
    const TensorEntry& entry = files_.tensor(*stored);
    if (entry.shape != shape && (is_new || !is_stacked)) {
      problems.push_back(fmt::format(
          "tensor {} of {} has shape {}; the model needs {}",
          shown(*stored),
          files_.file_of(*stored).string(),
          shape_text(entry.shape),
          shape_text(shape)));
    }
  }
  std::vector<std::string> unexpected;
  for (std::string& name : files_.names()) {
    if (!used.contains(name) && !ignored_buffer(name)) {
      unexpected.push_back(std::move(name));
    }
  }
  if (!missing.empty()) {
    problems.insert(
        problems.begin(),
        fmt::format(
            "{} is missing {} of the model's {} tensors: {}{}",
            files_.folder().string(),
            missing.size(),
            wanted.size(),
            list_text(missing),
            unexpected.empty()
                ? ""
                : fmt::format(" (but has {}, unknown to the model)", list_text(unexpected, 3))));
  }
  if (!problems.empty()) {
    throw Error(
        kind_,
        fmt::format("the weights do not match the model: {}", list_text(problems)),
        "check that config.json belongs to these weights");
  }
  return unexpected;
}

bool ModelFolder::has_matched(const std::string& name) const {
  return matched_.contains(name);
}

void ModelFolder::compare(const std::string& first, const std::string& second) const {
  const TensorEntry& a = files_.tensor(first);
  const TensorEntry& b = files_.tensor(second);
  const auto left = files_.bytes(first);
  const auto right = files_.bytes(second);
  const bool equal = a.dtype == b.dtype && a.shape == b.shape &&
                     (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
  if (!equal) {
    log_warning(
        "{}: {} and {} are one tensor in this model, but differ; {} is used",
        files_.folder().string(),
        shown(first),
        shown(second),
        shown(first));
  }
}

ModelFolder::Match ModelFolder::resolve(const std::string& name) const {
  if (const auto found = matched_.find(name); found != matched_.end()) {
    return found->second;
  }
  if (const auto stored = stored_name(name)) {
    return {*stored};
  }
  const auto names = files_.names();
  throw Error(
      kind_,
      fmt::format(
          "{} has no tensor {}.{}",
          files_.folder().string(),
          shown(name),
          did_you_mean(name, names)));
}

void ModelFolder::read(const std::string& name, int64_t begin, const at::Tensor& out) const {
  const Match found = resolve(name);
  files_.read(found.stored, found.offset + begin, out);
}

}  // namespace lockstep::checkpoint
