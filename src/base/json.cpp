// Parses JSON with limits.
#include "base/json.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"

namespace lockstep {
namespace {

constexpr int kMaximumDepth = 64;

std::string place(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return fmt::format("line {}, column {}", line, std::max<size_t>(column, 1));
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view source, ErrorKind kind) {
  using json = nlohmann::json;
  // The library treats a zero byte as the end of the text, but valid JSON never contains one.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error(
        kind, fmt::format("{} is not JSON at {}: a zero byte", source, place(text, zero + 1)));
  }
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaximumDepth) {
      throw Error(kind, fmt::format("{} is nested deeper than {} levels", source, kMaximumDepth));
    }
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        throw Error(kind, fmt::format("{} contains the key \"{}\" twice", source, key));
      }
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& error) {
    std::string reason = error.what();
    if (const size_t at = reason.rfind(": "); at != std::string::npos) {
      reason = reason.substr(at + 2);
    }
    throw Error(
        kind, fmt::format("{} is not JSON at {}: {}", source, place(text, error.byte), reason));
  } catch (const json::exception& error) {
    throw Error(kind, fmt::format("{} is not JSON: {}", source, error.what()));
  }
}

nlohmann::json read_json(const std::filesystem::path& path, ErrorKind kind, uint64_t longest) {
  return parse_json(read_file(path, kind, longest), path.string(), kind);
}

}  // namespace lockstep
