// Job store clients for the launcher's tests, which do not link libtorch.
// store_client meet      acts as the rank given by the environment and waits for all ranks
// store_client thousand  hosts a store and connects a thousand clients
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/store.h"
#include "launch/system/job_store.h"

namespace lockstep {
namespace {

int meet() {
  const auto number = [](const char* name) { return std::stoi(std::getenv(name)); };
  comm::Rendezvous rendezvous;
  rendezvous.address = std::getenv("MASTER_ADDR");
  rendezvous.port = number("MASTER_PORT");
  rendezvous.rank = number("RANK");
  rendezvous.size = number("WORLD_SIZE");
  rendezvous.hosted_by_agent = true;
  const comm::Store store = comm::join_store(rendezvous);
  if (store->add("met", 1) == rendezvous.size) {
    store->set("all", std::vector<uint8_t>{1});
  }
  store->wait({"all"}, std::chrono::seconds(20));
  std::printf(
      "rank %d of %d node %s of %s met\n",
      rendezvous.rank,
      rendezvous.size,
      std::getenv("GROUP_RANK"),
      std::getenv("GROUP_WORLD_SIZE"));
  return 0;
}

int thousand() {
  const launch::JobStore store;
  comm::Rendezvous rendezvous;
  rendezvous.port = store.port();
  rendezvous.size = 1000;
  rendezvous.hosted_by_agent = true;
  std::vector<comm::Store> clients;
  for (rendezvous.rank = 0; rendezvous.rank < rendezvous.size; ++rendezvous.rank) {
    clients.push_back(comm::join_store(rendezvous));
    clients.back()->add("met", 1);
  }
  return clients.back()->add("met", 0) == 1000 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int, char** words) {
  return std::string(words[1]) == "meet" ? lockstep::meet() : lockstep::thousand();
}
