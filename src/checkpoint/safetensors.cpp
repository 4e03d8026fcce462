// Writes safetensors headers and opens safetensors files.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {

int64_t TensorEntry::elements() const {
  uint64_t count = 1;  // unsigned, because products before a dimension of 0 may exceed 2^63
  for (const int64_t dim : shape) {
    count *= static_cast<uint64_t>(dim);
  }
  return static_cast<int64_t>(count);
}

std::optional<uint64_t> tensor_bytes(const TensorEntry& tensor) {
  uint64_t count = 1;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(dim), &count)) {
      return std::nullopt;
    }
  }
  uint64_t bits = 0;
  if (__builtin_mul_overflow(count, static_cast<uint64_t>(dtype_bits(tensor.dtype)), &bits) ||
      bits % 8 != 0 || count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return bits / 8;
}

namespace {

/// Returns a tensor's entry: "name":{"dtype":...,"shape":[...],"data_offsets":[...]}.
std::string entry_text(const TensorEntry& tensor) {
  try {
    return fmt::format(
        "{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
        nlohmann::json(tensor.name).dump(),
        dtype_name(tensor.dtype),
        fmt::join(tensor.shape, ","),
        tensor.begin,
        tensor.end);
  } catch (const nlohmann::json::exception&) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("the name of tensor {} is not UTF-8", shown(tensor.name)));
  }
}

/// Assigns offsets in the given order. Returns the total size in bytes.
uint64_t place_tensors(std::vector<TensorEntry>& tensors) {
  std::set<std::string_view> seen;
  uint64_t offset = 0;
  for (TensorEntry& tensor : tensors) {
    const auto bytes = tensor_bytes(tensor);
    tensor.begin = offset;
    if (!bytes || __builtin_add_overflow(offset, *bytes, &offset) ||
        tensor.name == "__metadata__") {
      throw Error(
          ErrorKind::kInternal,
          fmt::format("tensor {} cannot be stored in a safetensors file", shown(tensor.name)));
    }
    if (!seen.insert(tensor.name).second) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format("tensor {} occurs twice in the tensors to write", shown(tensor.name)));
    }
    tensor.end = offset;
  }
  return offset;
}

}  // namespace

EncodedHeader encode_safetensors_header(
    std::vector<TensorEntry> tensors, const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  const uint64_t data_bytes = place_tensors(tensors);
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  }
  for (const TensorEntry& tensor : tensors) {
    text += text.size() > 1 ? "," : "";
    text += entry_text(tensor);
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaximumHeaderBytes) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format("{} tensors need a header of {} bytes", tensors.size(), text.size()),
        "write smaller files");
  }
  const uint64_t length = text.size();
  EncodedHeader encoded;
  encoded.bytes.assign(reinterpret_cast<const char*>(&length), sizeof length);
  encoded.bytes += text;
  encoded.layout.tensors = std::move(tensors);
  encoded.layout.metadata = metadata;
  encoded.layout.data_begin = encoded.bytes.size();
  encoded.layout.file_size = encoded.bytes.size() + data_bytes;
  return encoded;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, ErrorKind kind)
    : path_(path),
      file_(path, kind) {
  header_ = parse_safetensors_header(file_.bytes(), file_.size(), path.string(), kind);
  for (size_t i = 0; i < header_.tensors.size(); ++i) {
    index_.emplace(header_.tensors[i].name, i);
  }
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& tensor) const {
  return file_.bytes().subspan(header_.data_begin + tensor.begin, tensor.bytes());
}

}  // namespace lockstep::checkpoint
