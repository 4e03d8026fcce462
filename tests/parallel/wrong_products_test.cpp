// Tests of checked matrix products: flips a bit in one product of a step and counts how many of the
// flips that change the loss are detected.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/log.h"
#include "ops/checked_products.h"
#include "parallel/training.h"

namespace lockstep::parallel {
namespace wrong_products_test {

using namespace testing;

/// A bit flip in the result of one ATen product of this process before it is read. Simulates a
/// processor that is wrong once, or every time.
struct Flip {
  int64_t at = -1;  // index of the product; -1: none
  uint64_t element = 0;
  int bit = 0;
  bool is_lasting = false;  // flips again when the product is recomputed
  int64_t made = 0;
  const void* place = nullptr;
};
Flip flip;

void after_product(const at::RecordFunction& function, at::ObserverContext*) {
  if (std::strncmp(function.name(), "aten::mm", 8) != 0 &&
      std::strncmp(function.name(), "aten::addmm", 11) != 0) {
    return;
  }
  const Tensor result = function.outputs().at(0).toTensor();
  const int64_t number = flip.made++;
  const bool is_again =
      flip.is_lasting && number == flip.at + 1 && result.const_data_ptr() == flip.place;
  if ((number == flip.at || is_again) && result.numel() > 0) {
    flip.place = result.const_data_ptr();
    auto* const value = static_cast<uint32_t*>(result.mutable_data_ptr()) +
                        flip.element % static_cast<uint64_t>(result.numel());
    *value ^= uint32_t{1} << flip.bit;
  }
}

struct Observed {
  at::CallbackHandle handle =
      at::addGlobalCallback(at::RecordFunctionCallback(nullptr, after_product)
                                .needsOutputs(true)
                                .scopes({at::RecordScope::FUNCTION}));
  Observed() { ops::check_products(true); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  ~Observed() {
    ops::check_products(false);
    at::removeCallback(handle);
  }
};

struct Losses {
  double here = 0, next = 0, norm = 0;
  bool is_finite = true;
};

class Trials {
 public:
  Trials(const TrainingRun& run, comm::Communicator& group)
      : run_(run),
        group_(group),
        model_(make_parallel(run, group)) {
    for (; step_ < run_.steps; ++step_) {
      const StepResult result = run_step(*model_, run_, group_, step_);
      model_->optimizer_step(1e-3);
    }
    collect_state(*model_, state_);
  }

  /// Restores the saved state, runs a step, and returns its loss and that of the next step.
  Losses after(const Flip& given) {
    restore_state(*model_, state_, step_);
    flip = given;
    Losses losses;
    try {
      const StepResult result = run_step(*model_, run_, group_, step_);
      products_ = flip.made;
      flip = {};
      losses.here = result.loss;
      losses.norm = result.gradient_norm;
      model_->optimizer_step(1e-3);
      losses.next = run_step(*model_, run_, group_, step_ + 1).loss;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kNumeric) << error.message();
      losses.is_finite = false;
    }
    flip = {};
    return losses;
  }
  int64_t products() const { return products_; }

 private:
  TrainingRun run_;
  comm::Communicator& group_;
  ModelOnRanks model_;
  State state_;
  int64_t step_ = 0, products_ = 0;
};

bool differ(const Losses& a, const Losses& b, double by) {
  return !(std::abs(a.here - b.here) <= by && std::abs(a.next - b.next) <= by) ||
         a.is_finite != b.is_finite;
}

/// LOCKSTEP_FLIPS=n sets the number of flips.
TEST(WrongProducts, ThoseThatChangeTheLossAreFound) {
  const char* const given = std::getenv("LOCKSTEP_FLIPS");
  const int64_t trials = given != nullptr ? std::atoll(given) : 60;
  set_log_level(LogLevel::kError);
  for (const model::ModelConfig& config : {tied_config(), untied_config()}) {
    TrainingRun run{.config = config, .plan = small_plan(), .steps = 3};
    comm::run_ranks(1, [&](comm::Communicator& group) {
      const Observed observed;
      Trials of_run(run, group);
      const Losses calm = of_run.after({});
      ASSERT_GT(of_run.products(), 10);
      std::mt19937_64 random(7);
      int64_t changing = 0, found = 0, found_of_all = 0, mended = 0;
      for (int64_t trial = 0; trial < trials; ++trial) {
        Flip each{
            .at = static_cast<int64_t>(random() % static_cast<uint64_t>(of_run.products())),
            .element = random(),
            // With LOCKSTEP_FLIPS all bits are equally likely; otherwise only those that can make a
            // value much larger.
            .bit = static_cast<int>(given != nullptr ? random() % 32 : 26 + random() % 6)};
        const int64_t before = ops::wrong_products();
        const Losses once = of_run.after(each);
        const bool is_found = ops::wrong_products() > before;
        // A detected product is recomputed, so the step equals the undisturbed step bit for bit.
        mended += is_found && !differ(once, calm, 0);
        found_of_all += is_found;
        each.is_lasting = true;
        if (differ(of_run.after(each), calm, 1e-3)) {
          ++changing;
          found += is_found;
        }
      }
      EXPECT_EQ(mended, found_of_all);
      EXPECT_GT(changing, 0);
      EXPECT_GE(static_cast<double>(found), 0.95 * static_cast<double>(changing));
      std::cout << fmt::format(
          "{}: of {} flips {} change the loss by more than 1e-3, {} of them are found; {} found in "
          "all, {} corrected bit for bit\n",
          model::family_name(config.family),
          trials,
          changing,
          found,
          found_of_all,
          mended);
    });
  }
  set_log_level(LogLevel::kInfo);
}

}  // namespace wrong_products_test
}  // namespace lockstep::parallel
