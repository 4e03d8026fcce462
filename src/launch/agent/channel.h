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

/// Used by one event loop and its thread. The size of received lines is checked before they are
/// stored.
class Channel {
 public:
  using OnMessage = std::function<void(const nlohmann::json&)>;
  using OnClosed = std::function<void(const std::string& reason)>;
  static constexpr size_t kLongestLine = size_t{16} << 20, kLongestGreeting = size_t{16} << 10;

  /// `socket` is connected. on_closed is called once by the loop; the channel may be destroyed only
  /// after the handler has returned.
  Channel(EventLoop& loop, Socket socket, OnMessage on_message, OnClosed on_closed);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// A message as it is sent, with the digest used by seals. It is shared by all connections to
  /// which the message is sent.
  struct Text {
    std::string line;  // including the newline
    Sha256 digest{};   // without
  };
  using Line = std::shared_ptr<const Text>;
  static Line line_of(const nlohmann::json& message);
  /// No effect if the channel is closed.
  void send(const nlohmann::json& message) { send_line(line_of(message)); }
  void send_line(const Line& line);
  /// Accepts long lines from now on, because the peer has authenticated itself.
  void trust() { limit_ = kLongestLine; }
  /// Seals all later lines: sent lines carry a seal with one key, and a received line without a
  /// seal of the other key closes the channel.
  void seal(const std::string& sending_key, const std::string& receiving_key);
  void close(const std::string& reason);
  bool open() const { return static_cast<bool>(socket_); }
  bool all_sent() const { return outgoing_.empty(); }
  /// Reads what has already arrived. Call before judging a peer silent, because this process may
  /// have been stopped itself.
  void catch_up();
  /// When something was last received.
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
