// Tests of the rank locations in a run's folder.
#include "watch/record/ranks.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"

namespace lockstep::watch {
namespace ranks_test {

ErrorKind kind_of_place(const std::string& line) {
  try {
    (void)place_from_json(line);
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << line;
  return ErrorKind::kInternal;
}

TEST(RankPlaces, ComeBackInOrderAndGoWithTheRun) {
  const TemporaryFolder folder;
  const RankPlace first{0, "host-a", 123, "/tmp/a b"}, second{1, "h\u00f6st", 1, ""},
      tenth{10, "host-a", int64_t{1} << 40, "/x"};
  write_ranks(folder.path(), {to_json(tenth), to_json(first), to_json(second)});
  const std::vector<RankPlace> places = read_ranks(folder.path());
  ASSERT_EQ(places.size(), 3U);
  EXPECT_EQ(places[0].rank, 0);
  EXPECT_EQ(places[0].host, "host-a");
  EXPECT_EQ(places[0].process, 123);
  EXPECT_EQ(places[0].rank_status, "/tmp/a b");
  EXPECT_EQ(places[1].host, "h\u00f6st");
  EXPECT_TRUE(places[1].rank_status.empty());
  EXPECT_EQ(places[2].rank, 10);
  EXPECT_EQ(places[2].process, int64_t{1} << 40);
  remove_ranks(folder.path());
  remove_ranks(folder.path());
  try {
    (void)read_ranks(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
    EXPECT_NE(error.message().find(folder.path().string()), std::string::npos);
    EXPECT_NE(error.remedy().find("lockstep runs"), std::string::npos);
  }
}

TEST(RankPlaces, ALineThatIsNoneIsAnErrorOfTheMachine) {
  for (const char* line :
       {"",
        "{",
        "[]",
        "7",
        R"({"rank": 0})",
        R"({"rank": "a", "host": "b", "process": 1, "pulse": ""})",
        R"({"rank": 0, "host": 7, "process": 1, "pulse": ""})",
        R"({"rank": 0, "host": "b", "process": 1, "pulse": null})"}) {
    EXPECT_EQ(kind_of_place(line), ErrorKind::kEnvironment) << line;
  }
}

TEST(RankPlaces, AHostHasAName) {
  EXPECT_FALSE(own_host().empty());
  EXPECT_EQ(own_host(), own_host());
}

}  // namespace ranks_test
}  // namespace lockstep::watch
