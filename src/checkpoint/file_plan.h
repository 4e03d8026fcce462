// Which files a save makes: from the names, types and global shapes of tensors alone, never from
// the mesh.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/pieces.h"
#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {

/// A safetensors file to be: its header's bytes, and where each tensor will stand.
struct PlannedFile {
  std::string name;
  EncodedHeader header;
};

struct FilePlan {
  std::vector<PlannedFile> files;
  std::map<std::string, std::string> indexes;  // GROUP.safetensors.index.json and its text

  struct Place {
    size_t file = 0;
    uint64_t offset = 0;  // of the tensor's first byte in the file
  };
  /// By group and name.
  std::map<std::pair<std::string, std::string>, Place> places;
};

/// Deals the tensors of each group, in their order, into files of at most `max_file_bytes` of data
/// (a tensor is never split). The group "model" is model.safetensors where it fits in one file, as
/// Hugging Face has it; else, and always for other groups, it is GROUP-00001-of-0000N.safetensors
/// and an index. "adapter_model" is adapter_model.safetensors, however large.
FilePlan plan_files(std::span<const GlobalTensor> tensors, uint64_t max_file_bytes);

}  // namespace lockstep::checkpoint
