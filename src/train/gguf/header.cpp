// Encodes GGUF headers.
#include "train/gguf/header.h"

#include <bit>
#include <concepts>
#include <functional>
#include <numeric>

namespace lockstep::train::gguf {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kVersion = 3, kArray = 9;
constexpr uint64_t kAlignment = 32;

uint64_t aligned(uint64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

/// GGUF's number for a value type.
template <class T>
constexpr uint32_t kTypeOf = std::same_as<T, uint32_t>  ? 4
                             : std::same_as<T, int32_t> ? 5
                             : std::same_as<T, float>   ? 6
                             : std::same_as<T, bool>    ? 7
                                                        : 8;  // string

class Writer {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void put(const std::string& text) {
    put(uint64_t{text.size()});
    bytes += text;
  }
  template <class T>
  void put_value(const T& value) {
    put(kTypeOf<T>);
    put(value);
  }
  template <class T>
  void put_value(const std::vector<T>& values) {
    put(kArray);
    put(kTypeOf<T>);
    put(uint64_t{values.size()});
    for (const T& value : values) {
      put(value);
    }
  }

  std::string bytes;
};

}  // namespace

int64_t TensorInfo::bytes() const {
  const ops::GgufLayout& layout = ops::layout_of(type);
  const int64_t elements =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return elements / layout.elements * layout.bytes;
}

Header encode_header(const Metadata& metadata, const std::vector<TensorInfo>& tensors) {
  Writer writer;
  writer.bytes = "GGUF";
  writer.put(kVersion);
  writer.put(uint64_t{tensors.size()});
  writer.put(uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    writer.put(key);
    std::visit([&](const auto& given) { writer.put_value(given); }, value);
  }
  Header header;
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    writer.put(tensor.name);
    writer.put(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      writer.put(static_cast<uint64_t>(*size));
    }
    writer.put(static_cast<uint32_t>(tensor.type));
    writer.put(offset);
    header.offsets.push_back(offset);
    offset = aligned(offset + static_cast<uint64_t>(tensor.bytes()));
  }
  header.bytes = std::move(writer.bytes);
  header.bytes.resize(aligned(header.bytes.size()));
  for (uint64_t& place : header.offsets) {
    place += header.bytes.size();
  }
  header.file_size = header.bytes.size() + offset;
  return header;
}

}  // namespace lockstep::train::gguf
