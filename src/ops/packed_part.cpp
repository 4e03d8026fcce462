// Slices of packed quantized matrices: extraction, unpacking and products.
#include "ops/packed_part.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "ops/cpu/host_loops.h"
#include "ops/cpu/machine.h"
#include "ops/cpu/unpack_kernel.h"
#include "ops/cuda_loops.h"
#include "ops/few_rows.h"
#include "ops/linear.h"
#include "ops/packed_places.h"

namespace lockstep::ops {
namespace {

/// Returns the row indices of the slice in the whole matrix, in order.
std::vector<int64_t> whole_rows(const PackedPart& part) {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(part.row_count()));
  for (const IndexRange& range : part.rows) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      rows.push_back(row);
    }
  }
  return rows;
}

/// Copies the elements [begin, begin + count) of flat 4-bit codes to the start of `to`.
void copy_halves(const uint8_t* from, int64_t begin, int64_t count, uint8_t* to) {
  if (begin % 2 == 0) {
    std::memcpy(to, from + begin / 2, static_cast<size_t>((count + 1) / 2));
    return;
  }
  for (int64_t i = 0; i < count; i += 2) {
    const int64_t at = (begin + i) / 2;  // begins at the low half of a byte
    const int next = i + 1 < count ? from[at + 1] >> 4 : 0;
    to[i / 2] = static_cast<uint8_t>((from[at] & 15) << 4 | next);
  }
}

void write_8_bits(
    const PackedMatrix& whole, const PackedPart& part, const PackedPlaces& places, uint8_t* to) {
  const std::vector<int64_t> rows = whole_rows(part);
  const auto* codes = whole.codes.const_data_ptr<int8_t>();
  const auto* scales = whole.scales.const_data_ptr<float>();
  for (size_t row = 0; row < rows.size(); ++row) {
    std::memcpy(to + row * 4, scales + rows[row], 4);
    std::memcpy(
        to + places.codes + static_cast<int64_t>(row) * places.row_bytes,
        codes + rows[row] * part.in + part.columns.begin,
        static_cast<size_t>(places.row_bytes));
  }
}

void write_4_bits(
    const PackedMatrix& whole, const PackedPart& part, const PackedPlaces& places, uint8_t* to) {
  const auto put = [&](int64_t place, const void* from, int64_t bytes) {
    std::memcpy(to + place, from, static_cast<size_t>(bytes));
  };
  put(0, whole.values.const_data_ptr(), kCodeValues * 4);
  if (part.format.is_nested) {
    put(kCodeValues * 4, whole.nested_values.const_data_ptr(), kScaleValues * 4);
    put((kCodeValues + kScaleValues) * 4, &whole.nested_offset, 4);
    put(places.nested_scales,
        whole.nested_scales.const_data_ptr(),
        whole.nested_scales.numel() * 4);
  }
  const int64_t block = part.format.block_size, scale_bytes = part.format.is_nested ? 1 : 4;
  const auto* codes = whole.codes.const_data_ptr<uint8_t>();
  const auto* scales = static_cast<const uint8_t*>(whole.scales.const_data_ptr());
  const std::vector<int64_t> rows = whole_rows(part);
  const int64_t columns = part.columns.size();
  for (size_t i = 0; columns > 0 && i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const int64_t first = rows[i] * part.in + part.columns.begin;
    copy_halves(codes, first, columns, to + places.codes + row * places.row_bytes);
    const int64_t touched = (first + columns - 1) / block - first / block + 1;
    put(places.scales + row * places.scales_per_row * scale_bytes,
        scales + first / block * scale_bytes,
        touched * scale_bytes);
  }
}

bool has_avx512() {
  return matrix_unit() >= MatrixUnit::kAvx512;
}

/// Returns the values of the two codes in a byte, for each byte.
using Pair = std::array<float, 2>;
std::array<Pair, 256> pairs_of(const float* values) {
  std::array<Pair, 256> pairs;
  for (size_t byte = 0; byte < pairs.size(); ++byte) {
    pairs[byte] = {values[byte >> 4], values[byte & 15]};
  }
  return pairs;
}

/// Reads rows of a 4-bit slice.
class Rows4 {
 public:
  Rows4(const PackedPart& part, const uint8_t* bytes)
      : part_(part),
        places_(part),
        bytes_(bytes),
        floats_(reinterpret_cast<const float*>(bytes)),
        pairs_(pairs_of(floats_)),
        nested_scales_(reinterpret_cast<const float*>(bytes + places_.nested_scales)) {}

