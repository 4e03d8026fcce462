// Compiled with its own instructions (cmake/Modules.cmake): see tile.h.
#if defined(__AVX512BF16__)

#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/tile.h"

namespace lockstep::ops::kernel {
namespace {

/// Of sixteen keys from `first`, those that a query at `position` sees.
inline __mmask16 seen_keys(int64_t position, int64_t window, int64_t first) {
  const int64_t until = position + 1 - first;
  const __mmask16 earlier = until <= 0 ? 0 : first_lanes(until);
  const int64_t hidden = window > 0 ? position + 1 - window - first : 0;
  return hidden <= 0 ? earlier : static_cast<__mmask16>(earlier & ~first_lanes(hidden));
}

/// Likewise, where queries from `until[i]` on do not see key i.
inline __mmask16 seen_keys(int64_t position, int64_t window, int64_t first, const int32_t* until) {
  const __mmask16 seen = seen_keys(position, window, first);
  return until == nullptr ? seen
                          : _mm512_mask_cmpgt_epi32_mask(
                                seen,
                                _mm512_loadu_si512(until + first),
                                _mm512_set1_epi32(static_cast<int>(position)));
}

template <class Machine>
struct Attention {
  using Value = typename Machine::Value;
  static constexpr int64_t kUnit = Machine::kUnit;
  static constexpr int64_t kSizeStep = kLanes * kUnit;
  static constexpr int64_t kBlockUnits = kPanel / kUnit;  // of 64 positions

  /// A thread's memory, and the padded sizes.
  struct Scratch {
    int64_t size, units, keys, panels;  // of a head; its units; padded positions; of 64 positions
    // Of the keys and values of a head: panels for products that sum over a head's numbers
    // ("across") and over positions ("rows").
    float *keys_across, *keys_rows, *values_across, *values_rows;
    float *scores, *others;             // [64, keys]: of queries; of gradients and values
    Value* weights;                     // [64, keys]: what multiplies the rows of values or keys
    float *first_units, *second_units;  // panels of the same along the queries
    Value *queries, *gradients;         // [64, size], dense
    float *queries_across, *gradients_across;  // [size, 64 positions in units]
    float* sums;                               // [64, size]
    float *key_sums, *value_sums;              // [size, keys]
    int64_t bytes;

    Scratch(const AttentionSizes& s, void* memory) {
      size = round_up(s.size, kSizeStep);
      units = size / kUnit;
      panels = (s.keys + kPanel - 1) / kPanel;
      keys = panels * kPanel;
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
      scores = floats(kPanel * keys);
      others = floats(kPanel * keys);
      weights = values(kPanel * keys);
      first_units = floats(kBlockUnits * keys);
      second_units = floats(kBlockUnits * keys);
      queries = values(kPanel * size);
      gradients = values(kPanel * size);
      queries_across = floats(size * kBlockUnits);
      gradients_across = floats(size * kBlockUnits);
      sums = floats(kPanel * wide);
      key_sums = floats(size * keys);
      value_sums = floats(size * keys);
      bytes = used;
    }
  };

  static int64_t scratch_bytes(const AttentionSizes& s) { return Scratch(s, nullptr).bytes; }

  static const Value* at(
      const void* data, const HeadStrides& strides, int64_t batch, int64_t head) {
    return static_cast<const Value*>(data) + batch * strides.batch + head * strides.head;
  }
  static Value* at(void* data, const HeadStrides& strides, int64_t batch, int64_t head) {
    return static_cast<Value*>(data) + batch * strides.batch + head * strides.head;
  }

  /// 64 positions of a head, dense, zeros behind their ends.
  static void copy_block(
      const AttentionSizes& s,
      int64_t length,
      const Value* from,
      int64_t stride,
      int64_t first,
      int64_t size,
      Value* to) {
    for (int64_t r = 0; r < kPanel; ++r) {
      for (int64_t c = 0; c < size; c += kLanes) {
        const int64_t count = first + r < length ? s.size - c : 0;
        store(
            to + r * size + c,
            count > 0 ? load(from + (first + r) * stride + c, count) : _mm512_setzero_ps());
      }
    }
  }

