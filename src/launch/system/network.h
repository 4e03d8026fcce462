// Addresses and sockets.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A socket that is closed by its destructor. Move-only.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int get() const { return descriptor_; }
  int release();
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// A TCP socket that listens on `address` (empty: on all) and `port` (0: a free one), CLOEXEC.
/// Error (environment): the name cannot be resolved, the address is not this machine's, or the port
/// is taken, and by whom.
Socket listen_on(const std::string& address, int port);
/// The port that a socket is bound to.
int bound_port(const Socket& socket);

/// "PID 123 (python)" of the process that listens on `port`; "another process" where that cannot be
/// seen.
std::string port_holder(int port);

/// A connection that is begun, not waited for. Wait until it is writable, then ask
/// connection_error().
struct Connecting {
  Socket socket;
  std::string error;  // where it failed at once
};
Connecting begin_connect(const std::string& address, int port);
/// Empty where the connection stands.
std::string connection_error(const Socket& socket);
/// Blocks at most `timeout`. The error is empty where the socket is connected.
Connecting connect_within(const std::string& address, int port, std::chrono::milliseconds timeout);

/// The numeric address of this end, or the other end, of a connection.
std::string own_address(const Socket& socket);
std::string peer_address(const Socket& socket);

/// The address at which others most likely reach this machine: that of its default route, else of
/// its first interface but loopback; empty where there is none.
std::string outside_address();
/// Whether a connection comes from this machine, and there from this process's user or root.
bool is_from_own_user(const Socket& socket);
/// The user at the other end of a connection from this machine; nothing where it comes from another
/// one, cannot be seen, or is gone again.
std::optional<unsigned> peer_user(const Socket& socket);

/// The numeric addresses that a name stands for; empty where there are none.
std::vector<std::string> resolve(const std::string& name);
/// One of this machine's interfaces has this numeric address.
bool is_own_address(const std::string& address);
bool is_loopback(const std::string& address);
/// Neither loopback nor link-local nor of a private network (RFC 1918, RFC 4193). A name counts as
/// what it resolves to.
bool is_public(const std::string& address);
/// "eth0 (10.0.0.1)": the interface with this address, or just the address.
std::string interface_of(const std::string& address);
/// "eth0 (10.0.0.1)" from which packets to `address` would leave; "no interface" where there is no
/// route.
std::string route_to(const std::string& address);

std::string own_host_name();

}  // namespace lockstep::launch
