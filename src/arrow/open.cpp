// Entry point of liblockstep_arrow.so: reads rows of Parquet and Arrow files as JSON.
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/status.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include "arrow/write_json.h"
#include "data/column_rows.h"

namespace lockstep::arrow_rows {
namespace {

constexpr int64_t kRowsAtOnce = 1024;

/// Record batches of a file in order, followed by null.
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
      std::shared_ptr<arrow::io::RandomAccessFile> file) {
    auto batches = std::make_unique<ParquetBatches>();
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(std::move(file)));
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kRowsAtOnce);
    builder.properties(properties);
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

arrow::Result<std::unique_ptr<Batches>> open_batches(const char* path) {
  const std::string magic = first_bytes(path);
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path));
  if (magic.starts_with("PAR1")) {
    return ParquetBatches::open(std::move(file));
  }
  if (magic == "ARROW1") {
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchFileReader::Open(std::move(file)));
    return std::make_unique<IpcBatches>(std::move(reader));
  }
  ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(std::move(file)));
  return std::make_unique<ReaderBatches>(std::move(reader));
}

std::string text_of(const arrow::Status& status) {
  std::string text = status.message();
  return "the file is truncated, damaged, or not a Parquet or Arrow file: " +
         text.substr(0, std::min(text.find('\n'), size_t{300}));
}

class Rows final : public data::ColumnRows {
 public:
  explicit Rows(std::unique_ptr<Batches> batches) : batches_(std::move(batches)) {}

  bool next(std::string& json, std::string& problem) override {
    try {
      while (batch_ == nullptr || row_ == batch_->num_rows()) {
        auto read = batches_->next();
        if (!read.ok()) {
          problem = text_of(read.status());
          return false;
        }
        if (*read == nullptr) {
          return false;
        }
        batch_ = *read;
        row_ = 0;
        if (const arrow::Status status = batch_->ValidateFull(); !status.ok()) {
          problem = text_of(status);
          return false;
        }
      }
      write_row(json);
      return true;
    } catch (const std::exception& error) {  // the Parquet reader throws on damaged pages
      problem = std::string("the file is damaged: ") + error.what();
      return false;
    }
  }

 private:
  /// Writes a row. Skips columns that JSON cannot represent, such as image or audio bytes.
  void write_row(std::string& json) {
    json = "{";
    for (int i = 0; i < batch_->num_columns(); ++i) {
      if (!is_writable(*batch_->column(i)->type())) {
        continue;
      }
      json += json.size() > 1 ? "," : "";
      write_json_string(batch_->column_name(i), json);
      json += ':';
      write_json(*batch_->column(i), row_, json);
    }
    json += '}';
    ++row_;
  }

  std::unique_ptr<Batches> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t row_ = 0;
};

}  // namespace
}  // namespace lockstep::arrow_rows

extern "C" lockstep::data::ColumnRows* lockstep_open_columns(
    const char* path, std::string& problem) {
  try {
    auto batches = lockstep::arrow_rows::open_batches(path);
    if (batches.ok()) {
      return new lockstep::arrow_rows::Rows(std::move(*batches));
    }
    problem = lockstep::arrow_rows::text_of(batches.status());
  } catch (const std::exception& error) {
    problem = std::string("the file is damaged: ") + error.what();
  }
  return nullptr;
}
