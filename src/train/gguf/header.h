// Header of a GGUF file, version 3 (ggml's docs/gguf.md):
//
//   "GGUF" | u32 3 | u64 tensors | u64 keys | keys | tensors' names, shapes, types, offsets | zeros
//
// The tensors follow, each aligned to 32 bytes. All numbers are little-endian.
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
/// Keys and values in file order.
using Metadata = std::vector<std::pair<std::string, Value>>;

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;  // [rows, columns], as for a tensor in memory
  ops::GgufType type = ops::GgufType::kF32;

  int64_t bytes() const;
};

struct Header {
  std::string bytes;              // everything before the first tensor
  std::vector<uint64_t> offsets;  // file offset of each tensor
  uint64_t file_size = 0;
};
Header encode_header(const Metadata& metadata, const std::vector<TensorInfo>& tensors);

}  // namespace lockstep::train::gguf
