// Post-processors, which add special ids around text, such as <s> at the start.
#pragma once

#include "text/models/fields.h"
#include "text/stages/row_template.h"

namespace lockstep::text {

/// Returns the row template for the post-processor in a tokenizer.json. Throws Error for an unknown
/// type.
RowTemplate read_post_processor(const Field& field);

}  // namespace lockstep::text
