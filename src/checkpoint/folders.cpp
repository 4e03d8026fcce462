// Lists, cleans and rotates the checkpoints of an output folder.
#include "checkpoint/folders.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <thread>
#include <utility>

#include <unistd.h>

#include "base/format.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "checkpoint/on_all_ranks.h"
#include "checkpoint/text.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";

std::optional<int64_t> step_of_name(std::string_view name) {
  int64_t step = 0;
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (code != std::errc{} || end != name.data() + name.size() || step < 0) {
    return std::nullopt;
  }
  return step;
}

fs::path with_suffix(fs::path path, std::string_view suffix) {
  return path += suffix;
}

/// Returns the names of a folder's entries. Empty if the folder cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    names.push_back(at->path().filename().string());
  }
  return names;
}

/// Returns the part of `name` before the suffix, if this is the name of a checkpoint.
std::optional<std::string> without_suffix(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) {
    return std::nullopt;
  }
  name.remove_suffix(suffix.size());
  return step_of_name(name) ? std::optional<std::string>(name) : std::nullopt;
}

/// Returns TOKEN of checkpoint-<step>.TOKEN.saving, "" if there is no token, or nullopt for other
/// names.
std::optional<std::string> token_of_save(std::string_view name) {
  if (!name.ends_with(kSavingSuffix)) {
    return std::nullopt;
  }
  name.remove_suffix(kSavingSuffix.size());
  const size_t dot = std::min(name.find('.'), name.size());
  if (!step_of_name(name.substr(0, dot))) {
    return std::nullopt;
  }
  return std::string(name.substr(std::min(dot + 1, name.size())));
}

