// bfloat16 matrix products with AMX. Compiled with separate instruction flags
// (cmake/Modules.cmake); see tile.h.
#if defined(__AVX512BF16__)

#include "ops/cpu/matrix_kernel.h"
#include "ops/cpu/tile.h"

namespace lockstep::ops::kernel {
namespace {

constexpr int64_t kBlock = 32;        // rows and columns of a block: two tiles each
constexpr int64_t kStep = 32;         // depth of a tile: number of values
constexpr int64_t kTileBytes = 1024;  // 16 rows of 64 bytes
// Maximum number of steps at a time: 32 rows and 32 columns of this depth fit in the level-1 cache.
constexpr int64_t kDeep = 8, kDeepest = 12;
constexpr int64_t kSpan = 48;       // maximum number of steps of packed columns
constexpr int64_t kKeptBlocks = 8;  // number of row blocks whose sums are stored (32 KiB)
constexpr int64_t kSpanRows = 64;   // number of row blocks whose sums are stored until the next
                                    // span
constexpr int64_t kTogether = 8;    // number of blocks that are packed together: 512 bytes of a row
// Results of at least this size use non-temporal stores, which do not first read the memory.
constexpr int64_t kStreamedBytes = int64_t{1} << 19;
// Bytes of the level-2 cache that are used for packed columns, and for the rows that are multiplied
// by them.
constexpr int64_t kColumnBytes = int64_t{1} << 20, kRowBytes = int64_t{1} << 18;

int64_t blocks(int64_t size) {
  return (size + kBlock - 1) / kBlock;
}
int64_t steps(const MatrixProduct& p) {
  return (p.depth + kStep - 1) / kStep;
}
/// Returns the number of parts, each of at most `most` steps, into which `count` steps are divided.
int64_t parts_of(int64_t count, int64_t most) {
  return count <= most ? 1 : (count + most - 1) / most;
}
/// Returns the number of depth spans. One span of a group of columns is packed at a time.
int64_t spans(const MatrixProduct& p) {
  return parts_of(steps(p), kSpan);
}
int64_t longest_span(const MatrixProduct& p) {
  return (steps(p) + spans(p) - 1) / spans(p);
}
/// Returns the number of blocks of a span that fit in `bytes`.
int64_t blocks_in(const MatrixProduct& p, int64_t bytes) {
  const int64_t fitting = bytes / (longest_span(p) * 2 * kTileBytes);
  return fitting < 1 ? 1 : fitting;
}
int64_t columns_at_once(const MatrixProduct& p) {
  return least(blocks_in(p, kColumnBytes), blocks(p.columns));
}
/// Returns true if the sums of a block stay in registers over the whole depth.
bool is_shallow(const MatrixProduct& p) {
  return steps(p) <= kDeepest;
}
/// Returns the number of row blocks whose sums are stored between the parts of a span.
int64_t kept_blocks(const MatrixProduct& p) {
  return is_shallow(p) ? 1 : least(blocks_in(p, kRowBytes), kKeptBlocks);
}
/// Returns the number of row blocks that stay in the cache while the columns are processed.
int64_t rows_at_once(const MatrixProduct& p) {
  return is_shallow(p) ? blocks_in(p, kRowBytes) : kept_blocks(p);
}
/// Returns the number of blocks in the buffer of sums. With one span it is a double buffer: one
/// half is written to the result while the other half is computed. With several spans it holds the
/// sums of all packed columns until the next span.
int64_t blocks_of_sums(const MatrixProduct& p) {
  return spans(p) == 1 ? 2 * kept_blocks(p) : columns_at_once(p) * least(blocks(p.rows), kSpanRows);
}

/// A range [from, until) of depth steps or of blocks.
struct Span {
  int64_t from, until;
  int64_t count() const { return until - from; }
};
Span part_of(Span whole, int64_t part, int64_t parts) {
  return {
      whole.from + whole.count() * part / parts, whole.from + whole.count() * (part + 1) / parts};
}

const uint16_t* at(const Operand& operand, int64_t row, int64_t column) {
  return static_cast<const uint16_t*>(operand.data) + row * operand.stride + column;
}

/// Tiles of sixteen rows of the left operand, packed or in place.
struct LeftRows {
  const char* data;
  int64_t row_bytes, step_bytes;
};

/// Returns true if the left operand must be packed. Tile rows that cross cache lines take twice as
/// long to load.
bool is_left_laid_out(const MatrixProduct& p) {
  return p.left.depth == Depth::kAcrossRows || p.rows % kBlock != 0 || p.depth % kStep != 0 ||
         p.left.stride % kStep != 0 || reinterpret_cast<uintptr_t>(p.left.data) % 64 != 0;
}

LeftRows left_rows(const MatrixProduct& p, const void* laid_out, int64_t tile) {
  if (laid_out != nullptr) {
    return {static_cast<const char*>(laid_out) + tile * steps(p) * kTileBytes, 64, kTileBytes};
  }
  return {reinterpret_cast<const char*>(at(p.left, tile * kLanes, 0)), p.left.stride * 2, 64};
}

__m512i masked(const uint16_t* from, int64_t count) {
  return count >= 32 ? _mm512_loadu_si512(from)
         : count > 0 ? _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ULL << count) - 1), from)
                     : _mm512_setzero_si512();
}