  /// A dense block [64, size] as a panel of its 64 rows: panel[unit][64].
  static void across(const Scratch& t, const Value* block, float* panel) {
    const auto* from = reinterpret_cast<const float*>(block);
    for (int64_t r = 0; r < kPanel; r += kLanes) {
      for (int64_t u = 0; u < t.units; u += kLanes) {
        transpose_units(from + r * t.units + u, t.units, panel + u * kPanel + r, kPanel);
      }
    }
  }

  /// Sixteen numbers from column c of one unit of neighbouring rows.
  static __m512i unit_of_rows(const Value* block, int64_t size, int64_t unit, int64_t c) {
    const Value* row = block + unit * kUnit * size + c;
    if constexpr (kUnit == 2) {
      return paired(load(row), load(row + size));
    } else {
      return _mm512_castps_si512(load(row));
    }
  }

  /// Its rows as units along the positions, in panels of 64 columns, from unit `first` of `all`.
  static void rows(
      const Scratch& t, const Value* block, float* panels, int64_t first, int64_t all) {
    for (int64_t c = 0; c < t.size; c += kLanes) {
      float* panel = panels + c / kPanel * all * kPanel + c % kPanel;
      for (int64_t u = 0; u < kBlockUnits; ++u) {
        _mm512_storeu_si512(panel + (first + u) * kPanel, unit_of_rows(block, t.size, u, c));
      }
    }
  }

  /// The block transposed: [size] rows of units along its positions.
  static void transposed(const Scratch& t, const Value* block, float* out) {
    alignas(64) float part[kLanes * kLanes];
    for (int64_t c = 0; c < t.size; c += kLanes) {
      for (int64_t u = 0; u < kBlockUnits; u += kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) {
          _mm512_store_si512(part + i * kLanes, unit_of_rows(block, t.size, u + i, c));
        }
        transpose_units(part, kLanes, out + c * kBlockUnits + u, kBlockUnits);
      }
    }
  }

