// Draws line plots as SVG images.
#include "metrics/curve_picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/format.h"

namespace lockstep::metrics {
namespace {

constexpr double kLeft = 56, kAbove = 34, kSide = 300, kBelow = 46, kLegend = 170;
constexpr const char* kColours[] = {
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2"};
constexpr const char* kGrey = "#cccccc";

struct Bounds {
  double low = 0, high = 1;

  double share(double value) const { return (value - low) / (high - low); }
};

Bounds bounds_of(const std::vector<NamedCurve>& curves, std::vector<double> Curve::* axis) {
  Bounds bounds{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const NamedCurve& named : curves) {
    for (const double value : named.curve.*axis) {
      if (std::isfinite(value)) {
        bounds = {std::min(bounds.low, value), std::max(bounds.high, value)};
      }
    }
  }
  if (!(bounds.low < bounds.high)) {  // at most one distinct value
    const double middle = std::isfinite(bounds.low) ? bounds.low : 0.5;
    return {middle - 0.5, middle + 0.5};
  }
  return bounds;
}

class CurvePicture {
 public:
  CurvePicture(const std::vector<NamedCurve>& curves, const PlotAxes& axes)
      : curves_(curves),
        axes_(axes),
        x_(axes.is_unit ? Bounds() : bounds_of(curves, &Curve::x)),
        y_(axes.is_unit ? Bounds() : bounds_of(curves, &Curve::y)) {}

  std::string draw() {
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n",
        kLeft + kSide + kLegend,
        kAbove + kSide + kBelow);
    frame();
    if (axes_.has_diagonal) {
      text_ += fmt::format(
          "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"#999999\" "
          "stroke-dasharray=\"4 3\"/>\n",
          kLeft,
          kAbove + kSide,
          kLeft + kSide,
          kAbove);
    }
    for (size_t i = curves_.size(); i-- > 0;) {  // draws the first curve last, on top
      line(i);
    }
    return std::move(text_) + "</svg>\n";
  }

 private:
  void words(double x, double y, const char* more, const std::string& what) {
    text_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(what));
  }
  void frame() {
    constexpr int kTicks = 5;
    words(kLeft + kSide / 2, 20, "text-anchor=\"middle\" font-size=\"13\"", axes_.title);
    words(kLeft + kSide / 2, kAbove + kSide + 36, "text-anchor=\"middle\"", axes_.x);
    text_ += fmt::format(
        "<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n"
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#444444\"/>\n",
        kAbove + kSide / 2,
        escaped(axes_.y),
        kLeft,
        kAbove,
        kSide,
        kSide);
    for (int tick = 0; tick <= kTicks; ++tick) {
      const double share = static_cast<double>(tick) / kTicks;
      words(
          kLeft + share * kSide,
          kAbove + kSide + 16,
          "text-anchor=\"middle\"",
          fmt::format("{:.3g}", x_.low + share * (x_.high - x_.low)));
      words(
          kLeft - 6,
          kAbove + (1 - share) * kSide + 4,
          "text-anchor=\"end\"",
          fmt::format("{:.3g}", y_.low + share * (y_.high - y_.low)));
    }
  }
  void line(size_t i) {
    const Curve& curve = curves_[i].curve;
    const bool has_colour = i < std::size(kColours);
    std::string path;
    for (size_t at = 0; at < curve.x.size(); ++at) {
      if (std::isfinite(curve.x[at]) && std::isfinite(curve.y[at])) {
        path += fmt::format(
            "{}{:.1f} {:.1f}",
            path.empty() ? "M" : "L",
            kLeft + x_.share(curve.x[at]) * kSide,
            kAbove + (1 - y_.share(curve.y[at])) * kSide);
      }
    }
    const char* colour = has_colour ? kColours[i] : kGrey;
    text_ += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", path, colour);
    for (size_t at = 0; at < curves_[i].marks.size(); ++at) {
      const double x = kLeft + x_.share(curve.x[at]) * kSide,
                   y = kAbove + (1 - y_.share(curve.y[at])) * kSide;
      text_ +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, y, colour);
      words(x + 5, y - 5, "", curves_[i].marks[at]);
    }
    if (has_colour) {
      const double y = kAbove + 14 + 18 * static_cast<double>(i);
      text_ += fmt::format(
          "<path d=\"M{0} {1}h18\" stroke=\"{2}\" stroke-width=\"3\"/>\n",
          kLeft + kSide + 10,
          y - 4,
          colour);
      words(kLeft + kSide + 34, y, "", curves_[i].name);
    }
  }

  const std::vector<NamedCurve>& curves_;
  const PlotAxes& axes_;
  Bounds x_, y_;
  std::string text_;
};

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '&'                               ? "&amp;"
              : c == '<'                             ? "&lt;"
              : c == '>'                             ? "&gt;"
              : static_cast<unsigned char>(c) < 0x20 ? " "
                                                     : std::string(1, c);
  }
  return result;
}

std::string draw_curves(const std::vector<NamedCurve>& curves, const PlotAxes& axes) {
  return CurvePicture(curves, axes).draw();
}

}  // namespace lockstep::metrics
