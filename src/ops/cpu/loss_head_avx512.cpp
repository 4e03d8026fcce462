// Loss head loops with AVX-512 and AMX. Compiled with separate instruction flags
// (cmake/Modules.cmake); see tile.h.
#if defined(__AVX512BF16__)

#include "ops/cpu/loss_head_kernel.h"
#include "ops/cpu/tile.h"

namespace lockstep::ops::kernel {
namespace {

constexpr int64_t kCachedValues = int64_t{192} << 10;  // number of weight values in a piece of the
                                                       // vocabulary, which stays in the cache
constexpr float kSlack = 20;                           // e^20 is far from overflowing

template <class Machine>
struct LossHead {
  using Value = typename Machine::Value;
  static constexpr int64_t kUnit = Machine::kUnit;
  static constexpr int64_t kWidthStep = kLanes * kUnit;  // 64 bytes
  static constexpr int64_t kWordStep = 32;

  static LossHeadShape shape(int64_t rows, int64_t width, int64_t vocabulary) {
    LossHeadShape s;
    s.rows = rows;
    s.width = width;
    s.vocabulary = vocabulary;
    s.panels = (rows + kPanel - 1) / kPanel;
    s.padded_width = round_up(width, kWidthStep);
    const int64_t fitting = kCachedValues / s.padded_width / kPanel * kPanel;
    s.piece = fitting < kPanel ? kPanel : fitting > 512 ? 512 : fitting;
    s.pieces = (vocabulary + s.piece - 1) / s.piece;
    // Not a power of two, so that the rows of a tile do not map to the same cache sets.
    s.kept_stride = s.panels * kPanel + 32;
    s.kept_bytes = s.pieces * s.piece * s.kept_stride * size_of(1);
    s.panel_bytes = s.panels * panel_units(s) * kPanel * 4;
    s.gradient_bytes = s.panels * s.padded_width * kPanel * 4;
    s.reference_bytes = s.pieces * s.panels * kPanel * 4;
    s.thread_bytes = Scratch(s, nullptr).bytes;
    return s;
  }

  static int64_t size_of(int64_t values) { return values * static_cast<int64_t>(sizeof(Value)); }
  static int64_t panel_units(const LossHeadShape& s) { return s.padded_width / kUnit; }
  static float* hidden_panel(const LossHeadShape& s, const LossHeadRun& run, int64_t panel) {
    return static_cast<float*>(run.panel) + panel * panel_units(s) * kPanel;
  }
  static Value* kept_at(const LossHeadShape& s, const LossHeadRun& run, int64_t word) {
    return static_cast<Value*>(run.kept) + word * s.kept_stride;
  }

  /// Scratch memory of a thread. The computation of the weight gradient reuses it from the start.
  struct Scratch {
    Value* words;   // [piece, padded width]: padded copy of the weight, if the weight cannot be
                    // read directly
    float* across;  // [padded width, piece units]: transposed piece of the weight
    float* logits;  // [piece, 64]
    float* exps;    // [piece units, 64]
    float* scaled;  // panels of X * factor
    float* block;   // [piece, padded width]: weight gradient of a piece
    int64_t bytes;

    Scratch(const LossHeadShape& s, void* memory) {
      auto* at = static_cast<char*>(memory);
      int64_t used = 0;
      const auto take = [&](int64_t size) {
        char* const mine = at == nullptr ? nullptr : at + used;
        used += round_up(size, 64);
        return mine;
      };
      words = reinterpret_cast<Value*>(take(size_of(s.piece * s.padded_width)));
      across = reinterpret_cast<float*>(take(s.padded_width * (s.piece / kUnit + kLanes) * 4));
      logits = reinterpret_cast<float*>(take(s.piece * kPanel * 4));
      exps = reinterpret_cast<float*>(take(s.piece / kUnit * kPanel * 4));
      const int64_t forward = used;
      used = 0;
      const int64_t units = s.panels * kPanel / kUnit;
      scaled = reinterpret_cast<float*>(take(round_up(s.padded_width, kPanel) * units * 4));
      block = reinterpret_cast<float*>(take(s.piece * s.padded_width * 4));
      bytes = used > forward ? used : forward;
    }
  };

