#include "checkpoint/async_saver.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "base/clock.h"
#include "base/log.h"

namespace lockstep::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time of its life to `total`.
class Held {
 public:
  explicit Held(std::chrono::duration<double>& total) : total_(total) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { total_ += Clock::now() - start_; }

 private:
  std::chrono::duration<double>& total_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

AsyncSaver::AsyncSaver(comm::Communicator communicator) : communicator_(std::move(communicator)) {}

AsyncSaver::~AsyncSaver() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_error("a checkpoint was not saved: {}", error.what());
  }
}

void AsyncSaver::save(
    const std::filesystem::path& folder,
    std::span<const Piece> pieces,
    std::string state,
    SmallFiles files,
    SaveOptions options,
    std::function<void()> then) {
  wait();
  const Held held(held_);
  snapshot(pieces);
  thread_ = std::thread([this,
                         folder,
                         options,
                         state = std::move(state),
                         files = std::move(files),
                         then = std::move(then)] {
    const double began = seconds_now(), waited = communicator_.seconds_waited();
    try {
      save_checkpoint(folder, copies_, state, files, communicator_, options);
      if (then) {
        then();
      }
    } catch (...) {
      failure_ = std::current_exception();
      failed_ = true;
    }
    own_ = seconds_now() - began - (communicator_.seconds_waited() - waited);
  });
}

void AsyncSaver::snapshot(std::span<const Piece> pieces) {
  const at::NoGradGuard no_gradient;
  copies_.resize(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    at::Tensor buffer = std::move(copies_[i].data);
    copies_[i] = pieces[i];
    if (!pieces[i].data.defined()) {
      continue;
    }
    const at::Tensor source = pieces[i].data.detach().view({-1});
    if (!buffer.defined() || buffer.numel() != source.numel() ||
        buffer.scalar_type() != pieces[i].dtype) {
      buffer = at::empty({source.numel()}, at::dtype(pieces[i].dtype));
    }
    buffer.copy_(source);
    copies_[i].data = std::move(buffer);
  }
}

void AsyncSaver::wait() {
  const Held held(held_);
  if (thread_.joinable()) {
    const double began = seconds_now();
    thread_.join();
    held_for_others_ += std::max(0.0, seconds_now() - began - own_);
  }
  failed_ = false;
  if (failure_ != nullptr) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

}  // namespace lockstep::checkpoint
