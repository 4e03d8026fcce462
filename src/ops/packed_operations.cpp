// Unpacks quantized weights with ATen operations.
#include <limits>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "ops/packed_places.h"

namespace lockstep::ops {
namespace {

/// Returns a view of a byte range as values of the given type.
Tensor numbers(const Tensor& bytes, int64_t begin, int64_t count, at::ScalarType type) {
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  return bytes.narrow(0, begin, count * size).view(type);
}

/// Returns the row indices of the part in the whole matrix. They are computed on the device,
/// without a copy from the host.
Tensor whole_rows(const PackedPart& part, c10::Device device) {
  std::vector<Tensor> runs;
  for (const IndexRange& range : part.rows) {
    runs.push_back(at::arange(range.begin, range.end, at::dtype(at::kLong).device(device)));
  }
  return at::cat(runs);
}

}  // namespace

std::optional<UnpackPlace> unpack_place(
    const PackedPart& part, IndexRange rows, IndexRange columns) {
  if (part.rows.size() > UnpackPlace::kMostRanges) {
    return std::nullopt;
  }
  const PackedPlaces places(part);
  UnpackPlace place;
  place.has_8_bits = is_8_bits(part);
  place.is_nested = part.format.is_nested;
  place.codes = places.codes;
  place.row_bytes = places.row_bytes;
  place.scales = places.scales;
  place.scales_per_row = places.scales_per_row;
  place.nested_scales = places.nested_scales;
  place.in = part.in;
  place.part_column = part.columns.begin;
  place.block_size = part.format.block_size;
  place.first_row = rows.begin;
  place.rows = rows.size();
  place.first_column = columns.begin;
  place.columns = columns.size();
  int64_t before = 0;
  for (int k = 0; k < UnpackPlace::kMostRanges; ++k) {
    const bool is_there = static_cast<size_t>(k) < part.rows.size();
    place.range_row[k] = is_there ? before : std::numeric_limits<int64_t>::max();
    if (is_there) {
      const IndexRange& range = part.rows[static_cast<size_t>(k)];
      place.range_shift[k] = range.begin - before;
      before += range.size();
    }
  }
  return place;
}

Tensor unpack_by_operations(
    const PackedPart& part,
    const Tensor& bytes,
    IndexRange rows,
    IndexRange columns,
    at::ScalarType type) {
  const PackedPlaces places(part);
  const int64_t count = part.row_count();
  const Tensor codes = numbers(bytes, places.codes, count * places.row_bytes, at::kByte)
                           .view({count, places.row_bytes})
                           .narrow(0, rows.begin, rows.size());
  if (is_8_bits(part)) {
    const Tensor scales = numbers(bytes, 0, count, at::kFloat).narrow(0, rows.begin, rows.size());
    return (codes.view(at::kChar).narrow(1, columns.begin, columns.size()).to(at::kFloat) *
            (scales / 127.0F).unsqueeze(1))
        .to(type);
  }
  const Tensor halves = at::stack({codes.bitwise_right_shift(4), codes.bitwise_and(15)}, 2)
                            .flatten(1)
                            .narrow(1, columns.begin, columns.size());
  const Tensor values =
      numbers(bytes, 0, kCodeValues, at::kFloat).index_select(0, halves.flatten().to(at::kInt));
  const Tensor of_whole = whole_rows(part, bytes.device()).narrow(0, rows.begin, rows.size());
  const Tensor origins = (of_whole * part.in + part.columns.begin).unsqueeze(1);
  const Tensor blocks = (origins + at::arange(columns.begin, columns.end, origins.options()))
                            .div(part.format.block_size, "floor");
  const Tensor indices = blocks - origins.div(part.format.block_size, "floor");
  const bool is_nested = part.format.is_nested;
  Tensor scales =
      numbers(
          bytes, places.scales, count * places.scales_per_row, is_nested ? at::kByte : at::kFloat)
          .view({count, places.scales_per_row})
          .narrow(0, rows.begin, rows.size())
          .gather(1, indices);
  if (is_nested) {
    const Tensor of_codes = numbers(bytes, kCodeValues * 4, kScaleValues, at::kFloat)
                                .index_select(0, scales.flatten().to(at::kInt));
    const int64_t nested = (part.out * part.in + part.format.block_size * kNestedBlock - 1) /
                           (part.format.block_size * kNestedBlock);
    const Tensor of_blocks = numbers(bytes, places.nested_scales, nested, at::kFloat)
                                 .index_select(0, blocks.div(kNestedBlock, "floor").flatten());
    const Tensor offset = numbers(bytes, (kCodeValues + kScaleValues) * 4, 1, at::kFloat);
    scales = of_codes * of_blocks + offset;
  }
  return (values * scales.flatten())
      .view({rows.size(), columns.size()})
      .to(part.format.type)
      .to(type);
}

}  // namespace lockstep::ops