  /// Returns the weight rows of a piece as rows of units: the weight itself or a zero-padded copy.
  static Left words_of(
      const LossHeadShape& s, const LossHeadRun& run, int64_t word, int64_t words, Value* copy) {
    const auto* weight = static_cast<const Value*>(run.weight) + word * s.width;
    if (s.width == s.padded_width && words % kWordStep == 0) {
      return {weight, panel_units(s)};
    }
    const int64_t padded = round_up(words, kWordStep);
    for (int64_t v = 0; v < padded; ++v) {
      for (int64_t c = 0; c < s.padded_width; c += kLanes) {
        const int64_t count = v < words ? s.width - c : 0;
        store(
            copy + v * s.padded_width + c,
            count > 0 ? load(weight + v * s.width + c, count) : _mm512_setzero_ps());
      }
    }
    return {copy, panel_units(s)};
  }

  /// Transposes weight rows into [padded width] rows of `word_units` units, each of adjacent
  /// vocabulary rows.
  static void words_across(
      const LossHeadShape& s, Left words, int64_t word_units, float* across, int64_t stride) {
    const auto* value = static_cast<const Value*>(words.data);
    alignas(64) float block[kLanes * kLanes];
    for (int64_t u = 0; u < word_units; u += kLanes) {
      for (int64_t c = 0; c < s.padded_width; c += kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) {
          const Value* row = value + (u + i) * kUnit * s.padded_width + c;
          if constexpr (kUnit == 2) {
            const __m256i even = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
            const __m256i odd =
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + s.padded_width));
            _mm512_store_si512(
                block + i * kLanes,
                _mm512_or_si512(
                    _mm512_cvtepu16_epi32(even),
                    _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16)));
          } else {
            _mm512_store_ps(block + i * kLanes, load(row));
          }
        }
        transpose_units(block, kLanes, across + c * stride + u, stride);
      }
    }
  }

  static void pack_hidden(const LossHeadShape& s, const LossHeadRun& run, int64_t panel) {
    float* out = hidden_panel(s, run, panel);
    alignas(64) Value row[kLanes * kLanes * kUnit];
    for (int64_t first = 0; first < kPanel; first += kLanes) {
      for (int64_t c = 0; c < s.padded_width; c += kWidthStep) {
        for (int64_t i = 0; i < kLanes; ++i) {
          const int64_t r = panel * kPanel + first + i;
          const auto* from = static_cast<const Value*>(run.hidden) + r * s.width + c;
          for (int64_t part = 0; part < kWidthStep; part += kLanes) {
            const int64_t count = r < s.rows ? s.width - c - part : 0;
            store(
                row + i * kWidthStep + part,
                count > 0 ? load(from + part, count) : _mm512_setzero_ps());
          }
        }
        transpose_units(
            reinterpret_cast<const float*>(row), kLanes, out + c / kUnit * kPanel + first, kPanel);
      }
    }
  }

  static void forward(
      const LossHeadShape& s, const LossHeadRun& run, int64_t first, int64_t last, void* thread) {
    [[maybe_unused]] const TileState<Machine> state;
    const Scratch scratch(s, thread);
    const int64_t stride = s.piece / kUnit + kLanes;
    for (int64_t panel = first; panel < last; ++panel) {
      pack_hidden(s, run, panel);
      for (int64_t r = panel * kPanel; r < (panel + 1) * kPanel; ++r) {
        run.maximum[r] = -__builtin_inff();
        run.total[r] = run.target_logit[r] = 0;
      }
    }
    for (int64_t piece = 0; piece < s.pieces; ++piece) {
      const int64_t word = piece * s.piece, words = least(s.piece, s.vocabulary - word);
      const int64_t padded = round_up(words, kWordStep);
      const Left left = words_of(s, run, word, words, scratch.words);
      if (run.gradient != nullptr) {
        words_across(s, left, padded / kUnit, scratch.across, stride);
      }
      for (int64_t panel = first; panel < last; ++panel) {
        product<Machine>(
            padded,
            kPanel,
            panel_units(s),
            left,
            hidden_panel(s, run, panel),
            scratch.logits,
            kPanel,
            Sum::kNew);
        take_targets(run, panel, word, words, scratch.logits);
        for (int64_t part = 0; part < kPanel; part += 2 * kLanes) {
          exponentials(s, run, scratch, piece, words, panel * kPanel + part, part);
        }
        drop_targets(s, run, scratch, panel, word, words);
        if (run.gradient != nullptr) {
          product<Machine>(
              s.padded_width,
              kPanel,
              padded / kUnit,
              {scratch.across, stride},
              scratch.exps,
              run.gradient + panel * s.padded_width * kPanel,
              kPanel,
              piece == 0 ? Sum::kNew : Sum::kAdded);
        }
      }
    }
    _mm_sfence();  // makes streamed stores visible to other threads
  }

  static void take_targets(
      const LossHeadRun& run, int64_t panel, int64_t word, int64_t words, const float* logits) {
    const int64_t first = panel * kPanel;
    for (int64_t i = 0; i < kPanel; ++i) {
      const int64_t at = run.target[first + i] - word;
      if (at >= 0 && at < words) {
        const float logit = logits[at * kPanel + i];
        run.target_logit[first + i] =
            run.softcap > 0
                ? run.softcap * _mm512_cvtss_f32(hyperbolic_tangent(all(logit / run.softcap)))
                : logit;
      }
    }
  }

  /// Clears the target's exponential; its gradient is computed from `share` in float32. If the
  /// target has almost the whole probability, the rounded value minus 1 would consist of rounding
  /// errors.
  static void drop_targets(
      const LossHeadShape& s,
      const LossHeadRun& run,
      const Scratch& scratch,
      int64_t panel,
      int64_t word,
      int64_t words) {
    for (int64_t i = 0; i < kPanel; ++i) {
      const int64_t at = run.target[panel * kPanel + i] - word;
      if (at >= 0 && at < words) {
        kept_at(s, run, word + at)[panel * kPanel + i] = Value{};
        auto* units = reinterpret_cast<Value*>(scratch.exps + at / kUnit * kPanel);
        units[i * kUnit + at % kUnit] = Value{};
      }
    }
  }

  /// Computes the exponentials of one piece for 32 rows and stores them in `kept` and as units
  /// along the vocabulary. If the reference changes, all are computed again.
  static void exponentials(
      const LossHeadShape& s,
      const LossHeadRun& run,
      const Scratch& scratch,
      int64_t piece,
      int64_t words,
      int64_t row,
      int64_t column) {
    float* logits = scratch.logits + column;
    if (run.softcap > 0) {
      cap(logits, words, run.softcap);
    }
    float* maximum = run.maximum + row;
    if (piece == 0) {
      move_reference(s, run, logits, words, row);
    }
    for (;;) {
      const __m512 shift[2] = {_mm512_loadu_ps(maximum), _mm512_loadu_ps(maximum + kLanes)};
      __m512 total[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      const __m512 most =
          run.softcap > 0 ? pass<true>(s, run, scratch, piece, words, row, column, shift, total)
                          : pass<false>(s, run, scratch, piece, words, row, column, shift, total);
      if (_mm512_cmp_ps_mask(most, all(kSlack), _CMP_GT_OQ) == 0) {
        for (int g = 0; g < 2; ++g) {
          float* sum = run.total + row + g * kLanes;
          _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), total[g]));
          _mm512_storeu_ps(run.references + piece * s.panels * kPanel + row + g * kLanes, shift[g]);
        }
        return;
      }
      move_reference(s, run, logits, words, row);
    }
  }

  static void cap(float* logits, int64_t words, float softcap) {
    for (int64_t v = 0; v < words; ++v) {
      for (int g = 0; g < 2; ++g) {
        float* at = logits + v * kPanel + g * kLanes;
        const __m512 t = hyperbolic_tangent(_mm512_mul_ps(_mm512_loadu_ps(at), all(1 / softcap)));
        _mm512_storeu_ps(at, _mm512_mul_ps(t, all(softcap)));
      }
    }
  }

  /// Raises the reference to the largest logit of this piece if that is larger, and rescales the
  /// sums.
  static void move_reference(
      const LossHeadShape& s,
      const LossHeadRun& run,
      const float* logits,
      int64_t words,
      int64_t row) {
    for (int g = 0; g < 2; ++g) {
      float* maximum = run.maximum + row + g * kLanes;
      float* total = run.total + row + g * kLanes;
      const __m512 before = _mm512_loadu_ps(maximum);
      __m512 most = before;
      for (int64_t v = 0; v < words; ++v) {
        // This operand order ignores NaN here; NaN still appears in the exponentials.
        most = _mm512_max_ps(_mm512_loadu_ps(logits + v * kPanel + g * kLanes), most);
      }
      const __mmask16 moved = _mm512_cmp_ps_mask(before, most, _CMP_NEQ_UQ);
      _mm512_storeu_ps(maximum, most);
      __m512 smaller = exponential(_mm512_sub_ps(before, most));
      smaller = _mm512_mask_mov_ps(all(1), moved, smaller);
      const __m512 sum = _mm512_loadu_ps(total);
      const __mmask16 has_sum = _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
      _mm512_storeu_ps(total, _mm512_mask_mul_ps(sum, has_sum, sum, smaller));
      if (run.gradient != nullptr && has_sum != 0) {
        const int64_t panel = row / kPanel;
        float* gradient =
            run.gradient + panel * s.padded_width * kPanel + row % kPanel + g * kLanes;
        for (int64_t c = 0; c < s.padded_width; ++c, gradient += kPanel) {
          _mm512_storeu_ps(gradient, _mm512_mul_ps(_mm512_loadu_ps(gradient), smaller));
        }
      }
    }
  }

  /// Returns the largest value of logit - shift. NaN is ignored.
  template <bool kCapped>
  static __m512 pass(
      const LossHeadShape& s,
      const LossHeadRun& run,
      const Scratch& scratch,
      int64_t piece,
      int64_t words,
      int64_t row,
      int64_t column,
      const __m512 (&shift)[2],
      __m512 (&total)[2]) {
    const float* logits = scratch.logits + column;
    Value* kept = kept_at(s, run, piece * s.piece) + row;
    float* units = scratch.exps + column;
    __m512 most = all(-__builtin_inff());
    const __m512 slope = kCapped ? all(1 / run.softcap) : all(0);
    const int64_t padded = round_up(words, kWordStep);
    for (int64_t v = 0; v < padded; v += kUnit) {
      __m512 e[kUnit][2];
      for (int64_t k = 0; k < kUnit; ++k) {
        for (int g = 0; g < 2; ++g) {
          if (v + k >= words) {
            e[k][g] = _mm512_setzero_ps();
            continue;
          }
          const __m512 logit = _mm512_loadu_ps(logits + (v + k) * kPanel + g * kLanes);
          const __m512 x = _mm512_sub_ps(logit, shift[g]);
          most = _mm512_max_ps(x, most);
          e[k][g] = exponential(x);
          total[g] = _mm512_add_ps(total[g], e[k][g]);
          if constexpr (kCapped) {  // times the derivative of the cap, 1 - tanh^2
            const __m512 t = _mm512_mul_ps(logit, slope);
            e[k][g] = _mm512_mul_ps(e[k][g], _mm512_fnmadd_ps(t, t, all(1)));
          }
        }
      }
      keep(e, kept + v * s.kept_stride, s.kept_stride, units + v / kUnit * kPanel);
    }
    return most;
  }

  /// Stores one unit of vocabulary rows for 32 rows.
  static void keep(const __m512 (&e)[kUnit][2], Value* kept, int64_t stride, float* units) {
    if constexpr (kUnit == 2) {
      const auto even = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(e[0][1], e[0][0]));
      const auto odd = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(e[1][1], e[1][0]));
      // Non-temporal stores: the values are read only after all pieces are done, and normal stores
      // would first read the memory.
      _mm512_stream_si512(reinterpret_cast<__m512i*>(kept), even);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(kept + stride), odd);
      const __m512i low = _mm512_set_epi16(
          47,
          15,
          46,
          14,
          45,
          13,
          44,
          12,
          43,
          11,
          42,
          10,
          41,
          9,
          40,
          8,
          39,
          7,
          38,
          6,
          37,
          5,
          36,
          4,
          35,
          3,
          34,
          2,
          33,
          1,
          32,
          0);
      const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
      _mm512_storeu_si512(units, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_storeu_si512(units + kLanes, _mm512_permutex2var_epi16(even, high, odd));
    } else {
      for (int g = 0; g < 2; ++g) {
        _mm512_stream_ps(kept + g * kLanes, e[0][g]);
        _mm512_storeu_ps(units + g * kLanes, e[0][g]);
      }
    }
  }

  static void hidden_gradient(
      const LossHeadShape& s, const LossHeadRun& run, int64_t first, int64_t last, void* result) {
    alignas(64) float block[kLanes * kLanes];
    for (int64_t panel = first; panel < last; ++panel) {
      const float* gradient = run.gradient + panel * s.padded_width * kPanel;
      for (int64_t c = 0; c < s.width; c += kLanes) {
        for (int64_t from = 0; from < kPanel; from += kLanes) {
          transpose_units(gradient + c * kPanel + from, kPanel, block, kLanes);
          const int64_t row = panel * kPanel + from, rows = least(kLanes, s.rows - row);
          for (int64_t i = 0; i < rows; ++i) {
            const int64_t r = row + i;
            __m512 d = _mm512_mul_ps(_mm512_load_ps(block + i * kLanes), all(run.factor[r]));
            const int64_t target = run.target[r];
            if (target >= 0 && target < s.vocabulary) {
              const auto* word = static_cast<const Value*>(run.weight) + target * s.width + c;
              d = _mm512_fnmadd_ps(load(word, s.width - c), all(run.share[r]), d);
            }
            store(static_cast<Value*>(result) + r * s.width + c, d, s.width - c);
          }
        }
      }
    }
  }

  /// Packs X * factor as panels. The factor is relative to `reference`, as the exponentials are.
  static void pack_scaled(
      const LossHeadShape& s, const LossHeadRun& run, const float* reference, float* out) {
    const auto scaled = [&](int64_t r, int64_t c) {
      if (r >= s.rows || c >= s.width) {
        return _mm512_setzero_ps();
      }
      const __m512 moved =
          exponential(all(reference[r] == run.maximum[r] ? 0 : reference[r] - run.maximum[r]));
      const auto* x = static_cast<const Value*>(run.hidden) + r * s.width + c;
      return _mm512_mul_ps(load(x, s.width - c), _mm512_mul_ps(all(run.factor[r]), moved));
    };
    const int64_t units = s.panels * kPanel / kUnit;
    for (int64_t from = 0; from < s.padded_width; from += kPanel, out += units * kPanel) {
      for (int64_t u = 0; u < units; ++u) {
        for (int64_t c = 0; c < least(kPanel, s.padded_width - from); c += kLanes) {
          float* to = out + u * kPanel + c;
          if constexpr (kUnit == 2) {
            _mm512_storeu_si512(to, paired(scaled(2 * u, from + c), scaled(2 * u + 1, from + c)));
          } else {
            _mm512_storeu_ps(to, scaled(u, from + c));
          }
        }
      }
    }
  }

  static bool equal(const float* a, const float* b, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) {
      if (_mm512_cmp_ps_mask(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), _CMP_NEQ_UQ) != 0) {
        return false;
      }
    }
    return true;
  }

  static void weight_gradient(
      const LossHeadShape& s,
      const LossHeadRun& run,
      const WeightGradientTarget& target,
      int64_t first,
      int64_t last,
      void* thread) {
    [[maybe_unused]] const TileState<Machine> state;
    const Scratch scratch(s, thread);
    const int64_t rows = s.panels * kPanel, units = rows / kUnit;
    int64_t next = 0;  // first row in `order` whose target is in this piece or a later one
    while (next < target.ordered && run.target[target.order[next]] < first * s.piece) {
      ++next;
    }
    for (int64_t piece = first; piece < last; ++piece) {
      const float* reference = run.references + piece * rows;
      if (piece == first || !equal(reference, reference - rows, rows)) {
        pack_scaled(s, run, reference, scratch.scaled);
      }
      const int64_t word = piece * s.piece, words = least(s.piece, s.vocabulary - word);
      // The stored exponentials are read from memory only once, in chunks that all panels use.
      for (int64_t u = 0; u < units; u += Machine::kUnitsAtOnce) {
        Left kept{
            reinterpret_cast<const float*>(kept_at(s, run, word)) + u, s.kept_stride / kUnit, true};
        for (int64_t from = 0, p = 0; from < s.padded_width; from += kPanel, ++p) {
          product<Machine>(
              round_up(words, kWordStep),
              least(kPanel, s.padded_width - from),
              least(Machine::kUnitsAtOnce, units - u),
              kept,
              scratch.scaled + (p * units + u) * kPanel,
              scratch.block + from,
              s.padded_width,
              u == 0 ? Sum::kNew : Sum::kAdded);
          kept.is_far = false;
        }
      }
      for (; next < target.ordered && run.target[target.order[next]] < word + words; ++next) {
        const int64_t r = target.order[next];
        float* into = scratch.block + (run.target[r] - word) * s.padded_width;
        const auto* x = static_cast<const Value*>(run.hidden) + r * s.width;
        for (int64_t c = 0; c < s.width; c += kLanes) {
          store(
              into + c,
              _mm512_fnmadd_ps(load(x + c, s.width - c), all(run.share[r]), load(into + c)));
        }
      }
      put(s, target, word, words, scratch.block);
    }
  }

  static void put(
      const LossHeadShape& s,
      const WeightGradientTarget& target,
      int64_t word,
      int64_t words,
      const float* block) {
    for (int64_t v = 0; v < words; ++v) {
      for (int64_t c = 0; c < s.width; c += kLanes) {
        const int64_t at = (word + v) * s.width + c, count = s.width - c;
        __m512 value = load(block + v * s.padded_width + c);
        if (target.sum != nullptr) {
          if (!target.is_first) {
            value = _mm512_add_ps(value, load(target.sum + at, count));
          }
          if (target.result == nullptr) {
            store(target.sum + at, value, count);
          }
        }
        if (target.result != nullptr) {
          store(static_cast<Value*>(target.result) + at, value, count);
        }
      }
    }
  }
};

}  // namespace

const LossHeadLoops kLossHeadFloat{
    LossHead<Fma>::shape,
    LossHead<Fma>::forward,
    LossHead<Fma>::hidden_gradient,
    LossHead<Fma>::weight_gradient};
const LossHeadLoops kLossHeadBfloat16{
    LossHead<Dot>::shape,
    LossHead<Dot>::forward,
    LossHead<Dot>::hidden_gradient,
    LossHead<Dot>::weight_gradient};
const LossHeadLoops kLossHeadAmx{
    LossHead<Amx>::shape,
    LossHead<Amx>::forward,
    LossHead<Amx>::hidden_gradient,
    LossHead<Amx>::weight_gradient};

}  // namespace lockstep::ops::kernel

#endif  // __AVX512BF16__
