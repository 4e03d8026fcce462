// A step that every rank takes by itself, and whose failure anywhere is every rank's.
#pragma once

#include <exception>
#include <string>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Runs `body`, which calls no collective, on every rank; throws on all of them, with the first
/// failed rank's number and reason, where it failed on any. What is no std::exception passes
/// through: it stands for the end of the rank.
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
