// Temporary folder of a supervisor for the error files of its workers.
#pragma once

#include <filesystem>

namespace lockstep::launch {

/// Removed by the destructor. A supervisor that was killed together with its keeper leaves its
/// folder, which the next supervisor of the same user removes: a folder is locked (flock) as long
/// as its supervisor lives.
class ErrorFolder {
 public:
  /// Throws Error (environment) if no folder can be created.
  ErrorFolder();
  ~ErrorFolder();
  ErrorFolder(const ErrorFolder&) = delete;
  ErrorFolder& operator=(const ErrorFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the path of a worker's error file, in a folder of its own.
  std::filesystem::path file(int local_rank) const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lockstep::launch
