// Expectations on an Error's kind and text.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {

/// What `body` throws as an Error has this kind and holds all these texts.
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
