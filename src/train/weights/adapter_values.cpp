// Reads saved adapter tensors.
#include "train/weights/adapter_values.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

void copy_part(
    const at::Tensor& whole,
    const parallel::ShardedParameter& parameter,
    int64_t begin,
    const at::Tensor& values) {
  const at::Tensor flat = values.view({-1}), from = whole.view({-1});
  mesh::visit_runs(
      parameter.cut,
      parameter.shape,
      begin,
      begin + flat.numel(),
      [&](int64_t local, int64_t first, int64_t count) {
        flat.narrow(0, local - begin, count).copy_(from.narrow(0, first, count));
      });
}

checkpoint::TensorFiles open_adapter(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!checkpoint::TensorFiles::exist(folder, kAdapterGroup) &&
      std::filesystem::exists(folder / "adapter_model.bin", ignored)) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} only contains a pickle (adapter_model.bin), which is not loaded for security "
            "reasons",
            folder.string()),
        "load it with PEFT if you trust it, and save it again");
  }
  return {folder, std::string(kAdapterGroup), ErrorKind::kData};
}

std::map<std::string, int64_t> ranks_of(const checkpoint::TensorFiles& files) {
  const std::string prefix = model::peft_name("");
  std::map<std::string, int64_t> ranks;
  for (const std::string& name : files.names()) {
    const checkpoint::TensorEntry& tensor = files.tensor(name);
    for (const std::string_view factor : {".lora_A.weight", ".lora_embedding_A"}) {
      if (name.starts_with(prefix) && name.ends_with(factor) && tensor.shape.size() == 2) {
        ranks[name.substr(prefix.size(), name.size() - prefix.size() - factor.size())] =
            tensor.shape[0];
      }
    }
  }
  return ranks;
}

SavedAdapterValues::SavedAdapterValues(
    checkpoint::TensorFiles files,
    const model::Adapters& adapters,
    const model::ModelConfig& config)
    : files_(std::move(files)),
      file_names_(adapters.file_names) {
  std::map<std::string, model::ParameterSpec> specs = model::parameters_by_name(config);
  specs.merge(model::adapter_parameters(adapters));
  for (const auto& [weight, name] : adapters.base_names) {
    if (files_.contains(name)) {
      file_names_[weight] = {name};
    }
  }
  std::set<std::string> known = adapters.copies;
  std::vector<std::string> problems;
  for (const auto& [name, names] : file_names_) {
    known.insert(names.begin(), names.end());
    if (!files_.contains(names.front())) {
      problems.push_back("it lacks " + names.front());
    } else if (const auto& shape = files_.tensor(names.front()).shape;
               shape != specs.at(name).shape) {
      problems.push_back(fmt::format(
          "{} is {}, but the model needs {}",
          names.front(),
          fmt::join(shape, " x "),
          fmt::join(specs.at(name).shape, " x ")));
    }
  }
  for (const std::string& name : files_.names()) {
    if (known.count(name) == 0) {
      problems.push_back("the model has no parameter for its " + name);
    }
  }
  refuse(problems);
}

void SavedAdapterValues::fill(
    const std::string& name,
    const parallel::ShardedParameter& parameter,
    int64_t begin,
    const at::Tensor& values) const {
  const at::Tensor flat = values.view({-1});
  mesh::visit_runs(
      parameter.cut,
      parameter.shape,
      begin,
      begin + flat.numel(),
      [&](int64_t local, int64_t whole, int64_t count) {
        files_.read(file_names_.at(name).front(), whole, flat.narrow(0, local - begin, count));
      });
}

void SavedAdapterValues::refuse(const std::vector<std::string>& problems) const {
  constexpr size_t kMostShown = 4;
  if (problems.empty()) {
    return;
  }
  const auto shown = problems.begin() + std::min<std::ptrdiff_t>(std::ssize(problems), kMostShown);
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "the adapter {} does not fit the model: {}{}",
          files_.folder().string(),
          fmt::join(problems.begin(), shown, "; "),
          problems.size() > kMostShown
              ? fmt::format("; and {} more problems", problems.size() - kMostShown)
              : ""),
      "use its base model, which its adapter_config.json names");
}

}  // namespace lockstep::train