  /// Reads columns of row `row` of the slice, which is row `whole_row` of the whole matrix.
  void read(int64_t row, int64_t whole_row, IndexRange columns, float* to) const {
    const int64_t block = part_.format.block_size;
    const int64_t origin = whole_row * part_.in + part_.columns.begin;  // index of column 0 in the
                                                                        // flattened whole matrix
    const uint8_t* codes = bytes_ + places_.codes + row * places_.row_bytes;
    for (int64_t column = columns.begin; column < columns.end;) {
      const int64_t of_whole = (origin + column) / block;
      const int64_t stop = std::min(columns.end, (of_whole + 1) * block - origin);
      const float scale = scale_of(row, of_whole - origin / block, of_whole);
      to = read_run(codes, column, stop, scale, to);
      column = stop;
    }
  }

  /// Returns a whole row, which must start at a block boundary. Nested scales are expanded into
  /// `scales`.
  kernel::CodedRow coded(int64_t row, int64_t whole_row, std::vector<float>& scales) const {
    const int64_t block = part_.format.block_size, count = places_.scales_per_row;
    kernel::CodedRow coded{
        .codes = bytes_ + places_.codes + row * places_.row_bytes,
        .values = floats_,
        .scales = reinterpret_cast<const float*>(bytes_ + places_.scales) + row * count,
        .block = block};
    if (part_.format.is_nested) {
      scales.resize(static_cast<size_t>(count));
      const int64_t first = (whole_row * part_.in + part_.columns.begin) / block;
      for (int64_t i = 0; i < count; ++i) {
        scales[static_cast<size_t>(i)] = scale_of(row, i, first + i);
      }
      coded.scales = scales.data();
    }
    return coded;
  }

 private:
  float scale_of(int64_t row, int64_t index, int64_t block) const {
    const int64_t at = row * places_.scales_per_row + index;
    if (!part_.format.is_nested) {
      return reinterpret_cast<const float*>(bytes_ + places_.scales)[at];
    }
    const uint8_t code = bytes_[places_.scales + at];
    return floats_[kCodeValues + code] * nested_scales_[block / kNestedBlock] +
           floats_[kCodeValues + kScaleValues];
  }
  float* read_run(
      const uint8_t* codes, int64_t column, int64_t stop, float scale, float* to) const {
    if (column % 2 != 0 && column < stop) {
      *to++ = pairs_[codes[column / 2]][1] * scale;
      ++column;
    }
#if defined(__x86_64__)
    if (has_avx512_) {
      kernel::unpack_4_bits(codes + column / 2, stop - column, floats_, scale, to);
      return to + (stop - column);
    }
#endif
    for (; column + 1 < stop; column += 2, to += 2) {
      const Pair& pair = pairs_[codes[column / 2]];
      to[0] = pair[0] * scale;
      to[1] = pair[1] * scale;
    }
    if (column < stop) {
      *to++ = pairs_[codes[column / 2]][0] * scale;
    }
    return to;
  }

  const PackedPart& part_;
  const PackedPlaces places_;
  const uint8_t* bytes_;
  const float* floats_;
  const std::array<Pair, 256> pairs_;
  const float* nested_scales_;
  const bool has_avx512_ = has_avx512();
};

/// Reads rows of an 8-bit slice.
class Rows8 {
 public:
  Rows8(const PackedPart& part, const uint8_t* bytes) : places_(part), bytes_(bytes) {}
  void read(int64_t row, int64_t /*whole_row*/, IndexRange columns, float* to) const {
    const float scale = reinterpret_cast<const float*>(bytes_)[row] / 127.0F;
    const auto* codes =
        reinterpret_cast<const int8_t*>(bytes_ + places_.codes + row * places_.row_bytes);
#if defined(__x86_64__)
    if (has_avx512()) {
      kernel::unpack_8_bits(codes + columns.begin, columns.size(), scale, to);
      return;
    }
#endif
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      *to++ = static_cast<float>(codes[column]) * scale;
    }
  }

 private:
  const PackedPlaces places_;
  const uint8_t* bytes_;
};

/// Rounds values to the original type of the packed weights, then to the requested type.
template <class Type>
void round_row(const float* from, int64_t count, at::ScalarType packed, Type* to) {
#if defined(__x86_64__)
  // A second rounding to bfloat16 would have no effect.
  if (std::is_same_v<Type, c10::BFloat16> && packed != at::kHalf && has_avx512()) {
    kernel::round_to_bfloat16(from, count, reinterpret_cast<uint16_t*>(to));
    return;
  }
#endif
  const auto through = [&]<class Packed>(Packed) {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<Type>(static_cast<float>(static_cast<Packed>(from[i])));
    }
  };
  if (packed == at::kBFloat16) {
    through(c10::BFloat16());
  } else if (packed == at::kHalf) {
    through(c10::Half());
  } else {
    through(float());
  }
}

