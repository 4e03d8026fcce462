// Implements per-thread accounting of the cost of rendering.
#include "jinja/work.h"

#include <utility>

#include "base/format.h"
#include "jinja/value.h"

namespace lockstep::jinja {
namespace {

thread_local Work* current = nullptr;
thread_local int64_t held_bytes = 0;

}  // namespace

void Held::add(int64_t bytes) {
  bytes_ += bytes;
  held_bytes += bytes;
  Work::check_held();
}

Held::~Held() {
  held_bytes -= bytes_;
}

Work::Work(int64_t variables)
    : most_held_(held_bytes + kMostHeld + kMostHeldFromOne * variables),
      before_(current) {
  current = this;
}

Work::~Work() {
  for (const auto& made : namespaces_) {
    if (const auto dict = made.lock()) {
      const auto entries = std::exchange(dict->entries, {});
    }
  }
  current = before_;
}

void Work::add(int64_t units) {
  if (current != nullptr && (current->done_ += units) > kMost) {
    fail(fmt::format("rendering the template exceeds the limit of {} steps", kMost / kStep));
  }
}

int64_t Work::held() {
  return held_bytes;
}

void Work::check_held() {
  if (current != nullptr && held_bytes > current->most_held_) {
    fail(
        "the values of the template hold more than 64 MiB and 1,000 times the memory of its "
        "variables");
  }
}

void Work::add_namespace(const std::shared_ptr<Dict>& made) {
  if (current != nullptr) {
    current->namespaces_.push_back(made);
  }
}

}  // namespace lockstep::jinja
