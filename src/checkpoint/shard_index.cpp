// Parses and writes safetensors index files.
#include "checkpoint/shard_index.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {

std::map<std::string, std::string> read_shard_index(
    const std::filesystem::path& index, ErrorKind kind) {
  const nlohmann::json root = read_json(index, kind, kLongestJsonTable);
  const auto fail = [&](const std::string& what) {
    throw Error(kind, fmt::format("{}: {}", index.string(), what), "copy or download it again");
  };
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    fail("it has no object \"weight_map\"");
  }
  std::map<std::string, std::string> found;
  for (const auto& [name, file] : root["weight_map"].items()) {
    if (!file.is_string() || !plain_file_name(file.get_ref<const std::string&>())) {
      fail(fmt::format(
          "tensor {} is mapped to {}, which is not a file name in the same folder",
          shown(name),
          file.is_string() ? shown(file.get_ref<const std::string&>()) : "no text"));
    }
    found.emplace(name, file.get<std::string>());
  }
  return found;
}

}  // namespace lockstep::checkpoint
