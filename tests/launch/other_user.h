// Threads whose sockets belong to another user.
#pragma once

#include <string>
#include <thread>

#include <sys/fsuid.h>
#include <sys/types.h>
#include <unistd.h>

namespace lockstep::launch::testing {

inline constexpr uid_t kNobody = 65534;

/// Reason for which this process cannot act as another user; empty if it can.
inline std::string no_other_user() {
  bool can = false;
  std::thread([&] {
    ::setfsuid(kNobody);
    can = static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))) == kNobody;
  }).join();
  return can ? "" : "only root can act as another user";
}

/// Sockets that this thread creates or accepts from now on belong to `user`: the kernel takes the
/// owner from the thread's file-system user.
inline void own_sockets_as(uid_t user) {
  ::setfsuid(user);
}

}  // namespace lockstep::launch::testing
