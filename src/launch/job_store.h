// The c10d TCPStore of a job, hosted by the launcher on one address alone.
#pragma once

#include <string>

#include "comm/store.h"

namespace lockstep::launch {

/// A TCPStore that listens on `address` (loopback, or the one interface that was named) and nowhere
/// else. It lives as long as the object. Error (environment) where the port is taken, with the
/// process that holds it where that can be seen.
class JobStore {
 public:
  /// `port` 0 takes a free one, without a race.
  explicit JobStore(const std::string& address = "127.0.0.1", int port = 0);
  int port() const { return port_; }
  const comm::Store& store() const { return store_; }

 private:
  comm::Store store_;
  int port_ = 0;
};

}  // namespace lockstep::launch
