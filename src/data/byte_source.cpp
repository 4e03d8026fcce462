// Decompresses gzip and zstd streams.
#include "data/byte_source.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBlock = size_t{1} << 18;
constexpr std::string_view kGzipMagic("\x1f\x8b", 2);
constexpr std::string_view kZstdMagic("\x28\xb5\x2f\xfd", 4);
// Limits of the expansion ratio. gzip expands data at most 1,032 times, zstd without limit. Text
// does not compress that well.
constexpr uint64_t kMostFromOne = 1000, kMostFromAny = uint64_t{64} << 20;
constexpr std::string_view kReplaceRemedy = "the file is damaged or incomplete: download it again";

class PlainFile final : public ByteSource {
 public:
  explicit PlainFile(const fs::path& path)
      : file_(path, File::Mode::kRead, ErrorKind::kData),
        size_(file_.size()) {}

  size_t read(std::span<char> out) override {
    const size_t count = std::min<uint64_t>(out.size(), size_ - offset_);
    file_.read_at(offset_, std::as_writable_bytes(out.first(count)));
    offset_ += count;
    return count;
  }
  uint64_t size() const { return size_; }
  uint64_t offset() const { return offset_; }
  const fs::path& path() const { return file_.path(); }
  /// Returns the first bytes of the file, independent of the read position.
  std::string start(size_t count) const {
    std::string bytes(std::min<uint64_t>(count, size_), '\0');
    file_.read_at(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

 private:
  File file_;
  uint64_t size_, offset_ = 0;
};

/// Compressed input, read in blocks. Base class of both decompressors.
class Compressed : public ByteSource {
 public:
  Compressed(std::unique_ptr<PlainFile> file, std::string_view kind)
      : file_(std::move(file)),
        kind_(kind),
        block_(std::min<uint64_t>(kReadBlock, file_->size())) {}

 protected:
  std::span<char> refill() { return std::span(block_).first(file_->read(block_)); }
  /// Counts decompressed bytes and throws if there are too many, so that a small file cannot fill
  /// the disk.
  size_t counted(size_t count) {
    made_ += count;
    if (made_ > kMostFromAny + kMostFromOne * file_->size()) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: the {} data expands to more than {} times the file size of {} bytes",
              file_->path().string(),
              kind_,
              kMostFromOne,
              file_->size()),
          "check the file: text does not compress this well. If it is correct, decompress it "
          "first");
    }
    return count;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the {} data {}, before byte {} of {}",
            file_->path().string(),
            kind_,
            what,
            file_->offset(),
            file_->size()),
        std::string(kReplaceRemedy));
  }

 private:
  std::unique_ptr<PlainFile> file_;
  std::string kind_;
  std::vector<char> block_;
  uint64_t made_ = 0;
};

class GzipFile final : public Compressed {
 public:
  explicit GzipFile(std::unique_ptr<PlainFile> file) : Compressed(std::move(file), "gzip") {
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) {  // 16: a gzip header, not zlib's
      throw std::bad_alloc();
    }
  }
  ~GzipFile() override { ::inflateEnd(&stream_); }

  size_t read(std::span<char> out) override {
    out = out.first(std::min<size_t>(out.size(), std::numeric_limits<uInt>::max()));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (stream_.avail_in == 0) {
        const std::span<char> block = refill();
        if (block.empty()) {
          if (inside_) {
            fail("ends early");
          }
          return 0;
        }
        stream_.next_in = reinterpret_cast<Bytef*>(block.data());
        stream_.avail_in = static_cast<uInt>(block.size());
      }
      if (!inside_) {  // next member
        ::inflateReset(&stream_);
        inside_ = true;
      }
      step();
    }
    return counted(out.size() - stream_.avail_out);
  }

 private:
  void step() {
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inside_ = false;
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(fmt::format("is not valid ({})", stream_.msg == nullptr ? "unexpected" : stream_.msg));
    }
  }

  z_stream stream_{};
  bool inside_ = true;  // the end of the current member has not been read yet
};

