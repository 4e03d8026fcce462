// Post-processors: the ids that are put around a text, such as <s> before it.
#pragma once

#include "text/models/fields.h"
#include "text/stages/row_template.h"

namespace lockstep::text {

/// The surroundings that a tokenizer.json's post-processor gives; an Error names a type that is not
/// known.
RowTemplate read_post_processor(const Field& field);

}  // namespace lockstep::text
