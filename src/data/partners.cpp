// Draws rows of combined forget and retain sets.
#include "data/partners.h"

#include "base/counter_random.h"

namespace lockstep::data {

std::vector<int64_t> PartnerRows::rows_of(const Draw& draw) const {
  const auto drawn = [&](int64_t of) {
    const uint64_t bits =
        random_bits(derive_key(seed, hash_name("partner")), static_cast<uint64_t>(draw.sample));
    return static_cast<int64_t>(bits % static_cast<uint64_t>(of));
  };
  if (forget == 0) {
    return {draw.sequence};
  }
  const int64_t forgotten = retain_leads ? drawn(forget) : draw.sequence;
  std::vector<int64_t> rows{forgotten};
  if (alternates > 0) {
    const int64_t epoch = draw.sample / size();
    rows.push_back(forget * (1 + epoch % alternates) + forgotten);
  }
  if (retain > 0) {
    const int64_t kept = retain_leads ? draw.sequence : drawn(retain);
    rows.push_back(forget * (1 + alternates) + kept);
  }
  return rows;
}

}  // namespace lockstep::data
