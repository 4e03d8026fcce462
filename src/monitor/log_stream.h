// A file that is only added to, and that training can do without.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace lockstep::monitor {

/// Adds to the end of an open file. Where that fails (a full disk, a quota), it says so once and
/// adds no more: the run goes on without it.
class LogStream {
 public:
  LogStream(File file, uint64_t end) : file_(std::move(file)), end_(end) {}

  void append(std::string_view bytes);
  uint64_t end() const { return end_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  File file_;
  uint64_t end_;
  bool gave_up_ = false;
};

}  // namespace lockstep::monitor
