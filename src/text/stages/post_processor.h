// Post-processors: the ids that are put around a text, such as <s> before it.
#pragma once

#include <cstdint>
#include <vector>

#include "text/models/fields.h"

namespace lockstep::text {

/// What a single text is put between.
struct Surroundings {
  std::vector<int32_t> before, after;
};

/// The surroundings that a tokenizer.json's post-processor gives; an Error names a type that is not
/// known.
Surroundings read_post_processor(const Field& field);

}  // namespace lockstep::text
