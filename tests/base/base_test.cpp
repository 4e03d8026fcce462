// Tests files, hashes, JSON, logging and errors.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/processor.h"
#include "temporary_folder.h"

namespace lockstep {
namespace base_test {

TEST(Error, TellsCauseContextsAndRemedy) {
  const auto read = [] {
    in_context("resuming", [] {
      in_context("reading a.safetensors", [] {
        throw Error(ErrorKind::kCheckpoint, "12 bytes are missing", "use an older checkpoint");
      });
    });
  };
  try {
    read();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "12 bytes are missing\n  while reading a.safetensors\n  while resuming\n"
        "  try: use an older checkpoint");
    EXPECT_EQ(exit_code(error.kind()), 4);
  }
}

TEST(File, WritesAtomicallyAndMaps) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.txt";
  write_file_atomically(path, "one");
  write_file_atomically(path, "two");
  EXPECT_EQ(read_file(path), "two");
  EXPECT_EQ(MappedFile(path).text(), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, MapsAnEmptyFileAndNamesAMissingOne) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "empty", "");
  EXPECT_EQ(MappedFile(folder.path() / "empty").size(), 0U);
  try {
    MappedFile file(folder.path() / "missing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("missing"), std::string::npos);
    EXPECT_NE(error.message().find("No such file"), std::string::npos);
  }
  EXPECT_THROW(MappedFile{folder.path()}, Error);
}

/// Returns the file pages in the memory of this process.
int64_t pages_of_files() {
  int64_t all = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> all >> resident >> shared;
  return shared;
}

TEST(File, PagesThatWereReadAreForgottenAndReadAgain) {
  const TemporaryFolder folder;
  constexpr size_t kPage = 4096, kPages = 1024;
  write_file_atomically(folder.path() / "large", std::string(kPages * kPage, 'x'));
  const MappedFile file(folder.path() / "large");
  const auto sum = [&] {
    size_t found = 0;
    for (size_t at = 0; at < file.size(); at += kPage) {
      found += file.text()[at] == 'x' ? 1 : 0;
    }
    return found;
  };
  const int64_t before = pages_of_files();
  EXPECT_EQ(sum(), kPages);
  EXPECT_GT(pages_of_files(), before + static_cast<int64_t>(kPages) / 2);
  forget_pages(file.bytes().subspan(1));  // except the first
  EXPECT_LT(pages_of_files(), before + static_cast<int64_t>(kPages) / 2);
  EXPECT_EQ(sum(), kPages);
}

char first_of_a_cut_file(const std::filesystem::path& path) {
  const MappedFile kept(path);
  const MappedFile other(path.parent_path() / "other");
  std::filesystem::resize_file(path, 0);
  return *reinterpret_cast<const volatile char*>(kept.bytes().data());
}

TEST(MappedFileDeathTest, OneThatIsCutOffIsNamedBeforeTheEnd) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tokens";
  write_file_atomically(path, std::string(10'000, 'x'));
  write_file_atomically(folder.path() / "other", "other");
  EXPECT_EXIT(
      first_of_a_cut_file(path),
      ::testing::KilledBySignal(SIGBUS),
      "/tokens was truncated while it was read");
}

TEST(File, ReadsByOffsetAndTellsWhereItEnds) {
  const TemporaryFolder folder;
  File file(folder.path() / "a", File::Mode::kCreate);
  file.resize(8);
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  file.write_at(2, bytes);
  std::array<std::byte, 3> read{};
  file.read_at(2, read);
  EXPECT_EQ(read, bytes);
  try {
    file.read_at(6, read);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("ends at byte 8"), std::string::npos) << error.what();
  }
}

