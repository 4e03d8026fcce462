// Expectations on the kind and message of an Error.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {

/// Expects that `body` throws an Error of this kind whose message contains all `texts`.
template <class Body>
void expect_error(ErrorKind kind, const std::vector<std::string>& texts, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    for (const std::string& text : texts) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << "expected: " << text << "\ngot: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "no error, where one with " << ::testing::PrintToString(texts) << " was due";
}

}  // namespace lockstep
