// Curves as a picture.
#pragma once

#include <string>
#include <vector>

#include "metrics/ranking.h"

namespace lockstep::metrics {

struct NamedCurve {
  std::string name;
  Curve curve;
  std::vector<std::string> marks{};  // a dot and a text at each point; empty: none
};

struct ParallelGroups {
  std::string title, x, y;
  bool is_unit = true;  // both axes are [0, 1]; else they are as wide as the curves
  bool has_diagonal = false;
};

/// SVG without fonts or scripts of its own, the same bytes for the same curves: up to 8 of them
/// have a colour and a name each, what is beyond is grey. Points that are not finite are left out.
std::string draw_curves(const std::vector<NamedCurve>& curves, const ParallelGroups& axes);

/// A text within XML: &, < and > written out, control characters left out.
std::string escaped(const std::string& text);

}  // namespace lockstep::metrics
