// Forms of the RMS norm's product with its weight.
#pragma once

namespace lockstep::ops {

enum class RmsForm {
  kRounded,    // the normalized value is first rounded to the type of x, as in Hugging Face's Llama
  kExact,      // computed in float32 and rounded once
  kAroundOne,  // as kExact, with 1 + weight (Gemma, 2024)
};

}  // namespace lockstep::ops
