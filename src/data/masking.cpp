#include "data/masking.h"

#include "base/counter_random.h"
#include "data/sequences.h"

namespace lockstep::data {

void Masking::apply(int64_t sample, std::span<int64_t> ids, std::span<int64_t> labels) const {
  const uint64_t key =
      derive_key(derive_key(seed, hash_name("masked tokens")), static_cast<uint64_t>(sample));
  for (size_t place = 0; place < ids.size(); ++place) {
    const int64_t id = ids[place];
    const bool is_special = id < std::ssize(specials) && specials[static_cast<size_t>(id)];
    // Three draws a place, whichever are used.
    const uint64_t draw = 3 * static_cast<uint64_t>(place);
    if (is_special || labels[place] == kIgnored || random_uniform(key, draw) >= probability) {
      labels[place] = kIgnored;
      continue;
    }
    labels[place] = id;
    const double kind = random_uniform(key, draw + 1);
    if (kind < mask_share) {
      ids[place] = mask;
    } else if (kind < mask_share + random_share) {
      ids[place] =
          static_cast<int64_t>(random_bits(key, draw + 2) % static_cast<uint64_t>(vocabulary));
    }
  }
}

}  // namespace lockstep::data
