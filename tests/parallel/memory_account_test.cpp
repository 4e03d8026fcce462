// Tests of memory accounting by kind, compared with the allocator and the theory.
#include "parallel/memory_account.h"

#include <algorithm>
#include <new>

#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include "ops/host_memory.h"
#include "parallel/training.h"
#include "temporary_folder.h"

namespace lockstep::parallel {
namespace memory_account_test {

using comm::Communicator;
using namespace testing;

/// Large enough that shards dominate a rank's memory.
model::ModelConfig wide_config() {
  return model::parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 211, "n_embd": 96, "n_layer": 4, "n_head": 4,
          "n_positions": 16, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0})",
      "wide");
}

/// Bytes allocated to this rank's tensors between two steps, and the account's numbers.
struct Measured {
  int64_t allocated = 0;
  MemoryByKind idle, forward, backward;
  int64_t largest_unit = 0;
};

Measured measure(int stage, int ranks, const std::function<void(Plan&)>& change = nullptr) {
  ops::keep_host_memory();
  TrainingRun run{wide_config(), small_plan(stage), ranks};
  run.plan.prefetch_units = 0;
  if (change) {
    change(run.plan);
  }
  Measured measured;
  comm::run_ranks(ranks, [&](Communicator& group) {
    const int64_t before = ops::take_thread_memory().now;
    const auto model = make_parallel(run, group);
    for (int64_t step = 0; step < 2; ++step) {
      run_step(*model, run, group, step);
      model->optimizer_step(1e-3);
    }
    if (group.rank() != 0) {
      return;
    }
    measured.allocated = ops::take_thread_memory().now - before;
    measured.idle = model->memory().of(MemoryPhase::kIdle).fullest;
    measured.forward = model->memory().of(MemoryPhase::kForward).fullest;
    measured.backward = model->memory().of(MemoryPhase::kBackward).fullest;
    EXPECT_GE(model->memory().of(MemoryPhase::kBackward).most, measured.backward.total());
    for (const FlatUnit& flat : model->data_parallel().flats()) {
      measured.largest_unit = std::max(measured.largest_unit, 4 * flat.size());
    }
  });
  return measured;
}

TEST(MemoryAccount, StatesAreThoseOfTheoryAndOfTheAllocator) {
  constexpr int kRanks = 4;
  const auto parameters = static_cast<double>(model::parameter_count(wide_config()));
  int64_t whole = 0;
  for (const int stage : {0, 1, 2, 3}) {
    const Measured measured = measure(stage, kRanks);
    const auto part = [&](int from) { return 4 * parameters / (stage >= from ? kRanks : 1); };
    const auto near = [](int64_t found, double theory, const char* kind, int of_stage) {
      EXPECT_NEAR(static_cast<double>(found), theory, 0.05 * theory)
          << kind << " in stage " << of_stage;
    };
    near(measured.idle.parameters, part(3), "parameters", stage);
    near(measured.idle.gradients, part(2), "gradients", stage);
    near(measured.idle.optimizer, 2 * part(1), "optimizer", stage);
    near(
        measured.allocated,
        part(3) + part(2) + 2 * part(1),
        "all that the allocator gave out",
        stage);
    EXPECT_EQ(measured.idle.activations, 0);
    whole = stage == 0 ? measured.allocated : whole;
    if (stage == 3) {
      EXPECT_NEAR(
          static_cast<double>(measured.allocated),
          static_cast<double>(whole) / kRanks,
          0.05 * static_cast<double>(whole));
      // During computation a rank has the current unit in addition to its shards.
      EXPECT_GT(measured.forward.gathered, 0);
      EXPECT_LE(measured.forward.gathered, measured.largest_unit);
      EXPECT_EQ(measured.idle.gathered, 0);
    }
  }
}

TEST(MemoryAccount, RecomputationIsSeenInTheActivationsAlone) {
  const Measured kept = measure(1, 2);
  const Measured again = measure(1, 2, [](Plan& plan) { plan.recompute.kind = Recompute::kFull; });
  EXPECT_GT(kept.forward.activations, 0);
  EXPECT_LT(again.forward.activations, kept.forward.activations / 2);
  EXPECT_EQ(again.idle.parameters, kept.idle.parameters);
  EXPECT_EQ(again.idle.optimizer, kept.idle.optimizer);
}

