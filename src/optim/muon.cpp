// Muon optimizer with Newton-Schulz orthogonalization of sharded matrices.
#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "base/processor.h"
#include "ops/adamw.h"
#include "ops/newton_schulz.h"
#include "optim/matrix_places.h"
#include "optim/parts.h"

namespace lockstep::optim {
namespace {

// Jordan's coefficients, which give the steepest slope at 0 for which singular values stay near 1.
constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;
constexpr double kLeastNorm = 1e-7;

/// Returns true if bfloat16 products are faster than float32 products on the device.
bool multiplies_bfloat16(c10::Device device) {
  return !device.is_cpu() || instruction_set() >= InstructionSet::kAvx512Bfloat16;
}

class Muon : public Optimizer {
 public:
  explicit Muon(const OptimizerOptions& options) : Optimizer(options) {}

  bool looks_ahead() const override { return true; }
  double state_bytes_per_element() const override { return 2 * sizeof(float); }

  void visit_state(int64_t index, const StateVisitor& visit) override {
    for (const Segment& segment : shard(index).layout) {
      const auto give = [&](const char* name, at::Tensor State::* of) {
        const at::Tensor part =
            segment.count > 0 ? part_of(index, segment, of) : at::empty({0}, at::kFloat);
        visit({name, segment.parameter, segment.shape, segment.begin, part});
      };
      if (segment.rule.whole_matrix) {
        give("momentum_buffer", &State::momentum);
      } else {
        give("exp_avg", &State::exp_avg);
        give("exp_avg_sq", &State::exp_avg_sq);
      }
    }
  }

 protected:
  void make_state(int64_t index, const Shard& shard) override {
    for (const Segment& segment : shard.layout) {
      if (segment.rule.whole_matrix && segment.shape.size() != 2) {
        throw Error(
            ErrorKind::kInternal,
            fmt::format(
                "Muon does not support {}, which has {} dims",
                segment.parameter,
                segment.shape.size()));
      }
    }
    std::vector<State>& states = states_.emplace_back();
    for (const Run& run : runs(index)) {
      const auto zeros = [&] {
        return at::zeros(
            {run.end - run.begin}, at::TensorOptions(shard.parameter.device()).dtype(at::kFloat));
      };
      states.push_back(
          rule_of(run).whole_matrix ? State{run, zeros(), {}, {}}
                                    : State{run, {}, zeros(), zeros()});
    }
  }

  /// Updates the momentum and overwrites the gradients of the matrices with their updates.
  void prepare(double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const MuonOptions& muon = options().muon;
    std::vector<MatrixPiece> pieces;
    for (int64_t index = 0; index < size(); ++index) {
      for (const Segment& segment : shard(index).layout) {
        if (!segment.rule.whole_matrix || segment.count == 0) {
          continue;
        }
        const at::Tensor all = part_of(index, segment, &State::momentum);
        for_each_part_of(shard(index), segment, [&](int64_t at, const at::Tensor& gradient) {
          at::Tensor g = gradient.to(at::kFloat).mul(gradient_scale);
          const at::Tensor m = all.narrow(0, at, g.numel());
          m.lerp_(g, 1 - muon.momentum);
          gradient.copy_(muon.nesterov ? g.lerp_(m, muon.momentum) : m);
        });
        pieces.push_back(
            {&segment, shard(index).gradient.narrow(0, segment.offset, segment.count)});
      }
    }
    const bool are_rounded =
        !pieces.empty() && pieces.front().values.scalar_type() == at::kBFloat16;
    change_matrices(pieces, [&](const at::Tensor& x) {
      const bool rounds = are_rounded && multiplies_bfloat16(x.device());
      return orthogonalised(rounds ? x.to(at::kBFloat16) : x, muon.ns_steps);
    });
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const bool has_master = shard.master.defined() && !shard.master.is_same(shard.parameter);
    for (const State& state : states_.at(static_cast<size_t>(index))) {
      if (!rule_of(state.run).whole_matrix) {
        update_elements(shard, state, learning_rate, gradient_scale, has_master);
      }
    }
    const at::Tensor& weight = has_master ? shard.master : shard.parameter;
    for (const Segment& segment : shard.layout) {
      if (!segment.rule.whole_matrix) {
        continue;
      }
      const double rate = learning_rate * segment.rule.learning_rate;
      const double decay = segment.rule.weight_decay.value_or(options().weight_decay);
      for_each_part_of(shard, segment, [&](int64_t at, const at::Tensor& change) {
        const at::Tensor w = weight.narrow(0, segment.offset + at, change.numel());
        w.mul_(1 - rate * decay).sub_(change.to(at::kFloat), rate * adjustment(segment));
        if (has_master) {
          shard.parameter.narrow(0, segment.offset + at, change.numel()).copy_(w);
        }
      });
    }
  }

