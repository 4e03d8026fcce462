// Attention loops with AVX-512 and AMX. Compiled with separate instruction flags
// (cmake/Modules.cmake); see tile.h.
#if defined(__AVX512BF16__)

#include "ops/cpu/attention_blocks.h"
#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/tile.h"

namespace lockstep::ops::kernel {
namespace {

/// Loads the first `count` values of 64 bytes. The other values are 0.
inline __m512i line(const float* from, int64_t count) {
  return _mm512_castps_si512(load(from, count));
}
inline __m512i line(const Half* from, int64_t count) {
  return _mm512_maskz_loadu_epi16(
      count >= 2 * kLanes ? ~__mmask32{0} : static_cast<__mmask32>((1ULL << count) - 1), from);
}

template <class Machine>
struct Attention {
  using Value = typename Machine::Value;
  static constexpr int64_t kUnit = Machine::kUnit;
  // Scores are multiplied by this factor before exponentiation, because bfloat16 uses powers of 2
  // instead of e.
  static constexpr float kBase = kUnit == 2 ? 1.44269504F : 1;
  static __m512 power(__m512 x) {
    if constexpr (kUnit == 2) {
      return power_of_two(x);
    } else {
      return exponential(x);
    }
  }
  static constexpr int64_t kSizeStep = kLanes * kUnit;
  static constexpr int64_t kBlockUnits = kPanel / kUnit;  // number of units in 64 positions

  /// Scratch memory of a thread, and the padded sizes.
  struct Scratch {
    int64_t size, units, keys,
        panels;   // padded head size; number of its units; padded number of positions; number of
                  // panels of 64 positions
    int64_t row;  // stride of a row of keys, padded so that rows do not map to the same cache sets
    // Keys and values of a head as panels: for products that sum over the head dimension ("across")
    // and over positions ("rows").
    float *keys_across, *keys_rows, *values_across, *values_rows;
    float *scores,
        *others;     // [64, row]: products of queries and keys; products of output gradients and
                     // values
    Value* weights;  // [64, row]: weights of the value or key rows
    float *first_units,
        *second_units;  // panels of probabilities and of score gradients, with units along the
                        // queries
    Value *queries, *gradients;                // [64, size], dense
    float *queries_across, *gradients_across;  // [size, 64 positions in units]
    float* sums;                               // [64, size]
    float *key_sums, *value_sums;              // [size, row]
    int64_t bytes;

