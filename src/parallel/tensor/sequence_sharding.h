// How activations lie between the layers of a tensor-parallel model.
#pragma once

namespace lockstep::parallel {

enum class SequenceSharding {
  kNone,    // every rank holds them whole
  kShards,  // it holds its part of the sequence (Korthikanti et al., 2022)
};

}  // namespace lockstep::parallel
