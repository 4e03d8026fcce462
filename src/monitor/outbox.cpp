// Implements the outbox, which stores lines in a file and sends them on a background thread.
#include "monitor/outbox.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <pthread.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "monitor/line_file.h"

namespace lockstep::monitor {
namespace {

constexpr uint64_t kBatchBytes = uint64_t{1} << 20;
constexpr double kFirstPause = 0.5, kLongestPause = 30;

using Seconds = std::chrono::duration<double>;

File open_outbox(const std::filesystem::path& path, bool goes_on) {
  const bool is_there = goes_on && std::filesystem::exists(path);
  return {path, is_there ? File::Mode::kWrite : File::Mode::kCreate};
}

}  // namespace

Outbox::Outbox(
    std::filesystem::path path,
    std::string name,
    bool goes_on,
    Send send,
    std::function<void()> cancel)
    : path_(std::move(path)),
      name_(std::move(name)),
      send_(std::move(send)),
      cancel_(std::move(cancel)),
      file_(open_outbox(path_, goes_on)) {
  // Drop an incomplete last line, which add() has not confirmed.
  end_ = end_of_lines(file_);
  file_.resize(end_);
  thread_ = std::thread([this] { run(); });
}

Outbox::~Outbox() {
  if (thread_.joinable()) {
    finish();
  }
}

void Outbox::add(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  const std::lock_guard lock(mutex_);
  if (end_ + text.size() > kMostBytes) {
    if (!std::exchange(is_full_, true)) {
      log_warning("{}: {} is full; further data is dropped", name_, path_.string());
    }
    return;
  }
  file_.write_at(end_, std::as_bytes(std::span(text)));
  end_ += text.size();
  changed_.notify_all();
}

std::pair<std::vector<std::string>, uint64_t> Outbox::next() const {
  const uint64_t size = end_ - sent_;
  std::string text(std::min(size, kBatchBytes), '\0');
  const File file(path_, File::Mode::kRead);
  file.read_at(sent_, std::as_writable_bytes(std::span(text)));
  while (text.find('\n') == std::string::npos) {  // a single line is longer than a batch
    text.resize(std::min<uint64_t>(size, text.size() * 2));
    file.read_at(sent_, std::as_writable_bytes(std::span(text)));
  }
  std::vector<std::string> lines;
  size_t at = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', at)) {
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return {std::move(lines), at};
}

void Outbox::forget(uint64_t bytes) {
  sent_ += bytes;
  if (sent_ == end_) {
    file_.resize(0);
    sent_ = end_ = 0;
  }
}

void Outbox::run() {
  ::pthread_setname_np(::pthread_self(), "lockstep-send");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (sent_ == end_) {
      changed_.wait(lock);
      continue;
    }
    const auto [lines, bytes] = next();
    const bool is_last_try = finishing_;
    lock.unlock();
    std::string trouble;
    bool again = false;
    try {
      send_(lines);
    } catch (const Error& error) {
      trouble = error.message();
      again = error.kind() == ErrorKind::kEnvironment;
    } catch (const std::exception& error) {  // the reply was malformed
      trouble = error.what();
    }
    lock.lock();
    if (!again) {
      forget(bytes);
      failures_ = 0;
      if (!trouble.empty()) {
        log_warning("{} rejected the data: {}", name_, trouble);
      } else if (std::exchange(is_down_, false)) {
        log_info("{} answers again; sending stored data", name_);
      }
      changed_.notify_all();
      continue;
    }
    ++failures_;
    gave_up_ = is_last_try;
    if (!std::exchange(is_down_, true) && !stopping_) {
      log_warning(
          "{}: {}; training continues and unsent data is stored in {}",
          name_,
          trouble,
          path_.string());
    }
    changed_.notify_all();
    const double pause = std::min(
        kLongestPause, kFirstPause * static_cast<double>(1 << std::min<int64_t>(failures_, 8)));
    changed_.wait_for(lock, Seconds(pause), [&] { return stopping_ || finishing_; });
    if (finishing_) {  // try once more
      changed_.wait_for(lock, Seconds(kFirstPause), [&] { return stopping_; });
    }
  }
}

bool Outbox::finish(double seconds) {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, Seconds(seconds), [&] { return sent_ == end_ || gave_up_; });
  stopping_ = true;
  changed_.notify_all();
  lock.unlock();
  cancel_();
  thread_.join();
  if (sent_ < end_) {
    log_warning(
        "{} did not receive all data: run `lockstep sync {}` to send the rest, stored in {}",
        name_,
        path_.parent_path().string(),
        path_.filename().string());
    return false;
  }
  std::error_code none;
  std::filesystem::remove(path_, none);
  return true;
}

}  // namespace lockstep::monitor
