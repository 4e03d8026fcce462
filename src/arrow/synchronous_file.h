// File whose reads all happen in the caller's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/future.h>

namespace lockstep::arrow_rows {

/// Arrow's readers of footers and metadata use asynchronous reads and wait for them. The thread
/// that reads may release its buffer after that, when the reader has failed and the pool of the
/// buffer no longer exists. Here an asynchronous read has finished when it returns.
class SynchronousFile final : public arrow::io::RandomAccessFile {
 public:
  explicit SynchronousFile(std::shared_ptr<arrow::io::RandomAccessFile> file)
      : file_(std::move(file)) {}

  using arrow::io::RandomAccessFile::ReadAsync;
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(
      const arrow::io::IOContext& /*context*/, int64_t position, int64_t bytes) override {
    return arrow::Future<std::shared_ptr<arrow::Buffer>>::MakeFinished(
        file_->ReadAt(position, bytes));
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    return file_->ReadAt(position, bytes);
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    return file_->ReadAt(position, bytes, out);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    return file_->Read(bytes);
  }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override { return file_->Read(bytes, out); }
  arrow::Result<int64_t> GetSize() override { return file_->GetSize(); }
  arrow::Result<int64_t> Tell() const override { return file_->Tell(); }
  arrow::Status Seek(int64_t position) override { return file_->Seek(position); }
  arrow::Status Close() override { return file_->Close(); }
  bool closed() const override { return file_->closed(); }
  const arrow::io::IOContext& io_context() const override { return file_->io_context(); }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
};

}  // namespace lockstep::arrow_rows
