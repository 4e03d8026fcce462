// Python's methods of strings and dicts, as far as they change nothing, and functions.
#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <map>

#include "base/format.h"
#include "jinja/builtins.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\v\f\x1c\x1d\x1e\x1f";

/// Latin-1, Greek and Cyrillic letters, whose cases lie a fixed distance apart.
char32_t cased(char32_t c, bool upper) {
  struct Run {
    char32_t first, last;  // of the upper case
    char32_t distance;
  };
  static constexpr std::array<Run, 6> kRuns{
      {{'A', 'Z', 32},
       {0xC0, 0xD6, 32},
       {0xD8, 0xDE, 32},
       {0x391, 0x3A9, 32},
       {0x410, 0x42F, 32},
       {0x400, 0x40F, 80}}};
  for (const Run& run : kRuns) {
    if (!upper && c >= run.first && c <= run.last) {
      return c + run.distance;
    }
    if (upper && c >= run.first + run.distance && c <= run.last + run.distance) {
      return c - run.distance;
    }
  }
  return c;
}

std::string titled(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char32_t c : text::to_code_points(text)) {
    text::append_code_point(out, cased(c, begins));
    begins = c < 0x80 && std::isalpha(static_cast<int>(c)) == 0;
  }
  return out;
}

Value split(const std::string& text, const Arguments& arguments, bool from_right) {
  arguments.check("split", 2, {"sep", "maxsplit"});
  const Value* given = arguments.find(0, "sep");
  const Value* limit = arguments.find(1, "maxsplit");
  int64_t left = limit == nullptr ? -1 : limit->integer();
  std::vector<Value> parts;
  if (given == nullptr || given->is_none()) {
    if (left >= 0) {
      fail("split at white space takes no maxsplit here");
    }
    for (size_t at = text.find_first_not_of(kSpaces); at != std::string::npos;) {
      const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
      parts.emplace_back(text.substr(at, end - at));
      at = text.find_first_not_of(kSpaces, end);
    }
    return make_list(std::move(parts));
  }
  const std::string& by = given->string();
  if (by.empty()) {
    fail("split by an empty separator");
  }
  size_t begin = 0, end = text.size();
  while (left != 0) {
    const size_t found =
        from_right ? (end < by.size() ? std::string::npos : text.rfind(by, end - by.size()))
                   : text.find(by, begin);
    if (found == std::string::npos) {
      break;
    }
    if (from_right) {
      parts.emplace_back(text.substr(found + by.size(), end - found - by.size()));
      end = found;
    } else {
      parts.emplace_back(text.substr(begin, found - begin));
      begin = found + by.size();
    }
    --left;
  }
  parts.emplace_back(text.substr(begin, end - begin));
  if (from_right) {
    std::reverse(parts.begin(), parts.end());
  }
  return make_list(std::move(parts));
}

Value split_lines(const std::string& text) {
  std::vector<Value> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + (text.substr(std::min(end, text.size()), 2) == "\r\n" ? 2 : 1);
  }
  return make_list(std::move(lines));
}

bool has_end(const std::string& text, const Value& ends, bool at_start) {
  const auto fits = [&](const Value& end) {
    return at_start ? text.starts_with(end.string()) : text.ends_with(end.string());
  };
  if (ends.is_list()) {
    const auto& all = ends.list().items;
    return std::any_of(all.begin(), all.end(), fits);
  }
  return fits(ends);
}

/// The place of a part, counted in code points; -1: none.
int64_t find_in(const std::string& text, const std::string& part, bool last) {
  const size_t found = last ? text.rfind(part) : text.find(part);
  return found == std::string::npos ? -1
                                    : static_cast<int64_t>(text::count_code_points(
                                          std::string_view(text).substr(0, found)));
}

int64_t count_in(const std::string& text, const std::string& part) {
  if (part.empty()) {
    return static_cast<int64_t>(text::count_code_points(text)) + 1;
  }
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

std::string joined(const std::string& between, const Value& parts) {
  std::string out;
  bool first = true;
  for (const Value& part : iterate(parts)) {
    out += (first ? "" : between) + part.string();
    first = false;
  }
  return out;
}

bool all_bytes(const std::string& text, int (*is)(int)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is(static_cast<unsigned char>(c)) != 0;
  });
}

/// Whether a text has letters with cases, and all of them in this one.
bool is_all_in_case(const std::string& text, bool upper) {
  return text == in_case(text, upper) && text != in_case(text, !upper);
}

Value throw_missing_part() {
  fail("a part that is asked for is not in the text");
}

Value partition(const std::string& text, const std::string& by) {
  const size_t at = by.empty() ? std::string::npos : text.find(by);
  std::vector<Value> parts{text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), by, text.substr(at + by.size())};
  }
  return make_list(std::move(parts), /*is_tuple=*/true);
}

