// The tensors of a folder, in one safetensors file or in shards with an index, read by name and
// range.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "checkpoint/pieces.h"
#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {

/// The tensors of a group of files in one folder: GROUP.safetensors, or
/// GROUP.safetensors.index.json and the shards that it names. Everything is checked when it is
/// opened: each file's header, that every name of the index is in its file, and that no tensor
/// stands twice. The files are mapped: opening reads headers only, and a rank that reads a range of
/// a tensor touches just those pages. Reading is thread-safe.
class TensorFiles {
 public:
  /// Throws an Error of `kind` that names the file and the tensor.
  TensorFiles(std::filesystem::path folder, std::string group, ErrorKind kind);

  /// Whether the folder has the group's file or index.
  static bool exist(const std::filesystem::path& folder, std::string_view group);

  const std::filesystem::path& folder() const { return folder_; }
  /// The files' base names, in the order in which they were opened.
  std::vector<std::string> files() const;
  /// Every tensor's name, sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return index_.contains(name); }
  /// Throws where the name is not there.
  const TensorEntry& tensor(const std::string& name) const;
  /// The path of the file that holds it.
  const std::filesystem::path& file_of(const std::string& name) const;
  std::span<const std::byte> bytes(const std::string& name) const;

  /// Fills `out`, contiguous, of any shape, device and floating type, with the tensor's elements
  /// [begin, begin + out.numel()) in C order, converted (rounding to nearest) where the types
  /// differ. Types that are not both floating must be equal. A range beyond the tensor is an error.
  void read(const std::string& name, int64_t begin, const at::Tensor& out) const;
  /// The whole tensor, in the file's type, on the CPU.
  at::Tensor read_whole(const std::string& name) const;

 private:
  struct Place {
    size_t file = 0;
    size_t tensor = 0;
  };
  void open_index(const std::filesystem::path& index);
  void add_file(const std::filesystem::path& path);
  const Place& place(const std::string& name) const;

  std::filesystem::path folder_;
  std::string group_;
  ErrorKind kind_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> index_;
};

/// A tensor that a model needs. `aliases` are the other names under which a file may hold it: a
/// tied head.
struct WantedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::string> aliases = {};
  std::optional<StackedTensor> stacked = {};  // taken where none of the names is there
  bool is_optional = false;  // one that is not there, or is of another shape, is no problem
};

/// A Hugging Face model folder's weights, by the names that a model has: "transformer.wte.weight"
/// also finds "wte.weight", and "model.norm.weight" also finds "norm.weight" (a file of the bare
/// base model; "bert.", "roberta." and "distilbert." likewise).
class ModelFolder {
 public:
  /// model.safetensors, else model.safetensors.index.json; a folder with pytorch_model.bin alone is
  /// told how to convert it (nothing is ever unpickled).
  explicit ModelFolder(const std::filesystem::path& folder, ErrorKind kind = ErrorKind::kData);

  const TensorFiles& files() const { return files_; }
  /// The name in the files, with or without the base model's prefix; nothing where it is not there.
  std::optional<std::string> stored_name(const std::string& name) const;
  bool contains(const std::string& name) const { return stored_name(name).has_value(); }

  /// Checks the files against what a model needs, all problems in one Error: missing tensors, and
  /// shapes that differ. Tensors that the model does not have come back, except the causal masks
  /// and rotary tables that old files hold. After it, `read` also finds a wanted tensor by an
  /// alias. Where a tensor and its alias both stand in the file and differ, a warning says so, and
  /// the tensor's own name wins (`compare_aliases`: this reads both whole, so let one rank do it).
  enum class Aliases { kTrust, kCompare };
  std::vector<std::string> match(
      std::span<const WantedTensor> wanted, Aliases aliases = Aliases::kTrust);

  /// Whether the last match() found it.
  bool has_matched(const std::string& name) const;

  /// As TensorFiles::read, by the model's name.
  void read(const std::string& name, int64_t begin, const at::Tensor& out) const;

 private:
  struct Match {
    std::string stored;  // the file's name
    int64_t offset = 0;  // of the first element
  };
  Match resolve(const std::string& name) const;
  void compare(const std::string& first, const std::string& second) const;

  ErrorKind kind_;
  TensorFiles files_;
  std::unordered_map<std::string, Match> matched_;  // by the model's name
};

}  // namespace lockstep::checkpoint
