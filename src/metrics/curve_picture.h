// Drawing of line plots as SVG images.
#pragma once

#include <string>
#include <vector>

#include "metrics/ranking.h"

namespace lockstep::metrics {

struct NamedCurve {
  std::string name;
  Curve curve;
  std::vector<std::string> marks{};  // point labels; each labelled point also gets a dot
};

struct PlotAxes {
  std::string title, x, y;
  bool is_unit = true;  // both axes are [0, 1]; otherwise they span the data
  bool has_diagonal = false;
};

/// Returns a self-contained SVG without fonts or scripts. The output is deterministic. The first 8
/// curves have their own color and a legend entry; all others are grey. NaN and Inf points are
/// skipped.
std::string draw_curves(const std::vector<NamedCurve>& curves, const PlotAxes& axes);

/// Escapes a string for XML: replaces &, < and > and drops control characters.
std::string escaped(const std::string& text);

}  // namespace lockstep::metrics
