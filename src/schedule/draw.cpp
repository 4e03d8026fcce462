#include "schedule/draw.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::schedule {

namespace {

constexpr size_t kMaxColumns =
    4000;  // of the text, before cells are made narrower than they can be read

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
        "--svg FILE, or fewer micro-batches");
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

std::string draw_svg(const Schedule& schedule, const Timeline& timeline, const std::string& title) {
  constexpr double kLeft = 60;
  constexpr double kTop = 34;
  constexpr double kRow = 26;
  const double scale = 22 / shortest_action(timeline);
  const double scaled = std::min(scale, 20000 / std::max(timeline.end, 1e-12));
  const double width = kLeft + timeline.end * scaled + 20;
  const double height = kTop + kRow * schedule.ranks + 12;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 "
      "{0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" "
      "height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"8\" y=\"18\" font-size=\"13\">{2}</text>\n",
      width,
      height,
      title);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const double y = kTop + kRow * rank;
    text += fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", y + 15, rank);
    const std::vector<int> stages = schedule.stages_of(rank);
    for (size_t i = 0; i < timeline.spans[rank].size(); ++i) {
      const Span& span = timeline.spans[rank][i];
      const Action& action = schedule.actions[rank][i];
      const double x = kLeft + span.start * scaled;
      const double w = (span.end - span.start) * scaled;
      text += fmt::format(
          "<g><title>{} from {:.6g} to {:.6g}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" "
          "width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.7\"/>",
          action_text(action),
          span.start,
          span.end,
          x,
          y,
          w,
          kRow - 4,
          colour(action.kind, action.stage != stages.front()));
      if (w >= 14) {
        text += fmt::format(
            "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
            x + w / 2,
            y + 15,
            action.micro_batch);
      }
      text += "</g>\n";
    }
  }
  return text + "</svg>\n";
}

}  // namespace lockstep::schedule
