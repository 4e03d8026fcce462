// main() of all test programs.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <gmock/gmock.h>

int main(int count, char** words) {
  testing::InitGoogleMock(&count, words);
  const int code = RUN_ALL_TESTS();
#ifdef __SANITIZE_ADDRESS__
  return code;  // the sanitizer checks for leaks at exit
#endif
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}
