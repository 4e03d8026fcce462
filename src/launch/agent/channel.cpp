// Non-blocking JSON lines over a socket.
#include "launch/agent/channel.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include "base/error.h"
#include "base/json.h"

namespace lockstep::launch {

Channel::Channel(EventLoop& loop, Socket socket, OnMessage on_message, OnClosed on_closed)
    : loop_(loop),
      socket_(std::move(socket)),
      on_message_(std::move(on_message)),
      on_closed_(std::move(on_closed)) {
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  loop_.watch(socket_.get(), [this] { on_ready(); });
}

Channel::~Channel() {
  if (socket_) {
    loop_.forget(socket_.get());
  }
}

void Channel::close(const std::string& reason) {
  if (socket_) {
    loop_.forget(socket_.get());
    socket_ = Socket();
    on_closed_(reason);
  }
}

Channel::Line Channel::line_of(const nlohmann::json& message) {
  std::string line = message.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  const Sha256 digest = sha256(line);
  return std::make_shared<const Text>(Text{std::move(line += '\n'), digest});
}

void Channel::send_line(const Line& text) {
  if (socket_) {
    outgoing_.push_back({sending_ ? sending_->prefix(text->digest) : "", text});
    write_some();
  }
}

void Channel::seal(const std::string& sending_key, const std::string& receiving_key) {
  sending_.emplace(sending_key);
  receiving_.emplace(receiving_key);
}

void Channel::write_some() {
  while (!outgoing_.empty()) {
    const auto& [seal, text] = outgoing_.front();
    const bool in_seal = sent_ < seal.size();
    const std::string& part = in_seal ? seal : text->line;
    const size_t begin = in_seal ? sent_ : sent_ - seal.size();
    const ssize_t size = ::send(
        socket_.get(),
        part.data() + begin,
        part.size() - begin,
        MSG_NOSIGNAL | MSG_DONTWAIT | (in_seal ? MSG_MORE : 0));
    if (size < 0) {
      // The event loop detects a broken connection when it next reads. The callers of send() do not
      // expect it to close the channel.
      if (errno != EAGAIN && errno != EINTR) {
        outgoing_.clear();
        sent_ = 0;
      }
      break;
    }
    sent_ += static_cast<size_t>(size);
    if (sent_ == seal.size() + text->line.size()) {
      outgoing_.pop_front();
      sent_ = 0;
    }
  }
  loop_.want_write(socket_.get(), !outgoing_.empty());
}

void Channel::on_ready() {
  if (!outgoing_.empty()) {
    write_some();
  }
  std::array<char, 65536> buffer;
  const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size > 0) {
    heard_ = std::chrono::steady_clock::now();
    incoming_.append(buffer.data(), static_cast<size_t>(size));
    take_lines();
  } else if (size == 0) {
    close("the connection was closed");
  } else if (errno != EAGAIN && errno != EINTR) {
    close(std::strerror(errno));
  }
}

void Channel::catch_up() {
  if (socket_) {
    on_ready();
  }
}

void Channel::take_lines() {
  size_t begin = 0, end = 0;
  while (socket_ && (end = incoming_.find('\n', begin)) != std::string::npos) {
    const std::string line = incoming_.substr(begin, end - begin);
    begin = end + 1;
    const std::optional<std::string_view> said =
        receiving_ ? receiving_->open(line) : std::optional<std::string_view>(line);
    if (!said) {
      close("received a line without a valid seal");
      return;
    }
    try {
      on_message_(parse_json(std::string(*said), "a message", ErrorKind::kPeerLost));
    } catch (const std::exception& error) {
      close(std::string("received an invalid message: ") + error.what());
      return;
    }
  }
  incoming_.erase(0, begin);
  if (incoming_.size() > limit_) {
    close("received a message that is too long");
  }
}

}  // namespace lockstep::launch
