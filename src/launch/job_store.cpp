#include "launch/job_store.h"

#include <charconv>
#include <filesystem>
#include <vector>

#include <arpa/inet.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/network.h"

namespace lockstep::launch {
namespace {

bool listens_on(int descriptor, int port) {
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 ||
      listening == 0) {
    return false;
  }
  Socket borrowed(descriptor);
  const bool found = bound_port(borrowed) == port;
  borrowed.release();
  return found;
}

// The descriptor of this process that listens on `port`; -1 where there is none.
int listening_descriptor(int port) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename().string();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor >= 0 && listens_on(descriptor, port)) {
      return descriptor;
    }
  }
  return -1;
}

sock_filter load(uint16_t size, int offset) {
  return {static_cast<uint16_t>(BPF_LD | size | BPF_ABS), 0, 0, static_cast<uint32_t>(offset)};
}

// Goes on where the loaded word is `value`, and else to the end, which is `rest` instructions
// ahead.
sock_filter must_equal(uint32_t value, size_t rest) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<uint8_t>(rest), value};
}

// A packet filter that lets through what is sent to `address` alone; empty for what is no numeric
// address.
std::vector<sock_filter> filter_for(const std::string& address) {
  constexpr int kVersion4Target = 16, kVersion6Target = 24;  // offsets in the IP header
  in_addr version4{};
  in6_addr version6{};
  std::vector<uint32_t> words;
  int offset = kVersion4Target;
  uint32_t version = 4;
  if (::inet_pton(AF_INET, address.c_str(), &version4) == 1) {
    words = {ntohl(version4.s_addr)};
  } else if (::inet_pton(AF_INET6, address.c_str(), &version6) == 1) {
    for (const uint32_t word : version6.s6_addr32) {
      words.push_back(ntohl(word));
    }
    offset = kVersion6Target;
    version = 6;
  } else {
    return {};
  }
  const size_t length = 3 + 2 * words.size() + 2;
  std::vector<sock_filter> program{load(BPF_B, SKF_NET_OFF), {BPF_ALU | BPF_RSH | BPF_K, 0, 0, 4}};
  program.push_back(must_equal(version, length - program.size() - 2));
  for (size_t i = 0; i < words.size(); ++i) {
    program.push_back(load(BPF_W, SKF_NET_OFF + offset + 4 * static_cast<int>(i)));
    program.push_back(must_equal(words[i], length - program.size() - 2));
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, 0xFFFFFFFF});  // take the packet
  program.push_back({BPF_RET | BPF_K, 0, 0, 0});           // drop it
  return program;
}

// c10d's quick server (libuv) listens on every address, and the one that takes a socket of ours
// needs a quarter of a second for each client. So the quick one is used, and its socket drops what
// is sent to other addresses.
void confine(int port, const std::string& address) {
  const int descriptor = listening_descriptor(port);
  const std::vector<std::string> numeric = resolve(address);
  std::vector<sock_filter> program =
      numeric.empty() ? std::vector<sock_filter>{} : filter_for(numeric.front());
  const sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  if (descriptor < 0 || program.empty() ||
      ::setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &whole, sizeof whole) != 0) {
    log_warning("the store on port {} listens on every address, not on {} alone", port, address);
  }
}

}  // namespace

JobStore::JobStore(const std::string& address, int port) {
  if (port != 0) {
    listen_on(address, port);  // tells who has it, where it is taken
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
    port_ = store->getPort();
    store_ = std::move(store);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot host a store: {}", text.substr(0, text.find('\n'))));
  }
  confine(port_, address);
}

}  // namespace lockstep::launch
