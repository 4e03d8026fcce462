// Heartbeats through the store: each rank watches the next rank.
#include "comm/heartbeat.h"

#include <exception>
#include <utility>
#include <vector>

#include "base/format.h"

namespace lockstep::comm {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr const char* kLostKey = "heart/lost";
constexpr const char* kFarewell = "farewell";

Bytes to_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string heart_of(int rank) {
  return fmt::format("heart/{}", rank);
}
std::string text_at(const Store& store, const std::string& key) {
  if (!store->check({key})) {
    return "";
  }
  const Bytes bytes = store->get(key);
  return {bytes.begin(), bytes.end()};
}

struct Lost {
  std::mutex mutex;
  std::string who;
};
Lost& lost() {
  static Lost lost;
  return lost;
}

}  // namespace

std::string lost_rank() {
  const std::scoped_lock lock(lost().mutex);
  return lost().who;
}

Heartbeat::Heartbeat(
    const Store& store, int rank, int size, Options options, std::function<void()> lost)
    : store_(store->clone()),
      rank_(rank),
      size_(size),
      options_(options),
      lost_(std::move(lost)),
      thread_([this] { run(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  thread_.join();
  try {
    if (std::uncaught_exceptions() > 0 && !told_) {
      store_->compareSet(kLostKey, {}, to_bytes(fmt::format("rank {} failed", rank_)));
    }
    store_->set(heart_of(rank_), to_bytes(kFarewell));
  } catch (const std::exception&) {  // the store is lost, so no rank could read the message
  }
  if (told_) {  // if false, another rank thread of this process wrote it
    const std::scoped_lock lock(lost().mutex);
    lost().who.clear();
  }
}

void Heartbeat::run() {
  std::unique_lock lock(mutex_);
  while (!ends_ && !told_) {
    lock.unlock();
    try {
      beat_once();
    } catch (const std::exception&) {
      tell("lost the connection to the job's store");
    }
    lock.lock();
    ended_.wait_for(lock, options_.beat, [&] { return ends_; });
  }
}

void Heartbeat::beat_once() {
  store_->set(heart_of(rank_), to_bytes(std::to_string(++beats_)));
  if (next_is_silent()) {
    const auto seconds = std::chrono::duration<double>(options_.silence).count();
    const std::string who =
        fmt::format("rank {} was silent for {:.3g} s", (rank_ + 1) % size_, seconds);
    store_->compareSet(kLostKey, {}, to_bytes(who));
  }
  if (const std::string who = text_at(store_, kLostKey); !who.empty()) {
    tell(who);
  }
}

bool Heartbeat::next_is_silent() {
  const auto now = std::chrono::steady_clock::now();
  std::string heard = text_at(store_, heart_of((rank_ + 1) % size_));
  if (heard != heard_) {
    heard_ = std::move(heard);
    heard_at_ = now;
  }
  return heard_ != kFarewell && now - heard_at_ > options_.silence;
}

void Heartbeat::tell(const std::string& who) {
  {
    const std::scoped_lock lock(lost().mutex);
    lost().who = who;
  }
  told_ = true;
  lost_();
}

}  // namespace lockstep::comm
