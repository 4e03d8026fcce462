// Tests of MatrixExchange.
#include "parallel/data/matrix_exchange.h"

#include <atomic>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/threads.h"

namespace lockstep::parallel {
namespace matrix_exchange_test {

/// A rank's elements of a matrix: a contiguous range of a slice.
struct Held {
  std::string name;
  std::vector<int64_t> shape;
  mesh::Cut cut{};
  int64_t begin = 0, count = 0;
};

at::Tensor matrix_of(const Held& held) {
  const auto columns = held.shape[1], first = static_cast<int64_t>(held.name[0]);
  return at::arange(held.shape[0] * columns, at::kFloat).add_(first).view(held.shape);
}

at::Tensor flat_part(const at::Tensor& whole, const Held& held) {
  std::vector<at::Tensor> ranges;
  for (const mesh::Range& range : held.cut.ranges) {
    ranges.push_back(whole.narrow(held.cut.dim, range.begin, range.size()));
  }
  const at::Tensor part = ranges.empty() ? whole : at::cat(ranges, held.cut.dim);
  return part.flatten().narrow(0, held.begin, held.count);
}

/// A function that needs the whole matrix and does not depend on the order of sums.
at::Tensor change(const at::Tensor& x) {
  return x * 2 + x.max() - x.select(0, 0).min();
}

/// Runs the exchange twice on ranks with the given elements. Returns the bytes sent by all ranks in
/// the second run.
int64_t expect_changed(const std::vector<std::vector<Held>>& ranks, at::ScalarType type) {
  std::atomic<int64_t> bytes = 0;
  std::atomic<int> changes = 0;
  comm::run_ranks(static_cast<int>(ranks.size()), [&](comm::Communicator& world) {
    const auto& held = ranks[static_cast<size_t>(world.rank())];
    std::vector<optim::Segment> segments;
    std::vector<at::Tensor> values;
    for (const Held& each : held) {
      segments.push_back(
          {.parameter = each.name,
           .shape = each.cut.local_shape(each.shape),
           .begin = each.begin,
           .count = each.count,
           .whole_shape = each.cut.is_whole() ? std::vector<int64_t>{} : each.shape,
           .cut = each.cut});
      values.push_back(flat_part(matrix_of(each), each).to(type).clone());
    }
    std::vector<optim::MatrixPiece> pieces;
    for (size_t i = 0; i < held.size(); ++i) {
      pieces.push_back({&segments[i], values[i]});
    }
    MatrixExchange exchange(world, at::kCPU);
    const auto counted = [&](const at::Tensor& x) {
      ++changes;
      EXPECT_EQ(x.scalar_type(), at::kFloat);
      return change(x);
    };
    exchange(pieces, counted);
    world.set_observer([&](const comm::Call& call) { bytes += call.bytes_sent; });
    exchange(pieces, counted);
    for (size_t i = 0; i < held.size(); ++i) {
      const at::Tensor once = change(matrix_of(held[i])).to(type).to(at::kFloat);
      EXPECT_TRUE(values[i].equal(flat_part(change(once), held[i]).to(type)))
          << held[i].name << " on rank " << world.rank();
    }
  });
  std::set<std::string> names;
  for (const auto& held : ranks) {
    for (const Held& each : held) {
      names.insert(each.name);
    }
  }
  // Each matrix is updated once, on one rank.
  EXPECT_EQ(changes, 2 * static_cast<int>(names.size()));
  return bytes;
}

mesh::Cut cut_of(int dim, std::vector<mesh::Range> ranges, int copies = 1, int copy = 0) {
  return {dim, std::move(ranges), copies, copy};
}

TEST(MatrixExchange, BringsPartsAndRunsTogetherAndBack) {
  const std::vector<int64_t> a{5, 7}, b{4, 6}, c{3, 8};
  const std::vector<std::vector<Held>> ranks{
      {{"a", a, cut_of(1, {{0, 2}, {5, 6}}), 0, 15}, {"b", b, {}, 0, 10}},
      {{"a", a, cut_of(1, {{2, 4}}), 0, 10}, {"c", c, {}, 0, 24}},
      {{"a", a, cut_of(1, {{4, 5}, {6, 7}}), 0, 4}, {"b", b, {}, 10, 14}},
      {{"a", a, cut_of(1, {{4, 5}, {6, 7}}), 4, 6}}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const int64_t bytes = expect_changed(ranks, type);
    const int64_t size = type == at::kFloat ? 4 : 2;
    // Both directions, except the elements that the owner has: at most 15 of `a`, 14 of `b`, all of
    // `c`.
    EXPECT_GE(bytes, 2 * (35 - 15 + 24 - 14) * size);
    EXPECT_LE(bytes, 2 * (35 - 4 + 24 - 10) * size);
  }
}

TEST(MatrixExchange, SendsNothingThereOfWhatTheOwnerHas) {
  std::vector<std::vector<Held>> ranks(2);
  for (auto& held : ranks) {
    held = {{"a", {6, 6}, {}, 0, 36}, {"b", {6, 6}, {}, 0, 36}};
  }
  EXPECT_EQ(
      expect_changed(ranks, at::kFloat), 2 * 36 * 4);  // each rank sends the matrix that it updated
}

TEST(MatrixExchange, TakesOneOfSeveralCopies) {
  const std::vector<int64_t> a{4, 5};
  // The second half is replicated: whole on one rank, split over two others. The first rank has the
  // first half.
  expect_changed(
      {{{"a", a, cut_of(0, {{0, 2}}), 0, 10}},
       {{"a", a, cut_of(0, {{2, 4}}, 2, 0), 0, 10}},
       {{"a", a, cut_of(0, {{2, 4}}, 2, 1), 0, 7}},
       {{"a", a, cut_of(0, {{2, 4}}, 2, 1), 7, 3}}},
      at::kFloat);
}

}  // namespace matrix_exchange_test
}  // namespace lockstep::parallel
