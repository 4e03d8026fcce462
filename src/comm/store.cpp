// Hosts the key-value store of a job and connects to it.
#include "comm/store.h"

#include <memory>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "launch/system/job_store.h"
#include "launch/system/network.h"
#include "launch/system/store_protocol.h"

namespace lockstep::comm {
namespace {

constexpr int kLargestPort = 65535;

// Client of a store that this process hosts.
class HostingStore : public c10d::TCPStore {
 public:
  HostingStore(
      std::shared_ptr<launch::JobStore> server,
      const std::string& address,
      const c10d::TCPStoreOptions& options)
      : TCPStore(address, options),
        server_(std::move(server)),
        options_(options) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<HostingStore>(server_, getHost(), options_);
  }

 private:
  std::shared_ptr<launch::JobStore> server_;
  c10d::TCPStoreOptions options_;
};

/// Returns the first line of the message, which contains the reason. c10d appends a stack trace.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Address at which all ranks know the store.
std::string address_of(const Rendezvous& rendezvous) {
  const bool here =
      !rendezvous.hosted_by_agent && launch::is_loopback_only_here(rendezvous.address);
  const std::string outside = here ? launch::outside_address() : "";
  return outside.empty() ? rendezvous.address : outside;
}

std::shared_ptr<launch::JobStore> host(const Rendezvous& rendezvous, const std::string& address) {
  try {
    return std::make_shared<launch::JobStore>(
        address, rendezvous.port, launch::JobStore::Hosts(std::nullopt));
  } catch (const Error& error) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "rank 0 cannot host the store at MASTER_ADDR={}, {}, MASTER_PORT={}: {}",
            rendezvous.address,
            launch::interface_of(address),
            rendezvous.port,
            error.message()),
        "set MASTER_ADDR to an address of the machine of rank 0 and MASTER_PORT to a free port, on "
        "all ranks");
  }
}

Error unreachable(const Rendezvous& rendezvous, const std::string& address, std::string reason) {
  return {
      ErrorKind::kEnvironment,
      fmt::format(
          "rank {} of {} cannot reach the store at {}:{}: {}",
          rendezvous.rank,
          rendezvous.size,
          address,
          rendezvous.port,
          reason),
      "check MASTER_ADDR and MASTER_PORT, that rank 0 is running, and that its port is reachable"};
}

// Throws if a store at an address of this machine belongs to another user. The store's end of a
// connection has an owner once the store has answered.
void check_owner(const launch::Connecting& store, const Rendezvous& rendezvous) {
  const std::string question = launch::StoreProtocol::greeting_and_ping(1);
  ::send(store.socket.get(), question.data(), question.size(), MSG_NOSIGNAL);
  pollfd answer{store.socket.get(), POLLIN, 0};
  ::poll(&answer, 1, static_cast<int>(rendezvous.timeout.count()));
  if (launch::is_from_own_user(store.socket)) {
    return;
  }
  const std::optional<unsigned> owner = launch::peer_user(store.socket);
  throw Error(
      ErrorKind::kEnvironment,
      fmt::format(
          "the store at {} port {} belongs to {}, but this job to {}",
          launch::peer_address(store.socket),
          rendezvous.port,
          owner ? launch::user_name(*owner) : "an unknown user",
          launch::user_name(::geteuid())),
      "choose another MASTER_PORT");
}

// Checks each address of this machine that the client may have connected to: a name can have
// several, and each may have another server.
void check_owners(const Rendezvous& rendezvous, const std::string& address) {
  std::string problem;
  bool checked = false, elsewhere = false;
  for (const std::string& number : launch::resolve(address)) {
    if (!launch::is_own_address(number)) {
      elsewhere = true;
      continue;
    }
    const launch::Connecting store =
        launch::connect_within(number, rendezvous.port, rendezvous.timeout);
    if (store.error.empty()) {
      check_owner(store, rendezvous);
      checked = true;
    } else {
      problem = store.error;
    }
  }
  if (!checked && !elsewhere) {
    throw unreachable(rendezvous, address, problem);
  }
}

}  // namespace

Store join_store(const Rendezvous& rendezvous) {
  if (rendezvous.port <= 0 || rendezvous.port > kLargestPort) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("MASTER_PORT={} is not a valid port", rendezvous.port),
        "set it to a number from 1 to 65535");
  }
  const std::string address = address_of(rendezvous);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(rendezvous.port);
  options.waitWorkers = false;
  options.timeout = rendezvous.timeout;
  const bool hosts = rendezvous.rank == 0 && !rendezvous.hosted_by_agent;
  std::shared_ptr<launch::JobStore> server = hosts ? host(rendezvous, address) : nullptr;
  Store store;
  try {
    store = hosts ? Store(c10::make_intrusive<HostingStore>(std::move(server), address, options))
                  : Store(c10::make_intrusive<c10d::TCPStore>(address, options));
  } catch (const std::exception& error) {
    throw unreachable(rendezvous, address, first_line(error));
  }
  if (!rendezvous.hosted_by_agent) {
    check_owners(rendezvous, address);
  }
  return store;
}

Store with_prefix(const std::string& prefix, const Store& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

}  // namespace lockstep::comm
