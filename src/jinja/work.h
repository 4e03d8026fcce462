// Limit on the cost of rendering a template.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::jinja {

struct Dict;

/// Cost counter of one rendering. Templates are untrusted input from model files, so their cost is
/// counted, in units of about one nanosecond, as is the memory of their values. Throws Error (data)
/// beyond the limits. Applies to the thread that constructs it until it is destroyed.
class Work {
 public:
  static constexpr int64_t kStep = 64;  // cost of each statement or expression
  static constexpr int64_t kMost = 2'000'000 * kStep;

  /// Limit of the memory that values made during the rendering hold at once: a size that any
  /// template may need, and a multiple of the memory of the variables.
  static constexpr int64_t kMostHeld = int64_t{64} << 20, kMostHeldFromOne = 1000;

  /// `variables`: memory of the variables in bytes.
  explicit Work(int64_t variables);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Adds to the counter of this thread's rendering, if any.
  static void add(int64_t units);
  /// Add the cost of reading, copying or creating items or bytes.
  static void add_items(int64_t items) { add(4 * items); }
  static void add_bytes(int64_t bytes) { add(bytes / 4); }

  /// Returns the memory of all values of this thread in bytes.
  static int64_t held();
  /// Called if held() has grown.
  static void check_held();

  /// Registers a namespace to be cleared at the end. Only namespaces can form reference cycles.
  static void add_namespace(const std::shared_ptr<Dict>& made);

 private:
  int64_t done_ = 0;
  const int64_t most_held_;  // of held()
  Work* before_;
  std::vector<std::weak_ptr<Dict>> namespaces_;
};

}  // namespace lockstep::jinja