/// Interleaves two rows of 32 columns into units: `low` receives the first 16 columns, `high` the
/// others.
inline void interleave(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  const __m512i first = _mm512_or_si512(
      _mm512_cvtepu16_epi32(_mm512_castsi512_si256(even)),
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(odd)), 16));
  const __m512i second = _mm512_or_si512(
      _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(even, 1)),
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(odd, 1)), 16));
  low = first;
  high = second;
}

/// Adds both values of each unit to the sums.
inline __m512 add_units(__m512 sum, __m512i units) {
  const __m512 first = _mm512_castsi512_ps(_mm512_slli_epi32(units, 16));
  const __m512 second =
      _mm512_castsi512_ps(_mm512_and_si512(units, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  return _mm512_add_ps(sum, _mm512_add_ps(first, second));
}

inline void add_all(const __m512i (&units)[16], __m512& sum) {
  for (int i = 0; i < 16; ++i) {
    sum = add_units(sum, units[i]);
  }
}

/// Loads depths `k` and `k + 1` of an operand with kAcrossRows as two rows of units.
inline void units_across(
    const Operand& side, int64_t k, int64_t depth, int64_t first, int64_t count, __m512i (&to)[2]) {
  const __m512i even = k < depth ? masked(at(side, k, first), count) : _mm512_setzero_si512();
  const __m512i odd =
      k + 1 < depth ? masked(at(side, k + 1, first), count) : _mm512_setzero_si512();
  interleave(even, odd, to[0], to[1]);
}

void store_sums(float* to, int64_t first, int64_t end, const __m512 (&sums)[2]) {
  for (int g = 0; g < 2; ++g) {
    const int64_t from = first + g * kLanes;
    if (from < end) {
      store(to + from, sums[g], end - from);
    }
  }
}

/// Packs the blocks [first, last) of 32 rows of a left operand with kAcrossRows, at most kTogether
/// blocks. Each block becomes two rows of tiles.
void lay_out_across(const MatrixProduct& p, int64_t first, int64_t last, char* to) {
  __m512 sums[kTogether][2] = {};
  for (int64_t step = 0; step < steps(p); ++step) {
    for (int64_t block = first; block < last; ++block) {
      __m512i low[16], high[16];
      for (int64_t u = 0; u < kLanes; ++u) {
        __m512i pair[2];
        units_across(
            p.left, step * kStep + 2 * u, p.depth, block * kBlock, p.rows - block * kBlock, pair);
        low[u] = pair[0];
        high[u] = pair[1];
      }
      if (p.left_sums != nullptr) {
        add_all(low, sums[block - first][0]);
        add_all(high, sums[block - first][1]);
      }
      transpose(low);
      transpose(high);
      char* upper = to + ((block - first) * 2 * steps(p) + step) * kTileBytes;
      char* lower = upper + steps(p) * kTileBytes;
      for (int64_t i = 0; i < kLanes; ++i) {
        _mm512_store_si512(upper + i * 64, low[i]);
        _mm512_store_si512(lower + i * 64, high[i]);
      }
    }
  }
  for (int64_t block = first; block < last && p.left_sums != nullptr; ++block) {
    store_sums(p.left_sums, block * kBlock, p.rows, sums[block - first]);
  }
}

/// Packs a block of 32 rows of a left operand with kAlongRows, padded with zeros.
void lay_out_along(const MatrixProduct& p, int64_t block, char* to) {
  for (int64_t tile = 0; tile < 2; ++tile) {
    for (int64_t step = 0; step < steps(p); ++step) {
      for (int64_t i = 0; i < kLanes; ++i, to += 64) {
        const int64_t row = block * kBlock + tile * kLanes + i;
        const int64_t count = row < p.rows ? p.depth - step * kStep : 0;
        _mm512_store_si512(to, masked(at(p.left, row, step * kStep), count));
      }
    }
  }
}

/// Packs the blocks [first, last) of 32 columns of a right operand with kAcrossRows, at most
/// kTogether blocks: for each step, 16 rows of 32 units. Adds the column sums to `all_sums` if it
/// is not null.
void lay_out_columns_across(
    const MatrixProduct& p, Span span, int64_t first, int64_t last, float* to, float* all_sums) {
  __m512 sums[kTogether][2] = {};
  const auto each_sum = [&](const auto& function) {
    for (int64_t i = 0; i < (all_sums == nullptr ? 0 : 2 * (last - first)); ++i) {
      const int64_t column = first * kBlock + i * kLanes;
      if (column < p.columns) {
        function(all_sums + column, sums[i / 2][i % 2], p.columns - column);
      }
    }
  };
  if (span.from > 0) {
    each_sum([](const float* from, __m512& sum, int64_t count) { sum = load(from, count); });
  }
  for (int64_t k = span.from * kStep; k < span.until * kStep; k += 2) {
    for (int64_t block = first; block < last; ++block) {
      __m512i pair[2];
      units_across(p.right, k, p.depth, block * kBlock, p.columns - block * kBlock, pair);
      float* units =
          to + ((block - first) * span.count() * kLanes + k / 2 - span.from * kLanes) * kBlock;
      _mm512_store_si512(units, pair[0]);
      _mm512_store_si512(units + kLanes, pair[1]);
      if (all_sums != nullptr) {
        sums[block - first][0] = add_units(sums[block - first][0], pair[0]);
        sums[block - first][1] = add_units(sums[block - first][1], pair[1]);
      }
    }
  }
  each_sum([](float* to, __m512 sum, int64_t count) { store(to, sum, count); });
}

/// Packs a block of 32 columns of a right operand with kAlongRows into the same layout.
void lay_out_columns_along(const MatrixProduct& p, Span span, int64_t block, float* to) {
  for (int64_t step = span.from; step < span.until; ++step, to += kLanes * kBlock) {
    for (int64_t half = 0; half < 2; ++half) {
      __m512i r[16];
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t column = block * kBlock + half * kLanes + i;
        r[i] = masked(
            at(p.right, column, step * kStep), column < p.columns ? p.depth - step * kStep : 0);
      }
      transpose(r);
      for (int64_t i = 0; i < kLanes; ++i) {
        _mm512_store_si512(to + i * kBlock + half * kLanes, r[i]);
      }
    }
  }
}

void lay_out_columns(
    const MatrixProduct& p, Span span, int64_t first, int64_t last, float* to, float* sums) {
  const int64_t block_units = span.count() * kLanes * kBlock;
  if (p.right.depth == Depth::kAlongRows) {
    for (int64_t block = first; block < last; ++block, to += block_units) {
      lay_out_columns_along(p, span, block, to);
    }
    return;
  }
  for (int64_t block = first; block < last; block += kTogether, to += kTogether * block_units) {
    lay_out_columns_across(p, span, block, least(last, block + kTogether), to, sums);
  }
}

bool is_streamed(const MatrixProduct& p, const uint16_t* to, int64_t count) {
  return count >= kBlock && p.rows * p.columns * 2 >= kStreamedBytes &&
         reinterpret_cast<uintptr_t>(to) % 64 == 0;
}

/// Writes the sums of a column of blocks to the result, a few rows at a time. The writes are
/// interleaved with the next tile products, during which the vector units are idle.
class Putting {
 public:
  explicit Putting(const MatrixProduct& p)
      : product(p),
        scale(all(p.sums_scale)),
        added_scale(all(p.added_scale)) {}

  /// Starts to write `blocks`, [32 x n, 32], which must remain valid until they have been written.
  void begin(int64_t first_block, int64_t last_block, int64_t column_block, const float* blocks) {
    finish();
    first = column_block * kBlock;
    count = product.columns - first;
    row = first_block * kBlock;
    last = least(product.rows, last_block * kBlock);
    sums = blocks;
    bias[0] = bias[1] = _mm512_setzero_ps();
    if (product.bias != nullptr) {
      const auto* from = static_cast<const Half*>(product.bias) + first;
      bias[0] = load(from, count);
      bias[1] = count > kLanes ? load(from + kLanes, count - kLanes) : _mm512_setzero_ps();
    }
  }

  void put(int64_t rows) {
    for (const int64_t end = least(last, row + rows); row < end; ++row, sums += kBlock) {
      product.sums == Sums::kKept ? put_kept() : put_rounded();
    }
  }

  void finish() { put(last - row); }

 private:
  void put_kept() const {
    auto* to = static_cast<float*>(product.result) + row * product.result_stride + first;
    for (int64_t g = 0; g < 2 && g * kLanes < count; ++g) {
      store(to + g * kLanes, _mm512_loadu_ps(sums + g * kLanes), count - g * kLanes);
    }
  }

  void put_rounded() const {
    auto* to = static_cast<uint16_t*>(product.result) + row * product.result_stride + first;
    const bool is_added = product.sums == Sums::kAddedAndRounded;
    __m512 low = bias[0], high = bias[1];
    if (is_added) {
      const auto* old = reinterpret_cast<const Half*>(to);
      low = _mm512_mul_ps(load(old, count), added_scale);
      high = count > kLanes ? _mm512_mul_ps(load(old + kLanes, count - kLanes), added_scale)
                            : _mm512_setzero_ps();
    }
    const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
        _mm512_fmadd_ps(_mm512_loadu_ps(sums + kLanes), scale, high),
        _mm512_fmadd_ps(_mm512_loadu_ps(sums), scale, low)));
    if (!is_added && is_streamed(product, to, count)) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded);
    } else {
      const __mmask32 kept =
          count >= kBlock ? ~__mmask32{0} : static_cast<__mmask32>((1ULL << count) - 1);
      _mm512_mask_storeu_epi16(to, kept, rounded);
    }
  }

  const MatrixProduct& product;
  const __m512 scale, added_scale;
  int64_t first = 0, count = 0, row = 0, last = 0;  // rows [row, last) have not been written yet
  const float* sums = nullptr;
  __m512 bias[2] = {};
};

