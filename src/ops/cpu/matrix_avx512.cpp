// Compiled with its own instructions (cmake/Modules.cmake): see tile.h.
#if defined(__AVX512BF16__)

#include "ops/cpu/matrix_kernel.h"
#include "ops/cpu/tile.h"

namespace lockstep::ops::kernel {
namespace {

constexpr int64_t kBlock = 32;        // rows and columns of a step: two tiles each
constexpr int64_t kStep = 32;         // values of the depth in a tile
constexpr int64_t kTileBytes = 1024;  // 16 rows of 64 bytes
constexpr int64_t kDeep = 512;        // of the depth: 32 columns stay in 32 KiB
constexpr int64_t kKeptBlocks = 8;    // sums of 32 KiB
constexpr int64_t kTogether = 8;      // blocks laid out side by side: 512 bytes of a row
constexpr int64_t kStreamedBytes = int64_t{2}
                                   << 20;  // a result of so many bytes passes the caches by
constexpr int64_t kCachedBytes = int64_t{1}
                                 << 19;  // of either side: a quarter of the level-2 cache

int64_t blocks(int64_t size) {
  return (size + kBlock - 1) / kBlock;
}
int64_t steps(const MatrixProduct& p) {
  return (p.depth + kStep - 1) / kStep;
}
/// So many blocks of either side lie in the cache.
int64_t blocks_at_once(const MatrixProduct& p) {
  const int64_t fitting = kCachedBytes / (steps(p) * 2 * kTileBytes);
  return fitting < 1 ? 1 : fitting;
}

/// A block's sums are then made at once; else they are kept from chunk to chunk of the depth.
bool is_shallow(const MatrixProduct& p) {
  return steps(p) <= kDeep / kStep;
}
int64_t row_blocks_at_once(const MatrixProduct& p) {
  return is_shallow(p) ? blocks_at_once(p) : least(blocks_at_once(p), kKeptBlocks);
}

const uint16_t* at(const Operand& operand, int64_t row, int64_t column) {
  return static_cast<const uint16_t*>(operand.data) + row * operand.stride + column;
}

/// Sixteen rows of the left side in tiles: one after the other, or as the rows lie.
struct LeftRows {
  const char* data;
  int64_t row_bytes, step_bytes;
};

/// The rows of a tile that lie across lines of the cache take twice as long to load.
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

/// 16 x 16 units, in registers.
inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

/// Units of 32 columns from two rows: those of the first 16, and of the others.
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

/// The sums of the two values of each unit, added.
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

/// Two rows of units of a side that lies across rows: depth `k` and the next one.
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

/// Blocks [first, last) of 32 rows that lie across, at most kTogether: two rows of tiles each.
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

/// A block of 32 rows as they lie, with zeros behind.
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

/// Blocks [first, last) of 32 columns that lie across, at most kTogether: for each step 16 rows of
/// 32 units.
void lay_out_columns_across(const MatrixProduct& p, int64_t first, int64_t last, float* to) {
  __m512 sums[kTogether][2] = {};
  for (int64_t k = 0; k < steps(p) * kStep; k += 2) {
    for (int64_t block = first; block < last; ++block) {
      __m512i pair[2];
      units_across(p.right, k, p.depth, block * kBlock, p.columns - block * kBlock, pair);
      float* units = to + ((block - first) * steps(p) * kLanes + k / 2) * kBlock;
      _mm512_store_si512(units, pair[0]);
      _mm512_store_si512(units + kLanes, pair[1]);
      if (p.right_sums != nullptr) {
        sums[block - first][0] = add_units(sums[block - first][0], pair[0]);
        sums[block - first][1] = add_units(sums[block - first][1], pair[1]);
      }
    }
  }
  for (int64_t block = first; block < last && p.right_sums != nullptr; ++block) {
    store_sums(p.right_sums, block * kBlock, p.columns, sums[block - first]);
  }
}

/// A block of 32 columns that lie along rows, laid out as the others.
void lay_out_columns_along(const MatrixProduct& p, int64_t block, float* to) {
  for (int64_t step = 0; step < steps(p); ++step, to += kLanes * kBlock) {
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

void lay_out_columns(const MatrixProduct& p, int64_t first, int64_t last, float* to) {
  const int64_t block_units = steps(p) * kLanes * kBlock;
  if (p.right.depth == Depth::kAlongRows) {
    for (int64_t block = first; block < last; ++block, to += block_units) {
      lay_out_columns_along(p, block, to);
    }
    return;
  }
  for (int64_t block = first; block < last; block += kTogether, to += kTogether * block_units) {
    lay_out_columns_across(p, block, least(last, block + kTogether), to);
  }
}

/// sums [32, 32] = or += two tiles of rows by 32 columns, over `count` steps.
inline void block_product(
    int64_t count, LeftRows upper, LeftRows lower, const float* columns, float* sums, Sum mode) {
  constexpr int64_t kBytes = kBlock * 4;
  float* below = sums + kLanes * kBlock;
  // The loads of tiles do not tell the compiler that they read memory.
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
    columns += kLanes * kBlock;
    upper.data += upper.step_bytes;
    lower.data += lower.step_bytes;
  }
  _tile_stored(0, sums, kBytes);
  _tile_stored(1, sums + kLanes, kBytes);
  _tile_stored(2, below, kBytes);
  _tile_stored(3, below + kLanes, kBytes);
}

bool is_streamed(const MatrixProduct& p, const uint16_t* to, int64_t count) {
  return count >= kBlock && p.rows * p.columns * 2 >= kStreamedBytes &&
         reinterpret_cast<uintptr_t>(to) % 64 == 0;
}

/// Puts 32 x 32 sums into a result of float32.
void put_kept(const MatrixProduct& p, int64_t row_block, int64_t column_block, const float* sums) {
  const int64_t first = column_block * kBlock, count = p.columns - first;
  const int64_t rows = least(kBlock, p.rows - row_block * kBlock);
  auto* to = static_cast<float*>(p.result) + row_block * kBlock * p.result_stride + first;
  for (int64_t i = 0; i < rows; ++i, sums += kBlock, to += p.result_stride) {
    for (int64_t g = 0; g < 2 && g * kLanes < count; ++g) {
      store(to + g * kLanes, _mm512_loadu_ps(sums + g * kLanes), count - g * kLanes);
    }
  }
}

/// Rounds 32 x 32 sums into the result.
void put(const MatrixProduct& p, int64_t row_block, int64_t column_block, const float* sums) {
  if (p.sums == Sums::kKept) {
    put_kept(p, row_block, column_block, sums);
    return;
  }
  const int64_t first = column_block * kBlock, count = p.columns - first;
  __m512 bias[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  if (p.bias != nullptr) {
    const auto* from = static_cast<const Half*>(p.bias) + first;
    bias[0] = load(from, count);
    bias[1] = count > kLanes ? load(from + kLanes, count - kLanes) : _mm512_setzero_ps();
  }
  const int64_t rows = least(kBlock, p.rows - row_block * kBlock);
  auto* to = static_cast<uint16_t*>(p.result) + row_block * kBlock * p.result_stride + first;
  const __mmask32 kept =
      count >= kBlock ? ~__mmask32{0} : static_cast<__mmask32>((1ULL << count) - 1);
  const bool is_added = p.sums == Sums::kAddedAndRounded;
  const __m512 scale = all(p.sums_scale), added_scale = all(p.added_scale);
  for (int64_t i = 0; i < rows; ++i, sums += kBlock, to += p.result_stride) {
    if (is_added) {
      const auto* old = reinterpret_cast<const Half*>(to);
      bias[0] = _mm512_mul_ps(load(old, count), added_scale);
      bias[1] = count > kLanes ? _mm512_mul_ps(load(old + kLanes, count - kLanes), added_scale)
                               : _mm512_setzero_ps();
    }
    const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
        _mm512_fmadd_ps(_mm512_loadu_ps(sums + kLanes), scale, bias[1]),
        _mm512_fmadd_ps(_mm512_loadu_ps(sums), scale, bias[0])));
    if (!is_added && is_streamed(p, to, count)) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded);
    } else {
      _mm512_mask_storeu_epi16(to, kept, rounded);
    }
  }
}

}  // namespace

