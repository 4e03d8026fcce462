// Attention methods for sequences that are sharded over ranks.
#pragma once

namespace lockstep::parallel {

enum class ContextAttention {
  kRing,     // keys and values are sent around a ring (Liu et al., 2023)
  kUlysses,  // all-to-all exchanges sequence shards for head shards (Jacobs et al., 2023)
};

}  // namespace lockstep::parallel
