// Adafactor with factored second moments for sharded parameters.
#include "optim/adafactor.h"

#include <cmath>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "optim/matrix_places.h"
#include "optim/parts.h"

namespace lockstep::optim {
namespace {

constexpr double kEpsilon = 1e-30;  // added to the squared gradients
constexpr double kDecayRate = 0.8;
constexpr double kClip = 1.0;  // maximum root mean square of an update

/// Factored moments of one parameter, whose elements may be in several shards.
struct FactoredMoments {
  int64_t rows = 0, columns = 0;  // matrix dimensions; 0 for a vector
  int64_t elements = 0;
  MatrixPlaces places;
  at::Tensor row, column;  // [R], [C]: means of squares; only for matrices
  at::Tensor clip;         // []: clipping factor of this step's update
};

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const OptimizerOptions& options) : Optimizer(options) {}

  void visit_state(int64_t index, const StateVisitor& visit) override {
    const Shard& shard = this->shard(index);
    for (const Segment& segment : shard.layout) {
      const FactoredMoments& moments = moments_.at(segment.parameter);
      if (moments.rows == 0) {
        visit(
            {"exp_avg_sq",
             segment.parameter,
             segment.shape,
             segment.begin,
             vectors_.at(segment.parameter)});
        continue;
      }
      visit({"exp_avg_sq_row", segment.parameter, {moments.rows}, 0, moments.row, true});
      visit({"exp_avg_sq_col", segment.parameter, {moments.columns}, 0, moments.column, true});
    }
  }
  bool looks_ahead() const override { return true; }
  double state_bytes_per_element() const override {
    return 0;
  }  // the row and column means are negligible

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    const auto type = at::TensorOptions(shard.parameter.device()).dtype(at::kFloat);
    for (const Segment& segment : shard.layout) {
      FactoredMoments moments;
      moments.elements = 1;
      const std::vector<int64_t>& whole = whole_shape(segment);
      for (const int64_t dim : whole) {
        moments.elements *= dim;
      }
      if (segment.shape.size() == 2) {
        moments.rows = whole[0];
        moments.columns = whole[1];
        moments.places = MatrixPlaces(segment, shard.parameter.device());
        moments.row = at::zeros({moments.rows}, type);
        moments.column = at::zeros({moments.columns}, type);
      } else if (segment.shape.size() < 2) {
        vectors_[segment.parameter] = at::zeros({segment.count}, type);
      } else {
        throw Error(
            ErrorKind::kInternal,
            fmt::format(
                "Adafactor does not support parameters with {} dims", segment.shape.size()));
      }
      if (!moments_.emplace(segment.parameter, std::move(moments)).second) {
        throw Error(
            ErrorKind::kInternal, fmt::format("Adafactor: {} is in two shards", segment.parameter));
      }
    }
  }

  void prepare(double gradient_scale) override {
    const at::NoGradGuard no_grad;
    if (size() == 0) {
      return;
    }
    update_moments(gradient_scale);
    find_clips(gradient_scale);
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const bool has_master = shard.master.defined() && !shard.master.is_same(shard.parameter);
    const at::Tensor& weight = has_master ? shard.master : shard.parameter;
    for (const Segment& segment : shard.layout) {
      const double rate = learning_rate * segment.rule.learning_rate;
      const double decay = segment.rule.weight_decay.value_or(options().weight_decay);
      for_each_run(shard, segment, gradient_scale, [&](int64_t at, const at::Tensor& gradient) {
        const at::Tensor part = weight.narrow(0, segment.offset + at, gradient.numel());
        const at::Tensor update =
            update_of(segment, at, gradient).mul_(moments_.at(segment.parameter).clip);
        part.mul_(1 - rate * decay);
        part.sub_(update, rate);
        if (has_master) {
          shard.parameter.narrow(0, segment.offset + at, gradient.numel()).copy_(part);
        }
      });
    }
  }

 private:
  /// Calls visit(at, g) for chunks of a segment's scaled gradient in float32; `at` is relative to
  /// the segment's first element.
  template <class Visit>
  void for_each_run(
      const Shard& shard, const Segment& segment, double gradient_scale, const Visit& visit) const {
    const int64_t most = elements_of_run(shard.gradient);
    for (int64_t at = 0; at < segment.count; at += most) {
      const int64_t count = std::min(most, segment.count - at);
      visit(
          at,
          shard.gradient.narrow(0, segment.offset + at, count).to(at::kFloat).mul(gradient_scale));
    }
  }

  void update_moments(double gradient_scale) {
    const double beta = 1 - std::pow(static_cast<double>(steps()), -kDecayRate);
    // The sums of all rows and columns share one buffer, so that one reduction is sufficient.
    int64_t total = 0;
    std::map<std::string, int64_t> offsets;
    for (const auto& [name, moments] : moments_) {
      offsets[name] = total;
      total += moments.rows + moments.columns;
    }
    at::Tensor sums = at::zeros({total}, float_options());
    for (int64_t index = 0; index < size(); ++index) {
      for (const Segment& segment : shard(index).layout) {
        const FactoredMoments& moments = moments_.at(segment.parameter);
        for_each_run(
            shard(index), segment, gradient_scale, [&](int64_t at, const at::Tensor& gradient) {
              at::Tensor squares = gradient.square().add_(kEpsilon);
              if (moments.rows == 0) {
                vectors_.at(segment.parameter)
                    .narrow(0, at, squares.numel())
                    .mul_(beta)
                    .add_(squares, 1 - beta);
                return;
              }
              const auto [row, column] = moments.places.of(segment.begin + at, squares.numel());
              const int64_t offset = offsets.at(segment.parameter);
              squares.mul_(segment.share);
              sums.narrow(0, offset, moments.rows).index_add_(0, row, squares);
              sums.narrow(0, offset + moments.rows, moments.columns).index_add_(0, column, squares);
            });
      }
    }
    reduce_over_shards(sums);
    for (auto& [name, moments] : moments_) {
      if (moments.rows > 0) {
        const int64_t offset = offsets.at(name);
        moments.row.mul_(beta).add_(
            sums.narrow(0, offset, moments.rows),
            (1 - beta) / static_cast<double>(moments.columns));
        moments.column.mul_(beta).add_(
            sums.narrow(0, offset + moments.rows, moments.columns),
            (1 - beta) / static_cast<double>(moments.rows));
      }
    }
  }

  /// Returns g / sqrt(v), before clipping.
  at::Tensor update_of(const Segment& segment, int64_t at, const at::Tensor& gradient) const {
    const FactoredMoments& moments = moments_.at(segment.parameter);
    if (moments.rows == 0) {
      return vectors_.at(segment.parameter).narrow(0, at, gradient.numel()).rsqrt().mul_(gradient);
    }
    const auto [row, column] = moments.places.of(segment.begin + at, gradient.numel());
    const at::Tensor of_rows = moments.row.div(moments.row.mean()).rsqrt_();
    return of_rows.index_select(0, row)
        .mul_(moments.column.rsqrt().index_select(0, column))
        .mul_(gradient);
  }

  void find_clips(double gradient_scale) {
    at::Tensor squares = at::zeros({static_cast<int64_t>(moments_.size())}, float_options());
    std::map<std::string, int64_t> places_of;
    for (const auto& [name, moments] : moments_) {
      places_of.emplace(name, static_cast<int64_t>(places_of.size()));
    }
    for (int64_t index = 0; index < size(); ++index) {
      for (const Segment& segment : shard(index).layout) {
        for_each_run(
            shard(index), segment, gradient_scale, [&](int64_t at, const at::Tensor& gradient) {
              squares[places_of.at(segment.parameter)].add_(
                  update_of(segment, at, gradient).square().sum(), segment.share);
            });
      }
    }
    reduce_over_shards(squares);
    for (auto& [name, moments] : moments_) {
      const at::Tensor rms =
          squares[places_of.at(name)].div(static_cast<double>(moments.elements)).sqrt();
      moments.clip = rms.div(kClip).clamp_min(1.0).reciprocal();
    }
  }

  at::TensorOptions float_options() {
    return at::TensorOptions(shard(0).parameter.device()).dtype(at::kFloat);
  }

  std::map<std::string, FactoredMoments> moments_;  // sorted, so that the order is the same on
                                                    // every rank
  /// [count]: second moments of this rank's slice of each vector.
  std::map<std::string, at::Tensor> vectors_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const OptimizerOptions& options) {
  return std::make_unique<Adafactor>(options);
}

}  // namespace lockstep::optim
