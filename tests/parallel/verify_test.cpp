// Tests of `lockstep verify`'s comparison.
#include "parallel/verify.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace verify_test {

Verification verify_on(
    const mesh::Mesh& mesh,
    const Plan& plan,
    const std::function<void(ModelSpec&, int)>& change,
    bool has_documents = false) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  Verification found;
  comm::run_ranks(mesh.ranks(), [&](comm::Communicator& world) {
    ParallelGroups axes(world, mesh);
    ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    change(spec, world.rank());
    const Verification mine = verify(
        spec,
        plan,
        axes,
        {.rows = 5, .length = 11, .tolerance = 1e-5, .has_documents = has_documents});
    EXPECT_EQ(mine.first_difference.has_value(), !mine.first_difference.value_or("").empty());
    if (world.rank() == 0) {
      found = mine;
    }
  });
  return found;
}

TEST(Verify, FindsThatPlansAreEqualAndListsEveryParameter) {
  for (const mesh::Mesh& mesh :
       {mesh::Mesh{}, mesh::Mesh{.data = 2, .tensor = 2}, mesh::Mesh{.context = 2}}) {
    const Verification found = verify_on(mesh, {}, [](ModelSpec&, int) {});
    EXPECT_FALSE(found.first_difference) << *found.first_difference;
    ASSERT_EQ(found.losses.size(), 2U);
    EXPECT_NEAR(found.losses[0].one, std::log(101), 0.3);
    ASSERT_EQ(found.gradients.size(), 2U + 2 * 12 + 2);
    for (const VerifiedGradient& gradient : found.gradients) {
      EXPECT_GT(gradient.step, 0) << gradient.name;
      EXPECT_LE(gradient.error, 1e-5) << gradient.name;
    }
  }
}

TEST(Verify, ComparesRowsOfSeveralDocuments) {
  const auto as_it_is = [](ModelSpec&, int) {};
  const Verification apart =
      verify_on({.data = 2, .context = 2}, {}, as_it_is, /*has_documents=*/true);
  EXPECT_FALSE(apart.first_difference) << *apart.first_difference;
  const Verification joined = verify_on({}, {}, as_it_is);
  EXPECT_GT(std::abs(apart.losses[0].one - joined.losses[0].one), 1e-4);  // the rows differ
}

TEST(Verify, NamesTheFirstPlaceWhereTheyPart) {
  // Rank 1 starts with one different weight.
  const auto change = [](ModelSpec& spec, int rank) {
    spec.fill = [fill = spec.fill, rank](
                    const std::string& name,
                    const ShardedParameter& part,
                    int64_t begin,
                    const Tensor& values) {
      fill(name, part, begin, values);
      if (rank == 1 && name == "transformer.h.1.mlp.c_proj.weight") {
        Tensor(values).mul_(1.5);
      }
    };
  };
  const Verification found = verify_on({.tensor = 2}, {}, change);
  ASSERT_TRUE(found.first_difference);
  EXPECT_NE(found.first_difference->find("step 1"), std::string::npos) << *found.first_difference;
}

TEST(Verify, RefusesABatchThatCannotBeDealt) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
    ParallelGroups axes(world, {.data = 2});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    EXPECT_THROW((void)verify(spec, {}, axes, {.rows = 1}), Error);
  });
}

}  // namespace verify_test
}  // namespace lockstep::parallel
