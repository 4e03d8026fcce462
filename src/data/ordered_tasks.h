// Work on many threads whose results come back in the order in which the work went in.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::data {

/// Threads that run one function on inputs. One thread adds and takes; it keeps no more in flight
/// than it wants.
template <class Input, class Output>
class OrderedTasks {
 public:
  OrderedTasks(int threads, std::function<Output(Input)> function)
      : function_(std::move(function)) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  /// Tasks that were not begun are dropped.
  ~OrderedTasks() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  OrderedTasks(const OrderedTasks&) = delete;
  OrderedTasks& operator=(const OrderedTasks&) = delete;

  void add(Input input) {
    std::packaged_task<Output()> task(
        [this, input = std::move(input)]() mutable { return function_(std::move(input)); });
    results_.push_back(task.get_future());
    {
      const std::scoped_lock lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    ready_.notify_one();
  }
  /// Tasks whose results were not taken yet.
  size_t in_flight() const { return results_.size(); }
  /// The result of the oldest; waits for it, and throws what its function threw.
  Output take() {
    std::future<Output> result = std::move(results_.front());
    results_.pop_front();
    return result.get();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      ready_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) {
        return;
      }
      std::packaged_task<Output()> task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::function<Output(Input)> function_;
  std::deque<std::future<Output>> results_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::packaged_task<Output()>> waiting_;  // guarded by mutex_, as is the next
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use what stands above
};

}  // namespace lockstep::data
