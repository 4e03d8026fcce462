// Counter-based dropout and noise: CPU loops, CUDA kernel, and an implementation with tensor
// operations.
#include "ops/dropout.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/vector.h"
#include "ops/cuda_loops.h"
#include "ops/host_copies.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::Longs;
using vector::Words;

constexpr int64_t kPositions = int64_t{1} << 24;  // exceeds all sequence lengths

/// Threshold for the 32 random bits, and scale factor of the retained elements.
struct Rate {
  uint32_t threshold;
  float scale;
};

Rate rate_of(double probability) {
  const double threshold = std::floor(probability * 0x1p32 + 0.5);
  return {static_cast<uint32_t>(threshold), static_cast<float>(1 / (1 - threshold * 0x1p-32))};
}

LOCKSTEP_INLINE uint32_t draw(uint64_t key, uint64_t element) {
  const uint64_t word = random_bits(key, element / 2);
  return static_cast<uint32_t>(element % 2 == 0 ? word : word >> 32);
}

/// Processes `count` adjacent elements, starting at the global element `first`.
template <class T>
struct Run {
  LOCKSTEP_INLINE static void run(
      const T* from, T* to, int64_t count, uint64_t key, uint64_t first, Rate rate) {
    int64_t i = 0;
    for (; i < count && (first + static_cast<uint64_t>(i)) % 2 != 0; ++i) {
      one(from, to, i, key, first, rate);
    }
    Longs counters = {0, 1, 2, 3, 4, 5, 6, 7};
    counters += (first + static_cast<uint64_t>(i)) / 2 + 0x9e3779b97f4a7c15ULL;
    for (; i + vector::kLanes <= count; i += vector::kLanes, counters += 8) {
      // A random word serves two elements. The low half comes first, which matches the order in
      // memory.
      const Words drawn = vector::same_bits<Words>(vector::mix(vector::mix(counters) ^ key));
      const Floats value = vector::load(from + i) * rate.scale;
      vector::store(to + i, drawn >= rate.threshold ? value : Floats{});
    }
    for (; i < count; ++i) {
      one(from, to, i, key, first, rate);
    }
  }
  LOCKSTEP_INLINE static void one(
      const T* from, T* to, int64_t i, uint64_t key, uint64_t first, Rate rate) {
    const bool kept = draw(key, first + static_cast<uint64_t>(i)) >= rate.threshold;
    vector::narrow(kept ? vector::widen(from[i]) * rate.scale : 0, to[i]);
  }
};

/// Divides the slice into runs of equal length that are contiguous in the whole tensor.
class Runs {
 public:
  Runs(at::IntArrayRef sizes, const DropoutRegion& region) {
    const auto dims = static_cast<int64_t>(sizes.size());
    sizes_ = sizes.vec();
    begin_.assign(sizes_.size(), 0);
    whole_ = sizes_;
    if (!region.whole.empty()) {
      check(region);
      std::copy(region.begin.begin(), region.begin.end(), begin_.begin() + 1);
      std::copy(region.whole.begin(), region.whole.end(), whole_.begin() + 1);
    }
    // All dimensions after the last sliced one are contiguous.
    last_ = 1;
    for (int64_t dim = 1; dim < dims; ++dim) {
      if (sizes_[static_cast<size_t>(dim)] != whole_[static_cast<size_t>(dim)]) {
        last_ = dim;
      }
    }
    for (int64_t dim = last_; dim < dims; ++dim) {
      length_ *= sizes_[static_cast<size_t>(dim)];
    }
  }
  int64_t length() const { return length_; }
  DropoutPlace place() const {
    DropoutPlace place{.dims = static_cast<int>(sizes_.size()) - 1};
    for (int dim = 0; dim < place.dims; ++dim) {
      const auto d = static_cast<size_t>(dim) + 1;
      place.size[dim] = sizes_[d];
      place.begin[dim] = begin_[d];
      place.whole[dim] = whole_[d];
    }
    return place;
  }
  /// Returns the row (index in the first dimension) of run `index`, and the run's first global
  /// element.
  std::pair<int64_t, uint64_t> start(int64_t index) const {
    uint64_t element = 0, stride = 1;
    for (auto dim = static_cast<int64_t>(sizes_.size()) - 1; dim >= 1; --dim) {
      const auto d = static_cast<size_t>(dim);
      int64_t position = begin_[d];
      if (dim < last_) {
        position += index % sizes_[d];
        index /= sizes_[d];
      }
      element += static_cast<uint64_t>(position) * stride;
      stride *= static_cast<uint64_t>(whole_[d]);
    }
    return {index, element};
  }

