// Implements per-thread accounting of the cost of rendering.
#include "jinja/work.h"

#include <utility>

#include "base/format.h"
#include "jinja/value.h"

namespace lockstep::jinja {
namespace {

thread_local Work* current = nullptr;

}  // namespace

Work::Work() : before_(current) {
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

void Work::add_namespace(const std::shared_ptr<Dict>& made) {
  if (current != nullptr) {
    current->namespaces_.push_back(made);
  }
}

}  // namespace lockstep::jinja
