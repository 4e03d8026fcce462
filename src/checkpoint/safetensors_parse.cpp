// Parses safetensors headers as a stream.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {
namespace {

static_assert(
    std::endian::native == std::endian::little, "the format's integers are little-endian");

using json = nlohmann::json;

/// Event-based parser of the header's JSON. It stops at the first invalid event, and builds no
/// tree.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  HeaderReader(std::string_view source, ErrorKind kind, SafetensorsHeader& header)
      : source_(source),
        kind_(kind),
        header_(header) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return value("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return value("binary data"); }

  bool number_unsigned(number_unsigned_t number) override {
    if (skipping()) {
      return true;
    }
    if (state_ == State::kShape) {
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(fmt::format("tensor {} has a dim of {}", shown(name_), number));
      }
      tensor_.shape.push_back(static_cast<int64_t>(number));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (offsets_ == 2) {
        fail(fmt::format("tensor {} has more than two data_offsets", shown(name_)));
      }
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = number;
      return true;
    }
    return value("a number");
  }

  bool string(string_t& text) override {
    if (skipping()) {
      return true;
    }
    if (state_ == State::kMetadata) {
      if (!header_.metadata.emplace(name_, text).second) {
        fail(fmt::format("its __metadata__ has {} twice", shown(name_)));
      }
      return true;
    }
    if (state_ == State::kTensor && field_ == "dtype") {
      const auto dtype = dtype_of_name(text);
      if (!dtype) {
        fail(fmt::format("tensor {} has the unknown dtype {}", shown(name_), shown(text)));
      }
      tensor_.dtype = *dtype;
      return true;
    }
    return value("a string");
  }

