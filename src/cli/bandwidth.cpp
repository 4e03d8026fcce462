// Measures bandwidth and clock differences between ranks.
#include "cli/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>
#include <vector>

#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/format.h"
#include "comm/communicator.h"
#include "comm/store.h"
#include "launch/system/network.h"

namespace lockstep::cli {
namespace {

using launch::Connecting;
using launch::Socket;
using Clock = std::chrono::steady_clock;
constexpr int64_t kElements = int64_t{8} << 20;  // 32 MiB of float32
constexpr int kRounds = 3;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the throughput of a TCP stream over loopback, as a reference for all-reduces over Gloo on
// this machine.
double stream_speed() {
  constexpr size_t kBytes = size_t{256} << 20;
  const Socket listener = launch::listen_on("127.0.0.1", 0);
  ::fcntl(listener.get(), F_SETFL, 0);
  const int port = launch::bound_port(listener);
  std::thread sender([port] {
    const Connecting out =
        launch::connect_within("127.0.0.1", port, std::chrono::milliseconds(1000));
    const std::vector<char> block(size_t{1} << 20);
    size_t done = 0;
    ::fcntl(out.socket.get(), F_SETFL, 0);
    while (done < kBytes) {
      const ssize_t size = ::send(out.socket.get(), block.data(), block.size(), MSG_NOSIGNAL);
      if (size <= 0) {
        return;
      }
      done += static_cast<size_t>(size);
    }
  });
  const Socket in(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::vector<char> block(size_t{1} << 20);
  size_t received = 0;
  const auto begin = Clock::now();
  ssize_t size = 0;
  while (received < kBytes && (size = ::recv(in.get(), block.data(), block.size(), 0)) > 0) {
    received += static_cast<size_t>(size);
  }
  const double speed = static_cast<double>(received) / seconds_since(begin);
  sender.join();
  return speed;
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// Returns the largest clock difference. Rank 0 requests the time of every other rank and compares
// it with the midpoint between request and reply.
double clock_difference(const comm::Store& store, int rank, int size) {
  double largest = 0;
  for (int other = 1; other < size; ++other) {
    const std::string ask = fmt::format("clock/ask/{}", other),
                      answer = fmt::format("clock/answer/{}", other);
    if (rank == 0) {
      const double begin = wall_time();
      store->set(ask, bytes_of("1"));
      const std::vector<uint8_t> text = store->get(answer);
      const double middle = (begin + wall_time()) / 2;
      largest =
          std::max(largest, std::abs(std::stod(std::string(text.begin(), text.end())) - middle));
    } else if (rank == other) {
      store->wait({ask});
      store->set(answer, bytes_of(fmt::format("{:.6f}", wall_time())));
    }
  }
  return largest;
}

}  // namespace

Measured measure_ranks(const launch::WorkerIdentity& identity) {
  Measured result;
  comm::Rendezvous rendezvous;
  rendezvous.address = identity.master_address;
  rendezvous.port = identity.master_port;
  rendezvous.rank = identity.rank;
  rendezvous.size = identity.world_size;
  rendezvous.hosted_by_agent = identity.agent_store;
  rendezvous.timeout = std::chrono::seconds(60);
  const comm::Store store = comm::join_store(rendezvous);
  result.clocks = clock_difference(store, identity.rank, identity.world_size);
  comm::GroupOptions options;
  options.timeout = std::chrono::seconds(60);
  const bool one_machine = identity.local_world_size == identity.world_size;
  options.host = one_machine ? "127.0.0.1" : "";
  comm::Communicator communicator(comm::join_group(
      comm::with_prefix("doctor", store), identity.rank, identity.world_size, options));
  at::Tensor numbers = at::ones({kElements});
  communicator.all_reduce(numbers).wait();
  communicator.barrier();
  const auto begin = Clock::now();
  for (int round = 0; round < kRounds; ++round) {
    communicator.all_reduce(numbers).wait();
  }
  const double seconds = seconds_since(begin) / kRounds;
  const double ranks = identity.world_size;
  result.all_reduce = 4.0 * kElements * 2 * (ranks - 1) / ranks / seconds;
  communicator.barrier();
  if (identity.rank == 0) {
    result.expected = stream_speed() / std::max(1, identity.local_world_size);
  }
  communicator.barrier();
  return result;
}

std::string to_text(const Measured& measured) {
  return fmt::format("{} {} {}\n", measured.all_reduce, measured.expected, measured.clocks);
}

Measured measured_from_text(const std::string& text) {
  std::istringstream words(text);
  Measured result;
  words >> result.all_reduce >> result.expected >> result.clocks;
  return result;
}

}  // namespace lockstep::cli
