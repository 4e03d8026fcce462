// The safetensors format: a strict reader of mapped files, and a writer of headers.
//
//   u64 N | N bytes of JSON, padded with spaces | tensor bytes, C order, nothing else
//
// Files need not be trusted. Every size and offset is checked against the file before any
// allocation or read, with arithmetic that cannot overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <c10/core/ScalarType.h>

#include "base/error.h"
#include "base/file.h"

namespace lockstep::checkpoint {

/// Element types of the format, in the order used by its writers: tensors of the last type come
/// first in a file.
enum class FileDtype {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// Returns the name of a type in files, such as "BF16".
std::string_view dtype_name(FileDtype dtype);
std::optional<FileDtype> dtype_of_name(std::string_view name);
/// Returns the number of bits per element, which is 4 or 6 for some types.
int dtype_bits(FileDtype dtype);
/// Returns the libtorch type with the same bytes. nullopt if the type packs several elements into a
/// byte.
std::optional<at::ScalarType> scalar_type(FileDtype dtype);
/// Returns the type to use in a file. Throws Error (internal) if the format does not support the
/// libtorch type.
FileDtype file_dtype(at::ScalarType type);

/// Maximum header size: the limit of the format's reference implementation.
inline constexpr uint64_t kMaximumHeaderBytes = 100'000'000;

/// Tensor of a file. `begin` and `end` are byte offsets from the start of the data.
struct TensorEntry {
  std::string name;
  FileDtype dtype = FileDtype::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;

  int64_t elements() const;
  uint64_t bytes() const { return end - begin; }
};

/// Returns the number of bytes for dtype and shape. nullopt if it is not an integer below 2^63.
std::optional<uint64_t> tensor_bytes(const TensorEntry& tensor);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // file offset of the first tensor byte
  uint64_t file_size = 0;
};

/// Parses the header at the start of `bytes`, which must contain at least the whole header, and
/// checks it against `file_size`. Throws Error of this kind with `source` and the name of the
/// tensor.
SafetensorsHeader parse_safetensors_header(
    std::span<const std::byte> bytes,
    uint64_t file_size,
    std::string_view source,
    ErrorKind kind = ErrorKind::kData);

/// Result of encode_safetensors_header(), which sorts the tensors like the format's writers do, by
/// type and then by name, and assigns offsets in this order. `bytes` is the beginning of the file
/// up to the first tensor byte: length, JSON and padding to 8 bytes. `begin` and `end` of `tensors`
/// are ignored. The result does not depend on the order of `tensors`.
struct EncodedHeader {
  std::string bytes;
  SafetensorsHeader layout;
};
EncodedHeader encode_safetensors_header(
    std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

/// Mapped and checked file. Move-only.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kData);

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  /// Returns null if the file has no tensor with this name.
  const TensorEntry* find(const std::string& name) const;
  /// Returns the tensor's bytes in the mapping. They may be unaligned, and are valid during the
  /// lifetime of this object.
  std::span<const std::byte> bytes(const TensorEntry& tensor) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace lockstep::checkpoint
