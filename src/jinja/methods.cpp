// Implements non-mutating methods of Python's strings, lists and dicts, and global functions.
#include <algorithm>
#include <array>
#include <ctime>
#include <map>

#include "base/format.h"
#include "jinja/builtins.h"
#include "jinja/python_characters.h"
#include "jinja/work.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

/// Adds a part of a string that is split. Each takes memory, however short it is, so the work
/// counts before all of them exist.
void add_part(std::vector<Value>& parts, std::string part) {
  Work::add(Work::kStep);
  parts.emplace_back(std::move(part));
}

/// Splits at runs of white space, as split() and rsplit() without a separator. A negative `most`
/// means no limit.
Value split_at_spaces(const std::string& text, int64_t most, bool from_right) {
  std::u32string points = text::to_code_points(text);
  if (from_right) {
    std::reverse(points.begin(), points.end());
  }
  const auto next = [&](size_t at, bool space) {
    while (at < points.size() && is_space(points[at]) != space) {
      ++at;
    }
    return at;
  };
  std::vector<Value> parts;
  const auto add = [&](size_t begin, size_t end) {
    std::u32string part = points.substr(begin, end - begin);
    if (from_right) {
      std::reverse(part.begin(), part.end());
    }
    add_part(parts, text::to_utf8(part));
  };
  for (size_t at = next(0, false); at < points.size();) {
    if (std::ssize(parts) == most) {
      add(at, points.size());
      break;
    }
    const size_t end = next(at, true);
    add(at, end);
    at = next(end, false);
  }
  if (from_right) {
    std::reverse(parts.begin(), parts.end());
  }
  return make_list(std::move(parts));
}

