// Entry point of liblockstep_arrow.so: reads rows of Parquet and Arrow files as JSON.
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/status.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include "arrow/limited_pool.h"
#include "arrow/synchronous_file.h"
#include "arrow/write_json.h"
#include "data/column_rows.h"

namespace lockstep::arrow_rows {
namespace {

constexpr int64_t kRowsAtOnce = 1024;

/// Limits of the decoded size, as of gzip and zstd files: a multiple of the file's size, and a size
/// that any file may have.
constexpr uint64_t kMostFromOne = 1000, kMostFromAny = uint64_t{64} << 20;
constexpr const char* kExpands = "the file expands to more than 1,000 times its size and 64 MiB";

/// Record batches of a file in order; null after the last one.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() = 0;
};

class ReaderBatches final : public Batches {
 public:
  explicit ReaderBatches(std::shared_ptr<arrow::RecordBatchReader> reader)
      : reader_(std::move(reader)) {}
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override { return reader_->Next(); }

 private:
  std::shared_ptr<arrow::RecordBatchReader> reader_;
};

/// Batches of a Parquet file, in order. Each contains a few rows of one row group. The reader must
/// outlive this object.
class ParquetBatches final : public Batches {
 public:
  static arrow::Result<std::unique_ptr<Batches>> open(
      std::shared_ptr<arrow::io::RandomAccessFile> file, arrow::MemoryPool* pool) {
    auto batches = std::make_unique<ParquetBatches>();
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(std::move(file), parquet::ReaderProperties(pool)));
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kRowsAtOnce);
    // Arrow's threads read ahead into buffers of the pool, which may not live that long.
    properties.set_pre_buffer(false);
    builder.properties(properties)->memory_pool(pool);
    ARROW_ASSIGN_OR_RAISE(batches->file_, builder.Build());
    ARROW_ASSIGN_OR_RAISE(batches->reader_, batches->file_->GetRecordBatchReader());
    return batches;
  }
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override { return reader_->Next(); }

 private:
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::shared_ptr<arrow::RecordBatchReader> reader_;
};

/// Batches of an Arrow IPC file.
class IpcBatches final : public Batches {
 public:
  explicit IpcBatches(std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader)
      : reader_(std::move(reader)) {}
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    if (at_ == reader_->num_record_batches()) {
      return nullptr;
    }
    return reader_->ReadRecordBatch(at_++);
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int at_ = 0;
};

std::string first_bytes(const char* path) {
  std::array<char, 6> bytes{};
  std::ifstream(path, std::ios::binary).read(bytes.data(), bytes.size());
  return {bytes.data(), bytes.size()};
}

arrow::Result<std::unique_ptr<Batches>> open_batches(const char* path, arrow::MemoryPool* pool) {
  const std::string magic = first_bytes(path);
  ARROW_ASSIGN_OR_RAISE(auto opened, arrow::io::ReadableFile::Open(path, pool));
  auto file = std::make_shared<SynchronousFile>(std::move(opened));
  if (magic.starts_with("PAR1")) {
    return ParquetBatches::open(std::move(file), pool);
  }
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool;
  if (magic == "ARROW1") {
    ARROW_ASSIGN_OR_RAISE(
        auto reader, arrow::ipc::RecordBatchFileReader::Open(std::move(file), options));
    return std::make_unique<IpcBatches>(std::move(reader));
  }
  ARROW_ASSIGN_OR_RAISE(
      auto reader, arrow::ipc::RecordBatchStreamReader::Open(std::move(file), options));
  return std::make_unique<ReaderBatches>(std::move(reader));
}

std::string text_of(const arrow::Status& status) {
  std::string text = status.message();
  return "the file is truncated, damaged, or not a Parquet or Arrow file: " +
         text.substr(0, std::min(text.find('\n'), size_t{300}));
}

class Rows final : public data::ColumnRows {
 public:
  explicit Rows(uint64_t file_size)
      : left_(kMostFromAny + kMostFromOne * file_size),
        pool_(static_cast<int64_t>(left_)) {}

  /// Returns the problem; empty on success.
  std::string open(const char* path) {
    return guarded([&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(batches_, open_batches(path, &pool_));
      return arrow::Status::OK();
    });
  }

  bool next(std::string& json, std::string& problem) override {
    bool found = false;
    problem = guarded([&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(found, find_row());
      if (found) {
        write_row(json);
      }
      return arrow::Status::OK();
    });
    return found && problem.empty();
  }

 private:
  template <class Work>
  std::string guarded(const Work& work) {
    std::string problem;
    try {
      const arrow::Status status = work();
      problem = status.ok() ? "" : text_of(status);
    } catch (const RowTooLong&) {
      return kExpands;
    } catch (const std::exception& error) {  // Parquet's reader throws on damaged pages
      problem = std::string("the file is damaged: ") + error.what();
    }
    return pool_.is_exceeded() ? kExpands : problem;
  }

  /// Reads the next batch if the current one has no further rows. False after the last one.
  arrow::Result<bool> find_row() {
    while (batch_ == nullptr || row_ == batch_->num_rows()) {
      batch_ = nullptr;  // released before the next one is read
      ARROW_ASSIGN_OR_RAISE(batch_, batches_->next());
      if (batch_ == nullptr) {
        return false;
      }
      row_ = 0;
      ARROW_RETURN_NOT_OK(batch_->ValidateFull());
    }
    return true;
  }

  /// Writes a row. Columns that JSON cannot represent (bytes of images or audio) are skipped.
  void write_row(std::string& json) {
    json = "{";
    for (int i = 0; i < batch_->num_columns(); ++i) {
      if (!is_writable(*batch_->column(i)->type())) {
        continue;
      }
      json += json.size() > 1 ? "," : "";
      write_json_string(batch_->column_name(i), json);
      json += ':';
      write_json(*batch_->column(i), row_, json, left_);
    }
    json += '}';
    if (json.size() > left_) {
      throw RowTooLong();
    }
    left_ -= json.size();
    ++row_;
  }

  uint64_t left_;     // bytes of JSON
  LimitedPool pool_;  // outlives the batches
  std::unique_ptr<Batches> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t row_ = 0;
};

}  // namespace
}  // namespace lockstep::arrow_rows

extern "C" lockstep::data::ColumnRows* lockstep_open_columns(
    const char* path, std::string& problem) {
  std::error_code missing;
  const uintmax_t size = std::filesystem::file_size(path, missing);
  auto rows = std::make_unique<lockstep::arrow_rows::Rows>(missing ? 0 : size);
  problem = rows->open(path);
  return problem.empty() ? rows.release() : nullptr;
}
