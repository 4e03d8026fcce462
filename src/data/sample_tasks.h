// Instructions with checkable answers, and short labelled texts.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::data {

struct SampleInstruction {
  std::string instruction, input, output, kind;
};
/// Arithmetic, sorting, counting, reversing, copying, choosing, and questions about a story.
SampleInstruction make_instruction(uint64_t key);

struct LabelledText {
  std::string text, label;  // praise, complaint, question or request
};
/// Praise and complaint use the same words; negation decides the label.
LabelledText make_labelled(uint64_t key);

}  // namespace lockstep::data
