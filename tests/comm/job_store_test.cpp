// Tests of the launcher's job store with c10d's clients.
#include "launch/system/job_store.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/store.h"

namespace lockstep::comm {
namespace job_store_test {

using launch::JobStore;

Store join(const JobStore& store) {
  Rendezvous rendezvous;
  rendezvous.port = store.port();
  rendezvous.hosted_by_agent = true;
  return join_store(rendezvous);
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

TEST(JobStore, AnswersC10dsClientsAsItsOwnServerDoes) {
  const JobStore store;
  const Store a = join(store), b = join(store);
  a->set("key", bytes("1"));
  EXPECT_EQ(text(b->get("key")), "1");
  EXPECT_EQ(a->add("number", 5), 5);
  EXPECT_EQ(b->add("number", -7), -2);
  EXPECT_TRUE(a->check({"key"}));
  EXPECT_FALSE(a->check({"key", "none"}));
  EXPECT_EQ(text(a->compareSet("cas", bytes(""), bytes("v1"))), "v1");
  EXPECT_EQ(text(a->compareSet("cas", bytes("v0"), bytes("v2"))), "v1");
  EXPECT_EQ(text(a->compareSet("cas", bytes("v1"), bytes("v2"))), "v2");
  EXPECT_EQ(text(a->compareSet("none", bytes("v0"), bytes("v2"))), "v0");
  EXPECT_TRUE(a->deleteKey("cas"));
  EXPECT_FALSE(a->deleteKey("cas"));
  a->append("long", bytes("x"));
  a->append("long", bytes("y"));
  EXPECT_EQ(text(b->get("long")), "xy");
  a->multiSet({"m1", "m2"}, {bytes("p"), bytes("")});
  EXPECT_THAT(b->multiGet({"m1", "m2"}), ::testing::ElementsAre(bytes("p"), bytes("")));
  EXPECT_EQ(a->getNumKeys(), 5);
  EXPECT_THAT(a->listKeys(), ::testing::UnorderedElementsAre("key", "number", "long", "m1", "m2"));
  a->queuePush("queue", bytes("1"));
  a->queuePush("queue", bytes("2"));
  EXPECT_EQ(b->queueLen("queue"), 2);
  EXPECT_EQ(text(b->queuePop("queue", /*block=*/true)), "1");
  EXPECT_EQ(text(b->queuePop("queue", /*block=*/false)), "2");
  EXPECT_ANY_THROW(b->queuePop("queue", /*block=*/false));
  const std::string large(20'000'000, 'x');
  a->set("large", bytes(large));
  EXPECT_EQ(text(b->get("large")), large);
}

TEST(JobStore, WakesThoseThatWait) {
  const JobStore store;
  const Store a = join(store), b = join(store);
  EXPECT_ANY_THROW(a->wait({"never"}, std::chrono::milliseconds(30)));
  std::thread later([&] {
    b->set("one", bytes("1"));
    b->add("two", 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b->append("three", bytes("3"));
    b->queuePush("queue", bytes("q"));
  });
  a->wait({"one", "two", "three"}, std::chrono::seconds(20));
  EXPECT_EQ(text(a->queuePop("queue", /*block=*/true)), "q");
  later.join();
  b->set("never", bytes("late"));  // the store must not answer a wait that has timed out
  EXPECT_EQ(text(a->get("never")), "late");
}

TEST(JobStore, BearsAClientThatWantsAllMemory) {
  const JobStore store;
  const std::vector<uint8_t> large(60'000'000, 'x');
  const Store good = join(store);
  int refused = 0;
  for (int client = 0; client < 8; ++client) {
    try {
      const Store greedy = join(store);
      for (int i = 0; i < 8; ++i) {
        greedy->append("large", large);
        greedy->check({"large"});
      }
    } catch (const std::exception&) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, 8);
  EXPECT_EQ(good->add("still", 1), 1);
}

}  // namespace job_store_test
}  // namespace lockstep::comm
