// Post-processors, which add special ids around a text, such as <s> before it.
#pragma once

#include "text/models/fields.h"
#include "text/stages/row_template.h"

namespace lockstep::text {

/// Reads the row template of a tokenizer.json's post-processor. Throws Error if a type is unknown.
RowTemplate read_post_processor(const Field& field);

}  // namespace lockstep::text
