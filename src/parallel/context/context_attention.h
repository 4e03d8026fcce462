// Attention methods for sequences that are sharded over ranks.
#pragma once

namespace lockstep::parallel {

enum class ContextAttention {
  kRing,     // keys and values are passed around a ring (Liu et al., 2023)
  kUlysses,  // shards of the sequence are exchanged for shards of the heads (Jacobs et al., 2023)
};

}  // namespace lockstep::parallel