 private:
  void check(const DropoutRegion& region) const {
    bool good =
        region.whole.size() + 1 == sizes_.size() && region.begin.size() == region.whole.size();
    for (size_t i = 0; good && i < region.whole.size(); ++i) {
      good = region.begin[i] >= 0 && region.begin[i] + sizes_[i + 1] <= region.whole[i];
    }
    if (!good) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format(
              "invalid dropout region: a slice {} that begins at {} of a whole {}",
              fmt::join(sizes_, "x"),
              fmt::join(region.begin, ","),
              fmt::join(region.whole, "x")));
    }
  }
  std::vector<int64_t> sizes_, begin_, whole_;
  int64_t last_ = 1, length_ = 1;
};

bool has_cuda_dropout(const Tensor& x, bool has_firsts) {
  const auto type = x.scalar_type();
  return x.is_cuda() && cuda_loops().dropout != nullptr && !has_firsts && x.numel() > 0 &&
         x.dim() <= DropoutPlace::kMostDims + 1 &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

Tensor drop_by_cuda(const Tensor& x, Rate rate, const Tensor& keys, const Runs& runs) {
  const Tensor from = x.contiguous(), to = at::empty_like(from);
  cuda_loops().dropout(
      from, to, to_device(keys, x.device()), runs.place(), rate.threshold, rate.scale);
  return to;
}

/// Calls `function(begin, count, key, first)` on all threads for ranges of a CPU tensor that are
/// contiguous in the whole. `first` is the element index of position `begin`.
template <class Function>
void visit_runs(
    int64_t elements,
    const Tensor& keys,
    const Tensor& firsts,
    const Runs& runs,
    const Function& function) {
  const auto* row_keys = keys.const_data_ptr<int64_t>();
  const auto* row_firsts = firsts.defined() ? firsts.const_data_ptr<int64_t>() : nullptr;
  constexpr int64_t kGrain = 16384;
  at::parallel_for(0, elements, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t index = begin / runs.length(), skipped = begin % runs.length();
      const auto [row, start] = runs.start(index);
      const uint64_t first = start + static_cast<uint64_t>(skipped) +
                             (row_firsts != nullptr ? static_cast<uint64_t>(row_firsts[row]) : 0);
      int64_t count = std::min(runs.length() - skipped, end - begin);
      // Elements before the query's document have negative indices, which wrap to values near 2^64.
      // The kernel counts upwards from `first`, so the run is split at index 0.
      if (const uint64_t before_0 = 0 - first; before_0 < static_cast<uint64_t>(count)) {
        count = before_0 > 0 ? static_cast<int64_t>(before_0) : count;
      }
      function(begin, count, static_cast<uint64_t>(row_keys[row]), first);
      begin += count;
    }
  });
}

template <class T>
void drop_on_cpu(
    const Tensor& from,
    Tensor& to,
    Rate rate,
    const Tensor& keys,
    const Tensor& firsts,
    const Runs& runs) {
  const auto* in = static_cast<const T*>(from.const_data_ptr());
  auto* out = static_cast<T*>(to.mutable_data_ptr());
  const auto drop_run = [=](int64_t begin, int64_t count, uint64_t key, uint64_t first) {
    vector::dispatch<Run<T>>(in + begin, out + begin, count, key, first, rate);
  };
  visit_runs(from.numel(), keys, firsts, runs, drop_run);
}

Tensor drop(const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region) {
  if (has_cuda_dropout(x, region.first.defined())) {
    return drop_by_cuda(x, rate_of(probability), keys, Runs(x.sizes(), region));
  }
  const bool has_kernel =
      has_host_loops(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
  if (!has_kernel) {
    return dropout_by_tensors(x, probability, keys, region);
  }
  const Tensor from = x.contiguous();
  Tensor to = at::empty_like(from);
  if (from.numel() == 0) {
    return to;
  }
  const Runs runs(from.sizes(), region);
  const Rate rate = rate_of(probability);
  if (x.scalar_type() == at::kFloat) {
    drop_on_cpu<float>(from, to, rate, keys, region.first, runs);
  } else {
    drop_on_cpu<vector::Bfloat16>(from, to, rate, keys, region.first, runs);
  }
  return to;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      double probability,
      const Tensor& keys,
      const std::vector<int64_t>& begin,
      const std::vector<int64_t>& whole,
      const std::optional<Tensor>& first) {
    context->saved_data["probability"] = probability;
    context->saved_data["keys"] = keys;
    context->saved_data["begin"] = begin;
    context->saved_data["whole"] = whole;
    context->saved_data["first"] = first;
    return drop(x, probability, keys, {begin, whole, first.value_or(Tensor())});
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    auto& saved = context->saved_data;
    const DropoutRegion region{
        saved["begin"].toIntVector(),
        saved["whole"].toIntVector(),
        saved["first"].toOptional<Tensor>().value_or(Tensor())};
    return {
        drop(gradient[0], saved["probability"].toDouble(), saved["keys"].toTensor(), region),
        Tensor(),
        Tensor(),
        Tensor(),
        Tensor(),
        Tensor()};
  }
};

