// Draws a confusion matrix as an SVG image.
#include "metrics/confusion_picture.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "metrics/curve_picture.h"

namespace lockstep::metrics {
namespace {

constexpr size_t kMostWithShares = 12, kMostWithCounts = 30, kLongestName = 24;
constexpr double kMargin = 190, kTop = 46, kBottom = 200;

/// Shortens a name at a code point boundary and escapes it for XML.
std::string shown_name(const std::string& name) {
  std::string text;
  size_t count = 0;
  for (const char c : name) {
    count += (c & 0xC0) != 0x80 ? 1 : 0;
    if (count > kLongestName) {
      return escaped(text) + "\u2026";
    }
    text += c;
  }
  return escaped(text);
}

/// Returns a color interpolated between #f7fbff (0) and #08306b (1).
std::string colour(double share) {
  const auto mix = [&](int light, int dark) {
    return static_cast<int>(std::lround(light + share * (dark - light)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0xf7, 0x08), mix(0xfb, 0x30), mix(0xff, 0x6b));
}

double size_of_cells(size_t classes) {
  return classes <= kMostWithShares   ? 44
         : classes <= kMostWithCounts ? 28
                                      : std::max(6.0, 1400 / static_cast<double>(classes));
}

double sum_of(const std::vector<double>& row) {
  double sum = 0;
  for (const double value : row) {
    sum += value;
  }
  return sum;
}

class Picture {
 public:
  Picture(const Matrix& matrix, const std::vector<std::string>& labels)
      : matrix_(matrix),
        shares_(by_true_class(matrix)),
        labels_(labels),
        cell_(size_of_cells(labels.size())) {
    double lowest = 1, highest = 0;
    for (const std::vector<double>& row : shares_) {
      for (const double share : row) {
        lowest = std::min(lowest, share);
        highest = std::max(highest, share);
      }
    }
    white_above_ = (lowest + highest) / 2;
  }

  std::string draw() {
    const double side = cell_ * static_cast<double>(labels_.size());
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"{}\">\n"
        "<defs><pattern id=\"none\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
        "<path d=\"M0 6L6 0\" stroke=\"#bbbbbb\"/></pattern></defs>\n",
        kMargin + side + 40,
        kTop + side + kBottom,
        cell_ >= 28 ? 11 : 6);
    title(side);
    for (size_t row = 0; row < labels_.size(); ++row) {
      for (size_t column = 0; column < labels_.size(); ++column) {
        draw_cell(row, column);
      }
      name_of(row, side);
    }
    return std::move(text_) + "</svg>\n";
  }

 private:
  double at(size_t index) const { return cell_ * static_cast<double>(index); }
  void add(double x, double y, const char* more, const std::string& words) {
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, words);
  }
  void title(double side) {
    double hits = 0, rows = 0;
    for (size_t k = 0; k < labels_.size(); ++k) {
      hits += matrix_[k][k];
      rows += sum_of(matrix_[k]);
    }
    const double middle = kMargin + side / 2;
    add(middle,
        24,
        "text-anchor=\"middle\" font-size=\"14\"",
        fmt::format("Confusion matrix, accuracy {:.4f} of {:.0f}", hits / rows, rows));
    add(middle,
        kTop + side + kBottom - 12,
        "text-anchor=\"middle\" font-size=\"12\"",
        "predicted label");
    text_ += fmt::format(
        "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
        "font-size=\"12\">true label</text>\n",
        kTop + side / 2);
  }
  void draw_cell(size_t row, size_t column) {
    const double x = kMargin + at(column), y = kTop + at(row), share = shares_[row][column];
    const bool is_empty = sum_of(matrix_[row]) == 0;
    text_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
        x,
        y,
        cell_,
        cell_,
        is_empty ? "url(#none)" : colour(share));
    if (labels_.size() > kMostWithCounts) {
      return;
    }
    const bool has_share = labels_.size() <= kMostWithShares;
    const char* style = share > white_above_ ? "text-anchor=\"middle\" fill=\"#ffffff\""
                                             : "text-anchor=\"middle\" fill=\"#000000\"";
    add(x + cell_ / 2,
        y + cell_ / 2 + (has_share ? -2 : 4),
        style,
        fmt::format("{:.0f}", matrix_[row][column]));
    if (has_share) {
      add(x + cell_ / 2, y + cell_ / 2 + 12, style, fmt::format("{:.2f}", share));
    }
  }
  void name_of(size_t k, double side) {
    const std::string name = shown_name(labels_[k]);
    const double middle = at(k) + cell_ / 2;
    add(kMargin - 6, kTop + middle + 4, "text-anchor=\"end\"", name);
    text_ += fmt::format(
        "<text transform=\"translate({:.1f} {:.1f}) rotate(-{})\" "
        "text-anchor=\"end\">{}</text>\n",
        kMargin + middle + 4,
        kTop + side + 12,
        labels_.size() > kMostWithCounts ? 90 : 45,
        name);
  }

  const Matrix& matrix_;
  Matrix shares_;
  const std::vector<std::string>& labels_;
  double cell_;
  double white_above_ = 0;
  std::string text_;
};

}  // namespace

std::string draw_confusion(const Matrix& matrix, const std::vector<std::string>& labels) {
  return Picture(matrix, labels).draw();
}

}  // namespace lockstep::metrics
