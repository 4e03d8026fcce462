// Generates instructions with answers that can be checked, and short labelled texts.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::data {

struct SampleInstruction {
  std::string instruction, input, output, kind;
};
/// Returns an instruction about arithmetic, sorting, counting, reversing, copying, choosing, or a
/// story.
SampleInstruction make_instruction(uint64_t key);

struct LabelledText {
  std::string text, label;  // praise, complaint, question or request
};
/// Returns a labelled text. Praise and complaints use the same words; only negation distinguishes
/// them.
LabelledText make_labelled(uint64_t key);

}  // namespace lockstep::data