/// Returns the keys of `count` tokens, starting at position `first`. Positions beyond the end are
/// padding and get zero keys.
Tensor keys_from(const Tensor& keys, int64_t first, int64_t count) {
  const int64_t missing = std::max<int64_t>(first + count - keys.size(1), 0);
  return (missing > 0 ? at::constant_pad_nd(keys, {0, 0, 0, missing}) : keys)
      .narrow(1, first, count);
}

/// Logical right shift of int64 values that represent uint64.
Tensor shifted(const Tensor& x, int64_t bits) {
  return at::bitwise_and(
      at::bitwise_right_shift(x, bits), static_cast<int64_t>(~uint64_t{0} >> bits));
}

Tensor mix(Tensor x) {
  x = at::bitwise_xor(x, shifted(x, 30)) * static_cast<int64_t>(0xbf58476d1ce4e5b9ULL);
  x = at::bitwise_xor(x, shifted(x, 27)) * static_cast<int64_t>(0x94d049bb133111ebULL);
  return at::bitwise_xor(x, shifted(x, 31));
}

/// Tensor [B, ...] with one key per row, and its position in the whole.
struct KeyedRows {
  Tensor x, keys;
  DropoutRegion region;
};

/// Applies `function` to chunks of rows. This limits the memory of the six int64 tensors that
/// draws_of() needs.
template <class Function>
Tensor in_chunks(const KeyedRows& all, const Function& function) {
  constexpr int64_t kElements = int64_t{1} << 24;
  const Tensor& x = all.x;
  if (x.numel() == 0) {
    return x.clone();
  }
  const int64_t most = std::max<int64_t>(kElements / (x.numel() / x.size(0)), 1);
  if (most >= x.size(0)) {
    return function(all);
  }
  const Tensor out = at::empty(x.sizes(), x.options());
  for (int64_t row = 0; row < x.size(0); row += most) {
    const int64_t count = std::min(most, x.size(0) - row);
    const auto cut = [&](const Tensor& of_rows) {
      return of_rows.defined() ? of_rows.narrow(0, row, count) : Tensor();
    };
    const DropoutRegion region{all.region.begin, all.region.whole, cut(all.region.first)};
    out.narrow(0, row, count).copy_(function(KeyedRows{cut(x), cut(all.keys), region}));
  }
  return out;
}

/// Returns the 32 random bits of each element, int64 with the shape of x.
Tensor draws_of(const KeyedRows& rows_of_keys) {
  const auto& [x, keys, region] = rows_of_keys;
  const Runs runs(x.sizes(), region);
  const int64_t rows = x.size(0), per_row = x.numel() / rows / runs.length();
  // Global index of each element of a row: start of its run plus position in the run.
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < per_row; ++i) {
    starts.push_back(static_cast<int64_t>(runs.start(i).second));
  }
  const auto longs = at::TensorOptions().dtype(at::kLong);
  Tensor element = (to_device(at::tensor(starts, longs), x.device()).unsqueeze(1) +
                    at::arange(runs.length(), longs.device(x.device())))
                       .flatten();  // [elements of a row], or [B, ...] if rows have an offset
  if (region.first.defined()) {
    element = element + to_device(region.first, x.device()).unsqueeze(1);
  }
  const Tensor counter = mix(shifted(element, 1) + static_cast<int64_t>(0x9e3779b97f4a7c15ULL));
  const Tensor word = mix(at::bitwise_xor(
      counter, to_device(keys, x.device()).unsqueeze(1)));  // [B, elements of a row]
  const Tensor is_odd = at::bitwise_and(element, 1).to(at::kBool);
  const Tensor half =
      at::where(is_odd, shifted(word, 32), at::bitwise_and(word, int64_t{0xffffffff}));
  return half.view(x.sizes());
}

/// Returns uniform numbers in [-1, 1), float32 with the shape of x: the upper 24 of the random
/// bits.
Tensor units_of(const KeyedRows& rows) {
  const Tensor& x = rows.x;
  if (!x.is_cpu()) {
    return draws_of(rows).bitwise_right_shift(8).to(at::kFloat) * 0x1p-23 - 1;
  }
  Tensor units = at::empty(x.sizes(), at::kFloat);
  auto* out = units.mutable_data_ptr<float>();
  const auto fill = [=](int64_t begin, int64_t count, uint64_t key, uint64_t first) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = draw(key, first + static_cast<uint64_t>(i)) >> 8;
      out[begin + i] = static_cast<float>(bits) * 0x1p-23F - 1;
    }
  };
  visit_runs(x.numel(), rows.keys, rows.region.first, Runs(x.sizes(), rows.region), fill);
  return units;
}