Value split(const std::string& text, const Arguments& arguments, bool from_right) {
  const Value* given = arguments.find(0, "sep");
  const Value* limit = arguments.find(1, "maxsplit");
  int64_t left = limit == nullptr ? -1 : limit->integer();
  if (given == nullptr || given->is_none()) {
    return split_at_spaces(text, left < 0 ? -1 : left, from_right);
  }
  const std::string& by = given->string();
  if (by.empty()) {
    fail("cannot split at an empty separator");
  }
  std::vector<Value> parts;
  size_t begin = 0, end = text.size();
  while (left != 0) {
    const size_t found =
        from_right ? (end < by.size() ? std::string::npos : text.rfind(by, end - by.size()))
                   : text.find(by, begin);
    if (found == std::string::npos) {
      break;
    }
    if (from_right) {
      add_part(parts, text.substr(found + by.size(), end - found - by.size()));
      end = found;
    } else {
      add_part(parts, text.substr(begin, found - begin));
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

Value split_lines(const std::string& text, bool keeps_ends) {
  const std::u32string points = text::to_code_points(text);
  std::vector<Value> lines;
  for (size_t at = 0; at < points.size();) {
    size_t end = at;
    while (end < points.size() && !ends_line(points[end])) {
      ++end;
    }
    const bool is_pair = points.substr(end, 2) == U"\r\n";
    const size_t next = std::min(end + (is_pair ? 2 : 1), points.size());
    add_part(lines, text::to_utf8(points.substr(at, (keeps_ends ? next : end) - at)));
    at = next;
  }
  return make_list(std::move(lines));
}

/// Substring selected by the second and third arguments of find() and similar methods, in code
/// points. `is_beyond` is true if it starts after the end of the string; then not even an empty
/// string is found.
struct Part {
  Part(const std::string& text, const Arguments& arguments) : points(text::to_code_points(text)) {
    const int64_t size = std::ssize(points);
    const auto place = [&](size_t position, int64_t otherwise) {
      const bool is_given =
          position < arguments.values.size() && !arguments.values[position].is_none();
      const int64_t at = is_given ? arguments.values[position].integer() : otherwise;
      return at < 0 ? std::max<int64_t>(at + size, 0) : at;
    };
    const int64_t from = place(1, 0), to = std::min(place(2, size), size);
    is_beyond = from > size || from > to;
    begin = static_cast<size_t>(std::min(from, size));
    points = points.substr(begin, static_cast<size_t>(std::max<int64_t>(to - from, 0)));
  }
  std::u32string points;
  size_t begin = 0;
  bool is_beyond = false;
};

const Value& needed(const Arguments& arguments, size_t position, const char* name) {
  const Value* value = arguments.find(position, name);
  if (value == nullptr) {
    fail(fmt::format("missing argument: {}", name));
  }
  return *value;
}

bool has_end(const std::string& text, const Arguments& arguments, bool at_start) {
  const Value& ends = needed(arguments, 0, at_start ? "prefix" : "suffix");
  const Part part(text, arguments);
  const auto fits = [&](const Value& end) {
    const std::u32string points = text::to_code_points(end.string());
    return !part.is_beyond &&
           (at_start ? part.points.starts_with(points) : part.points.ends_with(points));
  };
  if (ends.is_list() && ends.list().kind == ListKind::kTuple) {
    const auto& all = ends.list().items;
    return std::any_of(all.begin(), all.end(), fits);
  }
  return fits(ends);
}

/// Returns the index of a substring in code points, or -1.
int64_t find_in(const std::string& text, const Arguments& arguments, bool last) {
  const std::u32string sought = text::to_code_points(needed(arguments, 0, "sub").string());
  const Part part(text, arguments);
  const size_t found = part.is_beyond ? std::u32string::npos
                       : last         ? part.points.rfind(sought)
                                      : part.points.find(sought);
  return found == std::u32string::npos ? -1 : static_cast<int64_t>(found + part.begin);
}

int64_t index_in(const std::string& text, const Arguments& arguments, bool last) {
  const int64_t at = find_in(text, arguments, last);
  if (at < 0) {
    fail("index: substring not found");
  }
  return at;
}

int64_t count_in(const std::string& text, const Arguments& arguments) {
  const std::u32string sought = text::to_code_points(needed(arguments, 0, "sub").string());
  const Part part(text, arguments);
  if (sought.empty()) {
    return part.is_beyond ? 0 : std::ssize(part.points) + 1;
  }
  int64_t count = 0;
  for (size_t at = part.points.find(sought); at != std::u32string::npos;
       at = part.points.find(sought, at + sought.size())) {
    ++count;
  }
  return count;
}

std::string joined(const std::string& between, const Value& parts) {
  std::string out;
  bool first = true;
  for (const Value& part : iterate(parts)) {
    out += first ? "" : between;
    out += part.string();
    first = false;
    check_size(out);
  }
  return out;
}

/// Returns true if the string is not empty and `is` holds for every character.
template <class Is>
bool is_all(const std::string& text, const Is& is) {
  const std::u32string points = text::to_code_points(text);
  return !points.empty() && std::all_of(points.begin(), points.end(), is);
}

/// Implements str.isdigit() for one character.
bool is_python_digit(char32_t c) {
  if (c >= 0x80 && !is_decimal(c) && is_number(c)) {
    fail(fmt::format("isdigit: U+{:04X} is not supported", static_cast<uint32_t>(c)));
  }
  return is_decimal(c);
}

Value partition(const std::string& text, const std::string& by, bool last) {
  if (by.empty()) {
    fail("cannot partition at an empty separator");
  }
  const size_t at = last ? text.rfind(by) : text.find(by);
  std::vector<Value> parts{text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), by, text.substr(at + by.size())};
  } else if (last) {
    std::swap(parts[0], parts[2]);
  }
  return make_list(std::move(parts), ListKind::kTuple);
}

Value stripped(const std::string& text, const Arguments& arguments, bool left, bool right) {
  const Value* characters = arguments.find(0, "chars");
  return characters == nullptr || characters->is_none()
             ? strip(text, left, right)
             : strip(text, characters->string(), left, right);
}

/// Method with its maximum number of arguments and the names of its keyword arguments.
struct StringMethod {
  using Run = Value (*)(const std::string&, const Arguments&);
  size_t most;
  Run run;
  std::vector<const char*> names = {};
};

const std::map<std::string, StringMethod>& string_methods() {
  using Text = const std::string&;
  using Given = const Arguments&;
  static const std::map<std::string, StringMethod> methods{
      {"strip", {1, [](Text s, Given a) { return stripped(s, a, true, true); }}},
      {"lstrip", {1, [](Text s, Given a) { return stripped(s, a, true, false); }}},
      {"rstrip", {1, [](Text s, Given a) { return stripped(s, a, false, true); }}},
      {"upper", {0, [](Text s, Given) { return Value(upper_case(s)); }}},
      {"lower", {0, [](Text s, Given) { return Value(lower_case(s)); }}},
      {"title", {0, [](Text s, Given) { return Value(title_case(s)); }}},
      {"capitalize", {0, [](Text s, Given) { return Value(capitalized(s)); }}},
      {"split", {2, [](Text s, Given a) { return split(s, a, false); }, {"sep", "maxsplit"}}},
      {"rsplit", {2, [](Text s, Given a) { return split(s, a, true); }, {"sep", "maxsplit"}}},
      {"splitlines",
       {1,
        [](Text s, Given a) {
          const Value* keeps = a.find(0, "keepends");
          return split_lines(s, keeps != nullptr && is_true(*keeps));
        },
        {"keepends"}}},
      {"startswith", {3, [](Text s, Given a) { return Value(has_end(s, a, true)); }}},
      {"endswith", {3, [](Text s, Given a) { return Value(has_end(s, a, false)); }}},
      {"replace",
       {3,
        [](Text s, Given a) {
          const Value* most = a.find(2, "count");
          return Value(replaced(
              s,
              needed(a, 0, "old").string(),
              needed(a, 1, "new").string(),
              most == nullptr ? -1 : most->integer()));
        }}},
      {"find", {3, [](Text s, Given a) { return Value(find_in(s, a, false)); }}},
      {"rfind", {3, [](Text s, Given a) { return Value(find_in(s, a, true)); }}},
      {"index", {3, [](Text s, Given a) { return Value(index_in(s, a, false)); }}},
      {"rindex", {3, [](Text s, Given a) { return Value(index_in(s, a, true)); }}},
      {"count", {3, [](Text s, Given a) { return Value(count_in(s, a)); }}},
      {"join", {1, [](Text s, Given a) { return Value(joined(s, needed(a, 0, "iterable"))); }}},
      {"partition",
       {1, [](Text s, Given a) { return partition(s, needed(a, 0, "sep").string(), false); }}},
      {"rpartition",
       {1, [](Text s, Given a) { return partition(s, needed(a, 0, "sep").string(), true); }}},
      {"isalnum",
       {0,
        [](Text s, Given) {
          return Value(is_all(s, [](char32_t c) { return is_letter(c) || is_number(c); }));
        }}},
      {"isupper", {0, [](Text s, Given) { return Value(is_all_upper_case(s)); }}},
      {"islower", {0, [](Text s, Given) { return Value(is_all_lower_case(s)); }}},
      {"isdigit", {0, [](Text s, Given) { return Value(is_all(s, is_python_digit)); }}},
      {"isdecimal", {0, [](Text s, Given) { return Value(is_all(s, is_decimal)); }}},
      {"isalpha", {0, [](Text s, Given) { return Value(is_all(s, is_letter)); }}},
      {"isspace", {0, [](Text s, Given) { return Value(is_all(s, is_space)); }}},
      {"isascii",
       {0,
        [](Text s, Given) {
          return Value(s.empty() || is_all(s, [](char32_t c) { return c < 0x80; }));
        }}},
      {"removeprefix",
       {1,
        [](Text s, Given a) {
          const std::string& end = needed(a, 0, "prefix").string();
          return Value(s.starts_with(end) ? s.substr(end.size()) : s);
        }}},
      {"removesuffix",
       {1,
        [](Text s, Given a) {
          const std::string& end = needed(a, 0, "suffix").string();
          return Value(s.ends_with(end) ? s.substr(0, s.size() - end.size()) : s);
        }}},
  };
  return methods;
}

std::optional<Value> dict_method(const Value& value, const std::string& name) {
  if (name == "items") {
    return make_callable([value](const Arguments& arguments) {
      arguments.check("items", 0, {});
      std::vector<Value> items;
      for (const auto& [key, entry] : value.dict().entries) {
        items.push_back(make_list({key, entry}, ListKind::kTuple));
      }
      return make_list(std::move(items), ListKind::kView);
    });
  }
  if (name == "keys" || name == "values") {
    return make_callable([value, keys = name == "keys"](const Arguments& arguments) {
      arguments.check(keys ? "keys" : "values", 0, {});
      std::vector<Value> items;
      for (const auto& [key, entry] : value.dict().entries) {
        items.push_back(keys ? key : entry);
      }
      return make_list(std::move(items), ListKind::kView);
    });
  }
  if (name == "get") {
    return make_callable([value](const Arguments& arguments) {
      arguments.check("get", 2, {});
      check_key(needed(arguments, 0, "key"));
      const Value* found = value.dict().find(needed(arguments, 0, "key"));
      const Value* otherwise = arguments.find(1, "default");
      return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value(None{});
    });
  }
  if (name == "copy") {  // immutable values need no copy
    return make_callable([value](const Arguments& arguments) {
      arguments.check("copy", 0, {});
      return value;
    });
  }
  return std::nullopt;
}

std::optional<Value> list_method(const Value& value, const std::string& name) {
  const ListKind kind = value.list().kind;
  if (name == "copy" && kind == ListKind::kList) {
    return make_callable([value](const Arguments& arguments) {
      arguments.check("copy", 0, {});
      return value;
    });
  }
  if ((name != "index" && name != "count") || !value.list().has_places()) {
    return std::nullopt;
  }
  return make_callable([value, counts = name == "count"](const Arguments& arguments) {
    arguments.check(counts ? "count" : "index", 1, {});
    const Value& one = needed(arguments, 0, "value");
    const std::vector<Value>& items = value.list().items;
    const auto is_one = [&](const Value& item) { return equal(item, one); };
    if (counts) {
      return Value(static_cast<int64_t>(std::count_if(items.begin(), items.end(), is_one)));
    }
    const auto found = std::find_if(items.begin(), items.end(), is_one);
    if (found == items.end()) {
      fail("index: the item is not in the list");
    }
    return Value(static_cast<int64_t>(found - items.begin()));
  });
}

Value make_range(const Arguments& arguments) {
  arguments.check("range", 3, {});
  const auto given = [&](size_t i) { return arguments.values[i].integer(); };
  const size_t count = arguments.values.size();
  if (count == 0) {
    fail("range needs a number");
  }
  const int64_t first = count > 1 ? given(0) : 0, last = given(count > 1 ? 1 : 0),
                step = count > 2 ? given(2) : 1;
  if (step == 0) {
    fail("the step of a range must not be 0");
  }
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    if (std::ssize(items) == kMostItems) {
      fail(fmt::format("a range of more than {} numbers", kMostItems));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) {
      break;
    }
  }
  return make_list(std::move(items), ListKind::kRange);
}

