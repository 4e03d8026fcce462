// The lock file of an output folder.
#include "checkpoint/output_dir_lock.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/on_all_ranks.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::seconds(2);  // time for a run that is about to end

/// Content of the lock file.
struct Holder {
  std::string host, job, token;
  int64_t pid = 0;
  int round = 0, term = 0;
};

std::string to_text(const Holder& holder) {
  return nlohmann::ordered_json{
             {"host", holder.host},
             {"pid", holder.pid},
             {"job", holder.job},
             {"round", holder.round},
             {"term", holder.term},
             {"token", holder.token}}
             .dump() +
         "\n";
}

/// Returns nullopt if the file is being written or belongs to another program.
std::optional<Holder> read_holder(const fs::path& file) {
  try {
    const nlohmann::json json = parse_json(read_file(file), file.string());
    return Holder{
        json.at("host").get<std::string>(),
        json.at("job").get<std::string>(),
        json.at("token").get<std::string>(),
        json.at("pid").get<int64_t>(),
        json.at("round").get<int>(),
        json.value("term", 0)};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Removes all characters of a name except letters, digits and dashes.
std::string plain_word(const std::string& text) {
  std::string word;
  std::copy_if(text.begin(), text.end(), std::back_inserter(word), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-';
  });
  return word;
}

std::string draw_word() {
  std::random_device random;
  return fmt::format("{:08x}", random());
}

struct flock whole_file() {
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  return range;
}

/// Takes an open-file-description lock, which distinguishes threads and works on NFS. Returns false
/// if another holder has it, nullopt if the file system has no locks.
std::optional<bool> try_lock(int descriptor) {
  struct flock range = whole_file();
  if (::fcntl(descriptor, F_OFD_SETLK, &range) == 0) {
    return true;
  }
  return errno == EAGAIN || errno == EACCES ? std::optional(false) : std::nullopt;
}

/// True if the path still refers to the open file.
bool is_the_file(const fs::path& path, int descriptor) {
  struct stat open_one{}, named{};
  return ::fstat(descriptor, &open_one) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

Error held_by_another(const fs::path& file) {
  const auto holder = read_holder(file);
  const std::string who =
      !holder ? "another run"
              : fmt::format(
                    "another run: process {} on {}{}",
                    holder->pid,
                    holder->host,
                    holder->job.empty()
                        ? ""
                        : fmt::format(", job {}, round {}", holder->job, holder->round));
  return Error(
      ErrorKind::kEnvironment,
      fmt::format("the output folder {} is in use by {}", file.parent_path().string(), who),
      "wait for that run to end, stop it, or use another output_dir for this one");
}

}  // namespace

std::string own_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string run_token(const RunIdentity& run) {
  const std::string job = plain_word(run.job);
  return fmt::format("{}-{}-{}", job.empty() ? draw_word() : job, run.term, run.round);
}

std::unique_ptr<OutputDirLock> OutputDirLock::take(
    const fs::path& output_dir, const RunIdentity& run, comm::Communicator& communicator) {
  std::unique_ptr<OutputDirLock> hold(new OutputDirLock);
  hold->file_ = output_dir / kFile;
  on_all_ranks(communicator, ErrorKind::kEnvironment, [&] {
    if (communicator.rank() == 0) {
      hold->lock(run);
    }
  });
  hold->token_ = comm::broadcast_string(communicator, hold->token_);
  return hold;
}

void OutputDirLock::lock(const RunIdentity& run) {
  token_ = run_token(run);
  text_ = to_text({own_host(), run.job, token_, ::getpid(), run.round, run.term});
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (descriptor_ < 0) {
    const int opened = ::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (opened < 0) {
      throw system_error(ErrorKind::kEnvironment, "open", file_);
    }
    const std::optional<bool> locked = try_lock(opened);
    const int why = errno;
    if (locked == true && is_the_file(file_, opened)) {
      descriptor_ = opened;
      break;
    }
    ::close(opened);
    if (!locked) {
      log_warning(
          "{} cannot be locked ({}); make sure that only one run writes to the output_dir",
          file_.string(),
          std::strerror(why));
      return;
    }
    if (std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    const auto holder = read_holder(file_);
    if (run.job.empty() || !holder || holder->job != run.job ||
        std::pair(holder->term, holder->round) >= std::pair(run.term, run.round)) {
      throw held_by_another(file_);
    }
    log_warning(
        "process {} on {} still holds {} for round {} of this job; round {} takes over",
        holder->pid,
        holder->host,
        file_.parent_path().string(),
        holder->round,
        run.round);
    take_over();
  }
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, text_.data(), text_.size(), 0) != static_cast<ssize_t>(text_.size())) {
    log_warning("{} cannot be written: {}", file_.string(), std::strerror(errno));
  }
}

void OutputDirLock::take_over() {
  // A lock cannot be revoked, but its file can be replaced.
  fs::path fresh = file_;
  fresh += "." + token_;
  const int opened =
      ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (opened < 0) {
    throw system_error(ErrorKind::kEnvironment, "open", fresh);
  }
  if (try_lock(opened) != true || ::rename(fresh.c_str(), file_.c_str()) != 0) {
    const Error error = system_error(ErrorKind::kEnvironment, "lock", fresh);
    ::close(opened);
    throw error;
  }
  descriptor_ = opened;
}

OutputDirLock::~OutputDirLock() {
  if (descriptor_ < 0) {
    return;
  }
  if (is_the_file(file_, descriptor_)) {
    ::unlink(file_.c_str());  // before the lock is released, because a waiting process checks the
                              // name again
  }
  ::close(descriptor_);
}

void OutputDirLock::check() const {
  std::error_code ignored;
  if (descriptor_ < 0 || is_the_file(file_, descriptor_) || !fs::exists(file_, ignored)) {
    return;  // if a user removed the file, no other run has the folder
  }
  const auto holder = read_holder(file_);
  throw Error(
      ErrorKind::kCheckpoint,
      fmt::format(
          "the output folder {} was taken by {}",
          file_.parent_path().string(),
          holder ? fmt::format("process {} on {}", holder->pid, holder->host) : "another run"),
      "another run took over while this one was not responding; stop this run");
}

bool is_held(const fs::path& output_dir) {
  return is_locked(output_dir / OutputDirLock::kFile);
}

}  // namespace lockstep::checkpoint
