// What rendering a template may cost.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::jinja {

struct Dict;

/// A template comes with a model, and may not keep this process: all that its rendering does is
/// counted, in units of about a nanosecond, and is an Error (kData) beyond kMost. Of the thread
/// that made it, as long as it lives.
class Work {
 public:
  static constexpr int64_t kStep = 64;  // a statement or an expression, whatever it does
  static constexpr int64_t kMost = 2'000'000 * kStep;

  Work();
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Counts for the rendering of this thread, if there is one.
  static void add(int64_t units);
  /// Of so many items or bytes that are looked at, copied or made.
  static void add_items(int64_t items) { add(4 * items); }
  static void add_bytes(int64_t bytes) { add(bytes / 4); }

  /// Such a dict alone can come to hold itself: it is emptied at the end.
  static void add_namespace(const std::shared_ptr<Dict>& made);

 private:
  int64_t done_ = 0;
  Work* before_;
  std::vector<std::weak_ptr<Dict>> namespaces_;
};

}  // namespace lockstep::jinja
