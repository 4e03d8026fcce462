// The lock file of an output folder.
#include "checkpoint/output_dir_lock.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
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
constexpr auto kTouchInterval = std::chrono::seconds(10);
constexpr auto kSilence = std::chrono::seconds(30);

/// Content of the lock file.
struct Holder {
  std::string host, processes, job, token;
  int64_t pid = 0;
  int round = 0, term = 0;
  bool released = false;
};

std::string to_text(const Holder& holder) {
  return nlohmann::ordered_json{
             {"host", holder.host},
             {"processes", holder.processes},
             {"pid", holder.pid},
             {"job", holder.job},
             {"round", holder.round},
             {"term", holder.term},
             {"token", holder.token},
             {"released", holder.released}}
             .dump() +
         "\n";
}

/// Returns nullopt if the file is being written or belongs to another program.
std::optional<Holder> read_holder(const fs::path& file) {
  try {
    const nlohmann::json json = parse_json(read_file(file), file.string());
    return Holder{
        json.at("host").get<std::string>(),
        json.value("processes", ""),
        json.at("job").get<std::string>(),
        json.at("token").get<std::string>(),
        json.at("pid").get<int64_t>(),
        json.at("round").get<int>(),
        json.value("term", 0),
        json.value("released", false)};
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

/// Returns true if the holder, which runs on another machine, has ended or released the folder: its
/// lock file is not touched. The clocks of the machines may differ, so only changes count.
bool is_silent(const fs::path& file, const Holder& holder) {
  log_info(
      "process {} on {} has the lock of {}; waiting to see whether it renews the lock",
      holder.pid,
      holder.host,
      file.parent_path().string());
  std::optional<fs::file_time_type> touched;
  const auto deadline = std::chrono::steady_clock::now() + kSilence;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto now = read_holder(file);  // opening the file also updates NFS's cached time
    if (!now || now->token != holder.token) {
      return false;
    }
    std::error_code none;
    const fs::file_time_type time = fs::last_write_time(file, none);
    if (now->released || none || touched.value_or(time) != time) {
      return now->released;
    }
    touched = time;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  log_warning("the lock was not renewed; this run takes {}", file.parent_path().string());
  return true;
}

/// True if the folder may be taken from a run that has not released it.
bool is_given_up(const fs::path& file, const Holder& holder, const RunIdentity& run) {
  if (is_later_round(run, holder.job, holder.term, holder.round)) {
    log_warning(
        "process {} on {} still holds {} for round {} of this job; round {} takes over",
        holder.pid,
        holder.host,
        file.parent_path().string(),
        holder.round,
        run.round);
    return true;
  }
  if (holder.processes.empty() || holder.processes == own_processes()) {
    return is_dead(holder.processes, holder.pid);
  }
  return is_silent(file, holder);
}

/// Throws an Error if the folder has belonged to a later round of the same launch.
void check_round(
    const fs::path& file, const std::optional<Holder>& holder, const RunIdentity& run) {
  if (holder && run.is_unique && holder->job == run.job && !run.job.empty() &&
      std::pair(holder->term, holder->round) > std::pair(run.term, run.round)) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "the output folder {} was taken by a later round of this job: process {} on {}, round "
            "{}",
            file.parent_path().string(),
            holder->pid,
            holder->host,
            holder->round),
        "another run took over while this one was not responding; stop this run");
  }
}

}  // namespace

std::string own_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string own_processes() {
  std::error_code code;
  const fs::path space = fs::read_symlink("/proc/self/ns/pid", code);
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  return !code && boot >> id ? fmt::format("{} {}", id, space.string()) : "";
}

