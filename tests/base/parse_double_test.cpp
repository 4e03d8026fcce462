// Tests the conversion of text to numbers in a locale whose decimal separator is a comma.
#include "base/parse_double.h"

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/temporary_folder.h"

namespace lockstep {
namespace parse_double_test {

/// Sets the process's locale to German, which localedef compiles into a temporary folder.
class German {
 public:
  German() {
    folder_ = temporary_folder() / ("lockstep-locale-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    const std::string command =
        "localedef -i de_DE -f UTF-8 '" + (folder_ / "de_DE.UTF-8").string() + "' >/dev/null 2>&1";
    if (std::system(command.c_str()) == 0) {
      ::setenv("LOCPATH", folder_.c_str(), 1);
      is_set_ = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
    }
  }
  ~German() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  German(const German&) = delete;
  German& operator=(const German&) = delete;

  bool is_set() const { return is_set_; }

 private:
  std::filesystem::path folder_;
  bool is_set_ = false;
};

TEST(ParseDouble, DecimalSeparatorIsAPointInEveryLocale) {
  const German german;
  if (!german.is_set()) {
    GTEST_SKIP() << "localedef cannot compile the locale de_DE";
  }
  ASSERT_EQ(std::strtod("2.5", nullptr), 2.0);
  EXPECT_EQ(parse_double("2.5"), 2.5);
  char* end = nullptr;
  const std::string text = "1.25e-3 rest";
  EXPECT_EQ(parse_double(text.c_str(), &end), 1.25e-3);
  EXPECT_STREQ(end, " rest");
  EXPECT_TRUE(std::isinf(parse_double("1e999")));
  EXPECT_EQ(parse_double("2,5", &end), 2.0);
  EXPECT_STREQ(end, ",5");
}

}  // namespace parse_double_test
}  // namespace lockstep