 private:
  struct State {
    Run run;
    at::Tensor momentum;             // for matrices
    at::Tensor exp_avg, exp_avg_sq;  // for all other parameters
  };

  double adjustment(const Segment& segment) const {
    const auto rows = static_cast<double>(whole_shape(segment)[0]);
    const auto columns = static_cast<double>(whole_shape(segment)[1]);
    return options().muon.adjust_lr_fn == "match_rms_adamw"
               ? 0.2 * std::sqrt(std::max(rows, columns))
               : std::sqrt(std::max(1.0, rows / columns));
  }

  at::Tensor part_of(int64_t index, const Segment& segment, at::Tensor State::* of) const {
    for (const State& state : states_.at(static_cast<size_t>(index))) {
      if (segment.offset >= state.run.begin && segment.offset < state.run.end) {
        return (state.*of).narrow(0, segment.offset - state.run.begin, segment.count);
      }
    }
    throw Error(ErrorKind::kInternal, segment.parameter + " is not in any run of its shard");
  }

  /// Calls visit(at, gradient) for views of chunks of a segment's gradient; `at` is relative to the
  /// segment's first element.
  template <class Visit>
  static void for_each_part_of(const Shard& shard, const Segment& segment, const Visit& visit) {
    const int64_t most = elements_of_run(shard.gradient);
    for (int64_t at = 0; at < segment.count; at += most) {
      visit(at, shard.gradient.narrow(0, segment.offset + at, std::min(most, segment.count - at)));
    }
  }

  void update_elements(
      const Shard& shard,
      const State& state,
      double learning_rate,
      double gradient_scale,
      bool has_master) const {
    const UpdateRule& rule = rule_of(state.run);
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.narrow(0, state.run.begin, state.run.end - state.run.begin);
    };
    ops::adamw_step(
        {.parameter = part(shard.parameter),
         .master = has_master ? part(shard.master) : at::Tensor(),
         .gradient = part(shard.gradient),
         .exp_avg = state.exp_avg,
         .exp_avg_sq = state.exp_avg_sq},
        {.learning_rate = learning_rate * rule.learning_rate,
         .beta1 = options().adam_beta1,
         .beta2 = options().adam_beta2,
         .epsilon = options().adam_epsilon,
         .weight_decay = rule.weight_decay.value_or(0),
         .gradient_scale = gradient_scale,
         .step = steps()});
  }

  std::vector<std::vector<State>> states_;  // indexed by shard, then by run
};

}  // namespace

at::Tensor orthogonalised(const at::Tensor& x, int64_t steps) {
  const bool is_tall = x.size(0) > x.size(1);         // the Gram matrix is computed for the smaller
                                                      // dimension
  const bool is_half = x.scalar_type() == at::kHalf;  // the range of float16 is too small
  at::Tensor y = (is_tall ? x.t() : x).to(is_half ? at::kFloat : x.scalar_type()).contiguous();
  y = y.div(y.to(at::kFloat).norm().clamp_min(kLeastNorm));
  for (int64_t step = 0; step < steps; ++step) {
    y = ops::newton_schulz_step(y, kA, kB, kC);
  }
  return is_tall ? y.t() : y;
}

std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options) {
  return std::make_unique<Muon>(options);
}

}  // namespace lockstep::optim