const Value& needed(const Arguments& arguments, size_t position, const char* name) {
  const Value* value = arguments.find(position, name);
  if (value == nullptr) {
    fail(fmt::format("an argument is missing: {}", name));
  }
  return *value;
}

using StringMethod = Value (*)(const std::string&, const Arguments&);

Value stripped(const std::string& text, const Arguments& arguments, bool left, bool right) {
  const Value* characters = arguments.find(0, "chars");
  const bool any = characters == nullptr || characters->is_none();
  return strip(text, any ? kSpaces : std::string_view(characters->string()), left, right);
}

const std::map<std::string, StringMethod>& string_methods() {
  using Text = const std::string&;
  using Given = const Arguments&;
  static const std::map<std::string, StringMethod> methods{
      {"strip", [](Text s, Given a) { return stripped(s, a, true, true); }},
      {"lstrip", [](Text s, Given a) { return stripped(s, a, true, false); }},
      {"rstrip", [](Text s, Given a) { return stripped(s, a, false, true); }},
      {"upper", [](Text s, Given) { return Value(in_case(s, true)); }},
      {"lower", [](Text s, Given) { return Value(in_case(s, false)); }},
      {"title", [](Text s, Given) { return Value(titled(s)); }},
      {"capitalize", [](Text s, Given) { return Value(capitalized(s)); }},
      {"split", [](Text s, Given a) { return split(s, a, false); }},
      {"rsplit", [](Text s, Given a) { return split(s, a, true); }},
      {"splitlines", [](Text s, Given) { return split_lines(s); }},
      {"startswith",
       [](Text s, Given a) { return Value(has_end(s, needed(a, 0, "prefix"), true)); }},
      {"endswith",
       [](Text s, Given a) { return Value(has_end(s, needed(a, 0, "suffix"), false)); }},
      {"replace",
       [](Text s, Given a) {
         const Value* most = a.find(2, "count");
         return Value(replaced(
             s,
             needed(a, 0, "old").string(),
             needed(a, 1, "new").string(),
             most == nullptr ? -1 : most->integer()));
       }},
      {"find",
       [](Text s, Given a) { return Value(find_in(s, needed(a, 0, "sub").string(), false)); }},
      {"rfind",
       [](Text s, Given a) { return Value(find_in(s, needed(a, 0, "sub").string(), true)); }},
      {"count", [](Text s, Given a) { return Value(count_in(s, needed(a, 0, "sub").string())); }},
      {"join", [](Text s, Given a) { return Value(joined(s, needed(a, 0, "iterable"))); }},
      {"index",
       [](Text s, Given a) {
         const int64_t at = find_in(s, needed(a, 0, "sub").string(), false);
         return at < 0 ? throw_missing_part() : Value(at);
       }},
      {"partition", [](Text s, Given a) { return partition(s, needed(a, 0, "sep").string()); }},
      {"isalnum", [](Text s, Given) { return Value(all_bytes(s, std::isalnum)); }},
      {"isupper", [](Text s, Given) { return Value(is_all_in_case(s, true)); }},
      {"islower", [](Text s, Given) { return Value(is_all_in_case(s, false)); }},
      {"isdigit", [](Text s, Given) { return Value(all_bytes(s, std::isdigit)); }},
      {"isalpha", [](Text s, Given) { return Value(all_bytes(s, std::isalpha)); }},
      {"isspace", [](Text s, Given) { return Value(all_bytes(s, std::isspace)); }},
      {"removeprefix",
       [](Text s, Given a) {
         const std::string& end = needed(a, 0, "prefix").string();
         return Value(s.starts_with(end) ? s.substr(end.size()) : s);
       }},
      {"removesuffix",
       [](Text s, Given a) {
         const std::string& end = needed(a, 0, "suffix").string();
         return Value(s.ends_with(end) ? s.substr(0, s.size() - end.size()) : s);
       }},
  };
  return methods;
}

std::optional<Value> dict_method(const Value& value, const std::string& name) {
  if (name == "items") {
    return make_callable([value](const Arguments&) {
      std::vector<Value> items;
      for (const auto& [key, entry] : value.dict().entries) {
        items.push_back(make_list({key, entry}, /*is_tuple=*/true));
      }
      return make_list(std::move(items));
    });
  }
  if (name == "keys" || name == "values") {
    return make_callable([value, keys = name == "keys"](const Arguments&) {
      std::vector<Value> items;
      for (const auto& [key, entry] : value.dict().entries) {
        items.push_back(keys ? key : entry);
      }
      return make_list(std::move(items));
    });
  }
  if (name == "get") {
    return make_callable([value](const Arguments& arguments) {
      const Value* found = value.dict().find(needed(arguments, 0, "key"));
      const Value* otherwise = arguments.find(1, "default");
      return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value(None{});
    });
  }
  return std::nullopt;
}

