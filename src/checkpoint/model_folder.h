// Reads the tensors of a folder by name and range. They are in one safetensors file, or in shards
// with an index.
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

/// Tensors of a group of files in one folder: GROUP.safetensors, or GROUP.safetensors.index.json
/// and its shards. The constructor checks the header of each file, that every name of the index is
/// in its file, and that no tensor occurs twice. Files are mapped: the constructor reads only
/// headers, and reading a range accesses only its pages. Reading is thread-safe.
class TensorFiles {
 public:
  /// Errors have this kind and name the file and the tensor.
  TensorFiles(std::filesystem::path folder, std::string group, ErrorKind kind);

  /// Returns true if the folder has the group's file or index.
  static bool exist(const std::filesystem::path& folder, std::string_view group);

  const std::filesystem::path& folder() const { return folder_; }
  /// Returns the base names of the files, in the order in which they were opened.
  std::vector<std::string> files() const;
  /// Returns the names of all tensors, sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return index_.contains(name); }
  /// Throws if there is no tensor with this name.
  const TensorEntry& tensor(const std::string& name) const;
  /// Returns the path of the file that contains the tensor.
  const std::filesystem::path& file_of(const std::string& name) const;
  std::span<const std::byte> bytes(const std::string& name) const;

  /// Fills `out` with the tensor's elements [begin, begin + out.numel()) in C order. `out` must be
  /// contiguous; it may have any shape, device and floating type. If the types differ, values are
  /// rounded to nearest. Types that are not floating must be equal. Throws if the range exceeds the
  /// tensor.
  void read(const std::string& name, int64_t begin, const at::Tensor& out) const;
  /// Returns the whole tensor on the CPU, in the type of the file.
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

/// Tensor that a model needs. `aliases` are other names under which files may contain it (a tied
/// head).
struct WantedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::string> aliases = {};
  std::optional<StackedTensor> stacked = {};  // read instead if the files have none of these names
  bool is_optional = false;                   // may be missing or have another shape in the files
};

/// Weights of a Hugging Face model folder, by the names in the model. Files of a base model without
/// head have names without the prefix: "transformer.wte.weight" also finds "wte.weight", and
/// "model.norm.weight" also finds "norm.weight" (likewise for "bert.", "roberta." and
/// "distilbert.").
class ModelFolder {
 public:
  /// Opens model.safetensors, or model.safetensors.index.json if it does not exist. If the folder
  /// has only pytorch_model.bin, the error explains how to convert it. Pickle files are never
  /// loaded.
  explicit ModelFolder(const std::filesystem::path& folder, ErrorKind kind = ErrorKind::kData);

  const TensorFiles& files() const { return files_; }
  /// Returns the name of the tensor in the files, with or without the base model's prefix. nullopt
  /// if the tensor is missing.
  std::optional<std::string> stored_name(const std::string& name) const;
  bool contains(const std::string& name) const { return stored_name(name).has_value(); }

  /// Checks the files against the model's tensors. If tensors are missing or have other shapes,
  /// throws one Error that lists all problems. Returns the tensors that the model does not have,
  /// except the causal masks and rotary tables of old files. Afterwards, `read` also finds tensors
  /// by their aliases. With kCompare, if both a tensor and its alias exist and differ, logs a
  /// warning and uses the tensor's own name. kCompare reads both tensors completely, so only one
  /// rank should use it.
  enum class Aliases { kTrust, kCompare };
  std::vector<std::string> match(
      std::span<const WantedTensor> wanted, Aliases aliases = Aliases::kTrust);

  /// Returns true if the last match() found the tensor.
  bool has_matched(const std::string& name) const;

  /// Like TensorFiles::read, with the name in the model.
  void read(const std::string& name, int64_t begin, const at::Tensor& out) const;

 private:
  struct Match {
    std::string stored;  // name in the file
    int64_t offset = 0;  // index of the first element in the stored tensor
  };
  Match resolve(const std::string& name) const;
  void compare(const std::string& first, const std::string& second) const;

  ErrorKind kind_;
  TensorFiles files_;
  std::unordered_map<std::string, Match> matched_;  // by the name in the model
};

}  // namespace lockstep::checkpoint
