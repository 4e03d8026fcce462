// Detects and reports hanging ranks.
#include "launch/workers/hang_watch.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include <poll.h>
#include <unistd.h>

#include "base/log.h"
#include "launch/system/step_file.h"
#include "launch/workers/stacks.h"
#include "launch/workers/worker_environment.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kBetweenReadings{1000};
constexpr size_t kMostWalked = 4;      // maximum number of ranks in a cycle whose stacks are read
constexpr double kAfterTimeout = 1.0;  // seconds without progress if other ranks have timed out
constexpr size_t kLinesInReport = 16;  // lines of the first thread's stack in the failure report

/// Returns the frames of the first thread, which are the most relevant ones.
std::string first_thread(const std::string& stacks) {
  size_t end = 0, lines = 0, threads = 0;
  while (end < stacks.size() && lines < kLinesInReport) {
    threads += stacks.compare(end, 9, "  thread ") == 0 ? 1 : 0;
    if (threads == 2) {
      break;
    }
    end = std::min(stacks.find('\n', end), stacks.size() - 1) + 1;
    ++lines;
  }
  return stacks.substr(0, end);
}

}  // namespace

HangWatch::~HangWatch() {
  if (walker_) {
    ::kill(walker_->pid(), SIGKILL);
  }
}

bool HangWatch::looks() const {
  return std::any_of(group_.workers().begin(), group_.workers().end(), [](const auto& worker) {
    return !worker->status_file.empty();
  });
}

std::vector<RankView> HangWatch::views(bool living) const {
  std::vector<RankView> views;
  for (const auto& worker : group_.workers()) {
    if (worker->status_file.empty() || (living && worker->status)) {
      continue;
    }
    if (auto view = view_rank(worker->status_file)) {
      views.push_back(std::move(*view));
    }
  }
  return views;
}

const Worker* HangWatch::worker_of(int rank) const {
  const auto found =
      std::find_if(group_.workers().begin(), group_.workers().end(), [&](const auto& worker) {
        return worker->rank == rank;
      });
  return found == group_.workers().end() || (*found)->status ? nullptr : found->get();
}

void HangWatch::begin_report(const Hang& hang, const std::vector<RankView>& ranks, double now) {
  told_ = hang;
  report_ = describe_hang(hang, ranks, now);
  all_stacks_.clear();
  to_walk_.clear();
  walker_.reset();
  for (const RankView& view : ranks) {
    const bool hangs =
        std::find(hang.ranks.begin(), hang.ranks.end(), view.rank()) != hang.ranks.end();
    if (hangs && to_walk_.size() < kMostWalked) {
      to_walk_.emplace_back(view.rank(), view.process);
    }
    if (hangs) {
      found_[view.rank()] = report_;
    }
  }
}

void HangWatch::go_on_with_report() {
  if (!walker_ && to_walk_.empty()) {
    return;
  }
  if (!walker_) {
    const auto [rank, process] = to_walk_.front();
    ProcessSpec spec;
    spec.body = [walked = process] {
      std::fputs(stacks_of(walked).c_str(), stdout);
      return 0;
    };
    spec.environment = flatten(current_environment());
    walked_rank_ = rank;
    stacks_.clear();
    walk_began_ = std::chrono::steady_clock::now();
    walker_.emplace(Process::start(spec));
  }
  char bytes[4096];
  for (ssize_t count = 0; (count = ::read(walker_->output(), bytes, sizeof bytes)) > 0;) {
    stacks_.append(bytes, static_cast<size_t>(count));
  }
  const bool late = std::chrono::steady_clock::now() - walk_began_ > kMostForStacks;
  if (!walker_->status() && !late) {
    return;
  }
  if (late) {
    ::kill(walker_->pid(), SIGKILL);
    stacks_ += "  timed out while reading the stacks\n";
  }
  walker_.reset();
  to_walk_.erase(to_walk_.begin());
  all_stacks_ += fmt::format("stacks of rank {}:\n{}", walked_rank_, stacks_);
  found_[walked_rank_] += "stack:\n" + first_thread(stacks_);
  if (to_walk_.empty()) {
    log_error("{}{}", report_, all_stacks_);
  }
}

const Worker* HangWatch::look() {
  go_on_with_report();
  const auto clock = std::chrono::steady_clock::now();
  if (walker_ || !to_walk_.empty() || clock - looked_ < kBetweenReadings) {
    return nullptr;
  }
  looked_ = clock;
  const std::vector<RankView> ranks = views(/*living=*/true);
  const double now = machine_seconds();
  const std::optional<Hang> hang = find_hang(ranks, now);
  if (!hang) {
    // Keep the findings about a worker that has ended, for the failure report.
    if (told_ && worker_of(told_->ranks.front()) != nullptr) {
      log_warning("rank {} resumed after {:.3g} s", told_->ranks.front(), told_->seconds);
      found_.clear();
      told_.reset();
    }
    return nullptr;
  }
  if (!told_ || told_->ranks != hang->ranks) {
    begin_report(*hang, ranks, now);
    go_on_with_report();
    return nullptr;
  }
  told_->seconds = hang->seconds;
  for (const RankView& view : ranks) {
    if (view.rank() == hang->ranks.front() && view.rank_status.end_after > 0 &&
        hang->seconds > view.rank_status.end_after) {
      return worker_of(view.rank());
    }
  }
  return nullptr;
}

const Worker* HangWatch::find_after_timeout(
    std::optional<int> known, const std::function<void(std::chrono::milliseconds)>& pump) {
  const std::vector<RankView> ranks = views(/*living=*/true);
  const double now = machine_seconds();
  std::optional<Hang> hang;
  if (known) {
    hang = Hang{.ranks = {*known}};
    for (const RankView& view : ranks) {
      if (view.rank() == *known) {
        hang->seconds = now - view.rank_status.changed;
      }
    }
  } else {
    hang = find_hang(ranks, now, kAfterTimeout);
  }
  if (!hang || hang->is_circle || worker_of(hang->ranks.front()) == nullptr) {
    return nullptr;
  }
  const int rank = hang->ranks.front();
  if (!told_ || told_->ranks != hang->ranks) {
    begin_report(*hang, ranks, now);
  }
  const auto end = std::chrono::steady_clock::now() + kMostForStacks;
  while ((walker_ || !to_walk_.empty()) && std::chrono::steady_clock::now() < end) {
    go_on_with_report();
    pump(std::chrono::milliseconds(20));
  }
  return worker_of(rank);
}

std::string HangWatch::found(int rank) const {
  const auto found = found_.find(rank);
  return found == found_.end() ? "" : found->second;
}

}  // namespace lockstep::launch
