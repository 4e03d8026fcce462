// Tests of the token file format.
#include "data/token_file.h"

#include <cstring>

#include "data/token_dataset.h"
#include "data_testing.h"

namespace lockstep::data {
namespace token_file_test {

std::vector<int64_t> all_tokens(const TokenDataset& set) {
  std::vector<int64_t> ids(static_cast<size_t>(set.tokens()));
  set.read(0, ids);
  return ids;
}

TEST(TokenFile, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  for (const int64_t vocabulary : {1000L, 65536L, 65537L, 200'000L}) {
    const auto last = static_cast<int32_t>(vocabulary - 1);
    const auto path = write_tokens(folder, {{{1, 2, last}}, {{4}}, {{5, 6}, 1}, {{7}}}, vocabulary);
    const auto set = TokenDataset::open(path);
    set->verify();
    EXPECT_EQ(all_tokens(*set), (std::vector<int64_t>{1, 2, last, 4, 5, 6, 7}));
    EXPECT_EQ(set->documents(), 4);
    EXPECT_EQ(set->vocabulary_size(), vocabulary);
    EXPECT_EQ(set->pad(), 999);
    EXPECT_EQ(set->key(), std::string(32, 'k'));
    EXPECT_TRUE(set->has_prompts());
    EXPECT_EQ(set->document(0).prompt_end, 0);
    EXPECT_EQ(set->document(2).begin, 4);
    EXPECT_EQ(set->document(2).prompt_end, 5);
    EXPECT_EQ(set->document(2).end, 6);
    const std::vector<int64_t> expected{0, 0, 0, 1, 2, 2, 3};
    for (int64_t at = 0; at < 7; ++at) {
      EXPECT_EQ(set->document_of(at), expected[static_cast<size_t>(at)]);
    }
    // Vocabularies of up to 65,536 entries use two-byte ids, so the file has the minimum size.
    const uint64_t space = (7 * (vocabulary <= 65536 ? 2 : 4) + 7) / 8 * 8;
    EXPECT_EQ(std::filesystem::file_size(path), 4096 + space + 2 * 8 * 4);
  }
  EXPECT_FALSE(TokenDataset::open(write_tokens(folder, {{{1}}, {{2}}}))->has_prompts());
  const auto empty = TokenDataset::open(write_tokens(folder, {}));
  EXPECT_EQ(empty->tokens(), 0);
}

TEST(TokenFile, StreamsMoreThanABlock) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder.path() / "a", "key", 100'000, 0);
  std::vector<int32_t> ids(777);
  for (int32_t i = 0; i < 1500; ++i) {
    std::fill(ids.begin(), ids.end(), i);
    writer.add(ids);
    writer.end_document(i == 1499 ? 5 : 0);  // only a late document has a prompt
  }
  writer.commit();
  const auto set = TokenDataset::open(folder.path() / "a");
  set->verify();
  EXPECT_EQ(set->tokens(), 1500 * 777);
  EXPECT_EQ(set->token(777 * 1000), 1000);
  EXPECT_EQ(set->token(777 * 1000 - 1), 999);
  EXPECT_EQ(set->document(1498).prompt_end, set->document(1498).begin);
  EXPECT_EQ(set->document(1499).prompt_end, set->document(1499).begin + 5);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TokenFile, LeavesNothingUnlessCommitted) {
  const TemporaryFolder folder;
  {
    TokenFileWriter writer(folder.path() / "a", "key", 10, 0);
    writer.add(std::vector<int32_t>{1, 2});
    writer.end_document(1);
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "a"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  TokenFileWriter writer(folder.path() / "a", "key", 10, 0);
  const auto add = [&](int32_t id) { writer.add(std::vector<int32_t>{id}); };
  expect_parts(error_of([&] { add(10); }, ErrorKind::kInternal), {"the id 10", "10 entries"});
  expect_parts(error_of([&] { add(-1); }, ErrorKind::kInternal), {"the id -1"});
  expect_parts(
      error_of([&] { TokenFileWriter(folder.path() / "no" / "a", "key", 10, 0); }),
      {"cannot create"});
}

TEST(TokenFile, IsRefusedWhenCutOffAnywhere) {
  const TemporaryFolder folder;
  const std::string whole = read_file(write_tokens(folder, {{{1, 2, 3}}, {{4}, 1}}));
  for (size_t size = 0; size < whole.size(); size += size < 4090 ? 13 : 1) {
    const auto path = write(folder, "cut.tokens", std::string_view(whole).substr(0, size));
    const std::string error = error_of([&] { TokenDataset::open(path); });
    expect_parts(error, {"cut.tokens is not a complete token file", "remove it"});
  }
  const auto longer = write(folder, "long.tokens", whole + "x");
  EXPECT_THROW(TokenDataset::open(longer), Error);
}

TEST(TokenFile, IsRefusedWhenAnyBitIsChanged) {
  const TemporaryFolder folder;
  const std::string whole = read_file(write_tokens(folder, {{{1, 2, 3}}, {{4}, 1}}));
  for (size_t at = 0; at < whole.size(); at += at == 151 ? 4096 - 151 : 1) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    const auto path = write(folder, "bad.tokens", damaged);
    error_of([&] { TokenDataset::open(path)->verify(); });
  }
}

TEST(TokenFile, HugeCountsWithAGoodHashAreRefused) {
  const TemporaryFolder folder;
  const std::string whole = read_file(write_tokens(folder, {{{1, 2, 3}}}));
  const auto changed = [&](const std::function<void(TokenFileHeader&)>& change) {
    std::string bytes = whole;
    TokenFileHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    change(header);
    const std::string hash = header.hash();
    std::copy(hash.begin(), hash.end(), header.header_hash.begin());
    std::memcpy(bytes.data(), &header, sizeof header);
    const auto path = write(folder, "bad.tokens", bytes);
    return error_of([&] { TokenDataset::open(path); });
  };
  for (const uint64_t huge : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 61, uint64_t{100}}) {
    changed([&](auto& header) { header.tokens = huge; });
    changed([&](auto& header) { header.documents = huge; });
    changed([&](auto& header) { header.tokens = header.documents = huge; });
  }
  changed([](auto& header) { header.token_bytes = 0; });
  changed([](auto& header) { header.token_bytes = 8; });
  changed([](auto& header) { header.flags = 1; });
  changed([](auto& header) { header.documents = 0; });
  changed([](auto& header) { header.vocabulary_size = ~uint64_t{0}; });
  expect_parts(changed([](auto& header) { header.version = 9; }), {"version is 9"});
}

}  // namespace token_file_test
}  // namespace lockstep::data
