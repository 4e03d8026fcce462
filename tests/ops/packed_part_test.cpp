// Parts of packed matrices: for any split, their values are bitwise those of the whole, and their
// products equal those of the dense weight.
#include "ops/packed_part.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "ops/cpu/machine.h"
#include "ops/cpu/vector.h"
#include "ops/linear.h"
#include "ops/packed_places.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace packed_part_test {

std::vector<PackedFormat> all_formats() {
  return {
      {PackedKind::kNf4, 64, false},
      {PackedKind::kNf4, 64, true},
      {PackedKind::kFp4, 32, true},
      {PackedKind::kNf4, 128, false},
      {PackedKind::kInt8}};
}

std::string name_of(const PackedFormat& format) {
  return fmt::format(
      "kind {}, blocks of {}, nested {}",
      static_cast<int>(format.kind),
      format.block_size,
      format.is_nested);
}

TEST(Quantize, ValuesAreWithinHalfAStepOfTheirBlock) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor weight = random({19, 101}).to(type);
    for (const PackedFormat& format : all_formats()) {
      const PackedMatrix matrix = quantize(weight, format);
      EXPECT_EQ(matrix.format.type, type);
      const Tensor difference = (dequantize(matrix) - weight.to(at::kFloat)).abs();
      // The largest gap between NF4 values is 0.304, between FP4 values a third. Nested scales are
      // accurate to a hundredth, and rounding to the type adds to the error.
      const double most = weight.abs().max().item<double>();
      const double allowed = format.kind == PackedKind::kInt8 ? 0.5 / 127 + 0.005 : 0.18;
      EXPECT_LT(difference.max().item<double>(), allowed * most) << name_of(format);
      EXPECT_GT(difference.max().item<double>(), 0) << name_of(format);
    }
  }
}

TEST(Quantize, ZerosAndASingleElementStayWhatTheyAre) {
  for (const PackedFormat& format : all_formats()) {
    EXPECT_TRUE(dequantize(quantize(at::zeros({3, 50}), format)).eq(0).all().item<bool>())
        << name_of(format);
    const Tensor one = at::full({1, 1}, -0.75F);
    EXPECT_NEAR(dequantize(quantize(one, format)).item<float>(), -0.75F, 1e-7) << name_of(format);
    EXPECT_EQ(
        dequantize(quantize(at::empty({0, 7}), format)).sizes(), (std::vector<int64_t>{0, 7}));
  }
}

TEST(Quantize, NestedScalesAreWithinAHundredthOfTheLargest) {
  const Tensor scales = random({1000}).abs();
  PackedMatrix matrix;
  matrix.format = {PackedKind::kNf4, 64, true};
  nest_scales(matrix, scales);
  EXPECT_EQ(matrix.nested_scales.numel(), 4);
  EXPECT_LT(
      (block_scales(matrix) - scales).abs().max().item<double>(),
      0.01 * scales.max().item<double>());
}

struct Sizes {
  int64_t out, in;
};
constexpr Sizes kSizes[] = {{24, 64}, {7, 128}, {13, 53}, {9, 33}, {5, 1}, {40, 96}};

/// Returns parts with several row ranges and with arbitrary column ranges.
std::vector<PackedPart> parts_of(const PackedFormat& format, Sizes sizes) {
  PackedPart whole = PackedPart::whole(format, sizes.out, sizes.in);
  std::vector<PackedPart> parts{whole};
  const auto add_rows = [&](std::vector<IndexRange> rows) {
    parts.push_back(whole);
    parts.back().rows = std::move(rows);
  };
  add_rows({{0, 3}});
  add_rows({{1, 2}, {3, 5}});
  add_rows({{2, 2}});
  for (const auto& [begin, end] : {std::pair(0, 2), {1, 3}, {1, 2}, {2, 3}}) {
    parts.push_back(whole);
    parts.back().columns = {sizes.in * begin / 3, sizes.in * end / 3};
  }
  return parts;
}

Tensor rows_of(const Tensor& weight, const PackedPart& part) {
  std::vector<Tensor> rows;
  for (const IndexRange& range : part.rows) {
    rows.push_back(weight.narrow(0, range.begin, range.size()));
  }
  return at::cat(rows).narrow(1, part.columns.begin, part.columns.size());
}

