// Assigns tensors to the files of a save.
#include "checkpoint/file_plan.h"

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::checkpoint {
namespace {

using Shards = std::vector<std::vector<TensorEntry>>;

Shards deal(std::span<const GlobalTensor> tensors, const std::string& group, uint64_t most) {
  Shards shards;
  uint64_t size = 0;
  for (const GlobalTensor& tensor : tensors) {
    if (tensor.file_group != group) {
      continue;
    }
    const uint64_t bytes =
        tensor_bytes(tensor.entry).value_or(0);  // combine_pieces has checked that it is valid
    if (shards.empty() || (size > 0 && bytes > most - std::min(size, most))) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(tensor.entry);
    size += bytes;
  }
  return shards;
}

/// Returns true for the group of an adapter. It is never split, because PEFT reads only a single
/// file.
bool is_adapter(const std::string& group) {
  return group == "adapter_model";
}

void add_group(FilePlan& plan, const std::string& group, Shards shards) {
  const bool single = is_adapter(group) || (group == "model" && shards.size() == 1);
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  std::map<std::string, std::string> sorted;
  uint64_t bytes = 0;
  int64_t elements = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        single ? fmt::format("{}.safetensors", group)
               : fmt::format("{}-{:05}-of-{:05}.safetensors", group, i + 1, shards.size());
    PlannedFile file{name, encode_safetensors_header(std::move(shards[i]))};
    for (const TensorEntry& tensor : file.header.layout.tensors) {
      plan.places[{group, tensor.name}] = {
          plan.files.size(), file.header.layout.data_begin + tensor.begin};
      sorted[tensor.name] = name;
      bytes += tensor.bytes();
      elements += tensor.elements();
    }
    plan.files.push_back(std::move(file));
  }
  if (!single) {
    const nlohmann::json index{
        {"metadata", {{"total_size", bytes}, {"total_parameters", elements}}},
        {"weight_map", sorted}};
    plan.indexes[fmt::format("{}.safetensors.index.json", group)] = index.dump(2) + "\n";
  }
}

}  // namespace

FilePlan plan_files(std::span<const GlobalTensor> tensors, uint64_t max_file_bytes) {
  FilePlan plan;
  std::vector<std::string> groups;
  for (const GlobalTensor& tensor : tensors) {
    if (groups.empty() || groups.back() != tensor.file_group) {
      groups.push_back(tensor.file_group);  // the tensors are sorted by group
    }
  }
  for (const std::string& group : groups) {
    add_group(plan, group, deal(tensors, group, is_adapter(group) ? UINT64_MAX : max_file_bytes));
  }
  return plan;
}

}  // namespace lockstep::checkpoint
