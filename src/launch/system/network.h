// Network addresses and sockets.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// Socket that is closed by the destructor. Move-only.
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

/// Returns a TCP socket that listens on `address` (empty: all addresses) and `port` (0: a free
/// one). It is closed on exec. Throws Error (environment) if the name cannot be resolved, the
/// address is not local, or the port is in use; the error names the process that uses it.
Socket listen_on(const std::string& address, int port);
/// Returns the port that a socket is bound to.
int bound_port(const Socket& socket);

/// Returns the process that listens on `port`, such as "PID 123 (python)", or "another process" if
/// it is not visible.
std::string port_holder(int port);

/// Connection in progress. Wait until the socket is writable, then call connection_error().
struct Connecting {
  Socket socket;
  std::string error;  // reason if the connection failed immediately
};
Connecting begin_connect(const std::string& address, int port);
/// Returns an empty string if the socket is connected, otherwise the reason.
std::string connection_error(const Socket& socket);
/// Connects, and blocks for at most `timeout`. `error` is empty if the socket is connected.
Connecting connect_within(const std::string& address, int port, std::chrono::milliseconds timeout);

/// Return the numeric address of the local or the remote end of a connection.
std::string own_address(const Socket& socket);
std::string peer_address(const Socket& socket);
int peer_port(const Socket& socket);

/// Returns the address at which other machines most likely reach this one: that of the default
/// route, otherwise that of the first non-loopback interface. Empty if there is none.
std::string outside_address();
/// True if the other end of a connection is on this machine and belongs to this process's user or
/// to root. The end of a server that has not accepted the connection yet has no owner.
bool is_from_own_user(const Socket& socket);
/// Returns the user at the other end of a local connection. Returns nullopt if the connection is
/// remote, not visible or already closed.
std::optional<unsigned> peer_user(const Socket& socket);
/// "user alice (uid 1000)".
std::string user_name(unsigned user);

/// Returns the numeric addresses of a name. Empty if it cannot be resolved.
std::vector<std::string> resolve(const std::string& name);
/// True if a name other than loopback's resolves to loopback on this machine, as /etc/hosts often
/// has it for the machine's own name. Other machines know it by another address.
bool is_loopback_only_here(const std::string& name);
/// True if one of this machine's interfaces has this numeric address.
bool is_own_address(const std::string& address);
bool is_loopback(const std::string& address);
/// Returns true if the address is not loopback, link-local or private (RFC 1918, RFC 4193). Names
/// are resolved first.
bool is_public(const std::string& address);
/// Returns the interface with this address, such as "eth0 (10.0.0.1)", or just the address.
std::string interface_of(const std::string& address);
/// Returns the interface of packets to `address`, such as "eth0 (10.0.0.1)", or "no interface" if
/// there is no route.
std::string route_to(const std::string& address);

std::string own_host_name();

}  // namespace lockstep::launch
