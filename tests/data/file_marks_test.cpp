// Tests of the cache of file hashes.
#include "data/file_marks.h"

#include <chrono>
#include <thread>

#include <sys/stat.h>

#include "data_testing.h"

namespace lockstep::data {
namespace file_marks_test {

namespace fs = std::filesystem;

TEST(FileMarks, HoldUntilTheFileChanges) {
  const TemporaryFolder folder;
  const auto path = write(folder, "a", "one");
  // A recently written file is not cached, because it may change again within the clock's
  // resolution.
  EXPECT_EQ(FileMarks(folder.path(), 1).state_of(path), std::nullopt);
  const FileMarks marks(folder.path(), 1, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));

  const auto state = marks.state_of(path);
  ASSERT_TRUE(state.has_value());
  marks.remember(path, "hash", state, "h");
  EXPECT_EQ(marks.find(path, "hash"), "h");
  EXPECT_EQ(marks.find(path, "other"), std::nullopt);
  EXPECT_EQ(
      FileMarks(folder.path(), 4).find(path, "hash"), std::nullopt);  // too small to be cached
  EXPECT_EQ(marks.find(folder.path() / "none", "hash"), std::nullopt);

  // Same size and a reset modification time: the change time reveals the modification.
  const auto modified = fs::last_write_time(path);
  write(folder, "a", "two");
  fs::last_write_time(path, modified);
  EXPECT_EQ(marks.find(path, "hash"), std::nullopt);
  marks.remember(path, "hash", state, "old");  // read before the change
  EXPECT_EQ(marks.find(path, "hash"), std::nullopt);
}

TEST(FileMarks, IgnoreDamageAndFoldersThatAreNone) {
  const TemporaryFolder folder;
  const FileMarks marks(folder.path() / "none", 0);
  const fs::path program = "/bin/sh";  // a file that has not changed for a long time
  marks.remember(program, "hash", marks.state_of(program), "h");
  EXPECT_EQ(marks.find(program, "hash"), std::nullopt);
  const FileMarks here(folder.path(), 0);
  here.remember(program, "hash", here.state_of(program), "h");
  EXPECT_EQ(here.find(program, "hash"), "h");
  const fs::path mark = fs::directory_iterator(folder.path())->path();
  const std::string whole = read_file(mark);
  for (size_t size = 0; size < whole.size(); ++size) {
    write(folder, mark.filename().string(), std::string_view(whole).substr(0, size));
    EXPECT_EQ(here.find(program, "hash"), std::nullopt) << size;
  }
}

}  // namespace file_marks_test
}  // namespace lockstep::data
