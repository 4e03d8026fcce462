// Adam-mini with block-wise second moments for sharded parameters.
#include "optim/adam_mini.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "optim/matrix_places.h"
#include "optim/parts.h"

namespace lockstep::optim {
namespace {

/// Blocks of one parameter, whose elements may be in several shards.
struct Blocks {
  int64_t count = 1;
  int64_t neighbours = 1;  // number of rows or columns per block of a matrix
  bool by_columns = false;
  double elements = 0;  // number of elements per block
  MatrixPlaces places;
  bool is_matrix = false;
  at::Tensor squares;  // [count]: second moments

  /// Returns the block of each of `some` elements of this rank's slice. A vector is a single block.
  at::Tensor of(int64_t first, int64_t some) const {
    const auto [row, column] = places.of(first, some);
    return at::div(by_columns ? column : row, neighbours, "floor");
  }
};

class AdamMini final : public Optimizer {
 public:
  explicit AdamMini(const OptimizerOptions& options) : Optimizer(options) {}

  void visit_state(int64_t index, const StateVisitor& visit) override {
    visit_elements(index, "exp_avg", means_.at(static_cast<size_t>(index)), visit);
    for (const Segment& segment : shard(index).layout) {
      const Blocks& blocks = blocks_.at(segment.parameter);
      visit({"exp_avg_sq", segment.parameter, {blocks.count}, 0, blocks.squares, true});
    }
  }
  bool looks_ahead() const override { return true; }
  double state_bytes_per_element() const override {
    return 4;
  }  // the second moments of the blocks are negligible

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    const auto floats = at::TensorOptions(shard.parameter.device()).dtype(at::kFloat);
    means_.push_back(at::zeros({shard.parameter.numel()}, floats));
    for (const Segment& segment : shard.layout) {
      Blocks blocks = blocks_of(segment, shard.parameter.device());
      blocks.squares = at::zeros({blocks.count}, floats);
      if (!blocks_.emplace(segment.parameter, std::move(blocks)).second) {
        throw Error(
            ErrorKind::kInternal, fmt::format("Adam-mini: {} is in two shards", segment.parameter));
      }
    }
  }

  void prepare(double gradient_scale) override {
    const at::NoGradGuard no_grad;
    if (size() == 0) {
      return;
    }
    // The sums of all blocks share one buffer, so that one reduction is sufficient.
    int64_t total = 0;
    std::map<std::string, int64_t> offsets;
    for (const auto& [name, blocks] : blocks_) {
      offsets[name] = total;
      total += blocks.count;
    }
    at::Tensor sums =
        at::zeros({total}, at::TensorOptions(shard(0).parameter.device()).dtype(at::kFloat));
    for (int64_t index = 0; index < size(); ++index) {
      for (const Segment& segment : shard(index).layout) {
        const Blocks& blocks = blocks_.at(segment.parameter);
        const at::Tensor own = sums.narrow(0, offsets.at(segment.parameter), blocks.count);
        visit_runs(shard(index), segment, [&](int64_t at, int64_t count) {
          const at::Tensor squares = shard(index)
                                         .gradient.narrow(0, segment.offset + at, count)
                                         .to(at::kFloat)
                                         .mul(gradient_scale)
                                         .square_()
                                         .mul_(segment.share);
          if (blocks.is_matrix) {
            own.index_add_(0, blocks.of(segment.begin + at, count), squares);
          } else {
            own.add_(squares.sum());
          }
        });
      }
    }
    reduce_over_shards(sums);
    for (auto& [name, blocks] : blocks_) {
      blocks.squares.mul_(options().adam_beta2)
          .add_(
              sums.narrow(0, offsets.at(name), blocks.count),
              (1 - options().adam_beta2) / blocks.elements);
    }
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const bool has_master = shard.master.defined() && !shard.master.is_same(shard.parameter);
    const at::Tensor& weights = has_master ? shard.master : shard.parameter;
    const auto step = static_cast<double>(steps());
    const double beta1 = options().adam_beta1;
    const double of_mean = 1 - std::pow(beta1, step);
    const double of_squares = std::sqrt(1 - std::pow(options().adam_beta2, step));
    for (const Segment& segment : shard.layout) {
      const Blocks& blocks = blocks_.at(segment.parameter);
      const double rate = learning_rate * segment.rule.learning_rate;
      const double decay = segment.rule.weight_decay.value_or(options().weight_decay);
      const at::Tensor divisor =
          blocks.squares.sqrt().div_(of_squares).add_(options().adam_epsilon).mul_(of_mean);
      visit_runs(shard, segment, [&](int64_t at, int64_t count) {
        const int64_t place = segment.offset + at;
        const at::Tensor weight = weights.narrow(0, place, count);
        const at::Tensor mean = means_.at(static_cast<size_t>(index)).narrow(0, place, count);
        const at::Tensor gradient = shard.gradient.narrow(0, place, count).to(at::kFloat);
        mean.mul_(beta1).add_(gradient, (1 - beta1) * gradient_scale);
        weight.mul_(1 - rate * decay);
        weight.addcdiv_(
            mean,
            blocks.is_matrix ? divisor.index_select(0, blocks.of(segment.begin + at, count))
                             : divisor,
            -rate);
        if (has_master) {
          shard.parameter.narrow(0, place, count).copy_(weight);
        }
      });
    }
  }

 private:
  static Blocks blocks_of(const Segment& segment, at::Device device) {
    const std::vector<int64_t>& whole = whole_shape(segment);
    Blocks blocks;
    blocks.elements = 1;
    for (const int64_t dim : whole) {
      blocks.elements *= static_cast<double>(dim);
    }
    if (whole.size() != 2) {
      return blocks;
    }
    blocks.is_matrix = true;
    blocks.places = MatrixPlaces(segment, device);
    blocks.by_columns = segment.rule.block_by_columns;
    blocks.neighbours = std::max<int64_t>(segment.rule.block, 1);
    const int64_t along = whole[blocks.by_columns ? 1 : 0];
    blocks.count = (along + blocks.neighbours - 1) / blocks.neighbours;
    blocks.elements /= static_cast<double>(blocks.count);
    return blocks;
  }

  /// Calls visit(at, count) for chunks of a segment's elements; `at` is relative to the segment's
  /// first element.
  template <class Visit>
  static void visit_runs(const Shard& shard, const Segment& segment, const Visit& visit) {
    const int64_t most = elements_of_run(shard.parameter);
    for (int64_t at = 0; at < segment.count; at += most) {
      visit(at, std::min(most, segment.count - at));
    }
  }

  std::map<std::string, Blocks> blocks_;  // sorted, so that the order is the same on every rank
  std::vector<at::Tensor> means_;         // [n] first moments of each shard
};

}  // namespace

std::unique_ptr<Optimizer> make_adam_mini(const OptimizerOptions& options) {
  return std::make_unique<AdamMini>(options);
}

}  // namespace lockstep::optim
