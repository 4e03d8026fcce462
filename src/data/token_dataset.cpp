// Opens and verifies token files.
#include "data/token_dataset.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/token_file.h"

namespace lockstep::data {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw Error(
      ErrorKind::kData,
      fmt::format("{} is not a complete token file: {}", path.string(), what),
      "remove it; the next run creates it again");
}

/// Reads the header and checks it against the file size.
TokenFileHeader read_header(const MappedFile& file, const std::filesystem::path& path) {
  if (file.size() < TokenFileHeader::kSpace) {
    fail(path, fmt::format("it has {} bytes, less than a header", file.size()));
  }
  TokenFileHeader header;
  std::memcpy(&header, file.bytes().data(), sizeof header);
  if (header.magic != TokenFileHeader::kMagic) {
    fail(path, "its magic number is wrong");
  }
  if (header.version != TokenFileHeader::kVersion) {
    fail(
        path,
        fmt::format(
            "its version is {}, but this program reads version {}",
            header.version,
            TokenFileHeader::kVersion));
  }
  if (header.hash() != std::string_view(header.header_hash.data(), header.header_hash.size())) {
    fail(path, "its header is damaged");
  }
  const uint64_t space = file.size() - TokenFileHeader::kSpace;
  const bool narrow = header.token_bytes == 2;
  if ((!narrow && header.token_bytes != 4) || header.tokens > space / header.token_bytes ||
      header.documents > space / sizeof(uint64_t) || header.documents > header.tokens ||
      header.vocabulary_size > (uint64_t{1} << (narrow ? 16 : 31)) ||
      (header.pad >= header.vocabulary_size && header.pad != 0)) {
    fail(path, "its header contains impossible sizes");
  }
  const uint64_t lists = (header.flags & TokenFileHeader::kHasPrompts) != 0 ? 2 : 1;
  const uint64_t expected =
      header.token_space() + sizeof(uint64_t) * (lists * header.documents + header.hidden_words());
  if (expected != space) {
    fail(
        path,
        fmt::format(
            "it has {} bytes, but its header requires {}",
            file.size(),
            TokenFileHeader::kSpace + expected));
  }
  return header;
}

}  // namespace

std::shared_ptr<const TokenDataset> TokenDataset::open(const std::filesystem::path& path) {
  std::shared_ptr<TokenDataset> set(new TokenDataset());
  set->file_ = MappedFile(path);
  set->path_ = path;
  const TokenFileHeader header = read_header(set->file_, path);
  set->key_.assign(header.key.data(), header.key.size());
  set->content_hash_.assign(header.content_hash.data(), header.content_hash.size());
  set->tokens_ = static_cast<int64_t>(header.tokens);
  set->documents_ = static_cast<int64_t>(header.documents);
  set->vocabulary_size_ = static_cast<int64_t>(header.vocabulary_size);
  set->pad_ = static_cast<int64_t>(header.pad);
  const std::byte* const start = set->file_.bytes().data() + TokenFileHeader::kSpace;
  if (header.token_bytes == 2) {
    set->narrow_ = reinterpret_cast<const uint16_t*>(start);
  } else {
    set->wide_ = reinterpret_cast<const uint32_t*>(start);
  }
  set->ends_ = reinterpret_cast<const uint64_t*>(start + header.token_space());
  if ((header.flags & TokenFileHeader::kHasPrompts) != 0) {
    set->prompts_ = set->ends_ + header.documents;
  }
  if ((header.flags & TokenFileHeader::kHasHidden) != 0) {
    const uint64_t* lists_end = set->prompts_ != nullptr ? set->prompts_ : set->ends_;
    set->hidden_ = lists_end + header.documents;
  }
  if ((header.documents == 0 && header.tokens != 0) ||
      (header.documents > 0 && set->ends_[header.documents - 1] != header.tokens)) {
    fail(path, "its documents do not end where its tokens do");
  }
  return set;
}

void TokenDataset::verify() const {
  TokenFileHeader header;
  std::memcpy(&header, file_.bytes().data(), sizeof header);
  const std::string hash = hash_hex(file_.bytes().subspan(TokenFileHeader::kSpace));
  if (hash != std::string_view(header.content_hash.data(), header.content_hash.size())) {
    fail(path_, "its content hash does not match");
  }
  uint64_t begin = 0;
  for (int64_t i = 0; i < documents_; ++i) {
    if (ends_[i] < begin || (prompts_ != nullptr && prompts_[i] > ends_[i] - begin)) {
      fail(path_, fmt::format("document {} has invalid bounds", i));
    }
    begin = ends_[i];
  }
  for (int64_t i = 0; i < tokens_; ++i) {
    if (token(i) >= vocabulary_size_) {
      fail(
          path_,
          fmt::format(
              "token {} is {}, outside the vocabulary of {}", i, token(i), vocabulary_size_));
    }
  }
}

void TokenDataset::read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || begin > tokens_ || count > tokens_ - begin) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "tokens {} to {} do not exist: the dataset has {}", begin, begin + count, tokens_));
  }
  if (narrow_ != nullptr) {
    std::copy_n(narrow_ + begin, count, out.data());
  } else {
    std::copy_n(wide_ + begin, count, out.data());
  }
}

DocumentSpan TokenDataset::document(int64_t index) const {
  DocumentSpan span;
  span.begin = index == 0 ? 0 : static_cast<int64_t>(ends_[index - 1]);
  span.end = static_cast<int64_t>(ends_[index]);
  span.prompt_end = span.begin + (prompts_ == nullptr ? 0 : static_cast<int64_t>(prompts_[index]));
  return span;
}

int64_t TokenDataset::document_of(int64_t position) const {
  return std::upper_bound(ends_, ends_ + documents_, static_cast<uint64_t>(position)) - ends_;
}

}  // namespace lockstep::data
