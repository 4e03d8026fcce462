// The main() of every test program.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <gmock/gmock.h>

int main(int count, char** words) {
  testing::InitGoogleMock(&count, words);
  const int code = RUN_ALL_TESTS();
#ifdef __SANITIZE_ADDRESS__
  return code;  // what is left is looked for at the end
#endif
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}
