// The main() of every test program.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <gmock/gmock.h>

int main(int count, char** words) {
  testing::InitGoogleMock(&count, words);
  const int code = RUN_ALL_TESTS();
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}