template <class Rows>
void unpack_rows(
    const PackedPart& part,
    const Tensor& bytes,
    IndexRange rows,
    IndexRange columns,
    const Tensor& to) {
  const Rows reader(part, bytes.const_data_ptr<uint8_t>());
  const std::vector<int64_t> of_whole = whole_rows(part);
  const auto packed = is_8_bits(part) ? at::kFloat : part.format.type;
  constexpr int64_t kLeast = 1 << 15;  // minimum number of elements per thread
  const int64_t width = columns.size();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, to.scalar_type(), "unpack", [&] {
    auto* out = to.mutable_data_ptr<scalar_t>();
    at::parallel_for(
        0,
        rows.size(),
        std::max<int64_t>(kLeast / std::max<int64_t>(width, 1), 1),
        [&](int64_t begin, int64_t end) {
          std::vector<float> row(static_cast<size_t>(width));
          for (int64_t i = begin; i < end; ++i) {
            const int64_t at = rows.begin + i, whole = of_whole[static_cast<size_t>(at)];
            if constexpr (std::is_same_v<scalar_t, float>) {
              if (packed == at::kFloat) {  // no rounding is needed
                reader.read(at, whole, columns, out + i * width);
                continue;
              }
            }
            reader.read(at, whole, columns, row.data());
            round_row(row.data(), width, packed, out + i * width);
          }
        });
  });
}

// Products of a few rows with weights that are unpacked in registers or row by row. For float32
// activations, the weights are those of an unpacked panel. For bfloat16 activations, the weights
// are not rounded to bfloat16; only the sum is.

Tensor multiply_8_bits(
    const PackedPart& part, const Tensor& bytes, FewRows& few, const Tensor& bias) {
  const auto* const begin = bytes.const_data_ptr<uint8_t>();
  const auto* const scales = reinterpret_cast<const float*>(begin);
  const PackedPlaces places(part);
  const kernel::FewRows rows = few.rows();
  const auto dot = kernel::row_loops()->bytes;
  return few.product(part.row_count(), bias, [=](int64_t row, int64_t, float* sums) {
    dot(reinterpret_cast<const int8_t*>(begin + places.codes + row * places.row_bytes), rows, sums);
    for (int64_t k = 0; k < rows.count; ++k) {
      sums[k] *= scales[row] / 127.0F;
    }
  });
}

/// Returns true if each row starts at a block boundary and consists of whole steps.
bool has_whole_steps(const PackedPart& part) {
  const int64_t block = part.format.block_size;
  return block % kernel::kCodesAtOnce == 0 && part.columns.size() % kernel::kCodesAtOnce == 0 &&
         part.in % block == 0 && part.columns.begin % block == 0;
}

Tensor multiply_4_bits(
    const PackedPart& part, const Tensor& bytes, FewRows& few, const Tensor& bias) {
  const Rows4 reader(part, bytes.const_data_ptr<uint8_t>());
  const auto& loops = *kernel::row_loops();
  const int64_t width = part.columns.size();
  const bool is_rounded = few.type() == at::kFloat && part.format.type != at::kFloat;
  const bool is_coded = has_whole_steps(part) && !is_rounded;
  // The whole row index matters only for nested scales and for blocks that cross row boundaries.
  const bool needs_whole = part.format.is_nested || !is_coded;
  const std::vector<int64_t> of_whole = needs_whole ? whole_rows(part) : std::vector<int64_t>();
  if (is_coded) {
    few.order();
    const kernel::FewRows rows = few.rows();
    return few.product<kernel::kCodedRows>(
        part.row_count(),
        bias,
        [&, rows, scales = std::array<std::vector<float>, kernel::kCodedRows>()](
            int64_t row, int64_t count, float* sums) mutable {
          kernel::CodedRow coded[kernel::kCodedRows];
          for (int64_t i = 0; i < kernel::kCodedRows; ++i) {
            const int64_t at = row + std::min(i, count - 1);  // the last row is duplicated if the
                                                              // count is odd
            const int64_t whole = needs_whole ? of_whole[static_cast<size_t>(at)] : at;
            coded[i] = reader.coded(at, whole, scales[static_cast<size_t>(i)]);
          }
          loops.coded(coded, rows, sums);
        });
  }
  const kernel::FewRows rows = few.rows();
  return few.product(
      part.row_count(),
      bias,
      [&, rows, numbers = std::vector<float>(static_cast<size_t>(width))](
          int64_t row, int64_t, float* sums) mutable {
        reader.read(row, of_whole[static_cast<size_t>(row)], {0, width}, numbers.data());
        if (is_rounded) {
          round_row(numbers.data(), width, part.format.type, numbers.data());
        }
        loops.floats(numbers.data(), rows, sums);
      });
}

