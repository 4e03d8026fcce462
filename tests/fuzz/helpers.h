// Helpers of the fuzz targets: checks and files in memory.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep::fuzz {

using Bytes = std::string_view;
namespace fs = std::filesystem;

/// Aborts with a message if an invariant does not hold.
inline void check(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
  }
}

/// Returns an empty in-memory folder, removed at exit.
inline const fs::path& scratch() {
  struct Folder {
    Folder() {
      std::string pattern = "/dev/shm/lockstep-fuzz-XXXXXX";
      check(::mkdtemp(pattern.data()) != nullptr, "a folder in /dev/shm");
      path = pattern;
      fs::current_path(path);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
      std::error_code none;
      fs::remove_all(path, none);
    }
    fs::path path;
  };
  static const Folder folder;
  return folder.path;
}

/// Writes a file with these bytes. An existing file is overwritten in place to reuse its pages.
inline fs::path file_of(Bytes bytes, const std::string& name) {
  const fs::path path = scratch() / name;
  const auto open = [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600); };
  int file = open();
  if (file < 0) {
    fs::create_directories(path.parent_path());
    file = open();
  }
  const auto size = static_cast<ssize_t>(bytes.size());
  check(
      ::write(file, bytes.data(), bytes.size()) == size && ::ftruncate(file, size) == 0,
      "a file is written");
  ::close(file);
  return path;
}

/// Returns the bytes before and after the separator `between`.
inline std::pair<Bytes, Bytes> before_and_behind(Bytes bytes, Bytes between) {
  const size_t at = bytes.find(between);
  return at == Bytes::npos ? std::pair(bytes, Bytes())
                           : std::pair(bytes.substr(0, at), bytes.substr(at + between.size()));
}

/// Separator between two files of one input.
inline constexpr Bytes kBetween = "\n====\n";

inline std::vector<std::string> lines_of(Bytes bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const auto [line, rest] = before_and_behind(bytes, "\n");
    lines.emplace_back(line);
    bytes = rest;
  }
  return lines;
}

// tests/fuzz/coordinator.cpp
void read_strangers(Bytes bytes);
void read_member(Bytes bytes);
// tests/fuzz/files.cpp
void read_manifest_text(Bytes bytes);
void read_shards(Bytes bytes);
void read_compressed(Bytes bytes);
void read_token_file(Bytes bytes);
void read_unicode(Bytes bytes);
void read_schedule_file(Bytes bytes);
void read_cluster_file(Bytes bytes);
void read_trainer_state_file(Bytes bytes);
void read_timer_request(Bytes bytes);
// tests/fuzz/records.cpp
void read_resumed_record(Bytes bytes);
void read_rank_times(Bytes bytes);
void read_run_record(Bytes bytes);

}  // namespace lockstep::fuzz
