// Plan of the files of a save, computed from names, types and global shapes of tensors,
// independently of the mesh.
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

/// A planned safetensors file: its encoded header and the offset of each tensor.
struct PlannedFile {
  std::string name;
  EncodedHeader header;
};

struct FilePlan {
  std::vector<PlannedFile> files;
  std::map<std::string, std::string> indexes;  // GROUP.safetensors.index.json -> its content

  struct Place {
    size_t file = 0;
    uint64_t offset = 0;  // offset of the tensor's first byte in the file
  };
  /// Position of each tensor, by group and name.
  std::map<std::pair<std::string, std::string>, Place> places;
};

/// Assigns the tensors of each group, in order, to files of at most `max_file_bytes` of data. A
/// tensor is never split. If the group "model" fits in one file, that file is model.safetensors, as
/// in Hugging Face folders. Larger models and all other groups use GROUP-00001-of-0000N.safetensors
/// and an index. "adapter_model" is always one file, adapter_model.safetensors.
FilePlan plan_files(std::span<const GlobalTensor> tensors, uint64_t max_file_bytes);

}  // namespace lockstep::checkpoint