/// Returns the rows of tokens [B, T, C]: rows of the batch with one key each, or [B T, C] with one
/// key per token.
KeyedRows rows_of_tokens(const Tensor& x, const Tensor& keys, const DropoutRegion& region) {
  if (!are_of_tokens(keys)) {
    return {x, keys, region};
  }
  const int64_t position = region.begin.empty() ? 0 : region.begin[0];
  const int64_t column = region.begin.empty() ? 0 : region.begin[1];
  const int64_t columns = region.whole.empty() ? x.size(2) : region.whole[1];
  const Tensor own = keys_from(keys, position, x.size(1));
  return {
      x.flatten(0, 1),
      own.select(2, 0).flatten().contiguous(),
      {{column}, {columns}, own.select(2, 1).flatten() * columns}};
}

}  // namespace

Tensor dropout_by_tensors(
    const Tensor& whole, double probability, const Tensor& keys, const DropoutRegion& region) {
  const Rate rate = rate_of(probability);
  return in_chunks({whole, keys, region}, [&](const KeyedRows& rows) {
    const Tensor& x = rows.x;
    const Tensor kept = draws_of(rows) >= static_cast<int64_t>(rate.threshold);
    const bool is_double = x.scalar_type() == at::kDouble;
    const Tensor scaled =
        (x.to(is_double ? at::kDouble : at::kFloat) * rate.scale).to(x.scalar_type());
    return at::where(kept, scaled, at::zeros({}, x.options()));
  });
}

DropoutRegion probabilities_region(
    int64_t first_head, int64_t first_query, int64_t first_key, int64_t total_heads) {
  return {{first_head, first_query, first_key}, {total_heads, kPositions, kPositions}};
}

Tensor dropout(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region) {
  if (!(probability >= 0 && probability < 1)) {
    throw Error(
        ErrorKind::kInternal, fmt::format("dropout probability {} is not in [0, 1)", probability));
  }
  if (probability == 0) {
    return x;
  }
  if (!keys.defined() || keys.scalar_type() != at::kLong ||
      (!keys.is_cpu() && keys.device() != x.device()) || !keys.is_contiguous() || x.dim() < 2 ||
      keys.numel() != x.size(0)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "dropout requires one int64 key, on the CPU or the tensor's device, for each of {} "
            "rows",
            x.dim() > 0 ? x.size(0) : 0));
  }
  return DropoutFunction::apply(
      x,
      probability,
      keys,
      region.begin,
      region.whole,
      region.first.defined() ? std::optional(region.first) : std::nullopt);
}

Tensor dropout_of_tokens(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region) {
  const KeyedRows rows = rows_of_tokens(x, keys, region);
  return dropout(rows.x, probability, rows.keys, rows.region).view(x.sizes());
}

Tensor add_noise_to_tokens(
    const Tensor& x, double bound, const Tensor& keys, const DropoutRegion& region) {
  const Tensor noise =
      in_chunks(rows_of_tokens(x.detach(), keys, region), [&](const KeyedRows& rows) {
        const at::ScalarType type = rows.x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
        return (units_of(rows).to(type) * bound).to(rows.x.scalar_type());
      });
  return x + noise.view(x.sizes());
}

Tensor dropout_of_probabilities(
    const Tensor& x, double probability, const Tensor& keys, const ProbabilitiesPlace& place) {
  const int64_t heads = place.heads > 0 ? place.heads : x.size(1);
  if (!are_of_tokens(keys)) {
    return dropout(
        x, probability, keys, probabilities_region(place.head, place.query, place.key, heads));
  }
  const Tensor own = keys_from(keys, place.query, x.size(2));  // [B, T, 2]
  const Tensor in_document = own.select(2, 1).unsqueeze(1);    // [B, 1, T]
  const Tensor start =
      at::arange(place.query, place.query + x.size(2), keys.options()) - in_document;
  const Tensor head =
      at::arange(place.head, place.head + x.size(1), keys.options()).view({1, -1, 1});
  const Tensor first = (head * kPositions + in_document) * kPositions + place.key - start;
  return dropout(
             x.flatten(0, 2),
             probability,
             own.select(2, 0).unsqueeze(1).expand_as(first).flatten().contiguous(),
             {{0}, {x.size(3)}, first.flatten()})
      .view(x.sizes());
}

}  // namespace lockstep::ops
