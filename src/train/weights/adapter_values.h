// Tensors of an adapter, read from one folder or combined from several.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/adapters.h"
#include "parallel/parallelize.h"

namespace lockstep::train {

/// Copies the elements of `whole` that belong to this rank's shard to `values`, starting at element
/// `begin` of the shard.
void copy_part(
    const at::Tensor& whole,
    const parallel::ShardedParameter& parameter,
    int64_t begin,
    const at::Tensor& values);

class AdapterValues {
 public:
  virtual ~AdapterValues() = default;
  /// Returns true if the adapter contains the parameter. `name` is its name in the model.
  virtual bool has(const std::string& name) const = 0;
  /// Like ModelSpec::Fill, for a parameter that the adapter contains.
  virtual void fill(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const = 0;
};

/// Opens adapter_model.safetensors in a folder. Throws Error (data) if the folder has none; pickle
/// files are not supported.
checkpoint::TensorFiles open_adapter(const std::filesystem::path& folder);
/// Returns each layer's adapter rank, which is the number of rows of its A.
std::map<std::string, int64_t> ranks_of(const checkpoint::TensorFiles& files);

/// Tensors of an adapter, read from its folder.
class SavedAdapterValues final : public AdapterValues {
 public:
  /// Throws Error (data) if the tensors or their shapes do not match `adapters`.
  SavedAdapterValues(
      checkpoint::TensorFiles files,
      const model::Adapters& adapters,
      const model::ModelConfig& config);

  bool has(const std::string& name) const override { return file_names_.count(name) > 0; }
  void fill(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const override;

 private:
  void refuse(const std::vector<std::string>& problems) const;

  checkpoint::TensorFiles files_;
  std::map<std::string, std::vector<std::string>> file_names_;
};

}  // namespace lockstep::train
