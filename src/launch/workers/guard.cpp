// Prepares a process to supervise workers.
#include "launch/workers/guard.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kOneRequest{2};

// Each worker needs three descriptors. The soft limit is often only 1024, the hard limit much
// higher.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536) {
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY ? 65536 : std::min<rlim_t>(limit.rlim_max, 65536);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

// Returns a tag for the workers' environment. A nested supervisor appends its tag to that of the
// outer supervisor, so that the outer one finds all processes.
std::string make_tag() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const char* outer = std::getenv(Guard::kTagName);
  const std::string own = fmt::format("{}.{}{:09}", ::getpid(), now.tv_sec, now.tv_nsec);
  return outer != nullptr && *outer != '\0' ? fmt::format("{}/{}", outer, own) : own;
}

bool is_ignored(int signal) {
  struct sigaction action{};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Discards a signal that arrived while it was blocked. Otherwise it would end this process when it
// is unblocked.
void forget_pending(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  const timespec at_once{};
  while (::sigtimedwait(&one, nullptr, &at_once) == signal) {
  }
}

}  // namespace

Guard::Guard(std::vector<int> signals) : tag_(make_tag()) {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : signals) {
    if (signal != SIGHUP || !is_ignored(signal)) {  // nohup makes the process ignore SIGHUP
      sigaddset(&mask, signal);
    }
  }
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    if (sigismember(&mask, signal) == 0) {
      sigaddset(&mask, signal);
      passed_on_.push_back(signal);
    }
  }
  sigset_t blocked = mask;
  sigaddset(&blocked, SIGPIPE);  // a closed console is detected by write()
  ::pthread_sigmask(SIG_BLOCK, &blocked, &old_mask_);
  signal_descriptor_ = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_descriptor_ < 0) {
    throw Error(ErrorKind::kEnvironment, fmt::format("signalfd failed: {}", std::strerror(errno)));
  }
  loop_.watch(signal_descriptor_, [this] { on_signal(); });
  raise_descriptor_limit();
  before_ = descendants_of(::getpid());
  adopt_orphans();
  keeper_.emplace(tag_);
  before_.push_back(keeper_->pid());
}

Guard::~Guard() {
  keeper_.reset();
  loop_.forget(signal_descriptor_);
  ::close(signal_descriptor_);
  if (sigismember(&old_mask_, SIGPIPE) == 0) {
    forget_pending(SIGPIPE);
  }
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void Guard::on_signal() {
  signalfd_siginfo info{};
  while (::read(signal_descriptor_, &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (std::find(passed_on_.begin(), passed_on_.end(), signal) == passed_on_.end()) {
      take_signal(signal);
    } else if (pass_on_) {
      pass_on_(signal);
    }
  }
}

void Guard::take_signal(int signal) {
  const auto now = std::chrono::steady_clock::now();
  const bool again = signal == SIGTERM && signal_ == SIGTERM && now - asked_ < kOneRequest;
  signal_ = signal;
  if (!again) {
    asked_ = now;
    ++seen_;
  }
}

void Guard::end_descendants(std::chrono::milliseconds grace) {
  launch::end_descendants(before_, grace);
}

}  // namespace lockstep::launch
