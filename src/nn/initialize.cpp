#include "nn/initialize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"

namespace lockstep::nn {
namespace {

/// Normal draws of the elements [begin, begin + count): elements 2i and 2i + 1 are a pair of Box
/// and Muller's (1958) from the two halves of word i.
void draw_normal(uint64_t key, double deviation, int64_t begin, int64_t count, float* out) {
  constexpr int64_t kGrain = 8192;
  at::parallel_for(0, count, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto element = static_cast<uint64_t>(begin + i);
      const uint64_t word = random_bits(key, element / 2);
      const float u = (static_cast<float>(word >> 40) + 0.5F) * 0x1p-24F;
      const float turn = static_cast<float>((word >> 8) & 0xffffffU) * 0x1p-24F;
      const float angle = 2 * std::numbers::pi_v<float> * turn;
      const float radius = std::sqrt(-2 * std::log(u)) * static_cast<float>(deviation);
      out[i] = radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
      if (element % 2 == 0 && i + 1 < last) {
        out[++i] = radius * std::sin(angle);
      }
    }
  });
}

/// Uniform draws between -bound and bound: an element's word gives its number.
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
            "{} elements from {} on of {}, which has {}",
            count,
            begin,
            parameter.name,
            parameter.elements()));
  }
  using Kind = model::Initialization::Kind;
  // Numbers without deviation are zeros, and need not be drawn.
  const bool is_even = parameter.init.kind == Kind::kZeros ||
                       (parameter.init.kind == Kind::kNormal && parameter.init.deviation == 0);
  if (is_even || parameter.init.kind == Kind::kOnes) {
    slice.fill_(is_even ? 0 : 1);
    return;
  }
  if (count == 0 || slice.is_meta()) {
    return;
  }
  // A part at a time, so that a large parameter needs no float32 copy of itself.
  constexpr int64_t kPart = int64_t{1} << 22;
  const bool is_direct = slice.device().is_cpu() && slice.scalar_type() == at::kFloat;
  const uint64_t key = derive_key(seed, hash_name(parameter.name));
  Tensor flat = slice.view({-1});
  for (int64_t done = 0; done < count; done += kPart) {
    const int64_t some = std::min(kPart, count - done);
    Tensor to = flat.narrow(0, done, some);
    Tensor drawn = is_direct ? to : at::empty({some}, at::kFloat);
    const auto draw = parameter.init.kind == Kind::kNormal ? draw_normal : draw_uniform;
    draw(key, parameter.init.deviation, begin + done, some, drawn.mutable_data_ptr<float>());
    if (!is_direct) {
      to.copy_(drawn);
    }
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
        ErrorKind::kInternal, fmt::format("a vocabulary that had {} tokens", old_vocabulary));
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