int64_t sequence_of(const fs::path& folder) {
  try {
    return read_manifest(folder).sequence;
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace

fs::path checkpoint_folder(const fs::path& output_dir, int64_t step) {
  return output_dir / fmt::format("{}{}", kPrefix, step);
}

std::optional<int64_t> checkpoint_step(const fs::path& folder) {
  return step_of_name((folder.has_filename() ? folder : folder.parent_path()).filename().string());
}

std::vector<ListedCheckpoint> list_checkpoints(const fs::path& output_dir) {
  std::vector<ListedCheckpoint> found, without_manifest;
  std::error_code ignored;
  for (const std::string& name : names_in(output_dir)) {
    const fs::path path = output_dir / name;
    auto step = step_of_name(name);
    if (const auto replaced = without_suffix(name, kReplacedSuffix);
        replaced && !fs::exists(output_dir / *replaced, ignored)) {
      step = step_of_name(*replaced);  // the save was killed between the two renames of a swap
    }
    if (step && fs::is_directory(path, ignored)) {
      const int64_t sequence = sequence_of(path);
      (sequence < 0 ? without_manifest : found).push_back({path, *step, sequence});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.sequence, a.step) > std::tie(b.sequence, b.step);
  });
  for (ListedCheckpoint& listed :
       without_manifest) {  // checkpoints without manifest are ordered by step only
    const auto place = std::find_if(
        found.begin(), found.end(), [&](const auto& other) { return other.step < listed.step; });
    found.insert(place, std::move(listed));
  }
  return found;
}

void check_is_no_run(const fs::path& folder) {
  std::error_code ignored;
  const auto all = list_checkpoints(folder);
  if (!all.empty() || !fs::is_directory(folder, ignored)) {
    throw Error(
        ErrorKind::kCheckpoint,
        all.empty() ? fmt::format("checkpoint {} does not exist", folder.string())
                    : fmt::format("{} is the folder of a run, not a checkpoint", folder.string()),
        all.empty()
            ? "give a folder checkpoint-STEP, or =true for the newest checkpoint of output_dir"
            : "give one of its checkpoints: " + all.front().folder.string());
  }
}

bool Rotation::removes(bool whole, bool is_kept) {
  const bool is_newest = whole && !has_newest_;
  has_newest_ = has_newest_ || whole;
  if (is_kept || !has_newest_) {
    return false;
  }
  if (is_newest || (whole && kept_ < limit_)) {
    ++kept_;
    return false;
  }
  return true;
}

void rotate_checkpoints(
    const fs::path& output_dir, int64_t limit, std::span<const fs::path> keep, Disk& disk) {
  std::vector<ListedCheckpoint> listed = list_checkpoints(output_dir);
  std::erase_if(listed, [](const ListedCheckpoint& checkpoint) { return checkpoint.sequence < 0; });
  const auto is_kept = [&](const ListedCheckpoint& checkpoint) {
    return std::ranges::any_of(keep, [&](const fs::path& path) {
      return path.lexically_normal() == checkpoint.folder.lexically_normal();
    });
  };
  Rotation rotation(limit, std::ranges::count_if(listed, is_kept));
  for (const ListedCheckpoint& checkpoint : listed) {
    try {
      const bool whole = size_problems(checkpoint.folder, read_manifest(checkpoint.folder)).empty();
      if (!rotation.removes(whole, is_kept(checkpoint))) {
        continue;
      }
      // Rename first, so that there is no partial checkpoint under a valid name if the removal is
      // killed.
      const fs::path going = with_suffix(checkpoint.folder, kRemovingSuffix);
      disk.remove(going);
      disk.rename(checkpoint.folder, going);
      disk.remove(going);
    } catch (const Error& error) {
      log_warning("old checkpoint not removed: {}", error.message());
    }
  }
}

fs::path saving_folder(const fs::path& folder, const std::string& token) {
  return with_suffix(
      folder,
      token.empty() ? std::string(kSavingSuffix) : fmt::format(".{}{}", token, kSavingSuffix));
}

void clean_leftovers(const fs::path& output_dir, Disk& disk, const OutputDirLock* hold) {
  std::error_code ignored;
  // If this run holds the lock, all other runs have ended or can no longer commit.
  const bool others_live = hold == nullptr && is_held(output_dir);
  for (const std::string& name : names_in(output_dir)) {
    if (const auto token = token_of_save(name)) {
      if (token->empty() || !others_live) {
        disk.remove(output_dir / name);
      }
    } else if (without_suffix(name, kRemovingSuffix)) {
      disk.remove(output_dir / name);
    } else if (const auto replaced = without_suffix(name, kReplacedSuffix)) {
      if (fs::exists(output_dir / *replaced, ignored)) {
        disk.remove(output_dir / name);
      } else {
        disk.rename(output_dir / name, output_dir / *replaced);
      }
    }
  }
}

void check_shared_folder(const fs::path& folder, comm::Communicator& communicator) {
  std::string name;
  on_all_ranks(communicator, ErrorKind::kConfig, [&] {
    if (communicator.rank() == 0) {
      create_folders(folder, ErrorKind::kConfig);
      std::random_device
          random;  // a random name, which no cache of a network file system can contain
      name = fmt::format(".lockstep-shared-{:08x}{:08x}", random(), random());
      write_file_atomically(folder / name, name, ErrorKind::kConfig);
    }
  });
  name = comm::broadcast_string(communicator, name);
  bool seen = false;
  for (int attempt = 0; attempt < 10 && !seen; ++attempt) {
    if (attempt > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    std::error_code ignored;
    seen = fs::exists(folder / name, ignored);
  }
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const auto answers = comm::gather_strings(
      communicator, fmt::format("{}{}", seen ? '+' : '-', static_cast<const char*>(host)));
  if (communicator.rank() == 0) {
    std::error_code ignored;
    fs::remove(folder / name, ignored);
  }
  std::vector<std::string> blind;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].front() == '-') {
      blind.push_back(fmt::format("rank {} on {}", rank, answers[rank].substr(1)));
    }
  }
  if (!blind.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "the output folder {} is not shared by all nodes: files that rank 0 on {} writes there "
            "are not visible to {}",
            folder.string(),
            answers.front().substr(1),
            list_text(blind)),
        "set output_dir to a folder that every node mounts at the same path");
  }
}

}  // namespace lockstep::checkpoint
