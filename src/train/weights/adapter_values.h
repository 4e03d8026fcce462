// What an adapter's tensors are: of a folder, or of several folders as one.
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

/// Copies what `values` is of a whole parameter: its part's elements from `begin` on.
void copy_part(
    const at::Tensor& whole,
    const parallel::ShardedParameter& parameter,
    int64_t begin,
    const at::Tensor& values);

class AdapterValues {
 public:
  virtual ~AdapterValues() = default;
  /// Whether it holds the parameter of this name (the model's).
  virtual bool has(const std::string& name) const = 0;
  /// As ModelSpec::Fill, of a parameter that it holds.
  virtual void fill(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const = 0;
};

/// adapter_model.safetensors of a folder. Error (data), of a pickle too.
checkpoint::TensorFiles open_adapter(const std::filesystem::path& folder);
/// What it says of ranks: the rows of each A, by its layer.
std::map<std::string, int64_t> ranks_of(const checkpoint::TensorFiles& files);

/// The values of all that an adapter trains, from its folder.
class SavedAdapterValues final : public AdapterValues {
 public:
  /// Error (data) where the tensors are not those of `adapters`, or have other shapes.
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
