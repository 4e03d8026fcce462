// Local steps that fail on all ranks if they fail on any rank.
#pragma once

#include <exception>
#include <string>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Runs `body` on every rank; `body` must not call a collective. If it fails on any rank, throws on
/// all ranks with the first failed rank's number and reason. Exceptions other than std::exception
/// propagate unchanged and end the rank.
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
