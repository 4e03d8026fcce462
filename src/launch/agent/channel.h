// Non-blocking channel for JSON messages over a socket, one per line.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "launch/system/event_loop.h"
#include "launch/system/network.h"
#include "launch/system/secret.h"

namespace lockstep::launch {

/// Must only be used by the thread of its event loop. The length of a received line is checked
/// before the line is stored.
class Channel {
 public:
  using OnMessage = std::function<void(const nlohmann::json&)>;
  using OnClosed = std::function<void(const std::string& reason)>;
  static constexpr size_t kLongestLine = size_t{16} << 20, kLongestGreeting = size_t{16} << 10;

  /// `socket` must be connected. The event loop calls on_closed once. The channel may only be
  /// destroyed after this handler has returned.
  Channel(EventLoop& loop, Socket socket, OnMessage on_message, OnClosed on_closed);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// A serialized message with the digest that seals use. A message that is sent to several peers
  /// is serialized and hashed once.
  struct Text {
    std::string line;  // including the newline
    Sha256 digest{};   // without the newline
  };
  using Line = std::shared_ptr<const Text>;
  static Line line_of(const nlohmann::json& message);
  /// Does nothing if the channel is closed.
  void send(const nlohmann::json& message) { send_line(line_of(message)); }
  void send_line(const Line& line);
  /// Raises the limit for received lines. Must be called when the peer has authenticated itself.
  void trust() { limit_ = kLongestLine; }
  /// Seals all later lines. Sent lines carry a seal made with `sending_key`. A received line
  /// without a seal made with `receiving_key` closes the channel.
  void seal(const std::string& sending_key, const std::string& receiving_key);
  void close(const std::string& reason);
  bool open() const { return static_cast<bool>(socket_); }
  bool all_sent() const { return outgoing_.empty(); }
  /// Reads the data that has already arrived. Must be called before a peer is considered silent,
  /// because this process may have been stopped itself.
  void catch_up();
  /// Returns the time at which data was last received.
  std::chrono::steady_clock::time_point heard() const { return heard_; }
  const Socket& socket() const { return socket_; }

 private:
  void on_ready();
  void write_some();
  void take_lines();

  EventLoop& loop_;
  Socket socket_;
  OnMessage on_message_;
  OnClosed on_closed_;
  size_t limit_ = kLongestGreeting;
  std::optional<LineSeal> sending_, receiving_;
  std::string incoming_;
  struct Outgoing {
    std::string seal;  // prefix of the line
    Line text;
  };
  std::deque<Outgoing> outgoing_;
  size_t sent_ = 0;  // bytes already sent of the first message, including its seal
  std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep::launch