Value make_entries(const Arguments& arguments, bool is_namespace) {
  auto dict = std::make_shared<Dict>();
  dict->is_namespace = is_namespace;
  if (is_namespace) {
    Work::add_namespace(dict);
  }
  arguments.check(is_namespace ? "namespace" : "dict", 1, {}, /*any_names=*/true);
  for (const Value& other : arguments.values) {
    if (other.is_dict() && !other.dict().is_namespace) {
      dict->set_all(other.dict().entries);
      continue;
    }
    for (const Value& pair : iterate(other)) {
      const std::vector<Value> parts = iterate(pair);
      if (parts.size() != 2) {
        fail(fmt::format("dict needs pairs, but an element has {} items", parts.size()));
      }
      check_key(parts[0]);
      dict->set(parts[0], parts[1]);
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

std::string replaced(
    const std::string& text, const std::string& from, const std::string& to, int64_t most) {
  std::string out;
  size_t at = 0;
  if (from.empty()) {  // inserts before each character and at the end
    for (; most != 0; --most) {
      out += to;
      if (at >= text.size()) {
        break;
      }
      const size_t length = text::code_point_length(text[at]);
      out += text.substr(at, length);
      at = std::min(at + length, text.size());
      check_size(out);
    }
    return out + text.substr(at);
  }
  while (most != 0) {
    const size_t found = text.find(from, at);
    if (found == std::string::npos) {
      break;
    }
    out += text.substr(at, found - at) + to;
    at = found + from.size();
    --most;
    check_size(out);
  }
  return out + text.substr(at);
}

std::optional<Value> find_method(const Value& value, const std::string& name) {
  static const std::array<const char*, 12> kChanging{
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
      "fromkeys"};
  const bool changes = std::find(kChanging.begin(), kChanging.end(), name) != kChanging.end();
  if (changes && (value.is_list() || (value.is_dict() && !value.dict().is_namespace &&
                                      value.dict().find(name) == nullptr))) {
    fail(fmt::format("{}.{}: templates may not change values", type_name(value), name));
  }
  if (value.is_string()) {
    const auto method = string_methods().find(name);
    if (method != string_methods().end()) {
      if (value.is_marked() && !name.starts_with("is") && !name.ends_with("swith") &&
          !name.ends_with("find") && !name.ends_with("index") && name != "count") {
        fail(fmt::format(
            "a string marked as safe does not support the method {}: remove | safe, nothing is "
            "escaped in a chat",
            name));
      }
      return make_callable([text = value.string(), &method = *method](const Arguments& given) {
        given.check(method.first, method.second.most, method.second.names);
        return method.second.run(text, given);
      });
    }
  }
  if (value.is_list()) {
    return list_method(value, name);
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
      arguments.check("raise_exception", 1, {"message"});
      fail(to_text(needed(arguments, 0, "message")));
    });
  }
  if (name == "joiner" || name == "cycler" || name == "lipsum" || name == "self") {
    fail(fmt::format("'{}' is not supported", name));
  }
  return name == "strftime_now" ? make_callable(time_as) : Value(Undefined{name});
}

}  // namespace lockstep::jinja