bool is_dead(const std::string& processes, int64_t pid) {
  return !processes.empty() && processes == own_processes() &&
         ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

std::string run_token(const RunIdentity& run) {
  std::string job = plain_word(run.job);
  if (job.empty() || !run.is_unique) {
    job += draw_word();
  }
  return fmt::format("{}-{}-{}", job, run.term, run.round);
}

bool is_later_round(const RunIdentity& run, const std::string& job, int term, int round) {
  return run.is_unique && !run.job.empty() && job == run.job &&
         std::pair(term, round) < std::pair(run.term, run.round);
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
  Holder own{own_host(), own_processes(), run.job, run_token(run), ::getpid(), run.round, run.term};
  token_ = own.token;
  text_ = to_text(own);
  own.released = true;
  released_text_ = to_text(own);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!take_free(run)) {
    if (std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    const auto holder = read_holder(file_);
    if (!holder || !is_given_up(file_, *holder, run)) {
      throw held_by_another(file_);
    }
    take_over();
    break;
  }
  touching_ = std::thread([this] { touch(); });
}

/// Takes the folder if no run holds it. Returns false if another run does.
bool OutputDirLock::take_free(const RunIdentity& run) {
  const int opened = ::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (opened < 0) {
    throw system_error(ErrorKind::kEnvironment, "open", file_);
  }
  const std::optional<bool> locked = try_lock(opened);
  const int why = errno;
  const auto holder = read_holder(file_);
  try {
    check_round(file_, holder, run);
  } catch (...) {
    ::close(opened);
    throw;
  }
  if (locked == true && is_the_file(file_, opened)) {
    descriptor_ = opened;
    write(text_);
    return true;
  }
  ::close(opened);
  if (locked) {
    return false;
  }
  log_warning(
      "{} cannot be locked ({}); make sure that only one run writes to the output_dir",
      file_.string(),
      std::strerror(why));
  if (holder && !holder->released && !is_given_up(file_, *holder, run)) {
    throw held_by_another(file_);
  }
  take_over();
  return true;
}

void OutputDirLock::take_over() {
  // A lock cannot be revoked, but its file can be replaced.
  fs::path fresh = file_;
  fresh += "." + token_;
  descriptor_ = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw system_error(ErrorKind::kEnvironment, "open", fresh);
  }
  write(text_);
  if (try_lock(descriptor_) == false || ::rename(fresh.c_str(), file_.c_str()) != 0) {
    const Error error = system_error(ErrorKind::kEnvironment, "lock", fresh);
    ::unlink(fresh.c_str());
    ::close(std::exchange(descriptor_, -1));
    throw error;
  }
}

void OutputDirLock::write(const std::string& text) const {
  const auto size = static_cast<ssize_t>(text.size());
  if (::pwrite(descriptor_, text.data(), text.size(), 0) != size ||
      ::ftruncate(descriptor_, size) != 0) {
    log_warning("{} cannot be written: {}", file_.string(), std::strerror(errno));
  }
}

/// Shows runs on other machines that this one is alive.
void OutputDirLock::touch() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kTouchInterval, [&] { return is_over_; })) {
    ::futimens(descriptor_, nullptr);
  }
}

OutputDirLock::~OutputDirLock() {
  if (descriptor_ < 0) {
    return;
  }
  if (touching_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    ended_.notify_all();
    touching_.join();
  }
  write(released_text_);  // if another run has replaced the file, to the file that has no name
  ::close(descriptor_);
}

void OutputDirLock::check() const {
  if (descriptor_ < 0) {
    return;
  }
  const auto holder = read_holder(file_);
  if (holder && holder->token == token_) {
    return;
  }
  throw Error(
      ErrorKind::kCheckpoint,
      holder ? fmt::format(
                   "the output folder {} was taken by process {} on {}",
                   file_.parent_path().string(),
                   holder->pid,
                   holder->host)
             : fmt::format(
                   "the lock of the output folder {} cannot be read: another run may have it",
                   file_.parent_path().string()),
      "another run took over while this one was not responding; stop this run");
}

bool is_held(const fs::path& output_dir) {
  return is_locked(output_dir / OutputDirLock::kFile);
}

}  // namespace lockstep::checkpoint
