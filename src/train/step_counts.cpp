#include "train/step_counts.h"

#include "base/counter_random.h"

namespace lockstep::train {

int64_t shapes_of(std::span<const nn::ForwardInputs> inputs) {
  uint64_t key = inputs.size();
  for (const nn::ForwardInputs& rows : inputs) {
    for (const int64_t size : rows.ids.sizes()) {
      key = derive_key(key, static_cast<uint64_t>(size));
    }
    key = derive_key(key, rows.source.defined() ? static_cast<uint64_t>(rows.source.size(1)) : 0);
  }
  return static_cast<int64_t>(key >> 12);
}

}  // namespace lockstep::train
