// A confusion matrix as a picture.
#pragma once

#include <string>
#include <vector>

#include "metrics/outcomes.h"

namespace lockstep::metrics {

/// SVG without fonts or scripts of its own, the same bytes for the same matrix: rows are true
/// labels, columns predicted ones, the colour is the share of the row. Up to 30 classes have their
/// counts in the cells, up to 12 the shares too. A label without rows is hatched; long names are
/// cut.
std::string draw_confusion(const Matrix& matrix, const std::vector<std::string>& labels);

}  // namespace lockstep::metrics
