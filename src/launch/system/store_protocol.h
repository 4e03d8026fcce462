// Server side of c10d's TCPStore protocol. Converts bytes from clients to answers and uses no
// sockets. Compatible with Python and C++ clients of torch 2.2 and later.
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

/// A store: keys with values, queues, and the clients that wait for them. Not thread-safe.
class StoreProtocol {
 public:
  using Client = uint64_t;
  /// Sends an answer to a client; called only from take(). Returns false if the client must read it
  /// before its next request is processed.
  using Send = std::function<bool(Client client, std::string answer)>;

  /// kMostHeld is the limit of all stored data and of one answer.
  static constexpr uint64_t kLongestKey = uint64_t{8} << 20, kMostHeld = uint64_t{256} << 20,
                            kLongestValue = kMostHeld, kMostKeys = uint64_t{128} << 10;
  /// Limits of the requests that one call of take() processes, so that no client delays others.
  static constexpr size_t kMostRequests = 64, kMostBytes = size_t{64} << 10;

  /// Returns a client's first message followed by a ping. The server answers the ping with
  /// `number`.
  static std::string greeting_and_ping(uint32_t number);

  explicit StoreProtocol(Send send, uint64_t most_held = kMostHeld)
      : send_(std::move(send)),
        most_held_(most_held) {}

  enum class Progress {
    kNeedsBytes,   // every complete request has been processed
    kHasRequests,  // some may not have been: call take() again, without bytes
    kRefused,      // the client is forgotten, and its connection must be closed
  };
  /// Processes bytes of a client, split anywhere. Some complete requests are answered; the rest is
  /// buffered. Sizes are checked before anything is stored. A client is refused if it violates the
  /// protocol or exceeds a limit.
  Progress take(Client client, std::string_view bytes);
  /// Must be called when the client has disconnected.
  void forget(Client client);
  /// Returns the number of stored bytes, including the overhead of keys.
  uint64_t held() const { return held_; }

 private:
  enum class Request : uint8_t;
  class Reader;
  enum class Taken { kWhole, kMore, kWrong };
  struct State {
    std::string pending;            // incomplete request
    bool greeted = false;           // the client has sent the protocol's magic number
    std::set<std::string> missing;  // keys that the client waits for
  };

  Taken take_request(Client client, State& state, Reader& reader);
  void answer(Client client, std::string bytes);
  Taken wait(Client client, State& state, Reader& reader);
  Taken write(Request request, Reader& reader);
  Taken read(Client client, Request request, Reader& reader);
  Taken use_queue(Client client, Request request, Reader& reader);

  bool has_room(uint64_t bytes) const { return bytes <= most_held_ && held_ <= most_held_ - bytes; }
  bool present(const std::string& key) const;
  std::string& value_at(const std::string& key);
  void set(const std::string& key, std::string value);
  std::string compare_set(
      const std::string& key, std::string_view expected, std::string_view value);
  int64_t add(const std::string& key, int64_t amount);
  /// Notifies at most `most` clients that waited only for this key. Those that have waited longest
  /// are notified first.
  void announce(const std::string& key, size_t most);
  void stop_waiting(Client client, State& state);

  Send send_;
  const uint64_t most_held_;
  uint64_t held_ = 0;
  bool must_read_ = false;  // the client whose requests are being processed
  std::unordered_map<Client, State> clients_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::deque<Client>> waiting_;  // by key, in order of arrival
};

}  // namespace lockstep::launch
