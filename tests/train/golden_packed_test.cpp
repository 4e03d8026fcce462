// Packed weights compared with bitsandbytes' results in the golden files.
#include <cmath>
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/model_folder.h"
#include "numbers.h"
#include "ops/packed_part.h"
#include "shared_data.h"
#include "train/weights/adapters.h"
#include "train/weights/model_loading.h"

namespace lockstep::train {
namespace golden_packed_test {

using at::Tensor;
using ops::PackedFormat;
using ops::PackedKind;
using ops::PackedMatrix;
using ops::PackedPart;
namespace fs = std::filesystem;

fs::path golden() {
  return shared_data().parent_path() / "spec" / "golden";
}

class GoldenPacked : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(golden() / "four_bits.safetensors")) {
      GTEST_SKIP() << "../shared/spec/golden is not beside the checkout";
    }
  }
  static checkpoint::TensorFiles open(const char* name) {
    return {golden(), name, ErrorKind::kData};
  }
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.equal(b);  // -0 = 0
}

TEST_F(GoldenPacked, ValuesOfCodes) {
  const auto file = open("four_bits");
  const auto expect = [&](const auto& ours, const char* name) {
    const Tensor wanted = file.read_whole(name);
    ASSERT_EQ(wanted.numel(), static_cast<int64_t>(ours.size())) << name;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i], wanted[static_cast<int64_t>(i)].item<float>()) << name << " " << i;
    }
  };
  expect(ops::values_of(PackedKind::kNf4), "nf4.code");
  expect(ops::values_of(PackedKind::kFp4), "fp4.code");
  expect(ops::nested_values(), "dynamic.signed");
}

TEST_F(GoldenPacked, FourBits) {
  const auto file = open("four_bits");
  int compared = 0;
  for (const std::string& name : file.names()) {
    const std::string suffix = ".cuda.packed";
    if (!name.ends_with(suffix)) {
      continue;
    }
    // name format: T.KIND.BLOCK.cuda.packed
    const std::string stem = name.substr(0, name.size() - suffix.size());
    const size_t second = stem.rfind('.'), first = stem.rfind('.', second - 1);
    const Tensor x = file.read_whole(stem.substr(0, first) + ".x");
    PackedFormat format;
    format.kind =
        stem.substr(first + 1, second - first - 1) == "nf4" ? PackedKind::kNf4 : PackedKind::kFp4;
    format.block_size = std::stoll(stem.substr(second + 1));
    const PackedMatrix matrix = ops::quantize(x.view({1, -1}), format);
    const auto file_tensor = [&](const char* part) {
      for (const char* maker : {".cuda", "", ".bnb"}) {
        if (const std::string tensor = stem + maker + part; file.contains(tensor)) {
          return file.read_whole(tensor).flatten();
        }
      }
      return Tensor();
    };
    EXPECT_TRUE(same_bits(matrix.codes, file_tensor(".packed"))) << stem;
    EXPECT_TRUE(same_bits(matrix.scales, file_tensor(".absmax"))) << stem;
    if (const Tensor values = file_tensor(".dequantized"); values.defined()) {
      EXPECT_TRUE(same_bits(ops::dequantize(matrix).flatten(), values.to(at::kFloat))) << stem;
    }
    ++compared;
  }
  EXPECT_GE(compared, 8);
}

TEST_F(GoldenPacked, DoubleQuantization) {
  const auto file = open("four_bits");
  const Tensor scales = file.read_whole("double.scales");
  PackedMatrix matrix;
  matrix.format = {PackedKind::kNf4, 64, true};
  ops::nest_scales(matrix, scales);
  const auto wanted = [&](const char* part) {
    return file.read_whole(std::string("double") + part);
  };
  EXPECT_NEAR(matrix.nested_offset, wanted(".offset").item<float>(), 1e-7);
  EXPECT_LT((matrix.nested_scales - wanted(".nested_absmax")).abs().max().item<double>(), 1e-7);
  EXPECT_TRUE(same_bits(matrix.scales, wanted(".cuda.codes")));
  matrix.nested_offset = wanted(".offset").item<float>();
  matrix.nested_scales = wanted(".nested_absmax");
  EXPECT_TRUE(same_bits(ops::block_scales(matrix), wanted(".cuda.dequantized")));
}

