// Locates a model: preset, config file, folder, Hub cache or object store.
#include "model/source.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/first_rank.h"
#include "base/format.h"
#include "base/nearest.h"
#include "model/folder_files.h"
#include "objects/fetch.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

struct HubName {
  std::string organisation, name, revision = "main";
  std::string id() const { return organisation.empty() ? name : organisation + "/" + name; }
  std::string folder() const {
    return organisation.empty() ? "models--" + name : "models--" + organisation + "--" + name;
  }
};

/// Returns true for a valid component of a Hub name: letters, digits, '-', '_' and '.', without '-'
/// or '.' at either end, "--" or "..".
bool is_hub_part(std::string_view part) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const auto edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && part.size() <= 96 && std::ranges::all_of(part, allowed) &&
         !edge(part.front()) && !edge(part.back()) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos;
}

std::optional<HubName> parse_hub_name(std::string text) {
  HubName result;
  if (const size_t at = text.find('@'); at != std::string::npos) {
    result.revision = text.substr(at + 1);
    text.resize(at);
    if (!is_hub_part(result.revision)) {
      return std::nullopt;
    }
  }
  const size_t slash = text.find('/');
  result.name = slash == std::string::npos ? text : text.substr(slash + 1);
  if (slash != std::string::npos) {
    result.organisation = text.substr(0, slash);
    if (!is_hub_part(result.organisation)) {
      return std::nullopt;
    }
  }
  return is_hub_part(result.name) ? std::optional(result) : std::nullopt;
}

std::string trimmed(std::string text) {
  const auto last = text.find_last_not_of(" \t\r\n");
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

/// Returns the snapshot folder of a revision: refs/<revision> contains a commit, or the revision is
/// a commit.
std::optional<fs::path> snapshot(const fs::path& repository, const std::string& revision) {
  std::string commit = revision;
  if (const fs::path reference = repository / "refs" / revision; is_there(reference)) {
    commit = trimmed(read_file(reference));
    if (!is_hub_part(commit)) {
      throw Error(
          ErrorKind::kData, fmt::format("{} does not contain a commit hash", reference.string()));
    }
  }
  const fs::path folder = repository / "snapshots" / commit;
  return is_folder(folder) ? std::optional(folder) : std::nullopt;
}

/// Returns true for files without weights that a trainer writes next to the weights.
bool is_training_state(const std::string& name) {
  static constexpr std::string_view kNames[] = {
      "training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt"};
  return std::ranges::find(kNames, name) != std::end(kNames) || name.starts_with("rng_state");
}

/// Returns the sorted names of weight files in `folder` with unsupported names.
std::vector<std::string> unread_weights(const fs::path& folder) {
  static constexpr std::string_view kEndings[] = {
      ".safetensors", ".gguf", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".npz"};
  std::vector<std::string> found;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(failed) || is_training_state(name)) {
      continue;
    }
    if (std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); }) ||
        name == "model.ckpt.index" || name == "pytorch_model.bin.index.json") {
      found.push_back(name);
    }
  }
  std::ranges::sort(found);
  return found;
}

/// Throws Error (data) for a folder with weights in a form other than model.safetensors or shards
/// with an index. Otherwise training would silently start from random weights.
[[noreturn]] void refuse_unread_weights(
    const fs::path& folder, const std::vector<std::string>& files) {
  const auto has = [&](auto test) { return std::ranges::any_of(files, test); };
  const std::string subject = fmt::format(
      "{}: no model.safetensors and no model.safetensors.index.json, but {}{}",
      folder.string(),
      fmt::join(files.begin(), files.begin() + std::min<ptrdiff_t>(3, std::ssize(files)), ", "),
      files.size() > 3 ? fmt::format(" and {} more", files.size() - 3) : "");
  if (has([](const std::string& name) {
        return name.starts_with("model-") && name.ends_with(".safetensors");
      })) {
    throw Error(
        ErrorKind::kData,
        subject,
        "model.safetensors.index.json names the shards; complete the download, or copy the index");
  }
  if (has([](const std::string& name) { return name.starts_with("adapter_model"); })) {
    throw Error(
        ErrorKind::kData,
        subject,
        "this folder contains an adapter: give its base model, and the folder as --adapter "
        "(lora.adapter=FOLDER to train it further)");
  }
  if (has([](const std::string& name) { return name.ends_with(".safetensors"); })) {
    throw Error(
        ErrorKind::kData,
        subject,
        "only Hugging Face file and tensor names are supported; convert the folder with "
        "transformers, or remove the file if it contains no weights of this model");
  }
  if (has([](const std::string& name) { return name.ends_with(".gguf"); })) {
    throw Error(
        ErrorKind::kData,
        subject,
        "GGUF files can be written but not read; use the folder from which the file was created");
  }
  throw Error(
      ErrorKind::kData,
      fmt::format("{} (pickled weights are not supported: loading them can run code)", subject),
      "save the model again with transformers: AutoModelForCausalLM.from_pretrained(...)"
      ".save_pretrained(..., safe_serialization=True)");
}

bool find_weights(const fs::path& folder) {
  if (is_there(folder / "model.safetensors") || is_there(folder / "model.safetensors.index.json")) {
    return true;
  }
  if (const auto files = unread_weights(folder); !files.empty()) {
    refuse_unread_weights(folder, files);
  }
  return false;
}

