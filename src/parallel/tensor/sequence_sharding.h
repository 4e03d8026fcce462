// Layout of activations between tensor-parallel layers.
#pragma once

namespace lockstep::parallel {

enum class SequenceSharding {
  kNone,    // replicated on every rank
  kShards,  // sharded along the sequence (Korthikanti et al., 2022)
};

}  // namespace lockstep::parallel
