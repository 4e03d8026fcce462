// Checksum verification of matrix products (ABFT) on the CPU.
#include "ops/checked_products.h"

#include <atomic>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/log.h"

namespace lockstep::ops {
namespace {

std::atomic<bool> is_on{false};
std::atomic<int64_t> wrong{0};

/// Tolerances as multiples of the expected sum of independent rounding errors. Larger deviations
/// cannot be rounding.
constexpr double kRounded = 8, kSummed = 32;

/// Returns the unit roundoff: half of the distance from 1 to the next larger number.
double unit_of(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-9
         : type == at::kHalf   ? 0x1p-12
         : type == at::kDouble ? 0x1p-53
                               : 0x1p-24;
}

Tensor bytes_of(const Tensor& x) {
  return x.contiguous().view(at::kByte);
}

std::string told(const OddRow& odd, const Tensor& left, const Tensor& right) {
  return fmt::format(
      "matrix product of [{}, {}] with [{}, {}]: row {} sums to {:.9g} instead of {:.9g}",
      left.size(0),
      left.size(1),
      right.size(0),
      right.size(1),
      odd.row,
      odd.sum,
      odd.expected);
}

}  // namespace

void check_products(bool on) {
  is_on = on;
}

bool checks_products() {
  return is_on;
}

int64_t wrong_products() {
  return wrong;
}

std::optional<OddRow> find_odd_row(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& bias) {
  if (result.numel() == 0 || left.numel() == 0) {
    return std::nullopt;
  }
  const at::NoGradGuard no_grad;
  const auto type = result.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto norms = [type](const Tensor& x) {
    return at::linalg_vector_norm(x, 2, 1, false, type);
  };
  const Tensor of_right = right.sum(1, false, type);  // [k]
  const Tensor sums = result.sum(1, false, type);     // [m]
  Tensor expected = at::mv(left.to(type), of_right);
  // `longest` is an upper bound for the norm of a row of a correct result.
  const Tensor of_left = norms(left);
  const Tensor right_norm = at::linalg_vector_norm(right, 2, std::nullopt, false, type);
  Tensor longest = of_left * right_norm;
  if (bias.defined()) {
    expected.add_(bias.sum(type));
    longest.add_(at::linalg_vector_norm(bias, 2, std::nullopt, false, type));
  }
  const Tensor tolerance = at::fmin(norms(result), longest)
                               .mul_(kRounded * unit_of(result.scalar_type()))
                               .add_(
                                   of_left * (right_norm + at::linalg_vector_norm(of_right)) *
                                   (kSummed * unit_of(type)));
  const Tensor off = (sums - expected).abs();
  const Tensor is_odd =
      off.le(tolerance).logical_not_().logical_and_(expected.isfinite() & tolerance.isfinite());
  if (!is_odd.any().item<bool>()) {
    return std::nullopt;
  }
  // NaN is treated as the largest deviation.
  const Tensor far = at::where(is_odd, off.nan_to_num(std::numeric_limits<float>::infinity()), -1);
  const auto row = far.argmax().item<int64_t>();
  const auto at_row = [row](const Tensor& x) { return x[row].item<double>(); };
  return OddRow{row, at_row(sums), at_row(expected), at_row(tolerance)};
}

void check_product(
    const Tensor& result,
    const Tensor& left,
    const Tensor& right,
    const Tensor& bias,
    const std::function<void()>& again) {
  if (!is_on || !result.device().is_cpu()) {
    return;
  }
  const auto odd = find_odd_row(result, left, right, bias);
  if (!odd) {
    return;
  }
  const Tensor first = result.clone();
  again();
  if (const auto still = find_odd_row(result, left, right, bias); !still) {
    ++wrong;
    log_warning(
        "{}; computed again it is correct, and that result is used. The processor or memory of "
        "this machine is faulty: run `lockstep doctor` and a memory test",
        told(*odd, left, right));
  } else if (at::equal(bytes_of(result), bytes_of(first))) {
    log_warning(
        "{}; computed again it has the same bits and is used: unusual rounding, or a reproducible "
        "processor error",
        told(*odd, left, right));
  } else {
    throw Error(
        ErrorKind::kNumeric,
        fmt::format(
            "{}; computed again it differs and is still wrong: the processor or memory of this "
            "machine is faulty",
            told(*still, left, right)),
        "exclude this machine and resume from the last checkpoint");
  }
}

}  // namespace lockstep::ops
