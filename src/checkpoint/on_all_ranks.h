// Runs a local operation that fails on all ranks if it fails on any rank.
#pragma once

#include <exception>
#include <string>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Runs `body` on every rank. If it fails on any rank, throws on all ranks with the number of the
/// first failed rank and the reason. `body` must not call a collective. Exceptions that are not
/// std::exception are not caught.
template <class Body>
void on_all_ranks(comm::Communicator& communicator, ErrorKind kind, Body&& body) {
  std::string failure;
  try {
    body();
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) {
      failure = "unknown failure";
    }
  }
  comm::agree_on_success(communicator, failure, kind);
}

}  // namespace lockstep::checkpoint
