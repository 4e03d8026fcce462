// Random initial values of parameters, by name and global element index.
#include "nn/initialize.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "ops/normal_draws.h"

namespace lockstep::nn {
namespace {

constexpr int64_t kGrain = 1 << 15;  // minimum number of elements per thread

/// Generates normal samples for the elements [begin, begin + count).
void draw_normal(uint64_t key, double deviation, int64_t begin, int64_t count, float* out) {
  at::parallel_for(0, count, kGrain, [&](int64_t first, int64_t last) {
    ops::draw_normal(key, static_cast<float>(deviation), begin + first, last - first, out + first);
  });
}

/// Generates uniform samples in [-bound, bound). Each element is derived from its own random word.
void draw_uniform(uint64_t key, double bound, int64_t begin, int64_t count, float* out) {
  const auto width = static_cast<float>(2 * bound);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = (random_uniform(key, static_cast<uint64_t>(begin + i)) - 0.5F) * width;
  }
}

}  // namespace

void fill_initial(
    Tensor slice, const model::ParameterSpec& parameter, uint64_t seed, int64_t begin) {
  const at::NoGradGuard no_gradient;
  const int64_t count = slice.numel();
  if (!slice.is_contiguous() || begin < 0 || begin + count > parameter.elements()) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "{} elements from index {} exceed {}, which has {}",
            count,
            begin,
            parameter.name,
            parameter.elements()));
  }
  using Kind = model::Initialization::Kind;
  // Constants need no random numbers.
  const bool is_even = parameter.init.kind == Kind::kZeros ||
                       (parameter.init.kind == Kind::kNormal && parameter.init.deviation == 0);
  if (is_even || parameter.init.kind == Kind::kOnes) {
    slice.fill_(is_even ? 0 : 1);
    return;
  }
  if (count == 0 || slice.is_meta()) {
    return;
  }
  // Chunk size. On the CPU, a chunk stays in the cache until it is rounded; on a device, it is
  // large enough for an efficient copy.
  const int64_t most = slice.is_cpu() ? kGrain : int64_t{1} << 22;
  const bool is_direct = slice.is_cpu() && slice.scalar_type() == at::kFloat;
  const uint64_t key = derive_key(seed, hash_name(parameter.name));
  const auto draw = parameter.init.kind == Kind::kNormal ? draw_normal : draw_uniform;
  Tensor flat = slice.view({-1});
  const auto fill = [&](int64_t first, int64_t last) {
    const at::NoGradGuard no_gradient_here;
    const Tensor drawn = is_direct ? flat : at::empty({std::min(most, last - first)}, at::kFloat);
    for (int64_t at = first; at < last; at += most) {
      const int64_t some = std::min(most, last - at);
      const Tensor part = drawn.narrow(0, is_direct ? at : 0, some);
      draw(key, parameter.init.deviation, begin + at, some, part.mutable_data_ptr<float>());
      if (!is_direct) {
        flat.narrow(0, at, some).copy_(part);
      }
    }
  };
  if (slice.is_cpu()) {
    at::parallel_for(0, count, kGrain, fill);
  } else {
    fill(0, count);
  }
  if (parameter.init.zero_row >= 0) {
    const int64_t width = parameter.elements() / parameter.shape.at(0);
    const int64_t first = std::max(parameter.init.zero_row * width - begin, int64_t{0});
    const int64_t last = std::min((parameter.init.zero_row + 1) * width - begin, count);
    if (first < last) {
      flat.narrow(0, first, last - first).zero_();
    }
  }
}

void initialize(LanguageModel& model, uint64_t seed) {
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    fill_initial(parameter, model.specs.at(name), seed);
  });
}

void initialize_new_rows(
    Tensor embedding, const model::ParameterSpec& spec, int64_t old_vocabulary, uint64_t seed) {
  const int64_t added = embedding.size(0) - old_vocabulary, width = embedding.size(1);
  if (added <= 0) {
    return;
  }
  if (old_vocabulary < 1) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("the old vocabulary of {} tokens is invalid", old_vocabulary));
  }
  const at::NoGradGuard no_gradient;
  const Tensor mean = embedding.narrow(0, 0, old_vocabulary).to(at::kFloat).mean(0);
  Tensor rows = embedding.narrow(0, old_vocabulary, added);
  Tensor noise = at::empty({added, width}, rows.options().dtype(at::kFloat));
  fill_initial(noise, spec, seed, old_vocabulary * width);
  rows.copy_(noise + mean);
}

void initialize_new_rows(LanguageModel& model, int64_t old_vocabulary, uint64_t seed) {
  const std::string embedding = model::embedding_name(model.config());
  const std::string head = model::head_name(model.config());
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    if (name == embedding || name == head) {
      initialize_new_rows(parameter, model.specs.at(name), old_vocabulary, seed);
    }
  });
}

}  // namespace lockstep::nn
