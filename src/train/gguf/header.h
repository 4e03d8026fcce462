// The beginning of a GGUF file, version 3 (ggml's docs/gguf.md):
//
//   "GGUF" | u32 3 | u64 tensors | u64 keys | keys | tensors' names, shapes, types, offsets | zeros
//
// and then the tensors, each from a multiple of 32 bytes on. All numbers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ops/gguf_blocks.h"

namespace lockstep::train::gguf {

using Value = std::variant<
    uint32_t,
    float,
    bool,
    std::string,
    std::vector<int32_t>,
    std::vector<float>,
    std::vector<std::string>>;
/// In the order of the file.
using Metadata = std::vector<std::pair<std::string, Value>>;

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;  // [rows, columns], as of a tensor in memory
  ops::GgufType type = ops::GgufType::kF32;

  int64_t bytes() const;
};

struct Header {
  std::string bytes;              // up to the first tensor
  std::vector<uint64_t> offsets;  // of the tensors, in the file
  uint64_t file_size = 0;
};
Header encode_header(const Metadata& metadata, const std::vector<TensorInfo>& tensors);

}  // namespace lockstep::train::gguf
