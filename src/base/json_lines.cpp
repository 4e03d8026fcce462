// Reads JSON lines in blocks; skips damaged lines.
#include "base/json_lines.h"

#include <algorithm>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = size_t{1} << 20;  // bytes

}  // namespace

nlohmann::json parse_json_line(std::string_view line) {
  try {
    nlohmann::json parsed = parse_json(line, "the line");
    return parsed.is_object() ? std::move(parsed) : nlohmann::json();
  } catch (const Error&) {
    return {};
  }
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  try {
    [[maybe_unused]] const nlohmann::json checked = parse_json(text, "the text");
    return nlohmann::ordered_json::parse(text);
  } catch (const Error&) {
    return {};
  }
}

void for_each_line(
    const std::filesystem::path& path, const std::function<void(std::string_view line)>& body) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) {
    return;
  }
  const File file(path, File::Mode::kRead, ErrorKind::kData);
  const uint64_t size = file.size();
  std::string text;  // the incomplete line before `at`, then the next block
  bool too_long = false;
  for (uint64_t at = 0; at < size;) {
    const size_t before = text.size();
    text.resize(before + static_cast<size_t>(std::min<uint64_t>(kBlock, size - at)));
    const std::span<char> block = std::span(text).subspan(before);
    file.read_at(at, std::as_writable_bytes(block));
    at += block.size();
    std::string_view rest = text;
    for (size_t end = rest.find('\n', before); end != std::string_view::npos;
         end = rest.find('\n')) {
      if (!std::exchange(too_long, false)) {
        body(rest.substr(0, end));
      }
      rest.remove_prefix(end + 1);
    }
    too_long = too_long || rest.size() > kLongestLine;
    text = too_long ? std::string() : std::string(rest);
  }
}

}  // namespace lockstep