/// Computes sums [32, 32], new or added, from two tiles of rows and 32 columns over `count` steps.
/// Each step also writes `put_rows` rows of `before`.
inline void block_product(
    int64_t count,
    LeftRows upper,
    LeftRows lower,
    const float* columns,
    float* sums,
    Sum mode,
    Putting& before,
    int64_t put_rows) {
  constexpr int64_t kBytes = kBlock * 4;
  float* below = sums + kLanes * kBlock;
  // Prevents reordering, because the compiler does not know that tile loads read memory.
  __asm__ volatile("" ::: "memory");
  if (mode == Sum::kAdded) {
    _tile_loadd(0, sums, kBytes);
    _tile_loadd(1, sums + kLanes, kBytes);
    _tile_loadd(2, below, kBytes);
    _tile_loadd(3, below + kLanes, kBytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < count; ++step) {
    _tile_loadd(6, columns, kBytes);
    _tile_loadd(4, upper.data, upper.row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, columns + kLanes, kBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, lower.data, lower.row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    before.put(put_rows);
    columns += kLanes * kBlock;
    upper.data += upper.step_bytes;
    lower.data += lower.step_bytes;
  }
  _tile_stored(0, sums, kBytes);
  _tile_stored(1, sums + kLanes, kBytes);
  _tile_stored(2, below, kBytes);
  _tile_stored(3, below + kLanes, kBytes);
}

/// Multiplies the row blocks [row, row_end) by 32 packed columns of the span. The `sums` of the
/// blocks are consecutive. Processes the depth in parts, so that each part of the columns stays in
/// the level-1 cache.
void multiply_rows(
    const MatrixProduct& p,
    Span span,
    int64_t row,
    int64_t row_end,
    const void* left,
    const float* columns,
    float* sums,
    Putting& before) {
  const int64_t parts = is_shallow(p) ? 1 : parts_of(span.count(), kDeep);
  const int64_t put_rows = (kBlock + steps(p) - 1) / steps(p);
  for (int64_t i = 0; i < parts; ++i) {
    const Span part = part_of(span, i, parts);
    for (int64_t r = row; r < row_end; ++r) {
      LeftRows upper = left_rows(p, left, 2 * r), lower = left_rows(p, left, 2 * r + 1);
      upper.data += part.from * upper.step_bytes;
      lower.data += part.from * lower.step_bytes;
      block_product(
          part.count(),
          upper,
          lower,
          columns + (part.from - span.from) * kLanes * kBlock,
          sums + (r - row) * kBlock * kBlock,
          part.from == 0 ? Sum::kNew : Sum::kAdded,
          before,
          put_rows);
    }
  }
}

}  // namespace

MatrixScratch scratch_of(const MatrixProduct& p) {
  MatrixScratch scratch;
  scratch.left_bytes = is_left_laid_out(p) ? blocks(p.rows) * steps(p) * 2 * kTileBytes : 0;
  scratch.thread_bytes =
      columns_at_once(p) * longest_span(p) * 2 * kTileBytes + blocks_of_sums(p) * 4 * kTileBytes;
  return scratch;
}

int64_t left_parts(const MatrixProduct& p) {
  return blocks(p.rows);
}
int64_t column_parts(const MatrixProduct& p) {
  return blocks(p.columns);
}

void lay_out_left(const MatrixProduct& p, int64_t first, int64_t last, void* left) {
  const auto tiles_of = [&](int64_t block) {
    return static_cast<char*>(left) + block * steps(p) * 2 * kTileBytes;
  };
  if (p.left.depth == Depth::kAlongRows) {
    for (int64_t block = first; block < last; ++block) {
      lay_out_along(p, block, tiles_of(block));
    }
    return;
  }
  for (int64_t block = first; block < last; block += kTogether) {
    lay_out_across(p, block, least(last, block + kTogether), tiles_of(block));
  }
}

void multiply(
    const MatrixProduct& p, int64_t first, int64_t last, const void* left, void* thread_scratch) {
  [[maybe_unused]] const TileState<Amx> state;
  const int64_t at_once = columns_at_once(p), kept = kept_blocks(p), span_count = spans(p);
  const int64_t all_rows = blocks(p.rows);
  const int64_t waiting_rows = span_count == 1 ? all_rows : kSpanRows;
  auto* columns = static_cast<float*>(thread_scratch);
  float* sums = columns + at_once * longest_span(p) * kLanes * kBlock;
  bool is_second_half = false;
  Putting putting(p);
  // Multiplies the rows [top, bottom) by the columns of `group` for one span.
  const auto multiply_span = [&](Span span, Span group, int64_t top, int64_t bottom) {
    for (int64_t rows = top; rows < bottom; rows += rows_at_once(p)) {
      const int64_t rows_end = least(bottom, rows + rows_at_once(p));
      for (int64_t c = group.from; c < group.until; ++c) {
        const float* of_column = columns + (c - group.from) * span.count() * kLanes * kBlock;
        for (int64_t row = rows; row < rows_end; row += kept) {
          const int64_t row_end = least(rows_end, row + kept);
          const int64_t place = span_count > 1   ? (c - group.from) * (bottom - top) + row - top
                                : is_second_half ? kept
                                                 : 0;
          float* of_rows = sums + place * kBlock * kBlock;
          multiply_rows(p, span, row, row_end, left, of_column, of_rows, putting);
          if (span.until == steps(p)) {
            putting.begin(row, row_end, c, of_rows);
            is_second_half = !is_second_half;
          }
        }
      }
    }
  };
  for (int64_t top = 0; top < all_rows; top += waiting_rows) {
    for (int64_t group = first; group < last; group += at_once) {
      const int64_t group_end = least(last, group + at_once);
      for (int64_t i = 0; i < span_count; ++i) {
        const Span span = part_of({0, steps(p)}, i, span_count);
        lay_out_columns(p, span, group, group_end, columns, top == 0 ? p.right_sums : nullptr);
        multiply_span(span, {group, group_end}, top, least(all_rows, top + waiting_rows));
      }
      putting.finish();
    }
  }
  _mm_sfence();  // makes streamed stores visible to other threads
}

}  // namespace lockstep::ops::kernel

#endif  // __AVX512BF16__
