// Reads and writes weights in the format of bitsandbytes.
#include "train/weights/packed_folder.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "model/description.h"

namespace lockstep::train {
namespace {

using ops::PackedKind;

constexpr std::string_view kState = ".quant_state.bitsandbytes__";

/// Type names of bitsandbytes.
constexpr std::array<std::pair<std::string_view, at::ScalarType>, 3> kTypes{{
    {"float32", at::kFloat},
    {"bfloat16", at::kBFloat16},
    {"float16", at::kHalf},
}};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(
      ErrorKind::kData,
      what,
      "save the model again with transformers and bitsandbytes, or with lockstep export --bits");
}

void require(bool is_so, const std::string& tensor, std::string_view what) {
  if (!is_so) {
    refuse(fmt::format("the packed weight {}: {}", tensor, what));
  }
}

at::ScalarType type_named(const std::string& name, const std::string& tensor) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) {
      return type;
    }
  }
  refuse(fmt::format("the packed weight {} was of the unknown type {}", tensor, name));
}

std::string name_of(at::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (type == known) {
      return std::string(name);
    }
  }
  return "float32";
}

/// Quantization state of a 4-bit weight: {"quant_type": "nf4", "blocksize": 64, "dtype": ...,
/// "shape": [out, in], ...}.
struct State {
  ops::PackedFormat format;
  float nested_offset = 0;
};
State parse_state(std::string_view text, const std::string& tensor, int64_t out, int64_t in) {
  const nlohmann::json object = parse_json(text, tensor + "'s quant_state");
  try {
    State state;
    const std::string kind = object.at("quant_type").get<std::string>();
    require(kind == "nf4" || kind == "fp4", tensor, "its quant_type is neither nf4 nor fp4");
    state.format.kind = kind == "nf4" ? PackedKind::kNf4 : PackedKind::kFp4;
    state.format.block_size = object.at("blocksize").get<int64_t>();
    const int64_t block = state.format.block_size;
    require(
        block >= 2 && block <= 4096 && (block & (block - 1)) == 0,
        tensor,
        "its blocksize is not a power of two up to 4096");
    state.format.type = type_named(object.at("dtype").get<std::string>(), tensor);
    require(
        object.at("shape").get<std::vector<int64_t>>() == std::vector{out, in},
        tensor,
        fmt::format("the shape in its quant_state differs from the model's {} x {}", out, in));
    state.format.is_nested = object.contains("nested_blocksize");
    if (state.format.is_nested) {
      require(
          object.at("nested_blocksize").get<int64_t>() == ops::kNestedBlock,
          tensor,
          fmt::format("its nested_blocksize is not {}", ops::kNestedBlock));
      state.nested_offset = object.at("nested_offset").get<float>();
      require(std::isfinite(state.nested_offset), tensor, "its nested_offset is not finite");
    }
    return state;
  } catch (const nlohmann::json::exception& error) {
    refuse(fmt::format("the packed weight {}: its quant_state: {}", tensor, error.what()));
  }
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({std::ssize(text)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

/// Formats the state like bitsandbytes, with Python's separators and the offset as a double.
std::string state_text(const ops::PackedMatrix& matrix) {
  std::string text = fmt::format(
      R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}, {}])",
      matrix.format.kind == PackedKind::kNf4 ? "nf4" : "fp4",
      matrix.format.block_size,
      name_of(matrix.format.type),
      matrix.out,
      matrix.in);
  if (matrix.format.is_nested) {
    const double offset = matrix.nested_offset;
    text += fmt::format(
        R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
        ops::kNestedBlock,
        nlohmann::json(offset).dump());
  }
  return text + "}";
}

}  // namespace

PackedFolder::PackedFolder(const model::ModelSource& source) : files_(source.folder) {
  for (const model::LayerSpec& layer : model::describe(source.config)) {
    const std::string& weight = layer.weight().name;
    const auto stored = files_.stored_name(weight);
    if (!stored) {
      continue;
    }
    const auto& shape = layer.weight().shape;
    Linear linear;
    linear.stored = *stored;
    std::string state;
    for (const char* kind : {"nf4", "fp4"}) {
      if (files_.files().contains(*stored + std::string(kState) + kind)) {
        state = *stored + std::string(kState) + kind;
      }
    }
    const auto type = checkpoint::scalar_type(files_.files().tensor(*stored).dtype);
    if (state.empty() && type != at::kChar && type != at::kByte) {
      continue;
    }
    require(
        layer.kind == model::LayerKind::kLinear,
        *stored,
        "only linears of the blocks may be packed; add its module to llm_int8_skip_modules");
    linear.out = shape[layer.in_first ? 1 : 0];
    linear.in = shape[layer.in_first ? 0 : 1];
    if (!state.empty()) {
      open_4_bits(linear, state);
    } else {
      require(type == at::kChar, *stored, "it has no quant_state");
      open_8_bits(linear);
    }
    packing_[layer.prefix] = linear.format;
    linears_[weight] = std::move(linear);
  }
}