Value make_range(const Arguments& arguments) {
  arguments.check("range", 3, {});
  const auto given = [&](size_t i) { return arguments.values.at(i).integer(); };
  const size_t count = arguments.values.size();
  if (count == 0) {
    fail("range takes a number");
  }
  const int64_t first = count > 1 ? given(0) : 0, last = given(count > 1 ? 1 : 0),
                step = count > 2 ? given(2) : 1;
  if (step == 0) {
    fail("range's step is 0");
  }
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
    if (std::ssize(items) == kMostItems) {
      fail(fmt::format("a range of more than {} numbers", kMostItems));
    }
    items.emplace_back(i);
  }
  return make_list(std::move(items));
}

Value make_entries(const Arguments& arguments, bool is_namespace) {
  auto dict = std::make_shared<Dict>();
  dict->is_namespace = is_namespace;
  for (const Value& other : arguments.values) {
    for (const auto& [key, value] : other.dict().entries) {
      dict->set(key, value);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    dict->set(name, value);
  }
  return dict;
}

Value time_as(const Arguments& arguments) {
  const std::time_t now = std::time(nullptr);
  std::tm here{};
  ::localtime_r(&now, &here);
  std::array<char, 512> text{};
  const size_t size = std::strftime(
      text.data(), text.size(), needed(arguments, 0, "format").string().c_str(), &here);
  return std::string(text.data(), size);
}

}  // namespace

std::string strip(std::string_view text, std::string_view characters, bool left, bool right) {
  const auto is_one = [&](char32_t c) {
    return text::to_code_points(characters).find(c) != std::u32string::npos;
  };
  std::u32string points = text::to_code_points(text);
  if (right) {
    while (!points.empty() && is_one(points.back())) {
      points.pop_back();
    }
  }
  size_t begin = 0;
  while (left && begin < points.size() && is_one(points[begin])) {
    ++begin;
  }
  return text::to_utf8(std::u32string_view(points).substr(begin));
}

std::string in_case(std::string_view text, bool upper) {
  std::string out;
  for (const char32_t c : text::to_code_points(text)) {
    text::append_code_point(out, cased(c, upper));
  }
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) {
    return "";
  }
  const size_t first = text::code_point_length(text.front());
  return in_case(text.substr(0, first), true) + in_case(text.substr(first), false);
}

std::string replaced(
    const std::string& text, const std::string& from, const std::string& to, int64_t most) {
  std::string out;
  size_t at = 0;
  while (most != 0 && !from.empty()) {
    const size_t found = text.find(from, at);
    if (found == std::string::npos) {
      break;
    }
    out += text.substr(at, found - at) + to;
    at = found + from.size();
    --most;
    if (std::ssize(out) > kMostBytes) {
      fail("a text of more than 256 MiB");
    }
  }
  return out + text.substr(at);
}

std::optional<Value> find_method(const Value& value, const std::string& name) {
  static const std::array<const char*, 13> kChanging{
      "append",
      "extend",
      "insert",
      "remove",
      "pop",
      "popitem",
      "clear",
      "update",
      "sort",
      "reverse",
      "setdefault",
      "copy",
      "fromkeys"};
  const bool changes = std::find(kChanging.begin(), kChanging.end(), name) != kChanging.end();
  if (changes && (value.is_list() || (value.is_dict() && !value.dict().is_namespace &&
                                      value.dict().find(name) == nullptr))) {
    fail(fmt::format("{}.{}: templates may not change values", type_name(value), name));
  }
  if (value.is_string()) {
    const auto method = string_methods().find(name);
    if (method != string_methods().end()) {
      return make_callable([text = value.string(), run = method->second](const Arguments& given) {
        return run(text, given);
      });
    }
  }
  return value.is_dict() && !value.dict().is_namespace ? dict_method(value, name) : std::nullopt;
}

Value global_function(const std::string& name) {
  if (name == "range") {
    return make_callable(make_range);
  }
  if (name == "namespace" || name == "dict") {
    return make_callable([is = name == "namespace"](const Arguments& arguments) {
      return make_entries(arguments, is);
    });
  }
  if (name == "raise_exception") {
    return make_callable([](const Arguments& arguments) -> Value {
      fail(to_text(needed(arguments, 0, "message")));
    });
  }
  return name == "strftime_now" ? make_callable(time_as) : Value(Undefined{name});
}

}  // namespace lockstep::jinja
