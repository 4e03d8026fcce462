// Steps that every rank does by itself and that fail on all ranks if they fail on one.
#pragma once

#include <exception>
#include <string>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Runs `body`, which must call no collective, on every rank. If it fails on any rank, throws on
/// all with the first failed rank's number and reason. Exceptions other than std::exception pass
/// through: they end the rank.
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