class ZstdFile final : public Compressed {
 public:
  explicit ZstdFile(std::unique_ptr<PlainFile> file)
      : Compressed(std::move(file), "zstd"),
        stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!stream_) {
      throw std::bad_alloc();
    }
  }

  size_t read(std::span<char> out) override {
    if (given_ == output_.pos && !refill_output()) {
      return 0;
    }
    const size_t count = std::min(out.size(), output_.pos - given_);
    std::copy_n(window_.begin() + static_cast<ptrdiff_t>(given_), count, out.begin());
    given_ += count;
    return counted(count);
  }

 private:
  /// Decompresses the next block. Returns false at the end of the file.
  bool refill_output() {
    output_.pos = given_ = 0;
    while (output_.pos == 0) {
      if (input_.pos == input_.size && !more_) {
        const std::span<char> block = refill();
        if (block.empty()) {
          if (inside_) {
            fail("ends early");
          }
          return false;
        }
        input_ = {block.data(), block.size(), 0};
      }
      const size_t result = ZSTD_decompressStream(stream_.get(), &output_, &input_);
      if (ZSTD_isError(result) != 0U) {
        fail(fmt::format("is not valid ({})", ZSTD_getErrorName(result)));
      }
      inside_ = result != 0;
      more_ = inside_ && output_.pos == output_.size;  // output may remain without further input
    }
    return true;
  }

  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  // Always decompress through this buffer, because zstd validates a frame differently if the output
  // buffer has room for all of it. The result must not depend on the caller's read size.
  std::vector<char> window_ = std::vector<char>(ZSTD_DStreamOutSize());
  ZSTD_outBuffer output_{window_.data(), window_.size(), 0};
  size_t given_ = 0;
  bool inside_ = true, more_ = false;
};

/// Throws if the file is not text, with a hint for each known format.
void refuse_foreign(const fs::path& path, std::string_view start) {
  struct Foreign {
    std::string_view magic, name, remedy;
  };
  static constexpr std::array<Foreign, 7> kForeign{{
      {"BZh", "bzip2", "decompress it (bunzip2), or recompress it as zstd"},
      {std::string_view(
           "\xFD"
           "7zXZ\0",
           6),
       "xz",
       "decompress it (unxz), or recompress it as zstd"},
      {"PK\x03\x04", "zip", "unpack it and name the files inside"},
      {"PAR1", "Parquet", "it is not plain text: remove data.format, or set data.format=jsonl"},
      {"ARROW1", "Arrow", "it is not plain text: remove data.format, or set data.format=jsonl"},
      {"\xFF\xFE", "UTF-16", "convert it: iconv -f utf-16 -t utf-8"},
      {"\xFE\xFF", "UTF-16", "convert it: iconv -f utf-16 -t utf-8"},
  }};
  for (const Foreign& foreign : kForeign) {
    if (start.starts_with(foreign.magic)) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{} is a {} file, which is not supported", path.string(), foreign.name),
          std::string(foreign.remedy));
    }
  }
}

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const fs::path& path) {
  if (fs::is_directory(path)) {
    throw Error(ErrorKind::kData, fmt::format("{} is a folder, not a file", path.string()));
  }
  auto file = std::make_unique<PlainFile>(path);
  const std::string start = file->start(8);
  if (start.starts_with(kGzipMagic)) {
    return std::make_unique<GzipFile>(std::move(file));
  }
  if (start.starts_with(kZstdMagic)) {
    return std::make_unique<ZstdFile>(std::move(file));
  }
  const std::string extension = path.extension().string();
  if (extension == ".gz" || extension == ".zst" || extension == ".zstd") {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} is named {} but is not such a file ({} bytes)",
            path.string(),
            extension,
            file->size()),
        "rename it if it is not compressed; otherwise " + std::string(kReplaceRemedy));
  }
  refuse_foreign(path, start);
  return file;
}

}  // namespace lockstep::data