template <class Body>
std::string error_of(Body body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(File, ReadsNoPipeAndNothingTooLarge) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe", sparse = folder.path() / "sparse";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_file(pipe); }), pipe.string() + " is not a regular file");
  EXPECT_EQ(error_of([&] { MappedFile{pipe}; }), pipe.string() + " is not a file");
  EXPECT_EQ(
      error_of([&] { File(pipe, File::Mode::kRead); }), pipe.string() + " is not a regular file");
  EXPECT_EQ(
      error_of([&] { File(folder.path(), File::Mode::kRead); }),
      folder.path().string() + " is a folder, not a file");
  EXPECT_EQ(read_file("/dev/null"), "");
  File(sparse, File::Mode::kCreate).resize(uint64_t{200} << 30);
  EXPECT_NE(error_of([&] { read_file(sparse); }).find("but the maximum is"), std::string::npos);
  write_file_atomically(folder.path() / "small", "12345");
  EXPECT_EQ(read_file(folder.path() / "small", ErrorKind::kData, 5), "12345");
  EXPECT_NE(error_of([&] { read_file(folder.path() / "small", ErrorKind::kData, 4); }), "");
  EXPECT_EQ(read_file("/dev/null"), "");
}

TEST(File, IsMadeNewWhereThatIsWanted) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file", link = folder.path() / "link";
  std::filesystem::create_symlink(path, link);
  EXPECT_THROW(File(link, File::Mode::kCreateNew), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
  File(path, File::Mode::kCreateNew);
  EXPECT_THROW(File(path, File::Mode::kCreateNew), Error);
}

// Text from other machines and files must not control the terminal.
TEST(Log, LetsNoControlCharactersThrough) {
  ::testing::internal::CaptureStderr();
  log_line(LogLevel::kWarning, "a\x1b]0;title\x07\r\x7f b\n\tc \u00e9");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: a?]0;title??? b\n\tc \u00e9\n");
}

TEST(Hash, EqualsThePublishedVectors) {
  EXPECT_EQ(
      hash_hex(""), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of the empty string, seed 0
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(std::string_view("ab"))));
  hasher.update(std::as_bytes(std::span(std::string_view("c"))));
  EXPECT_EQ(hasher.hex(), hash_hex("abc"));
}

TEST(Nearest, FindsTypingErrorsAndNothingElse) {
  const std::vector<std::string> names{"learning_rate", "max_steps", "seed"};
  EXPECT_EQ(nearest_name("learnign_rate", names), "learning_rate");
  EXPECT_EQ(nearest_name("sede", names), "seed");
  EXPECT_EQ(nearest_name("speed_of_light", names), std::nullopt);
  EXPECT_EQ(nearest_name("max_stps", names), "max_steps");
  EXPECT_EQ(nearest_name("steps", names), "max_steps");
  EXPECT_EQ(did_you_mean("nothing_like_it", names), "");
}

TEST(Json, TellsWhereItBreaks) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"b": null}]})", "x.json")["a"][0], 1);
  try {
    parse_json("{\n \"a\": 1,\n}", "x.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("x.json is not JSON at line 3"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(parse_json(R"({"a": 1, "a": 2})", "x.json"), Error);
  EXPECT_THROW(parse_json(std::string(100, '['), "x.json"), Error);
  EXPECT_THROW(parse_json("", "x.json"), Error);
  EXPECT_THROW(
      parse_json(std::string_view("{}\0{}", 5), "x.json"),
      Error);  // text after a zero byte is not ignored
}

TEST(CounterRandom, IsUniformAndDependsOnKeyAndCounter) {
  double sum = 0;
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 10000; ++i) {
    sum += random_uniform(derive_key(7, 3), i);
    seen.insert(random_bits(derive_key(7, 3), i));
    seen.insert(random_bits(derive_key(7, 4), i));
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  EXPECT_EQ(seen.size(), 20000U);
}

TEST(Processor, AVariableHidesInstructions) {
  const InstructionSet all = instruction_set_up_to(nullptr);
  EXPECT_EQ(instruction_set_up_to("amx"), all);
  EXPECT_EQ(instruction_set_up_to("avx2"), std::min(all, InstructionSet::kAvx2));
  EXPECT_EQ(instruction_set_up_to("avx512"), std::min(all, InstructionSet::kAvx512));
  EXPECT_EQ(instruction_set_up_to("avx512_bf16"), std::min(all, InstructionSet::kAvx512Bfloat16));
  for (const char* name : {"", "AVX2", "avx10"}) {
    try {
      (void)instruction_set_up_to(name);
      ADD_FAILURE() << "no error for " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.remedy().find("avx2, avx512, avx512_bf16, amx"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace base_test
}  // namespace lockstep
