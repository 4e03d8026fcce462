// Drawing of a confusion matrix as an SVG image.
#pragma once

#include <string>
#include <vector>

#include "metrics/outcomes.h"

namespace lockstep::metrics {

/// Returns a self-contained SVG without fonts or scripts. The output is deterministic. Rows are
/// true labels, columns are predicted labels, and the color is the share of the row. Cells show
/// counts for up to 30 classes and shares for up to 12. Labels without rows are hatched, and long
/// names are shortened.
std::string draw_confusion(const Matrix& matrix, const std::vector<std::string>& labels);

}  // namespace lockstep::metrics