  bool start_object(std::size_t) override {
    ++depth_;
    check_depth();
    if (skipping()) {
      return true;
    }
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop) {
      state_ = name_ == "__metadata__" ? State::kMetadata : State::kTensor;
      tensor_ = TensorEntry{};
      fields_ = 0;
      offsets_ = 0;
    } else {
      depth_ -= 1;
      value("an object");
      depth_ += 1;
    }
    return true;
  }

  bool key(string_t& text) override {
    if (skipping()) {
      return true;
    }
    if (state_ == State::kTensor) {
      field_ = text;
      const int bit = field_ == "dtype"          ? 1
                      : field_ == "shape"        ? 2
                      : field_ == "data_offsets" ? 4
                                                 : 0;
      if ((fields_ & bit) != 0) {
        fail(fmt::format("tensor {} has the field {} twice", shown(name_), shown(field_)));
      }
      fields_ |= bit;
      if (bit == 0 && !std::exchange(warned_, true)) {
        log_warning(
            "{}: tensor {} has an unknown field {}, which is ignored",
            source_,
            shown(name_),
            shown(field_));
      }
      return true;
    }
    name_ = text;
    if (state_ == State::kTop && name_ == "__metadata__" && std::exchange(has_metadata_, true)) {
      fail("it has two entries \"__metadata__\"");
    }
    return true;
  }

  bool end_object() override {
    --depth_;
    if (skip_above_ > 0) {
      skip_above_ = depth_ > skip_above_ ? skip_above_ : 0;
      return true;
    }
    if (state_ == State::kTensor) {
      if (fields_ != 7 || offsets_ != 2) {
        fail(fmt::format("tensor {} is missing dtype, shape or data_offsets", shown(name_)));
      }
      tensor_.name = name_;
      header_.tensors.push_back(std::move(tensor_));
      state_ = State::kTop;
    } else if (state_ == State::kMetadata) {
      state_ = State::kTop;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    ++depth_;
    check_depth();
    if (skipping()) {
      return true;
    }
    if (state_ == State::kTensor && field_ == "shape") {
      state_ = State::kShape;
    } else if (state_ == State::kTensor && field_ == "data_offsets") {
      state_ = State::kOffsets;
    } else {
      depth_ -= 1;
      value("an array");
      depth_ += 1;
    }
    return true;
  }

  bool end_array() override {
    --depth_;
    if (skip_above_ > 0) {
      skip_above_ = depth_ > skip_above_ ? skip_above_ : 0;
      return true;
    }
    if (state_ == State::kShape || state_ == State::kOffsets) {
      state_ = State::kTensor;
    }
    return true;
  }

  bool parse_error(
      std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(fmt::format("its header is not JSON at byte {}", 8 + position));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(
        kind_,
        fmt::format("{} is not a safetensors file: {}", source_, what),
        "copy or download the file again");
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool known_field() const {
    return field_ == "dtype" || field_ == "shape" || field_ == "data_offsets";
  }
  /// Returns true inside the value of an unknown field of a tensor.
  bool skipping() const { return skip_above_ > 0 && depth_ > skip_above_; }

  void check_depth() const {
    if (depth_ > 3) {
      fail("its header is nested deeper than 3 levels");
    }
  }

  /// Accepts a value in an unknown field of a tensor; fails for a value anywhere else.
  bool value(std::string_view what) {
    if (skipping()) {
      return true;
    }
    if (state_ == State::kTensor && !known_field()) {
      if (what == "an object" || what == "an array") {
        skip_above_ = depth_;
      }
      return true;
    }
    switch (state_) {
      case State::kStart:
      case State::kTop:
        fail(fmt::format("its header has {} where a tensor description is expected", what));
      case State::kMetadata:
        fail(fmt::format("its __metadata__ {} is {}, not a string", shown(name_), what));
      default:
        fail(fmt::format("the {} of tensor {} contains {}", field_, shown(name_), what));
    }
  }

  std::string_view source_;
  ErrorKind kind_;
  SafetensorsHeader& header_;
  State state_ = State::kStart;
  int depth_ = 0;
  int skip_above_ = 0;  // depth of the tensor whose unknown field is being skipped
  std::string name_, field_;
  TensorEntry tensor_;
  int fields_ = 0;   // bit set: dtype, shape, data_offsets
  int offsets_ = 0;  // number of offsets read
  bool has_metadata_ = false;
  bool warned_ = false;  // an unknown field was reported; only once per file
};

/// Checks rules 3 to 6: names are unique, sizes are correct, and the tensors fill the data without
/// gaps and overlaps.
void check_layout(SafetensorsHeader& header, const HeaderReader& reader) {
  auto& tensors = header.tensors;
  std::vector<const std::string*> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) {
    names.push_back(&tensor.name);
    const auto bytes = tensor_bytes(tensor);
    if (!bytes) {
      reader.fail(fmt::format(
          "the shape of tensor {} has too many bytes, or not a whole number of bytes",
          shown(tensor.name)));
    }
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
      reader.fail(fmt::format(
          "tensor {}, {} of shape {}, needs {} bytes, but its data_offsets are [{}, {}]",
          shown(tensor.name),
          dtype_name(tensor.dtype),
          shape_text(tensor.shape),
          *bytes,
          tensor.begin,
          tensor.end));
    }
  }
  std::sort(names.begin(), names.end(), [](auto* a, auto* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(names.begin(), names.end(), [](auto* a, auto* b) { return *a == *b; });
  if (twice != names.end()) {
    reader.fail(fmt::format("it has the tensor {} twice", shown(**twice)));
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t expected = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != expected) {
      reader.fail(fmt::format(
          "tensor {} begins at data byte {}; expected {}",
          shown(tensor.name),
          tensor.begin,
          expected));
    }
    expected = tensor.end;
  }
  const uint64_t data = header.file_size - header.data_begin;
  if (expected != data) {
    const std::string last =
        tensors.empty() ? "" : fmt::format(" (the last one is {})", shown(tensors.back().name));
    reader.fail(fmt::format(
        "its tensors{} need {} data bytes, but it has {}: it is {}",
        last,
        expected,
        data,
        data < expected ? "truncated" : "too long"));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(
    std::span<const std::byte> bytes, uint64_t file_size, std::string_view source, ErrorKind kind) {
  SafetensorsHeader header;
  header.file_size = file_size;
  HeaderReader reader(source, kind, header);
  if (file_size < 8 || bytes.size() < 8) {
    reader.fail(fmt::format("it has only {} bytes", file_size));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  if (length > kMaximumHeaderBytes) {
    reader.fail(fmt::format("its header length is {} bytes; the maximum is 100,000,000", length));
  }
  if (length > file_size - 8 || length > bytes.size() - 8) {
    reader.fail(fmt::format(
        "its header length is {} bytes, but the file has only {}: it is truncated",
        length,
        file_size));
  }
  header.data_begin = 8 + length;
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (text.empty() || text.front() != '{') {
    reader.fail("its header does not begin with '{'");
  }
  while (text.back() == ' ') {
    text.remove_suffix(1);
  }
  if (text.back() != '}') {
    reader.fail("its header does not end with '}'");
  }
  if (text.find('\0') != std::string_view::npos) {  // the JSON library treats NUL as the end
    reader.fail("its header contains a zero byte");
  }
  json::sax_parse(text.begin(), text.end(), &reader);
  check_layout(header, reader);
  return header;
}

}  // namespace lockstep::checkpoint