TEST(MemoryAccount, AShardedGroupHoldsItsShareAndFilesHoldTheOptimizer) {
  const Measured hybrid = measure(3, 4, [](Plan& plan) { plan.shard_ranks = 2; });
  const auto parameters = static_cast<double>(model::parameter_count(wide_config()));
  EXPECT_NEAR(static_cast<double>(hybrid.allocated), 16 * parameters / 2, 0.8 * parameters);
  const Measured half = measure(
      2, 2, [](Plan& plan) { plan.offload_optimizer = {OffloadDevice::kNvme, "/tmp", 0.5}; });
  EXPECT_NEAR(static_cast<double>(half.idle.optimizer), 2 * parameters, 0.5 * parameters);
}

/// Statistics of a fake device allocator.
struct Figures final : c10::DeviceAllocator {
  c10::CachingAllocator::Stat bytes;
  int asked = 0;

  void now(int64_t current, int64_t peak) {
    bytes.current = current;
    bytes.peak = std::max(bytes.peak, peak);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    ++asked;
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes.front() = bytes;
    return stats;
  }
  void resetPeakStats(c10::DeviceIndex /*device*/) override { bytes.peak = bytes.current; }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::DataPtr allocate(size_t /*bytes*/) override { throw std::bad_alloc(); }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
};

TEST(MemoryAccount, LooksAtADeviceWhereAPhaseBeginsAndEnds) {
  static Figures device;  // never destroyed: an allocator cannot be unregistered
  c10::SetAllocator(c10::kPrivateUse1, &device);
  MemoryAccount account(
      c10::Device(c10::kPrivateUse1, 0), [] { return MemoryByKind{.parameters = 100}; });
  for (int step = 0; step < 2; ++step) {
    device.asked = 0;
    device.now(100, 100);
    account.look(MemoryPhase::kIdle);
    for (int i = 0; i < 50; ++i) {
      device.now(100 + 10 * i, 100 + 10 * i + 7);
      account.look(MemoryPhase::kForward);
    }
    for (int i = 49; i > 0; --i) {
      device.now(100 + 10 * i, 100 + 10 * i + 300);
      account.look(MemoryPhase::kBackward);
    }
    device.now(110, 120);
    account.look(MemoryPhase::kUpdate);
    device.now(100, 130);
    account.look(MemoryPhase::kIdle);
    EXPECT_EQ(device.asked, 8);
  }
  // Including the first gradient.
  EXPECT_EQ(account.of(MemoryPhase::kForward).most, 100 + 490 + 300);
  EXPECT_EQ(account.of(MemoryPhase::kForward).fullest.activations, 490);
  EXPECT_EQ(account.of(MemoryPhase::kBackward).most, 100 + 480 + 300);
  EXPECT_EQ(account.of(MemoryPhase::kBackward).fullest.activations, 490);
  EXPECT_EQ(account.of(MemoryPhase::kUpdate).most, 130);
}

TEST(MemoryAccount, TellsPhasesAndKindsInATableAndInNumbers) {
  MemoryByKind held{.parameters = 3 << 20, .gradients = 2048};
  MemoryAccount account(c10::Device(c10::kCPU), [&] { return held; });
  account.look(MemoryPhase::kForward);
  held.gathered = 5 << 20;
  account.look(MemoryPhase::kForward);
  const std::string table = memory_table(account.phases());
  EXPECT_NE(table.find("forward"), std::string::npos) << table;
  EXPECT_NE(table.find("5.0 MiB"), std::string::npos) << table;
  EXPECT_EQ(table.find("backward"), std::string::npos) << table;  // no backward pass was observed
  const auto phases = MemoryAccount::from_numbers(account.numbers());
  EXPECT_EQ(memory_table(phases), table);
  EXPECT_GE(most_of(phases), int64_t{8} << 20);
}

}  // namespace memory_account_test
}  // namespace lockstep::parallel