  /// out [64, 64 x blocks] = block x panels^T, for the blocks [from, until) of positions.
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
          t.keys,
          Sum::kNew);
    }
  }

  /// sums [64, size] = weights x rows, over the positions of the blocks [from, until).
  static void weighted_rows(const Scratch& t, const float* panels, int64_t from, int64_t until) {
    const int64_t all = t.keys / kUnit;
    for (int64_t c = 0, p = 0; c < t.size; c += kPanel, ++p) {
      product<Machine>(
          kPanel,
          least(kPanel, t.size - c),
          (until - from) * kBlockUnits,
          {t.weights + from * kPanel, t.keys / kUnit},
          panels + (p * all + from * kBlockUnits) * kPanel,
          t.sums + c,
          t.size,
          Sum::kNew);
    }
  }

  /// Which blocks of keys the queries of a block see: [from, until).
  struct Blocks {
    int64_t from, until;
  };
  static Blocks seen_blocks(const AttentionSizes& s, const Scratch& t, int64_t block) {
    const int64_t first = s.window > 0 ? block * kPanel + 1 - s.window : 0;
    return {first <= 0 ? 0 : first / kPanel, s.sees_all ? t.panels : block + 1};
  }
  static int64_t query_blocks(const AttentionSizes& s) { return (s.length + kPanel - 1) / kPanel; }
  /// The last key that a query sees; one behind the end counts as the last one.
  static int64_t last_seen(const AttentionSizes& s, int64_t query) {
    return s.sees_all ? s.keys - 1 : least(query, s.length - 1);
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
    const int64_t group = s.heads / s.kv_heads;
    for (int64_t job = first; job < last; ++job) {
      const int64_t batch = job / s.kv_heads, kv_head = job % s.kv_heads;
      const Value* key = at(f.key, f.key_at, batch, kv_head);
      const Value* value = at(f.value, f.value_at, batch, kv_head);
      for (int64_t j = 0; j < t.panels; ++j) {
        copy_block(s, s.keys, key, f.key_at.position, j * kPanel, t.size, t.queries);
        across(t, t.queries, t.keys_across + j * t.units * kPanel);
        copy_block(s, s.keys, value, f.value_at.position, j * kPanel, t.size, t.queries);
        rows(t, t.queries, t.values_rows, j * kBlockUnits, t.keys / kUnit);
      }
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t block = 0; block < query_blocks(s); ++block) {
          forward_block(s, t, f, batch, head, block);
        }
      }
    }
  }

  static void forward_block(
      const AttentionSizes& s,
      const Scratch& t,
      const AttentionForward& f,
      int64_t batch,
      int64_t head,
      int64_t block) {
    const auto [from, until] = seen_blocks(s, t, block);
    const int64_t start = block * kPanel;
    copy_block(
        s,
        s.length,
        at(f.query, f.query_at, batch, head),
        f.query_at.position,
        start,
        t.size,
        t.queries);
    against(t, t.queries, t.keys_across, from, until, t.scores);
    float inverse[kPanel];
    float* log_sum = f.log_sum + (batch * s.heads + head) * s.length;
    for (int64_t r = 0; r < kPanel; ++r) {
      const float* score = t.scores + r * t.keys;
      const int64_t position = last_seen(s, start + r);
      __m512 most = all(-__builtin_inff());
      for (int64_t k = from * kPanel; k < until * kPanel; k += kLanes) {
        const __mmask16 seen = seen_keys(position, s.window, k, f.seen_until);
        most = _mm512_mask_max_ps(most, seen, _mm512_loadu_ps(score + k), most);
      }
      const float top = _mm512_reduce_max_ps(_mm512_mul_ps(most, all(s.scale)));
      __m512 total = _mm512_setzero_ps();
      for (int64_t k = from * kPanel; k < until * kPanel; k += kLanes) {
        __m512 e = exponential(_mm512_fmsub_ps(_mm512_loadu_ps(score + k), all(s.scale), all(top)));
        e = _mm512_maskz_mov_ps(seen_keys(position, s.window, k, f.seen_until), e);
        total = _mm512_add_ps(total, e);
        store(t.weights + r * t.keys + k, e);
      }
      const float sum = _mm512_reduce_add_ps(total);
      inverse[r] = 1 / sum;
      if (start + r < s.length) {
        log_sum[start + r] = top + __builtin_logf(sum);
      }
    }
    weighted_rows(t, t.values_rows, from, until);
    put_sums(s, t, inverse, at(f.out, f.out_at, batch, head), f.out_at.position, start);
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
    const int64_t group = s.heads / s.kv_heads;
    for (int64_t job = first; job < last; ++job) {
      const int64_t batch = job / s.kv_heads, kv_head = job % s.kv_heads;
      const Value* key = at(f.key, f.key_at, batch, kv_head);
      const Value* value = at(f.value, f.value_at, batch, kv_head);
      for (int64_t j = 0; j < t.panels; ++j) {
        copy_block(s, s.keys, key, f.key_at.position, j * kPanel, t.size, t.queries);
        across(t, t.queries, t.keys_across + j * t.units * kPanel);
        rows(t, t.queries, t.keys_rows, j * kBlockUnits, t.keys / kUnit);
        copy_block(s, s.keys, value, f.value_at.position, j * kPanel, t.size, t.queries);
        across(t, t.queries, t.values_across + j * t.units * kPanel);
      }
      for (int64_t i = 0; i < t.size * t.keys; i += kLanes) {
        _mm512_storeu_ps(t.key_sums + i, _mm512_setzero_ps());
        _mm512_storeu_ps(t.value_sums + i, _mm512_setzero_ps());
      }
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t block = 0; block < query_blocks(s); ++block) {
          backward_block(s, t, b, batch, head, block);
        }
      }
      put_columns(
          s,
          t,
          t.key_sums,
          at(b.key_gradient, b.key_gradient_at, batch, kv_head),
          b.key_gradient_at.position);
      put_columns(
          s,
          t,
          t.value_sums,
          at(b.value_gradient, b.value_gradient_at, batch, kv_head),
          b.value_gradient_at.position);
    }
  }

  static void backward_block(
      const AttentionSizes& s,
      const Scratch& t,
      const AttentionBackward& b,
      int64_t batch,
      int64_t head,
      int64_t block) {
    const AttentionForward& f = b.forward;
    const auto [from, until] = seen_blocks(s, t, block);
    const int64_t start = block * kPanel;
    copy_block(
        s,
        s.length,
        at(f.query, f.query_at, batch, head),
        f.query_at.position,
        start,
        t.size,
        t.queries);
    copy_block(
        s,
        s.length,
        at(b.out_gradient, b.out_gradient_at, batch, head),
        b.out_gradient_at.position,
        start,
        t.size,
        t.gradients);
    against(t, t.queries, t.keys_across, from, until, t.scores);
    against(t, t.gradients, t.values_across, from, until, t.others);
    const Value* out = at(f.out, f.out_at, batch, head);
    const float* log_sum = f.log_sum + (batch * s.heads + head) * s.length;
    for (int64_t r = 0; r < kPanel; r += kUnit) {
      __m512 delta[kUnit], shift[kUnit];
      for (int64_t i = 0; i < kUnit; ++i) {
        const int64_t position = start + r + i;
        __m512 dot = _mm512_setzero_ps();
        for (int64_t c = 0; c < s.size && position < s.length; c += kLanes) {
          dot = _mm512_fmadd_ps(
              load(out + position * f.out_at.position + c, s.size - c),
              load(t.gradients + (r + i) * t.size + c, s.size - c),
              dot);
        }
        delta[i] = all(_mm512_reduce_add_ps(dot));
        shift[i] = all(position < s.length ? log_sum[position] : 0);
      }
      score_gradients(s, t, {from, until}, start + r, delta, shift);
    }
    weighted_rows(t, t.keys_rows, from, until);
    put_sums(
        s,
        t,
        nullptr,
        at(b.query_gradient, b.query_gradient_at, batch, head),
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
            t.keys,
            Sum::kAdded);
      };
      add(t.gradients_across, t.first_units, t.value_sums);
      add(t.queries_across, t.second_units, t.key_sums);
    }
  }

  /// Of one unit of queries: probabilities, and the gradients of the scores.
  static void score_gradients(
      const AttentionSizes& s,
      const Scratch& t,
      const Blocks& blocks,
      int64_t query,
      const __m512 (&delta)[kUnit],
      const __m512 (&shift)[kUnit]) {
    const int64_t r = query % kPanel;
    for (int64_t k = blocks.from * kPanel; k < blocks.until * kPanel; k += kLanes) {
      __m512 p[kUnit], d[kUnit];
      for (int64_t i = 0; i < kUnit; ++i) {
        const int64_t position = query + i;
        const float* score = t.scores + (r + i) * t.keys + k;
        const float* other = t.others + (r + i) * t.keys + k;
        const __mmask16 seen =
            position < s.length ? seen_keys(last_seen(s, position), s.window, k) : 0;
        p[i] = exponential(_mm512_fmsub_ps(_mm512_loadu_ps(score), all(s.scale), shift[i]));
        p[i] = _mm512_maskz_mov_ps(seen, p[i]);
        d[i] = _mm512_maskz_mul_ps(
            seen,
            _mm512_mul_ps(p[i], all(s.scale)),
            _mm512_sub_ps(_mm512_loadu_ps(other), delta[i]));
        store(t.weights + (r + i) * t.keys + k, d[i]);
      }
      const int64_t place = (k / kPanel * kBlockUnits + r / kUnit) * kPanel + k % kPanel;
      if constexpr (kUnit == 2) {
        _mm512_storeu_si512(t.first_units + place, paired(p[0], p[1]));
        _mm512_storeu_si512(t.second_units + place, paired(d[0], d[1]));
      } else {
        _mm512_storeu_ps(t.first_units + place, p[0]);
        _mm512_storeu_ps(t.second_units + place, d[0]);
      }
    }
  }

  /// sums [size, keys], transposed.
  static void put_columns(
      const AttentionSizes& s, const Scratch& t, const float* sums, Value* to, int64_t stride) {
    alignas(64) float part[kLanes * kLanes];
    for (int64_t k = 0; k < s.keys; k += kLanes) {
      for (int64_t c = 0; c < s.size; c += kLanes) {
        transpose_units(sums + c * t.keys + k, t.keys, part, kLanes);
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