MatrixScratch scratch_of(const MatrixProduct& p) {
  const int64_t block_bytes = steps(p) * 2 * kTileBytes, at_once = blocks_at_once(p);
  MatrixScratch scratch;
  scratch.left_bytes = is_left_laid_out(p) ? blocks(p.rows) * block_bytes : 0;
  scratch.thread_bytes = least(at_once, blocks(p.columns)) * block_bytes +
                         (is_shallow(p) ? 1 : kKeptBlocks) * 4 * kTileBytes;
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
  const int64_t at_once = blocks_at_once(p), rows_at_once = row_blocks_at_once(p);
  const int64_t units = steps(p) * kLanes;
  auto* columns = static_cast<float*>(thread_scratch);
  float* sums = columns + least(at_once, blocks(p.columns)) * units * kBlock;
  for (int64_t group = first; group < last; group += at_once) {
    const int64_t group_end = least(last, group + at_once);
    lay_out_columns(p, group, group_end, columns);
    for (int64_t row = 0; row < blocks(p.rows); row += rows_at_once) {
      const int64_t row_end = least(blocks(p.rows), row + rows_at_once);
      for (int64_t c = group; c < group_end; ++c) {
        const float* of_column = columns + (c - group) * units * kBlock;
        for (int64_t from = 0; from < steps(p) || from == 0; from += kDeep / kStep) {
          const int64_t count = least(kDeep / kStep, steps(p) - from);
          const bool is_last = from + count >= steps(p);
          for (int64_t r = row; r < row_end; ++r) {
            LeftRows upper = left_rows(p, left, 2 * r), lower = left_rows(p, left, 2 * r + 1);
            upper.data += from * upper.step_bytes;
            lower.data += from * lower.step_bytes;
            float* of_block = sums + (is_shallow(p) ? 0 : (r - row) * kBlock * kBlock);
            block_product(
                count,
                upper,
                lower,
                of_column + from * kLanes * kBlock,
                of_block,
                from == 0 ? Sum::kNew : Sum::kAdded);
            if (is_last) {
              put(p, r, c, of_block);
            }
          }
        }
      }
    }
  }
  _mm_sfence();  // what was streamed is there for other threads
}

}  // namespace lockstep::ops::kernel

#endif  // __AVX512BF16__
