#include "comm/store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::comm {
namespace {

constexpr int kLargestPort = 65535;

c10d::TCPStoreOptions options_for(int port, bool is_server) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = is_server;
  options.waitWorkers = false;
  return options;
}

/// c10d's messages go on for a page of stack; the first line says what happened.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

HostedStore::HostedStore(int port) {
  try {
    auto store =
        c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options_for(port, /*is_server=*/true));
    port_ = store->getPort();
    store_ = std::move(store);
  } catch (const std::exception& error) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot open a store on port {}: {}", port, first_line(error)),
        "take another port, or 0 for a free one");
  }
}

Store join_store(const Rendezvous& rendezvous) {
  if (rendezvous.port <= 0 || rendezvous.port > kLargestPort) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("MASTER_PORT={} is not a port", rendezvous.port),
        "give a number from 1 to 65535");
  }
  auto options = options_for(rendezvous.port, rendezvous.rank == 0 && !rendezvous.hosted_by_agent);
  options.timeout = rendezvous.timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(rendezvous.address, options);
  } catch (const std::exception& error) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "rank {} of {} cannot reach the store at {}:{}: {}",
            rendezvous.rank,
            rendezvous.size,
            rendezvous.address,
            rendezvous.port,
            first_line(error)),
        "check MASTER_ADDR and MASTER_PORT, and that rank 0 runs and its port is open");
  }
}

Store with_prefix(const std::string& prefix, const Store& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

}  // namespace lockstep::comm
