// Tests of mesh coordinates, groups and error messages.
#include "mesh/mesh.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::mesh {
namespace mesh_test {

std::string error_of(const MeshRequest& request, int ranks) {
  try {
    make_mesh(request, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Mesh, NumbersTensorFastestAndPipelineSlowest) {
  const Mesh mesh{.pipeline = 2, .data = 3, .context = 1, .tensor = 2};
  EXPECT_EQ(mesh.ranks(), 12);
  EXPECT_EQ(mesh.group(Axis::kTensor, 3), (std::vector{2, 3}));
  EXPECT_EQ(mesh.group(Axis::kData, 3), (std::vector{1, 3, 5}));
  EXPECT_EQ(mesh.group(Axis::kPipeline, 3), (std::vector{3, 9}));
  EXPECT_EQ(mesh.group(Axis::kContext, 3), (std::vector{3}));
  const std::array<Axis, 2> axes{Axis::kTensor, Axis::kPipeline};
  EXPECT_EQ(mesh.group(axes, 0), (std::vector{0, 1, 6, 7}));
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  const Mesh mesh{.pipeline = 3, .data = 2, .context = 5, .tensor = 7};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(mesh.rank_of(mesh.coordinate(rank)), rank);
  }
  EXPECT_THROW(mesh.coordinate(-1), Error);
  EXPECT_THROW(mesh.coordinate(mesh.ranks()), Error);
  EXPECT_THROW(mesh.rank_of({.tensor = 7}), Error);
}

TEST(Mesh, GroupsOfAnAxisArePartitions) {
  const Mesh mesh{.pipeline = 2, .data = 3, .context = 2, .tensor = 2};
  for (const Axis axis : kAllAxes) {
    std::vector<int> seen;
    for (const std::vector<int>& group : mesh.groups(axis)) {
      ASSERT_EQ(group.size(), static_cast<size_t>(mesh.size(axis)));
      for (size_t i = 0; i < group.size(); ++i) {
        EXPECT_EQ(mesh.coordinate(group[i])[axis], static_cast<int>(i));
        EXPECT_EQ(mesh.group(axis, group[i]), group);
      }
      seen.insert(seen.end(), group.begin(), group.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int> all(mesh.ranks());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all) << axis_name(axis);
  }
}

TEST(Mesh, DerivesDataFromTheNumberOfRanks) {
  EXPECT_EQ(
      make_mesh({.pipeline = 2, .tensor = 2}, 12),
      (Mesh{.pipeline = 2, .data = 3, .context = 1, .tensor = 2}));
  EXPECT_EQ(make_mesh({}, 1).ranks(), 1);
}

TEST(Mesh, ListsTheMeshesThatMultiply) {
  const std::string text = error_of({.data = 4, .tensor = 2}, 6);
  EXPECT_NE(
      text.find("data 4 × pipeline 1 × context 1 × tensor 2 does not multiply to the 6 ranks"),
      std::string::npos)
      << text;
  // Meshes that change one axis are listed before those that change two.
  EXPECT_NE(text.find("6 ranks:\n    parallel.data=3 parallel.tensor=2\n"), std::string::npos)
      << text;
  const std::string derived = error_of({.pipeline = 4}, 6);
  EXPECT_NE(derived.find("does not divide the 6 ranks"), std::string::npos) << derived;
  EXPECT_NE(derived.find("parallel.data=2 parallel.pipeline=3"), std::string::npos) << derived;
}

TEST(Mesh, RefusesSizesThatAreNone) {
  const std::string text = error_of({.data = 0, .tensor = -3}, 2);
  EXPECT_NE(text.find("parallel.data is 0"), std::string::npos) << text;
  EXPECT_NE(text.find("parallel.tensor is -3"), std::string::npos) << text;
  EXPECT_NE(error_of({}, 0).find("at least 1"), std::string::npos);
  const int64_t huge = int64_t{1} << 62;
  EXPECT_NE(
      error_of({.data = huge, .pipeline = huge, .tensor = 4}, 8).find("8 ranks"),
      std::string::npos);
}

TEST(Mesh, CountsEveryFactorisation) {
  // Ordered factorisations of 12 into four factors: C(5,3) for 2^2 times 4 for 3.
  EXPECT_EQ(meshes_of(12, {}).size(), 40U);
  EXPECT_EQ(meshes_of(1, {}).size(), 1U);
}

}  // namespace mesh_test
}  // namespace lockstep::mesh
