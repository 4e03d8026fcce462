// Variants of the RMS norm, which differ in the multiplication with the weight.
#pragma once

namespace lockstep::ops {

enum class RmsForm {
  kRounded,    // the normalized value is first rounded to the type of x, as in Hugging Face's Llama
  kExact,      // computed in float32 and rounded once
  kAroundOne,  // like kExact, but with 1 + weight (Gemma, 2024)
};

}  // namespace lockstep::ops
