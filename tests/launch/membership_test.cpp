// Tests of the membership of rounds, the order of nodes and standby coordinators.
#include "launch/agent/membership.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::launch {
namespace roster_test {

using std::chrono::milliseconds;

NodeInfo node(int64_t id, const std::string& address, int64_t pid, int rank = -1) {
  NodeInfo info;
  info.id = id;
  info.address = address;
  info.pid = pid;
  info.node_rank = rank;
  info.probe_port = 1;
  return info;
}

std::vector<int64_t> ids(const std::vector<NodeInfo>& nodes) {
  std::vector<int64_t> result;
  for (const NodeInfo& one : nodes) {
    result.push_back(one.id);
  }
  return result;
}

TEST(Roster, OrdersByWantedRankElseByAddress) {
  std::vector<NodeInfo> free{
      node(1, "10.0.0.3", 5), node(2, "10.0.0.1", 9), node(3, "10.0.0.1", 7)};
  order_nodes(free);
  EXPECT_EQ(ids(free), (std::vector<int64_t>{3, 2, 1}));
  std::vector<NodeInfo> ranked{node(1, "a", 1, 2), node(2, "b", 1, 0), node(3, "c", 1, 1)};
  order_nodes(ranked);
  EXPECT_EQ(ids(ranked), (std::vector<int64_t>{2, 3, 1}));
}

TEST(Roster, WaitsForMoreAtTheMinimumAndBeginsAtTheMaximum) {
  const GatheringRules rules{2, 4, milliseconds(100), milliseconds(1000)};
  EXPECT_EQ(gathering(rules, 4, milliseconds(0), milliseconds(0)), Gathering::kComplete);
  EXPECT_EQ(gathering(rules, 3, milliseconds(99), milliseconds(5000)), Gathering::kWait);
  EXPECT_EQ(gathering(rules, 2, milliseconds(100), milliseconds(100)), Gathering::kComplete);
  EXPECT_EQ(gathering(rules, 1, milliseconds(0), milliseconds(999)), Gathering::kWait);
  EXPECT_EQ(gathering(rules, 1, milliseconds(0), milliseconds(1000)), Gathering::kGiveUp);
}

TEST(Roster, HeirsAreTheOthersInTheOrderOfTheRound) {
  std::vector<NodeInfo> nodes{node(4, "a", 1), node(2, "b", 1), node(3, "c", 1), node(1, "d", 1)};
  for (NodeInfo& each : nodes) {
    each.host_port = 9;
  }
  nodes[1].hosts = true;
  nodes[2].host_port = 0;
  EXPECT_EQ(ids(standbys(nodes)), (std::vector<int64_t>{4, 1}));
}

TEST(Roster, NoTwoPartsOfTheHeirsAreBothMostOfThem) {
  for (int standbys = 1; standbys < 10; ++standbys) {
    EXPECT_GT(2 * quorum(standbys), standbys);
    EXPECT_LE(quorum(standbys), standbys);
  }
}

TEST(Roster, EachNodeTriesAllOrAsManyAsAnyOther) {
  for (const size_t count :
       {size_t{1}, size_t{2}, size_t{257}, size_t{258}, size_t{263}, size_t{8192}}) {
    std::vector<NodeInfo> nodes;
    for (size_t i = 0; i < count; ++i) {
      nodes.push_back(node(static_cast<int64_t>(i), "a", 1));
    }
    const size_t wanted = std::min(count - 1, kMostTried);
    std::vector<size_t> times(count);
    for (size_t index = 0; index < count; ++index) {
      const std::vector<int64_t> tried = ids(tried_by(nodes, index));
      const std::set<int64_t> different(tried.begin(), tried.end());
      ASSERT_EQ(different.size(), wanted) << index << " of " << count;
      ASSERT_EQ(different.count(static_cast<int64_t>(index)), 0U);
      if (count > 1) {
        ASSERT_EQ(tried.front(), static_cast<int64_t>((index + 1) % count));
      }
      for (const int64_t id : tried) {
        ++times[static_cast<size_t>(id)];
      }
    }
    EXPECT_EQ(times, std::vector<size_t>(count, wanted)) << count;
  }
}

TEST(Roster, RefusesWhatIsNoNode) {
  NodeInfo sent = node(7, "10.0.0.1", 3);
  sent.host_port = 4711;
  sent.hosts = true;
  const NodeInfo received = node_from_json(to_json(sent));
  EXPECT_EQ(received.id, 7);
  EXPECT_EQ(received.host_port, 4711);
  EXPECT_TRUE(received.hosts);
  for (
      const char* text :
      {"{}",
       "[]",
       R"({"id": "x"})",
       R"({"id":1,"host":"a","address":"b","pid":1,"workers":0,"node_rank":-1,"probe_port":1,"probe_token":"","host_port":1,"hosts":false})",
       R"({"id":1,"host":"a","address":"b","pid":1,"workers":1,"node_rank":-1,"probe_port":70000,"probe_token":"","host_port":1,"hosts":false})",
       R"({"id":1,"host":"a","address":"b","pid":1,"workers":1,"node_rank":-1,"probe_port":7,"probe_token":"","host_port":-1,"hosts":false})"}) {
    EXPECT_THROW(node_from_json(nlohmann::json::parse(text)), Error) << text;
  }
}

}  // namespace roster_test
}  // namespace lockstep::launch
