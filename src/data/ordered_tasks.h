// Thread pool whose results are returned in the order of the inputs.
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

/// Applies a function to inputs on several threads. One thread adds inputs and takes results. It
/// must also limit the number of tasks in flight.
template <class Input, class Output>
class OrderedTasks {
 public:
  OrderedTasks(int threads, std::function<Output(Input)> function)
      : function_(std::move(function)) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  /// Drops tasks that have not started yet.
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
  /// Returns the number of tasks whose results have not been taken.
  size_t in_flight() const { return results_.size(); }
  /// Waits for the oldest task. Returns its result or rethrows its exception.
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
  std::deque<std::packaged_task<Output()>> waiting_;  // guarded by mutex_, as is the next member
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last member: the threads use the members above
};

}  // namespace lockstep::data
