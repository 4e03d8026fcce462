// Writes token files.
#include "data/token_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

std::string temporary_suffix() {
  static std::atomic<int> count = 0;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format(".tmp-{}-{}-{}", host.data(), ::getpid(), count++);
}

std::filesystem::path with_suffix(std::filesystem::path path, const std::string& suffix) {
  path += suffix;
  return path;
}

void fill(std::array<char, 32>& field, const std::string& hex) {
  std::copy_n(hex.data(), std::min(hex.size(), field.size()), field.data());
}

}  // namespace

std::string TokenFileHeader::hash() const {
  return hash_hex(std::as_bytes(std::span(this, 1)).first(offsetof(TokenFileHeader, header_hash)));
}

TokenFileWriter::Stream::Stream(const std::filesystem::path& path, uint64_t start)
    : file(path, File::Mode::kCreate, ErrorKind::kData),
      offset(start) {
  buffer.reserve(kBlock);
}

void TokenFileWriter::Stream::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  buffer.insert(buffer.end(), bytes, bytes + size);
  if (buffer.size() >= kBlock) {
    flush();
  }
}

void TokenFileWriter::Stream::flush() {
  if (hasher != nullptr) {
    hasher->update(buffer);
  }
  file.write_at(offset, buffer);
  offset += buffer.size();
  buffer.clear();
}

TokenFileWriter::TokenFileWriter(
    std::filesystem::path path, const std::string& key, int64_t vocabulary_size, int64_t pad)
    : path_(std::move(path)) {
  if (vocabulary_size < 1 || vocabulary_size > int64_t{1} << 31 || pad < 0 ||
      pad >= vocabulary_size) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("invalid vocabulary of {} entries, or padding id {}", vocabulary_size, pad));
  }
  const std::string suffix = temporary_suffix();
  temporary_ = with_suffix(path_, suffix);
  ends_path_ = with_suffix(path_, suffix + "-ends");
  prompts_path_ = with_suffix(path_, suffix + "-prompts");
  hidden_path_ = with_suffix(path_, suffix + "-hidden");
  header_.vocabulary_size = static_cast<uint64_t>(vocabulary_size);
  header_.token_bytes = vocabulary_size <= int64_t{1} << 16 ? 2 : 4;
  header_.pad = static_cast<uint64_t>(pad);
  fill(header_.key, key);
  tokens_ = std::make_unique<Stream>(temporary_, TokenFileHeader::kSpace);
  tokens_->hasher = &hasher_;
  ends_ = std::make_unique<Stream>(ends_path_, 0);
}

TokenFileWriter::~TokenFileWriter() {
  remove_lists();
  if (!committed_) {
    ::unlink(temporary_.c_str());
  }
}

void TokenFileWriter::remove_lists() {
  for (const auto& path : {ends_path_, prompts_path_, hidden_path_}) {
    ::unlink(path.c_str());
  }
}

void TokenFileWriter::add_bit(bool hidden) {
  word_ |= static_cast<uint64_t>(hidden) << bits_;
  if (++bits_ == 64) {
    hidden_->write(&word_, sizeof word_);
    word_ = bits_ = 0;
  }
}

void TokenFileWriter::add_hidden(size_t count, std::span<const uint8_t> hidden) {
  if (!hidden.empty() && hidden.size() != count) {
    throw Error(ErrorKind::kInternal, fmt::format("{} hidden of {} tokens", hidden.size(), count));
  }
  const bool any =
      std::any_of(hidden.begin(), hidden.end(), [](uint8_t is_hidden) { return is_hidden != 0; });
  if (!hidden_ && any) {
    hidden_ = std::make_unique<Stream>(hidden_path_, 0);
    header_.flags |= TokenFileHeader::kHasHidden;
    for (uint64_t i = 0; i < header_.tokens; ++i) {
      add_bit(false);
    }
  }
  for (size_t i = 0; hidden_ && i < count; ++i) {
    add_bit(!hidden.empty() && hidden[i] != 0);
  }
}

void TokenFileWriter::add(std::span<const int32_t> ids, std::span<const uint8_t> hidden) {
  add_hidden(ids.size(), hidden);
  const auto limit = static_cast<int64_t>(header_.vocabulary_size);
  for (const int32_t id : ids) {
    if (id < 0 || id >= limit) {
      throw Error(
          ErrorKind::kInternal,
          fmt::format("the tokenizer returned the id {}, but has {} entries", id, limit),
          "its files do not match, or this is a defect: please report it");
    }
    if (header_.token_bytes == 2) {
      const auto narrow = static_cast<uint16_t>(id);
      tokens_->write(&narrow, sizeof narrow);
    } else {
      tokens_->write(&id, sizeof id);
    }
  }
  header_.tokens += ids.size();
}

void TokenFileWriter::end_document(int64_t prompt_tokens) {
  if (prompt_tokens > 0 && !prompts_) {
    prompts_ = std::make_unique<Stream>(prompts_path_, 0);
    const uint64_t none = 0;
    for (uint64_t i = 0; i < header_.documents; ++i) {
      prompts_->write(&none, sizeof none);
    }
    header_.flags |= TokenFileHeader::kHasPrompts;
  }
  ends_->write(&header_.tokens, sizeof header_.tokens);
  if (prompts_) {
    const auto count = static_cast<uint64_t>(prompt_tokens);
    prompts_->write(&count, sizeof count);
  }
  ++header_.documents;
}

void TokenFileWriter::append(Stream& from) {
  from.flush();
  std::vector<std::byte> block(kBlock);
  for (uint64_t at = 0; at < from.offset; at += block.size()) {
    block.resize(std::min<uint64_t>(kBlock, from.offset - at));
    from.file.read_at(at, block);
    tokens_->write(block.data(), block.size());
  }
}

void TokenFileWriter::commit() {
  const std::array<std::byte, 8> zeros{};
  tokens_->write(zeros.data(), header_.token_space() - header_.tokens * header_.token_bytes);
  append(*ends_);
  if (prompts_) {
    append(*prompts_);
  }
  if (hidden_) {
    if (bits_ > 0) {
      hidden_->write(&word_, sizeof word_);
    }
    append(*hidden_);
  }
  tokens_->flush();
  fill(header_.content_hash, hasher_.hex());
  fill(header_.header_hash, header_.hash());
  std::vector<std::byte> head(TokenFileHeader::kSpace);
  std::memcpy(head.data(), &header_, sizeof header_);
  tokens_->file.write_at(0, head);
  tokens_->file.sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw system_error(ErrorKind::kData, "rename a file to", path_);
  }
  committed_ = true;
  remove_lists();
  sync_folder(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path("."));
}

}  // namespace lockstep::data
