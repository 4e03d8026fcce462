// Several ranks write runs of any length to one file: the file has all bytes, and the sums of
// hashes match those of a reader.
#include "checkpoint/page_writer.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "base/format.h"
#include "checkpoint/manifest_text.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace page_writer_test {

std::vector<std::byte> random_bytes(size_t size, std::mt19937_64& random) {
  std::vector<std::byte> bytes(size);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

/// Ends of runs that cover [0, size): a few bytes, whole pages, and more than a buffer.
std::vector<uint64_t> cuts_of(uint64_t size, std::mt19937_64& random) {
  std::vector<uint64_t> ends;
  for (uint64_t at = 0; at < size; ends.push_back(at)) {
    at = std::min(size, at + 1 + random() % (uint64_t{1} << (random() % 23)));
    at = random() % 4 == 0 ? std::min(size, (at + kPageBytes) / kPageBytes * kPageBytes) : at;
  }
  return ends;
}

/// Writes as `ranks` ranks that divide the runs among them; at the end each rank reads the pages
/// that it shares.
std::vector<PageSum> write_together(
    const std::filesystem::path& path,
    const std::vector<std::byte>& bytes,
    uint64_t ranks,
    std::mt19937_64& random) {
  const std::vector<uint64_t> ends = cuts_of(bytes.size(), random);
  std::vector<uint64_t> owners(ends.size());
  std::generate(owners.begin(), owners.end(), [&] { return random() % ranks; });
  BackgroundWriter behind(system_disk());
  std::vector<PageSum> sums(chunks_of(bytes.size()));
  std::vector<uint64_t> shared;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    PageWriter writer(system_disk(), path, bytes.size(), sums, behind);
    for (size_t i = 0; i < ends.size(); ++i) {
      const uint64_t begin = i == 0 ? 0 : ends[i - 1];
      if (owners[i] == rank) {
        writer.write(begin, std::span(bytes).subspan(begin, ends[i] - begin));
      }
    }
    writer.finish();
    shared.insert(shared.end(), writer.shared_pages().begin(), writer.shared_pages().end());
  }
  const std::string text = read_file(path);
  for (const uint64_t page : shared) {
    const auto whole = std::as_bytes(std::span(text)).subspan(page * kPageBytes);
    sums[page * kPageBytes / kChunkBytes].add(
        whole.first(std::min<size_t>(whole.size(), kPageBytes)), page);
  }
  return sums;
}

TEST(PageWriter, WritesAndHashesWhatRanksShare) {
  // In the build folder, which is on a disk, to test direct I/O.
  const TemporaryFolder folder(std::filesystem::current_path());
  std::mt19937_64 random(5);
  for (const uint64_t size :
       {1UL, 4095UL, 4096UL, 4097UL, 300'000UL, 5'000'001UL, (17UL << 20) + 7}) {
    const std::vector<std::byte> bytes = random_bytes(size, random);
    const FileRecord expected = record_of(bytes);
    for (const uint64_t ranks : {1, 2, 5}) {
      SCOPED_TRACE(fmt::format("{} bytes, {} ranks", size, ranks));
      const auto path = folder.path() / "file";
      system_disk().create_file(path, size);
      const std::vector<PageSum> sums = write_together(path, bytes, ranks, random);
      const std::string text = read_file(path);
      ASSERT_TRUE(std::ranges::equal(std::as_bytes(std::span(text)), bytes));
      ASSERT_EQ(sums.size(), expected.chunks.size());
      for (size_t chunk = 0; chunk < sums.size(); ++chunk) {
        EXPECT_EQ(sums[chunk].hex(), expected.chunks[chunk]);
      }
    }
  }
}

TEST(BackgroundWriter, TellsTheFirstErrorAndWritesNothingAfterIt) {
  class Failing : public Disk {
   public:
    void write(File& /*file*/, uint64_t offset, std::span<const std::byte> /*bytes*/) override {
      ++writes;
      if (offset >= 2) {
        throw Error(ErrorKind::kCheckpoint, fmt::format("no room at {}", offset));
      }
    }
    int writes = 0;
  };
  const TemporaryFolder folder;
  system_disk().create_file(folder.path() / "file", 1);
  File file(folder.path() / "file", File::Mode::kWrite);
  Failing disk;
  {
    BackgroundWriter behind(disk);
    for (uint64_t offset = 0; offset < 20; ++offset) {
      behind.write(file, offset, std::span(behind.buffer(), 1));
    }
    behind.wait();
    try {
      behind.throw_error();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "no room at 2");
    }
    behind.throw_error();  // the error was reported already
  }
  EXPECT_EQ(disk.writes, 3);
}

TEST(PageSum, KnowsBytesAndTheirPlaces) {
  std::mt19937_64 random(6);
  std::vector<std::byte> bytes = random_bytes(5 * kPageBytes + 9, random);
  const std::string hash = chunk_hash(ChunkHash::kPages, bytes, 0);
  EXPECT_EQ(hash.size(), 32U);
  EXPECT_NE(chunk_hash(ChunkHash::kPages, bytes, kChunkBytes), hash);
  for (int i = 0; i < 200; ++i) {
    std::byte& changed = bytes[random() % bytes.size()];
    const std::byte bit = std::byte{1} << (random() % 8);
    changed ^= bit;
    EXPECT_NE(chunk_hash(ChunkHash::kPages, bytes, 0), hash);
    changed ^= bit;
  }
  bytes = random_bytes(2 * kPageBytes, random);
  const std::string before = chunk_hash(ChunkHash::kPages, bytes, 0);
  std::rotate(bytes.begin(), bytes.begin() + kPageBytes, bytes.end());
  EXPECT_NE(chunk_hash(ChunkHash::kPages, bytes, 0), before);  // two pages swapped
}

}  // namespace page_writer_test
}  // namespace lockstep::checkpoint