/// Number of elements of a panel: 4 MiB of float32.
constexpr int64_t kPanelSize = 1 << 20;

/// Divides [0, size) into panels of at most kPanelSize elements; each index has `depth` elements.
template <class Function>
void over_panels(int64_t size, int64_t depth, const Function& function) {
  const int64_t step =
      std::max<int64_t>(padded_to(kPanelSize / std::max<int64_t>(depth, 1), 16), 16);
  for (int64_t begin = 0; begin < size; begin += step) {
    function(IndexRange{begin, std::min(begin + step, size)});
  }
}

/// Returns an empty tensor [..., size] with the type and device of x.
Tensor empty_like_rows(const Tensor& x, int64_t size) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = size;
  return at::empty(shape, x.options().requires_grad(false));
}

}  // namespace

PackedPart PackedPart::whole(const PackedFormat& format, int64_t out, int64_t in) {
  return {format, out, in, {{0, out}}, {0, in}};
}

int64_t PackedPart::row_count() const {
  int64_t count = 0;
  for (const IndexRange& range : rows) {
    count += range.size();
  }
  return count;
}

int64_t PackedPart::bytes() const {
  return PackedPlaces(*this).end;
}

Tensor part_bytes(const PackedMatrix& whole, const PackedPart& part) {
  Tensor bytes = at::zeros({part.bytes()}, at::kByte);
  const auto write = is_8_bits(part) ? write_8_bits : write_4_bits;
  write(whole, part, PackedPlaces(part), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

Tensor unpack(
    const PackedPart& part,
    const Tensor& bytes,
    IndexRange rows,
    IndexRange columns,
    at::ScalarType type) {
  const auto place = bytes.is_cuda() && cuda_loops().unpack != nullptr
                         ? unpack_place(part, rows, columns)
                         : std::nullopt;
  if (place && rows.size() > 0 && columns.size() > 0) {
    Tensor out = at::empty({rows.size(), columns.size()}, at::dtype(type).device(bytes.device()));
    cuda_loops().unpack(bytes, *place, is_8_bits(part) ? at::kFloat : part.format.type, out);
    return out;
  }
  if (!has_host_loops(bytes)) {
    return unpack_by_operations(part, bytes, rows, columns, type);
  }
  const Tensor out = at::empty({rows.size(), columns.size()}, at::dtype(type));
  const auto run = is_8_bits(part) ? unpack_rows<Rows8> : unpack_rows<Rows4>;
  run(part, bytes, rows, columns, out);
  return out;
}

Tensor packed_linear(
    const PackedPart& part, const Tensor& bytes, const Tensor& x, const Tensor& bias) {
  const int64_t rows = part.row_count(), columns = part.columns.size();
  if (takes_few_rows(x) && has_host_loops(bytes)) {
    const auto run = is_8_bits(part) ? multiply_8_bits : multiply_4_bits;
    FewRows few(x);
    return run(part, bytes, few, bias);
  }
  const Tensor y = empty_like_rows(x, rows);
  over_panels(rows, columns, [&](IndexRange panel) {
    const Tensor weight = unpack(part, bytes, panel, {0, columns}, x.scalar_type());
    const auto of_panel =
        bias.defined() ? std::optional(bias.narrow(0, panel.begin, panel.size())) : std::nullopt;
    y.narrow(-1, panel.begin, panel.size())
        .copy_(linear(x, weight, of_panel, WeightLayout::kOutIn));
  });
  return y;
}

Tensor packed_input_gradient(
    const PackedPart& part, const Tensor& bytes, const Tensor& y_gradient) {
  const int64_t rows = part.row_count(), columns = part.columns.size();
  const Tensor x_gradient = empty_like_rows(y_gradient, columns);
  over_panels(columns, rows, [&](IndexRange panel) {
    const Tensor weight = unpack(part, bytes, {0, rows}, panel, y_gradient.scalar_type());
    x_gradient.narrow(-1, panel.begin, panel.size())
        .copy_(linear_input_gradient(y_gradient, weight, WeightLayout::kOutIn));
  });
  return x_gradient;
}

}  // namespace lockstep::ops
