// Implements background saves, with one saver thread per rank.
#include "checkpoint/async_saver.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "base/clock.h"
#include "base/log.h"

namespace lockstep::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kCopyAlignment = 64;  // bytes

int64_t bytes_of(const Piece& piece) {
  return piece.data.numel() * static_cast<int64_t>(c10::elementSize(piece.dtype));
}

/// Adds the object's lifetime to `total`.
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
    log_error("checkpoint not saved: {}", error.what());
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
  lend(pieces);
  options.lent = &lent_;
  options.kept = &kept_;
  committed_ = false;
  thread_ = std::thread([this,
                         folder,
                         options,
                         state = std::move(state),
                         files = std::move(files),
                         then = std::move(then)] {
    const double began = seconds_now(), waited = communicator_.seconds_waited();
    try {
      snapshot_.finish();
      save_checkpoint(folder, pieces_, state, files, communicator_, options);
      if (then) {
        then();
      }
      committed_ = true;
    } catch (...) {
      failure_ = std::current_exception();
      failed_ = true;
    }
    lent_.end();
    own_ = seconds_now() - began - (communicator_.seconds_waited() - waited);
  });
}

void AsyncSaver::lend(std::span<const Piece> pieces) {
  const at::NoGradGuard no_gradient;
  lent_.end();
  std::vector<int64_t> places;
  int64_t bytes = 0;
  bool is_pinned = false;
  for (const Piece& piece : pieces) {
    places.push_back(bytes);
    if (piece.data.defined()) {
      bytes += (bytes_of(piece) + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
      is_pinned = is_pinned || piece.data.is_cuda();
    }
  }
  if (!memory_.defined() || memory_.numel() != bytes) {
    pieces_.clear();
    memory_ = at::Tensor();  // free the old buffer before allocating the new one
    memory_ = ops::host_bytes(bytes, is_pinned);
  }
  pieces_.assign(pieces.begin(), pieces.end());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].data.defined() || pieces[i].data.numel() == 0) {
      continue;
    }
    const at::Tensor from = pieces[i].data.detach().view({-1});
    const at::Tensor copy = memory_.narrow(0, places[i], bytes_of(pieces[i]));
    if (from.is_cpu() && from.scalar_type() == pieces[i].dtype &&
        lent_.lend(from.view(at::kByte), copy)) {
      continue;
    }
    pieces_[i].data = copy.view(pieces[i].dtype);
    snapshot_.copy(pieces_[i].data, from);
  }
}

void AsyncSaver::before_state_update() {
  const Held held(held_);
  lent_.before_state_update();
  snapshot_.before_state_update();
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
