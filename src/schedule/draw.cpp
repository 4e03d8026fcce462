// Draws timed schedules as text and SVG.
#include "schedule/draw.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::schedule {

namespace {

constexpr size_t kMaxColumns = 4000;  // maximum width of a readable text drawing

std::string label(const Schedule& schedule, const Action& action) {
  std::string text = action_text(action);
  return schedule.virtual_stages() > 1 ? text : text.substr(text.find(action_letter(action.kind)));
}

double shortest_action(const Timeline& timeline) {
  double shortest = timeline.end;
  for (const std::vector<Span>& spans : timeline.spans) {
    for (const Span& span : spans) {
      if (span.end > span.start) {
        shortest = std::min(shortest, span.end - span.start);
      }
    }
  }
  return shortest;
}

const char* colour(ActionKind kind, bool late) {
  switch (kind) {
    case ActionKind::kForward:
      return late ? "#2f6fb0" : "#7fb2e5";
    case ActionKind::kBackward:
      return late ? "#2e8b57" : "#86cfa5";
    case ActionKind::kBackwardInput:
      return late ? "#1f9e94" : "#7fd6cd";
    case ActionKind::kBackwardWeight:
      break;
  }
  return late ? "#c07d16" : "#f0bf6a";
}

}  // namespace

std::string draw_text(const Schedule& schedule, const Timeline& timeline, double column) {
  if (column <= 0) {
    column = shortest_action(timeline);
  }
  size_t width = 1;
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      width = std::max(width, label(schedule, action).size());
    }
  }
  ++width;
  const auto columns = static_cast<size_t>(std::ceil(timeline.end / column - 1e-9));
  if (columns > kMaxColumns) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("a drawing of {} columns is too wide to read", columns),
        "use --svg FILE or fewer micro-batches");
  }
  std::string text;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::string line(columns * width, ' ');
    for (size_t i = 0; i < timeline.spans[rank].size(); ++i) {
      const Span& span = timeline.spans[rank][i];
      const auto begin = static_cast<size_t>(std::llround(span.start / column)) * width;
      const auto end = static_cast<size_t>(std::llround(span.end / column)) * width;
      const std::string name = label(schedule, schedule.actions[rank][i]);
      for (size_t at = begin; at + 1 < end && at < line.size(); ++at) {
        line[at] = at - begin < name.size() ? name[at - begin] : '.';
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("rank {:<3} |{}\n", rank, line);
  }
  return text;
}

namespace {

// One rectangle with its times as tooltip.
struct Box {
  std::string name, text;
  const char* colour;
  double start, end;
};

class SvgRow {
 public:
  static constexpr double kLeft = 60;
  static constexpr double kHeight = 26;

  SvgRow(double top, double scale) : top_(top), scale_(scale) {}

  std::string draw(const Box& box) const {
    const double x = kLeft + box.start * scale_;
    const double width = (box.end - box.start) * scale_;
    std::string text = fmt::format(
        "<g><title>{} from {:.6g} to {:.6g}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" "
        "width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.7\"/>",
        box.name,
        box.start,
        box.end,
        x,
        top_,
        width,
        kHeight - 4,
        box.colour);
    if (width >= 14) {
      text += fmt::format(
          "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
          x + width / 2,
          top_ + 15,
          box.text);
    }
    return text + "</g>\n";
  }

 private:
  double top_, scale_;
};

double end_of(const Timeline& timeline, const std::vector<Closing>& after) {
  double end = timeline.end;
  for (const Closing& closing : after) {
    end += closing.duration;
  }
  return end;
}

}  // namespace

std::string draw_svg(
    const Schedule& schedule,
    const Timeline& timeline,
    const std::string& title,
    const std::vector<Closing>& after) {
  constexpr double kTop = 34;
  const double end = end_of(timeline, after);
  const double scale = std::min(22 / shortest_action(timeline), 20000 / std::max(end, 1e-12));
  const double width = SvgRow::kLeft + end * scale + 20;
  const double height = kTop + SvgRow::kHeight * schedule.ranks + 12;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 "
      "{0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" "
      "height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"8\" y=\"18\" font-size=\"13\">{2}</text>\n",
      width,
      height,
      title);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const double top = kTop + SvgRow::kHeight * rank;
    const SvgRow row(top, scale);
    text += fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", top + 15, rank);
    const std::vector<int> stages = schedule.stages_of(rank);
    for (size_t i = 0; i < timeline.spans[rank].size(); ++i) {
      const Span& span = timeline.spans[rank][i];
      const Action& action = schedule.actions[rank][i];
      text += row.draw(
          {action_text(action),
           fmt::to_string(action.micro_batch),
           colour(action.kind, action.stage != stages.front()),
           span.start,
           span.end});
    }
    double begin = timeline.end;
    for (const Closing& closing : after) {
      text += row.draw({closing.name, "", "#b9b9b9", begin, begin + closing.duration});
      begin += closing.duration;
    }
  }
  return text + "</svg>\n";
}

}  // namespace lockstep::schedule
