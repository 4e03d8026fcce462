// Renamed public types and functions keep their old names, marked as deprecated.
#include <type_traits>

#include <gtest/gtest.h>

#include "checkpoint/async_saver.h"
#include "parallel/parallel_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "train/machine/rank_context.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep {
namespace {

TEST(DeprecatedNames, AreAliasesOfTheCurrentOnes) {
  static_assert(std::is_same_v<parallel::Axes, parallel::ParallelGroups>);
  static_assert(std::is_same_v<train::World, train::RankContext>);
  using Judge = decltype(&parallel::ParallelModel::finish_step);
  static_assert(std::is_same_v<decltype(&parallel::ParallelModel::judge), Judge>);
  static_assert(std::is_same_v<
                decltype(&checkpoint::AsyncSaver::let_write),
                void (checkpoint::AsyncSaver::*)()>);
  static_assert(std::is_same_v<
                decltype(&parallel::ParallelGroups::gradients),
                decltype(&parallel::ParallelGroups::data_context)>);
}

}  // namespace
}  // namespace lockstep

#pragma GCC diagnostic pop
