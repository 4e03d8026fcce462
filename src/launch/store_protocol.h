// The protocol of c10d's TCPStore, as a server sees it: what clients send goes in, answers come
// out. No sockets. Python and C++ clients of torch 2.2 and later speak it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::launch {

/// One store: keys with values, queues, and the clients that wait for them. One thread.
class StoreProtocol {
 public:
  using Client = uint64_t;
  /// Bytes that a client is to get; called from take() alone.
  using Send = std::function<void(Client client, std::string_view bytes)>;

  static constexpr uint64_t kLongestKey = uint64_t{8} << 20, kLongestValue = uint64_t{1} << 30,
                            kMostKeys = uint64_t{128} << 10;

  explicit StoreProtocol(Send send) : send_(std::move(send)) {}

  /// Bytes that came from a client, cut anywhere. Whole requests are answered; the rest waits for
  /// more. Sizes are checked before anything is kept. False where it is no client of this
  /// protocol: it is forgotten, and its connection is to be closed.
  bool take(Client client, std::string_view bytes);
  /// The client is gone.
  void forget(Client client);

 private:
  enum class Request : uint8_t;
  class Reader;
  enum class Taken { kWhole, kMore, kWrong };
  struct State {
    std::string pending;            // a request that has not come whole
    bool greeted = false;           // it has said the protocol's number
    std::set<std::string> missing;  // keys that it waits for
  };

  Taken take_request(Client client, State& state, Reader& reader);
  Taken wait(Client client, State& state, Reader& reader);
  Taken write(Request request, Reader& reader);
  Taken read(Client client, Request request, Reader& reader);
  Taken use_queue(Client client, Request request, Reader& reader);

  bool present(const std::string& key) const;
  void set(const std::string& key, std::string value);
  std::string compare_set(
      const std::string& key, std::string_view expected, std::string_view value);
  int64_t add(const std::string& key, int64_t amount);
  /// The key is there now: clients that waited for it alone are told. `most` of them, the longest
  /// waiting first.
  void announce(const std::string& key, size_t most);
  void stop_waiting(Client client, State& state);

  Send send_;
  std::unordered_map<Client, State> clients_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::deque<Client>> waiting_;  // by key, in order of coming
};

}  // namespace lockstep::launch