void PackedFolder::check(const std::string& name, at::ScalarType type, int64_t elements) {
  require(files_.files().contains(name), name, "it does not exist");
  const checkpoint::TensorEntry& entry = files_.files().tensor(name);
  require(
      checkpoint::scalar_type(entry.dtype) == type && entry.elements() == elements,
      name,
      fmt::format("it does not have {} elements of {}", elements, c10::toString(type)));
  tensors_.insert(name);
}

void PackedFolder::open_4_bits(Linear& linear, const std::string& state) {
  const checkpoint::TensorFiles& files = files_.files();
  const auto text = files.bytes(state);
  tensors_.insert(state);
  const State parsed = parse_state(
      {reinterpret_cast<const char*>(text.data()), text.size()},
      linear.stored,
      linear.out,
      linear.in);
  linear.format = parsed.format;
  linear.nested_offset = parsed.nested_offset;
  const int64_t elements = linear.out * linear.in;
  const int64_t blocks = (elements + linear.format.block_size - 1) / linear.format.block_size;
  // The codes may be stored as a wider type; only the bytes matter.
  require(
      std::ssize(files.bytes(linear.stored)) == (elements + 1) / 2,
      linear.stored,
      fmt::format("it does not have the {} bytes of {} weights", (elements + 1) / 2, elements));
  tensors_.insert(linear.stored);
  const bool is_nested = linear.format.is_nested;
  check(linear.stored + ".absmax", is_nested ? at::kByte : at::kFloat, blocks);
  check(linear.stored + ".quant_map", at::kFloat, 16);
  if (is_nested) {
    check(
        linear.stored + ".nested_absmax",
        at::kFloat,
        (blocks + ops::kNestedBlock - 1) / ops::kNestedBlock);
    check(linear.stored + ".nested_quant_map", at::kFloat, 256);
  }
}

void PackedFolder::open_8_bits(Linear& linear) {
  const std::string prefix =
      linear.stored.substr(0, linear.stored.size() - std::string_view("weight").size());
  linear.format.kind = PackedKind::kInt8;
  check(linear.stored, at::kChar, linear.out * linear.in);
  check(prefix + "SCB", at::kFloat, linear.out);
  if (const std::string format = prefix + "weight_format"; files_.files().contains(format)) {
    check(format, at::kByte, 1);
    require(
        files_.files().bytes(format).front() == std::byte{0},
        linear.stored,
        "its weight_format is not 0 (rows)");
  }
}

ops::PackedMatrix PackedFolder::read(const std::string& weight) const {
  const Linear& linear = linears_.at(weight);
  const checkpoint::TensorFiles& files = files_.files();
  ops::PackedMatrix matrix;
  matrix.format = linear.format;
  matrix.out = linear.out;
  matrix.in = linear.in;
  const auto codes = files.bytes(linear.stored);
  expect_pages(codes);
  const bool is_8_bits = linear.format.kind == PackedKind::kInt8;
  matrix.codes = at::from_blob(
                     const_cast<std::byte*>(codes.data()),
                     {std::ssize(codes)},
                     at::dtype(is_8_bits ? at::kChar : at::kByte))
                     .clone();
  forget_pages(codes);
  if (is_8_bits) {
    matrix.codes = matrix.codes.view({linear.out, linear.in});
    matrix.scales =
        files.read_whole(linear.stored.substr(0, linear.stored.rfind("weight")) + "SCB");
    return matrix;
  }
  matrix.scales = files.read_whole(linear.stored + ".absmax").flatten();
  matrix.values = files.read_whole(linear.stored + ".quant_map").flatten();
  if (linear.format.is_nested) {
    matrix.nested_scales = files.read_whole(linear.stored + ".nested_absmax").flatten();
    matrix.nested_values = files.read_whole(linear.stored + ".nested_quant_map").flatten();
    matrix.nested_offset = linear.nested_offset;
  }
  return matrix;
}

std::vector<checkpoint::Piece> packed_pieces(
    const std::string& prefix, const ops::PackedMatrix& matrix) {
  std::vector<checkpoint::Piece> pieces;
  const auto add = [&](const std::string& name, const at::Tensor& data) {
    pieces.push_back(
        {"model", prefix + name, data.scalar_type(), data.sizes().vec(), 0, data.flatten(), {}});
  };
  if (matrix.format.kind == PackedKind::kInt8) {
    add(".weight", matrix.codes);
    add(".SCB", matrix.scales);
    add(".weight_format", at::zeros({}, at::kByte));
    return pieces;
  }
  add(".weight", matrix.codes.unsqueeze(1));
  add(".weight.absmax", matrix.scales);
  add(".weight.quant_map", matrix.values);
  if (matrix.format.is_nested) {
    add(".weight.nested_absmax", matrix.nested_scales);
    add(".weight.nested_quant_map", matrix.nested_values);
  }
  const std::string kind = matrix.format.kind == PackedKind::kNf4 ? "nf4" : "fp4";
  add(".weight" + std::string(kState) + kind, bytes_of(state_text(matrix)));
  return pieces;
}

}  // namespace lockstep::train