/// Warns of files that are not used and not known to be harmless.
void report_files(const fs::path& folder) {
  const std::vector<std::string> unknown = unknown_files(folder);
  const auto is_of_adapter = [](const std::string& name) { return name.starts_with("adapter_"); };
  if (std::ranges::any_of(unknown, is_of_adapter)) {
    warn_on_first_rank(fmt::format(
        "{} contains a model and an adapter (adapter_config.json, adapter_model.safetensors); "
        "the adapter is applied only if it is named: --adapter {} (lora.adapter)",
        folder.string(),
        folder.string()));
  }
  std::vector<std::string> others;
  std::ranges::remove_copy_if(unknown, std::back_inserter(others), is_of_adapter);
  if (!others.empty()) {
    warn_on_first_rank(fmt::format(
        "{}: files that are neither used nor saved with the model: {}",
        folder.string(),
        fmt::join(others, ", ")));
  }
}

ModelSource read_folder(ModelSource::Kind kind, const std::string& name, const fs::path& folder) {
  const fs::path file = folder / "config.json";
  if (!is_there(file)) {
    throw Error(
        ErrorKind::kData,
        fmt::format("the model folder {} has no config.json", folder.string()),
        "use a folder saved by transformers or lockstep");
  }
  ModelSource source;
  source.kind = kind;
  source.name = name;
  source.folder = folder;
  source.config = read_model_config(file);
  source.generation = read_generation_config(folder);
  source.has_weights = find_weights(folder);
  source.kept = kept_files(folder);
  report_files(folder);
  return source;
}

/// Returns the organization of a model that has a short name on the Hub; empty if unknown.
std::string keeper_of(const std::string& short_name) {
  static constexpr std::string_view kGpt2[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
  static constexpr std::string_view kT5[] = {"t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b"};
  const auto is_in = [&](const auto& names) {
    return std::ranges::find(names, short_name) != std::end(names);
  };
  return is_in(kGpt2) ? "openai-community" : is_in(kT5) ? "google-t5" : "";
}

ModelSource find_in_hub_cache(const std::string& path, const HubName& hub, const fs::path& cache) {
  std::vector<HubName> candidates = {hub};
  if (hub.organisation.empty()) {
    candidates.push_back(hub);
    candidates.back().organisation = keeper_of(hub.name);
  }
  for (const HubName& candidate : candidates) {
    const fs::path repository = cache / candidate.folder();
    if (!is_folder(repository)) {
      continue;
    }
    if (const auto folder = snapshot(repository, candidate.revision)) {
      return read_folder(ModelSource::Kind::kHub, path, *folder);
    }
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} has no snapshot of revision \"{}\"", repository.string(), candidate.revision),
        fmt::format(
            "download it: hf download {} --revision {}", candidate.id(), candidate.revision));
  }
  const HubName& last = candidates.back();
  const auto names = preset_names();
  const bool is_preset = std::ranges::find(names, path) != names.end();
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "model.path \"{}\" is not a local folder or file, and the local Hugging Face cache {} "
          "does not contain it",
          path,
          cache.string()),
      fmt::format(
          "download it: hf download {}{}{}",
          last.organisation.empty() ? "ORGANISATION/" : "",
          last.id(),
          is_preset ? fmt::format("; or create it with random weights: model.preset={}", path)
                    : ""));
}

}  // namespace

void require_weights(const ModelSource& source) {
  if (source.has_weights) {
    return;
  }
  if (source.kind == ModelSource::Kind::kHub) {
    const std::string id = source.name.substr(0, source.name.find('@'));
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the local Hugging Face cache contains its configuration, but no weights",
            source.name),
        fmt::format("download them: hf download {}", id));
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{}: no weights (model.safetensors, or model.safetensors.index.json and its shards)",
          source.name),
      "use a folder with trained weights; only `train` and `verify` support random initialization");
}

ModelSource find_model(const std::string& path, const fs::path& hub_cache) {
  if (path.empty()) {
    throw Error(ErrorKind::kConfig, "model.path is empty");
  }
  if (objects::is_remote(path)) {
    return read_folder(
        ModelSource::Kind::kFolder,
        path,
        objects::fetch_folder(objects::parse_location(path), [](std::string_view key) {
          return key.ends_with(".json");  // weights are fetched separately if needed
        }));
  }
  const fs::path local = expand_home(path);
  if (is_folder(local)) {
    return read_folder(ModelSource::Kind::kFolder, path, local);
  }
  if (is_there(local)) {
    // For a file, only the configuration is used, without weights in the same folder. To use
    // weights, pass the folder.
    ModelSource source;
    source.kind = ModelSource::Kind::kConfigFile;
    source.name = path;
    source.folder = fs::absolute(local).parent_path();
    source.config = read_model_config(local);
    return source;
  }
  if (const auto hub = parse_hub_name(path)) {
    return find_in_hub_cache(path, *hub, hub_cache);
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "model.path \"{}\" is not a folder, a file or the name of a model on the Hub", path),
      "use a folder with config.json, a config.json, or a name such as openai-community/gpt2");
}

ModelSource preset_source(const std::string& name) {
  ModelSource source;
  source.name = name;
  source.config = preset(name);
  return source;
}

}  // namespace lockstep::model
