// Tests the folder for tokenized data.
#include "config/core/cache_folder.h"

#include <cstdlib>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"

namespace lockstep::config {
namespace cache_folder_test {

// Unsets an environment variable for its lifetime.
class Without {
 public:
  explicit Without(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) {
      old_ = value;
    }
    ::unsetenv(name);
  }
  ~Without() {
    if (old_) {
      ::setenv(name_, old_->c_str(), 1);
    }
  }
  Without(const Without&) = delete;
  Without& operator=(const Without&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(CacheFolder, WithoutAHomeItIsThisUsersOwn) {
  const Without home("HOME"), cache("XDG_CACHE_HOME");
  const std::filesystem::path folder = cache_folder("");
  EXPECT_EQ(folder, fmt::format("/tmp/lockstep-{}/data", ::geteuid()));
  struct stat info{};
  ASSERT_EQ(::lstat(folder.parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(info.st_mode & 0022, 0U);
  EXPECT_EQ(cache_folder("here"), "here");
}

}  // namespace cache_folder_test
}  // namespace lockstep::config