    Scratch(const AttentionSizes& s, void* memory) {
      size = round_up(s.size, kSizeStep);
      units = size / kUnit;
      panels = (s.keys + kPanel - 1) / kPanel;
      keys = panels * kPanel;
      row = keys + 2 * kLanes;
      int64_t used = 0;
      const auto take = [&](int64_t count, int64_t bytes_each) {
        char* const mine = memory == nullptr ? nullptr : static_cast<char*>(memory) + used;
        used += round_up(count * bytes_each, 64);
        return mine;
      };
      const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count, 4)); };
      const auto values = [&](int64_t count) {
        return reinterpret_cast<Value*>(take(count, static_cast<int64_t>(sizeof(Value))));
      };
      const int64_t wide = round_up(size, kPanel);
      keys_across = floats(keys * units);
      values_across = floats(keys * units);
      keys_rows = floats(keys / kUnit * wide);
      values_rows = floats(keys / kUnit * wide);
      scores = floats(kPanel * row);
      others = floats(kPanel * row);
      weights = values(kPanel * row);
      first_units = floats(kBlockUnits * keys);
      second_units = floats(kBlockUnits * keys);
      queries = values(kPanel * size);
      gradients = values(kPanel * size);
      queries_across = floats(size * kBlockUnits);
      gradients_across = floats(size * kBlockUnits);
      sums = floats(kPanel * wide);
      key_sums = floats(size * row);
      value_sums = floats(size * row);
      bytes = used;
    }
  };

  static int64_t scratch_bytes(const AttentionSizes& s) { return Scratch(s, nullptr).bytes; }

  /// Copies 64 positions of a head to a dense, zero-padded block.
  static void copy_block(
      const AttentionSizes& s,
      int64_t length,
      const Value* from,
      int64_t stride,
      int64_t first,
      int64_t size,
      Value* to) {
    for (int64_t r = 0; r < kPanel; ++r) {
      for (int64_t c = 0; c < size; c += kSizeStep) {
        const int64_t count = first + r < length ? s.size - c : 0;
        _mm512_storeu_si512(
            to + r * size + c,
            count > 0 ? line(from + (first + r) * stride + c, count) : _mm512_setzero_si512());
      }
    }
  }

  /// Packs the 64 rows of a dense block [64, size] as a panel: panel[unit][64].
  static void across(const Scratch& t, const Value* block, float* panel) {
    const auto* from = reinterpret_cast<const float*>(block);
    for (int64_t r = 0; r < kPanel; r += kLanes) {
      for (int64_t u = 0; u < t.units; u += kLanes) {
        transpose_units(from + r * t.units + u, t.units, panel + u * kPanel + r, kPanel);
      }
    }
  }

  /// Returns sixteen units, starting at column c, of the adjacent rows that form one unit.
  static __m512i unit_of_rows(const Value* block, int64_t size, int64_t unit, int64_t c) {
    const Value* row = block + unit * kUnit * size + c;
    if constexpr (kUnit == 2) {
      const auto halves = [](const Value* from) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      };
      return _mm512_or_si512(halves(row), _mm512_slli_epi32(halves(row + size), 16));
    } else {
      return _mm512_castps_si512(load(row));
    }
  }

  /// Packs a block's rows as units along the positions, in panels of 64 columns, starting at unit
  /// `first` of `all`.
  static void rows(
      const Scratch& t, const Value* block, float* panels, int64_t first, int64_t all) {
    for (int64_t c = 0; c < t.size; c += kLanes) {
      float* panel = panels + c / kPanel * all * kPanel + c % kPanel;
      for (int64_t u = 0; u < kBlockUnits; ++u) {
        _mm512_storeu_si512(panel + (first + u) * kPanel, unit_of_rows(block, t.size, u, c));
      }
    }
  }

  /// Transposes a block into [size] rows of units along its positions.
  static void transposed(const Scratch& t, const Value* block, float* out) {
    for (int64_t c = 0; c < t.size; c += kLanes) {
      for (int64_t u = 0; u < kBlockUnits; u += kLanes) {
        __m512i part[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          part[i] = unit_of_rows(block, t.size, u + i, c);
        }
        transpose(part);
        for (int64_t i = 0; i < kLanes; ++i) {
          _mm512_storeu_si512(out + (c + i) * kBlockUnits + u, part[i]);
        }
      }
    }
  }

  /// Computes out [64, 64 x blocks] = block x panels^T for the blocks [from, until) of positions.
  static void against(
      const Scratch& t,
      const Value* block,
      const float* panels,
      int64_t from,
      int64_t until,
      float* out) {
    for (int64_t j = from; j < until; ++j) {
      product<Machine>(
          kPanel,
          kPanel,
          t.units,
          {block, t.units},
          panels + j * t.units * kPanel,
          out + j * kPanel,
          t.row,
          Sum::kNew);
    }
  }

  /// Computes sums [64, size] = weights x rows for the blocks [from, until) of positions.
  static void weighted_rows(const Scratch& t, const float* panels, int64_t from, int64_t until) {
    const int64_t all = t.keys / kUnit;
    for (int64_t c = 0, p = 0; c < t.size; c += kPanel, ++p) {
      product<Machine>(
          kPanel,
          least(kPanel, t.size - c),
          (until - from) * kBlockUnits,
          {t.weights + from * kPanel, t.row / kUnit},
          panels + (p * all + from * kBlockUnits) * kPanel,
          t.sums + c,
          t.size,
          Sum::kNew);
    }
  }

  static void put_sums(
      const AttentionSizes& s,
      const Scratch& t,
      const float* factors,
      Value* to,
      int64_t stride,
      int64_t first) {
    const int64_t count = least(kPanel, s.length - first);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < s.size; c += kLanes) {
        const __m512 value = _mm512_loadu_ps(t.sums + r * t.size + c);
        const __m512 factor = all(factors == nullptr ? 1.0F : factors[r]);
        store(to + (first + r) * stride + c, _mm512_mul_ps(value, factor), s.size - c);
      }
    }
  }

  static void forward(
      const AttentionSizes& s,
      const AttentionForward& f,
      int64_t first,
      int64_t last,
      void* memory) {
    [[maybe_unused]] const TileState<Machine> state;
    const Scratch t(s, memory);
    const int64_t each = blocks_of_job(s), end = last * each;
    for (int64_t index = first * each; index < end; ++index) {
      const QueryBlock block = block_of(s, index);
      if (index % each == 0) {
        const Value* key = at<Value>(f.key, f.key_at, block.batch, block.kv_head);
        const Value* value = at<Value>(f.value, f.value_at, block.batch, block.kv_head);
        for (int64_t j = 0; j < t.panels; ++j) {
          copy_block(s, s.keys, key, f.key_at.position, j * kPanel, t.size, t.queries);
          across(t, t.queries, t.keys_across + j * t.units * kPanel);
          copy_block(s, s.keys, value, f.value_at.position, j * kPanel, t.size, t.queries);
          rows(t, t.queries, t.values_rows, j * kBlockUnits, t.keys / kUnit);
        }
      }
      Ahead<Value> ahead(s, f, index, end);
      ahead.add(f.out, f.out_at, block.batch, block.head, block.number);
      forward_block(s, t, f, block, ahead);
    }
  }

  static void forward_block(
      const AttentionSizes& s,
      const Scratch& t,
      const AttentionForward& f,
      const QueryBlock& of,
      const Ahead<Value>& ahead) {
    const int64_t batch = of.batch, head = of.head, block = of.number;
    const auto [from, until] = seen_panels(s, block);
    const int64_t start = block * kPanel;
    copy_block(
        s,
        s.length,
        at<Value>(f.query, f.query_at, batch, head),
        f.query_at.position,
        start,
        t.size,
        t.queries);
    against(t, t.queries, t.keys_across, from, until, t.scores);
    float inverse[kPanel];
    float* log_sum = f.log_sum + (batch * s.heads + head) * s.length;
    for (int64_t r = 0; r < kPanel; ++r) {
      ahead.ask_for(r);
      const float* score = t.scores + r * t.row;
      Value* weights = t.weights + r * t.row;
      const int64_t position = last_seen(s, start + r);
      const SeenKeys keys = seen_by(s, position, position);
      const int64_t clear_until = f.seen_until == nullptr ? keys.clear_until : 0;
      const auto over_keys = [&](const auto& run) {
        for (int64_t k = from * kPanel; k < keys.end; k += kLanes) {
          if (k >= keys.clear && k < clear_until) {
            run(k, __mmask16{0xffff});
          } else {
            run(k, seen_keys(position, s.window, k, f.seen_until));
          }
        }
      };
      __m512 most = all(-__builtin_inff());
      over_keys([&](int64_t k, __mmask16 seen) {
        most = _mm512_mask_max_ps(most, seen, _mm512_loadu_ps(score + k), most);
      });
      const float top = _mm512_reduce_max_ps(_mm512_mul_ps(most, all(s.scale)));
      const __m512 scale = all(s.scale * kBase), shift = all(top * kBase);
      __m512 total = _mm512_setzero_ps();
      over_keys([&](int64_t k, __mmask16 seen) {
        const __m512 e = _mm512_maskz_mov_ps(
            seen, power(_mm512_fmsub_ps(_mm512_loadu_ps(score + k), scale, shift)));
        total = _mm512_add_ps(total, e);
        store(weights + k, e);
      });
      for (int64_t k = keys.end; k < until * kPanel; k += kLanes) {
        store(weights + k, _mm512_setzero_ps());
      }
      const float sum = _mm512_reduce_add_ps(total);
      inverse[r] = 1 / sum;
      if (start + r < s.length) {
        log_sum[start + r] = top + __builtin_logf(sum);
      }
    }
    weighted_rows(t, t.values_rows, from, until);
    put_sums(s, t, inverse, at<Value>(f.out, f.out_at, batch, head), f.out_at.position, start);
  }

  static void backward(
      const AttentionSizes& s,
      const AttentionBackward& b,
      int64_t first,
      int64_t last,
      void* memory) {
    [[maybe_unused]] const TileState<Machine> state;
    const Scratch t(s, memory);
    const AttentionForward& f = b.forward;
    const int64_t each = blocks_of_job(s), end = last * each;
    for (int64_t index = first * each; index < end; ++index) {
      const QueryBlock block = block_of(s, index);
      if (index % each == 0) {
        begin_job(s, t, f, block);
      }
      Ahead<Value> ahead(s, f, index, end);
      if (index + 1 < end) {
        const QueryBlock next = block_of(s, index + 1);
        ahead.add(f.out, f.out_at, next.batch, next.head, next.number);
        ahead.add(b.out_gradient, b.out_gradient_at, next.batch, next.head, next.number);
      }
      ahead.add(b.query_gradient, b.query_gradient_at, block.batch, block.head, block.number);
      if (index / each != (index + query_blocks(s)) / each) {  // these gradients are written at the
                                                               // end of this job
        ahead.add(b.key_gradient, b.key_gradient_at, block.batch, block.kv_head, block.number);
        ahead.add(b.value_gradient, b.value_gradient_at, block.batch, block.kv_head, block.number);
      }
      backward_block(s, t, b, block, ahead);
      if ((index + 1) % each == 0) {
        const auto put = [&](const float* sums, void* to, const HeadStrides& place) {
          put_columns(s, t, sums, at<Value>(to, place, block.batch, block.kv_head), place.position);
        };
        put(t.key_sums, b.key_gradient, b.key_gradient_at);
        put(t.value_sums, b.value_gradient, b.value_gradient_at);
      }
    }
  }

  /// Packs the keys and values of a job for the products of all its heads, and zeroes the sums of
  /// their gradients.
  static void begin_job(
      const AttentionSizes& s,
      const Scratch& t,
      const AttentionForward& f,
      const QueryBlock& block) {
    const Value* key = at<Value>(f.key, f.key_at, block.batch, block.kv_head);
    const Value* value = at<Value>(f.value, f.value_at, block.batch, block.kv_head);
    for (int64_t j = 0; j < t.panels; ++j) {
      copy_block(s, s.keys, key, f.key_at.position, j * kPanel, t.size, t.queries);
      across(t, t.queries, t.keys_across + j * t.units * kPanel);
      rows(t, t.queries, t.keys_rows, j * kBlockUnits, t.keys / kUnit);
      copy_block(s, s.keys, value, f.value_at.position, j * kPanel, t.size, t.queries);
      across(t, t.queries, t.values_across + j * t.units * kPanel);
    }
    for (int64_t i = 0; i < t.size * t.row; i += kLanes) {
      _mm512_storeu_ps(t.key_sums + i, _mm512_setzero_ps());
      _mm512_storeu_ps(t.value_sums + i, _mm512_setzero_ps());
    }
  }

  static void backward_block(
      const AttentionSizes& s,
      const Scratch& t,
      const AttentionBackward& b,
      const QueryBlock& of,
      const Ahead<Value>& ahead) {
    const AttentionForward& f = b.forward;
    const int64_t batch = of.batch, head = of.head, block = of.number;
    const auto [from, until] = seen_panels(s, block);
    const int64_t start = block * kPanel;
    copy_block(
        s,
        s.length,
        at<Value>(f.query, f.query_at, batch, head),
        f.query_at.position,
        start,
        t.size,
        t.queries);
    copy_block(
        s,
        s.length,
        at<Value>(b.out_gradient, b.out_gradient_at, batch, head),
        b.out_gradient_at.position,
        start,
        t.size,
        t.gradients);
    against(t, t.queries, t.keys_across, from, until, t.scores);
    against(t, t.gradients, t.values_across, from, until, t.others);
    const Value* out = at<Value>(f.out, f.out_at, batch, head);
    const float* log_sum = f.log_sum + (batch * s.heads + head) * s.length;
    float delta[kPanel] = {}, shift[kPanel] = {};
    for (int64_t r = 0; r < least(kPanel, s.length - start); ++r) {
      __m512 dot = _mm512_setzero_ps();
      for (int64_t c = 0; c < s.size; c += kLanes) {
        dot = _mm512_fmadd_ps(
            load(out + (start + r) * f.out_at.position + c, s.size - c),
            load(t.gradients + r * t.size + c, s.size - c),
            dot);
      }
      delta[r] = _mm512_reduce_add_ps(dot);
      shift[r] = log_sum[start + r] * kBase;
    }
    for (int64_t r = 0; r < kPanel; r += kUnit) {
      for (int64_t i = 0; i < kUnit; ++i) {
        ahead.ask_for(r + i);
      }
      score_gradients(s, t, {from, until}, start + r, delta + r, shift + r);
    }
    weighted_rows(t, t.keys_rows, from, until);
    put_sums(
        s,
        t,
        nullptr,
        at<Value>(b.query_gradient, b.query_gradient_at, batch, head),
        b.query_gradient_at.position,
        start);
    transposed(t, t.queries, t.queries_across);
    transposed(t, t.gradients, t.gradients_across);
    for (int64_t j = from; j < until; ++j) {
      const auto add = [&](const float* left, const float* units, float* sums) {
        product<Machine>(
            t.size,
            kPanel,
            kBlockUnits,
            {left, kBlockUnits},
            units + j * kBlockUnits * kPanel,
            sums + j * kPanel,
            t.row,
            Sum::kAdded);
      };
      add(t.gradients_across, t.first_units, t.value_sums);
      add(t.queries_across, t.second_units, t.key_sums);
    }
  }

  /// Computes the probabilities and score gradients of one unit of queries.
  static void score_gradients(
      const AttentionSizes& s,
      const Scratch& t,
      const SeenPanels& panels,
      int64_t query,
      const float* delta,
      const float* shift) {
    const int64_t r = query % kPanel;
    int64_t position[kUnit];
    for (int64_t i = 0; i < kUnit; ++i) {
      position[i] = query + i < s.length ? last_seen(s, query + i) : -1;
    }
    const int64_t other = position[kUnit - 1] < 0 ? position[0] : position[kUnit - 1];
    const SeenKeys keys = seen_by(s, position[kUnit - 1] < 0 ? -1 : position[0], other);
    const __m512 scale = all(s.scale), base = all(s.scale * kBase);
    const auto run = [&](int64_t k, const auto& seen) {
      __m512 p[kUnit], d[kUnit];
      for (int64_t i = 0; i < kUnit; ++i) {
        const int64_t at = (r + i) * t.row + k;
        p[i] = _mm512_maskz_mov_ps(
            seen(i), power(_mm512_fmsub_ps(_mm512_loadu_ps(t.scores + at), base, all(shift[i]))));
        d[i] = _mm512_maskz_mul_ps(
            seen(i),
            _mm512_mul_ps(p[i], scale),
            _mm512_sub_ps(_mm512_loadu_ps(t.others + at), all(delta[i])));
      }
      put_units(t, r, k, p, d);
    };
    const __m512 zeros[kUnit] = {};
    for (int64_t k = panels.from * kPanel; k < panels.until * kPanel; k += kLanes) {
      if (k >= keys.end) {
        put_units(t, r, k, zeros, zeros);
      } else if (k >= keys.clear && k < keys.clear_until) {
        run(k, [](int64_t) { return __mmask16{0xffff}; });
      } else {
        run(k, [&](int64_t i) { return seen_keys(position[i], s.window, k); });
      }
    }
  }

  /// Stores probabilities and score gradients for queries from row r on and keys from k on.
  static void put_units(
      const Scratch& t, int64_t r, int64_t k, const __m512 (&p)[kUnit], const __m512 (&d)[kUnit]) {
    const int64_t place = (k / kPanel * kBlockUnits + r / kUnit) * kPanel + k % kPanel;
    Value* weights = t.weights + r * t.row + k;
    if constexpr (kUnit == 2) {
      const __m512i both = rounded(d[0], d[1]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights), _mm512_castsi512_si256(both));
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(weights + t.row), _mm512_extracti64x4_epi64(both, 1));
      _mm512_storeu_si512(t.first_units + place, paired(p[0], p[1]));
      _mm512_storeu_si512(t.second_units + place, paired(both));
    } else {
      _mm512_storeu_ps(weights, d[0]);
      _mm512_storeu_ps(t.first_units + place, p[0]);
      _mm512_storeu_ps(t.second_units + place, d[0]);
    }
  }

  /// Writes the transpose of the sums [size, row].
  static void put_columns(
      const AttentionSizes& s, const Scratch& t, const float* sums, Value* to, int64_t stride) {
    alignas(64) float part[kLanes * kLanes];
    for (int64_t k = 0; k < s.keys; k += kLanes) {
      for (int64_t c = 0; c < s.size; c += kLanes) {
        transpose_units(sums + c * t.row + k, t.row, part, kLanes);
        for (int64_t i = 0; i < least(kLanes, s.keys - k); ++i) {
          store(to + (k + i) * stride + c, _mm512_load_ps(part + i * kLanes), s.size - c);
        }
      }
    }
  }
};

}  // namespace

const AttentionLoops kAttentionFloat{
    Attention<Fma>::scratch_bytes, Attention<Fma>::forward, Attention<Fma>::backward};
const AttentionLoops kAttentionBfloat16{
    Attention<Dot>::scratch_bytes, Attention<Dot>::forward, Attention<Dot>::backward};
const AttentionLoops kAttentionAmx{
    Attention<Amx>::scratch_bytes, Attention<Amx>::forward, Attention<Amx>::backward};

}  // namespace lockstep::ops::kernel

#endif  // __AVX512BF16__
