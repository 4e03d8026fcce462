// How ranks that hold parts of a sequence attend to all of it.
#pragma once

namespace lockstep::parallel {

enum class ContextAttention {
  kRing,     // keys and values go round (Liu et al., 2023)
  kUlysses,  // the parts of the sequence are exchanged for parts of the heads (Jacobs et al., 2023)
};

}  // namespace lockstep::parallel
