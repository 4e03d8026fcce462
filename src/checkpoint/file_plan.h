// Plan of the files of a save. It is computed from names, types and global shapes of the tensors,
// and does not depend on the mesh.
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

/// Planned safetensors file: its encoded header, which contains the offset of each tensor.
struct PlannedFile {
  std::string name;
  EncodedHeader header;
};

struct FilePlan {
  std::vector<PlannedFile> files;
  std::map<std::string, std::string> indexes;  // GROUP.safetensors.index.json -> content

  struct Place {
    size_t file = 0;
    uint64_t offset = 0;  // offset of the tensor's first byte in the file
  };
  /// Position of each tensor, by group and name.
  std::map<std::pair<std::string, std::string>, Place> places;
};

/// Assigns the tensors of each group, in order, to files of at most `max_file_bytes` of data.
/// Tensors are never split. If the group "model" fits in one file, the file is named
/// model.safetensors, as in Hugging Face folders. Larger models and all other groups are written to
/// GROUP-00001-of-0000N.safetensors with an index. "adapter_model" is always one file,
/// adapter_model.safetensors.
FilePlan plan_files(std::span<const GlobalTensor> tensors, uint64_t max_file_bytes);

}  // namespace lockstep::checkpoint
