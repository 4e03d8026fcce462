// The safetensors format: a strict reader of mapped files, and an encoder of headers.
//
//   u64 N | N bytes of JSON, padded with spaces | tensor bytes, C order, nothing else
//
// Untrusted files are safe to open: before any allocation or read, every size and offset is checked
// against the file with arithmetic that cannot overflow.
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

/// Element types of the format, in the order that its writers use (tensors of the last type come
/// first in a file).
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

/// Returns the name in the file, such as "BF16".
std::string_view dtype_name(FileDtype dtype);
std::optional<FileDtype> dtype_of_name(std::string_view name);
/// Returns the bits of an element; some types have 4 or 6.
int dtype_bits(FileDtype dtype);
/// Returns libtorch's type with the same bytes; nullopt for types that pack several elements into a
/// byte.
std::optional<at::ScalarType> scalar_type(FileDtype dtype);
/// Returns the type in the file; throws Error (internal) for a libtorch type that the format does
/// not support.
FileDtype file_dtype(at::ScalarType type);

/// Maximum header size: the limit of the format's reference implementation.
inline constexpr uint64_t kMaximumHeaderBytes = 100'000'000;

/// A tensor of a file. `begin` and `end` are byte offsets from the start of the data.
struct TensorEntry {
  std::string name;
  FileDtype dtype = FileDtype::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;

  int64_t elements() const;
  uint64_t bytes() const { return end - begin; }
};

/// Returns the bytes implied by dtype and shape; nullopt if that is not an integer below 2^63.
std::optional<uint64_t> tensor_bytes(const TensorEntry& tensor);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // file offset of the first tensor byte
  uint64_t file_size = 0;
};

/// Parses the header at the start of `bytes` (the beginning of a file, at least its header) and
/// checks it against `file_size`. Throws an Error of `kind` with `source` and the tensor.
SafetensorsHeader parse_safetensors_header(
    std::span<const std::byte> bytes,
    uint64_t file_size,
    std::string_view source,
    ErrorKind kind = ErrorKind::kData);

/// Result of encoding a header. Sorts the tensors as the format's writers do (by type, then by
/// name), assigns offsets, and returns the beginning of the file up to the first tensor byte:
/// length, JSON and padding to 8 bytes. `begin` and `end` of `tensors` are ignored. The result does
/// not depend on the order of `tensors`.
struct EncodedHeader {
  std::string bytes;
  SafetensorsHeader layout;
};
EncodedHeader encode_safetensors_header(
    std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

/// A mapped and checked file. Move-only.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kData);

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  /// Returns null if the file has no such tensor.
  const TensorEntry* find(const std::string& name) const;
  /// Returns the tensor's bytes in the mapping, which live as long as this object and may be
  /// unaligned.
  std::span<const std::byte> bytes(const TensorEntry& tensor) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace lockstep::checkpoint