TEST(PackedPart, EveryCutHasTheBitsOfTheWhole) {
  for (const PackedFormat& format : all_formats()) {
    for (const Sizes& sizes : kSizes) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const PackedMatrix matrix = quantize(random({sizes.out, sizes.in}).to(type), format);
        const Tensor values = dequantize(matrix);
        for (const PackedPart& part : parts_of(matrix.format, sizes)) {
          const Tensor bytes = part_bytes(matrix, part);
          EXPECT_EQ(bytes.numel() % 16, 0);
          const IndexRange rows{0, part.row_count()}, columns{0, part.columns.size()};
          EXPECT_TRUE(unpack(part, bytes, rows, columns, at::kFloat).equal(rows_of(values, part)))
              << name_of(format) << ", " << sizes.out << " x " << sizes.in << ", columns "
              << part.columns.begin << " to " << part.columns.end;
        }
      }
    }
  }
}

TEST(PackedPart, AWindowOfAPartIsThatOfItsValues) {
  for (const PackedFormat& format : all_formats()) {
    const PackedMatrix matrix = quantize(random({13, 53}), format);
    for (const PackedPart& part : parts_of(matrix.format, {13, 53})) {
      const int64_t rows = part.row_count(), columns = part.columns.size();
      const IndexRange some_rows{rows / 3, rows}, some{columns / 4, columns - columns / 5};
      EXPECT_TRUE(unpack(part, part_bytes(matrix, part), some_rows, some, at::kBFloat16)
                      .equal(rows_of(dequantize(matrix), part)
                                 .narrow(0, some_rows.begin, some_rows.size())
                                 .narrow(1, some.begin, some.size())
                                 .to(at::kBFloat16)))
          << name_of(format);
    }
  }
}

/// Values as the GPU kernel (cuda/unpack.cu) reads them, one element at a time.
TEST(PackedPart, AKernelFindsEachValueByItsPlace) {
  for (const PackedFormat& format : all_formats()) {
    const PackedMatrix matrix = quantize(random({13, 53}), format);
    for (const PackedPart& part : parts_of(matrix.format, {13, 53})) {
      const IndexRange rows{part.row_count() / 3, part.row_count()},
          columns{1, part.columns.size()};
      const Tensor bytes = part_bytes(matrix, part);
      const UnpackPlace place = unpack_place(part, rows, columns).value();
      const auto* at = bytes.const_data_ptr<uint8_t>();
      const Tensor found = at::empty({rows.size(), columns.size()});
      for (int64_t i = 0; i < rows.size(); ++i) {
        for (int64_t j = 0; j < columns.size(); ++j) {
          found[i][j] = place.value(reinterpret_cast<const float*>(at), at, i, j);
        }
      }
      EXPECT_TRUE(found.equal(unpack(part, bytes, rows, columns, at::kFloat))) << name_of(format);
    }
  }
  PackedPart scattered = PackedPart::whole(all_formats().front(), 40, 64);
  scattered.rows.clear();
  for (int64_t row = 0; row < 18; row += 2) {
    scattered.rows.push_back({row, row + 1});
  }
  EXPECT_FALSE(unpack_place(scattered, {0, 9}, {0, 64}).has_value());
}

/// The plain loops, the AVX-512 loops and ATen's operations, into every type.
TEST(PackedPart, EveryProcessorGivesTheSameBits) {
  const MatrixUnit best = matrix_unit();
  for (const PackedFormat& format : all_formats()) {
    for (const auto packed : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const PackedMatrix matrix = quantize(random({13, 133}).to(packed), format);
      const PackedPart part = parts_of(matrix.format, {13, 133})[4];
      const Tensor bytes = part_bytes(matrix, part);
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const auto values = [&] {
          return unpack(part, bytes, {0, 13}, {1, part.columns.size()}, type);
        };
        const Tensor wanted = values();
        matrix_unit() = MatrixUnit::kNone;
        EXPECT_TRUE(values().equal(wanted)) << name_of(format) << " to " << type;
        matrix_unit() = best;
        EXPECT_TRUE(unpack_by_operations(part, bytes, {0, 13}, {1, part.columns.size()}, type)
                        .equal(wanted))
            << name_of(format) << " to " << type;
      }
    }
  }
}