TEST_F(GoldenPacked, EightBits) {
  const auto file = open("int8");
  const PackedMatrix matrix =
      ops::quantize(file.read_whole("source"), PackedFormat{PackedKind::kInt8});
  EXPECT_TRUE(same_bits(matrix.codes, file.read_whole("layer.weight")));
  EXPECT_TRUE(same_bits(matrix.scales, file.read_whole("layer.SCB")));
  const PackedPart part = PackedPart::whole(matrix.format, matrix.out, matrix.in);
  const Tensor bytes = ops::part_bytes(matrix, part);
  numbers::expect_values(
      ops::packed_linear(part, bytes, file.read_whole("x"), file.read_whole("layer.bias")),
      file.read_whole("bnb.y_train"),
      "y");
  numbers::expect_values(
      ops::packed_input_gradient(part, bytes, file.read_whole("dy")),
      file.read_whole("bnb.dx"),
      "dx");
}

/// 4-bit products are bit-identical to bitsandbytes', for weights quantized here and for serialized
/// ones. For a few rows, weights are not rounded before the product, as in bitsandbytes.
TEST_F(GoldenPacked, FourBitLinears) {
  const auto file = open("linear4bit");
  for (const char* layer : {"a", "b"}) {
    const auto read = [&](const std::string& name) { return file.read_whole(layer + name); };
    const bool is_nested = std::string(layer) == "a";
    const PackedFormat format{
        is_nested ? PackedKind::kNf4 : PackedKind::kFp4,
        64,
        is_nested,
        read(".source").scalar_type()};
    const PackedMatrix ours = ops::quantize(read(".source"), format);
    PackedMatrix theirs = ours;
    theirs.codes = read(".layer.weight").flatten();
    theirs.scales = read(".layer.weight.absmax");
    if (is_nested) {
      theirs.nested_scales = read(".layer.weight.nested_absmax");
      theirs.nested_values = read(".layer.weight.nested_quant_map");
      EXPECT_TRUE(same_bits(ours.codes, theirs.codes));
      EXPECT_LE((ours.scales.to(at::kInt) - theirs.scales.to(at::kInt)).abs().max().item<int>(), 1);
    }
    const PackedPart part = PackedPart::whole(format, 12, 128);
    const Tensor bytes = ops::part_bytes(theirs, part);
    const Tensor x = read(".x"), y = read(".y"), bias = read(".layer.bias");
    numbers::expect_values(ops::packed_linear(part, bytes, x, bias), y, "few rows", 1.0 / 128);
    const Tensor of_many = ops::packed_linear(part, bytes, at::cat({x, x, x, x, x}), bias);
    EXPECT_TRUE(same_bits(of_many.narrow(0, 0, x.size(0)), y)) << layer;
    EXPECT_TRUE(same_bits(ops::packed_input_gradient(part, bytes, read(".dy")), read(".dx")))
        << layer;
  }
}

/// GPT-2 as saved by transformers and bitsandbytes, with and without an adapter.
TEST_F(GoldenPacked, AFolderOfBitsandbytes) {
  const checkpoint::TensorFiles expected(golden() / "gpt2-nf4", "expected", ErrorKind::kData);
  for (const char* adapter : {"", "gpt2-lora"}) {
    ModelRequest request;
    request.adapter = saved_adapter(*adapter == 0 ? fs::path() : golden() / adapter);
    const auto model = load_model(model::find_model((golden() / "gpt2-nf4").string()), request);
    nn::ForwardInputs inputs;
    inputs.ids =
        checkpoint::TensorFiles(golden() / "gpt2", "expected", ErrorKind::kData).read_whole("ids");
    const at::NoGradGuard no_gradient;
    const std::string name = *adapter == 0 ? "logits" : "logits_gpt2-lora";
    const Tensor difference = model->logits(inputs) - expected.read_whole(name);
    EXPECT_LT(difference.abs().max().item<double>(), 1e-5) << name;
  }
}

}  // namespace golden_packed_test
}  // namespace lockstep::train
