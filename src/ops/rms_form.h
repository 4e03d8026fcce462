// How an RMS norm multiplies by its weight.
#pragma once

namespace lockstep::ops {

enum class RmsForm {
  kRounded,    // what it multiplies is rounded to the type of x first, as in Hugging Face's Llama
  kExact,      // in float32, rounded once
  kAroundOne,  // the same, by 1 + weight (Gemma, 2024)
};

}  // namespace lockstep::ops