/// A weight of several panels in both dims, and an empty one.
TEST(PackedPart, ProductsAreThoseOfTheDenseWeight) {
  for (const PackedFormat& format : all_formats()) {
    for (const Sizes& sizes : {Sizes{13, 53}, Sizes{1500, 801}, Sizes{0, 9}}) {
      const PackedMatrix matrix = quantize(random({sizes.out, sizes.in}), format);
      const PackedPart part = PackedPart::whole(matrix.format, sizes.out, sizes.in);
      const Tensor bytes = part_bytes(matrix, part), weight = dequantize(matrix);
      const Tensor x = random({2, 3, sizes.in}, 2), dy = random({2, 3, sizes.out}, 3);
      const Tensor bias = random({sizes.out}, 4);
      const auto expect_near = [&](const Tensor& got, const Tensor& wanted) {
        ASSERT_EQ(got.sizes(), wanted.sizes());
        EXPECT_TRUE(at::allclose(got, wanted, 1e-5, 1e-3)) << name_of(format);
      };
      expect_near(packed_linear(part, bytes, x, bias), x.matmul(weight.t()) + bias);
      expect_near(packed_linear(part, bytes, x, {}), x.matmul(weight.t()));
      expect_near(packed_input_gradient(part, bytes, dy), dy.matmul(weight));
    }
  }
}

/// A few rows are multiplied with weights unpacked in registers, on every processor. The weights
/// equal those used for many rows, except for their rounding to bfloat16.
TEST(PackedPart, FewRowsAreMultipliedByWhatManyAre) {
  constexpr int64_t kOut = 70;
  struct Case {
    int64_t in;
    IndexRange columns;
  };
  // Sizes that are odd and not multiples of a vector; whole blocks, with a partial last one.
  const Case cases[] = {{165, {1, 160}}, {512, {0, 512}}, {512, {128, 320}}};
  const vector::Level best = vector::level();
  for (const PackedFormat& format : all_formats()) {
    for (const auto& [in, columns] : cases) {
      for (const at::ScalarType packed : {at::kFloat, at::kBFloat16}) {
        const PackedMatrix matrix = quantize(random({kOut, in}, 1).to(packed), format);
        const PackedPart part{matrix.format, kOut, in, {{3, 20}, {41, 70}}, columns};
        const Tensor bytes = part_bytes(matrix, part), bias = random({part.row_count()}, 4);
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
          const Tensor many = random({1, 9, columns.size()}, 2).to(type);
          const Tensor of_many = packed_linear(part, bytes, many, bias.to(type));
          for (const vector::Level level : {vector::Level::kAvx2, vector::Level::kAvx512}) {
            vector::level() = std::min(level, best);
            for (const int64_t rows : {1, 2, 3, 4}) {
              const Tensor got = packed_linear(part, bytes, many.narrow(1, 0, rows), bias.to(type));
              ASSERT_EQ(got.sizes(), (std::vector<int64_t>{1, rows, part.row_count()}));
              ASSERT_EQ(got.scalar_type(), type);
              // For many bfloat16 rows the weights are rounded: six standard deviations of that
              // error over 512 terms.
              const double off = type == at::kFloat ? 1e-5 : 1e-2;
              const double least = type == at::kFloat ? 3e-5 : 0.15;
              EXPECT_TRUE(at::allclose(
                  got.to(at::kFloat), of_many.narrow(1, 0, rows).to(at::kFloat), off, least))
                  << name_of(format) << ' ' << in << ' ' << rows;
            }
            vector::level() = best;
          }
        }
      }
    }
  }
}

/// 4.127 bits per weight with double quantization, 4.5 without; for 8 bits, 8 and one scale per
/// row.
TEST(PackedPart, BytesAreThoseOfTheCodesAndTheirScales) {
  const auto bits = [](const PackedFormat& format) {
    return static_cast<double>(PackedPart::whole(format, 4096, 4096).bytes()) * 8 / (4096 * 4096);
  };
  EXPECT_NEAR(bits({PackedKind::kNf4, 64, true}), 4.127, 0.002);
  EXPECT_NEAR(bits({PackedKind::kNf4, 64, false}), 4.5, 0.002);
  EXPECT_NEAR(bits({PackedKind::kInt8}), 8 + 32.0 / 4096, 0.002);
}

}  // namespace packed_part_test
}  // namespace lockstep::ops
