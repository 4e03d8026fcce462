// Implements Jinja's filters by name.
#include "jinja/filters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/format.h"
#include "jinja/builtins.h"
#include "jinja/python_characters.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

using Given = const Arguments&;
using Filter = Value (*)(const Value&, Given);
constexpr size_t kAnyNumber = 1000;

/// Resolves a path such as "a.b" or "0" in an item, as `attribute=` does.
Value path_of(Value value, const std::string& path) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string name = path.substr(at, end - at);
    const bool is_index = !name.empty() && name.size() <= 18 &&
                          name.find_first_not_of("0123456789") == std::string::npos;
    value = item_of(value, is_index ? Value(static_cast<int64_t>(std::stoll(name))) : Value(name));
    at = end + 1;
  }
  return value;
}

Value to_json_filter(const Value& value, Given arguments) {
  JsonStyle style;
  style.ensures_ascii = flag(arguments, 0, "ensure_ascii", false);
  style.sorts_keys = flag(arguments, 3, "sort_keys", false);
  if (const Value* indent = optional(arguments, 1, "indent")) {
    constexpr int64_t kWidest = 32;
    style.has_lines = true;
    style.between_items = ",";
    style.indent =
        indent->is_string()
            ? indent->string()
            : std::string(
                  static_cast<size_t>(std::clamp<int64_t>(indent->integer(), 0, kWidest)), ' ');
  }
  if (const Value* separators = optional(arguments, 2, "separators")) {
    const std::vector<Value> both = iterate(*separators);
    if (both.size() != 2) {
      fail("tojson: separators must be two strings, between items and after keys");
    }
    style.between_items = both[0].string();
    style.behind_key = both[1].string();
  }
  return to_json(value, style);
}

Value trim(const Value& value, Given arguments) {
  const Value* characters = optional(arguments, 0, "chars");
  const std::string text = to_text(value);
  return characters == nullptr ? strip(text, true, true)
                               : strip(text, characters->string(), true, true);
}

Value length(const Value& value, Given) {
  if (value.is_string()) {
    return static_cast<int64_t>(text::count_code_points(value.string()));
  }
  if (value.is_list() && value.list().kind == ListKind::kOnce) {
    fail("the result of a filter has no length: add | list after the filter");
  }
  if (value.is_dict() && value.dict().is_loop) {
    return *value.dict().find("length");
  }
  return std::ssize(iterate(value));
}

Value join(const Value& value, Given arguments) {
  const std::string between = text_or(arguments, 0, "d", "");
  const Value* attribute = optional(arguments, 1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value)) {
    out += first ? "" : between;
    out += to_text(attribute == nullptr ? item : path_of(item, to_text(*attribute)));
    first = false;
    check_size(out);
  }
  return out;
}

Value first_or_last(const Value& value, bool last) {
  if (last && value.is_list() && value.list().kind == ListKind::kOnce) {
    fail("the result of a filter has no last item: add | list after the filter");
  }
  const std::vector<Value> items = iterate(value);
  return items.empty() ? Value(Undefined{"the first item of an empty sequence"})
         : last        ? items.back()
                       : items.front();
}

Value otherwise(const Value& value, Given arguments) {
  const bool is_missing =
      value.is_undefined() || (flag(arguments, 1, "boolean", false) && !is_true(value));
  const Value* instead = arguments.find(0, "default_value");
  return !is_missing ? value : instead == nullptr ? Value("") : *instead;
}

Value items_of(const Value& value, Given) {
  std::vector<Value> items;
  if (!value.is_undefined()) {
    if (!value.is_dict() || value.dict().is_namespace) {
      fail(fmt::format("items: expected a dict, got a {}", type_name(value)));
    }
    for (const auto& [key, entry] : value.dict().entries) {
      items.push_back(make_list({key, entry}, ListKind::kTuple));
    }
  }
  return make_list(std::move(items), ListKind::kOnce);
}

/// Returns the key for sort, unique, min and max. Strings are compared without case unless
/// `case_sensitive`.
Value sort_key(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(lower_case(value.string())) : value;
}

std::vector<Value> sorted_by(
    std::vector<Value> items, const std::function<Value(const Value&)>& key, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return reverse ? less(key(b), key(a)) : less(key(a), key(b));
  });
  return items;
}

Value sort(const Value& value, Given arguments) {
  const bool case_sensitive = flag(arguments, 1, "case_sensitive", false);
  const Value* attribute = optional(arguments, 2, "attribute");
  std::vector<std::string> paths;
  if (attribute != nullptr) {
    const std::string all = to_text(*attribute);
    for (size_t at = 0; at <= all.size();) {
      const size_t end = std::min(all.find(',', at), all.size());
      paths.push_back(all.substr(at, end - at));
      at = end + 1;
    }
  }
  const auto key = [&](const Value& item) {
    if (paths.empty()) {
      return sort_key(item, case_sensitive);
    }
    std::vector<Value> keys;
    for (const std::string& path : paths) {
      keys.push_back(sort_key(path_of(item, path), case_sensitive));
    }
    return make_list(std::move(keys));
  };
  return make_list(sorted_by(iterate(value), key, flag(arguments, 0, "reverse", false)));
}

Value dict_sort(const Value& value, Given arguments) {
  const bool case_sensitive = flag(arguments, 0, "case_sensitive", false);
  const std::string by = text_or(arguments, 1, "by", "key");
  if (by != "key" && by != "value") {
    fail(fmt::format("dictsort: by is '{}'; must be 'key' or 'value'", by));
  }
  const size_t which = by == "value" ? 1 : 0;
  const auto key = [&](const Value& pair) {
    return sort_key(pair.list().items.at(which), case_sensitive);
  };
  return make_list(
      sorted_by(iterate(items_of(value, {})), key, flag(arguments, 2, "reverse", false)));
}

Value unique(const Value& value, Given arguments) {
  const bool case_sensitive = flag(arguments, 0, "case_sensitive", false);
  const Value* attribute = optional(arguments, 1, "attribute");
  std::vector<Value> seen, kept;
  for (const Value& item : iterate(value)) {
    const Value key =
        sort_key(attribute == nullptr ? item : path_of(item, to_text(*attribute)), case_sensitive);
    if (std::none_of(
            seen.begin(), seen.end(), [&](const Value& other) { return equal(other, key); })) {
      seen.push_back(key);
      kept.push_back(item);
    }
  }
  return make_list(std::move(kept), ListKind::kOnce);
}

Value reversed(const Value& value, Given) {
  check_defined(value);
  std::vector<Value> items = iterate(value);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) {
    const bool was_once = value.is_list() && value.list().kind == ListKind::kOnce;
    return make_list(std::move(items), was_once ? ListKind::kList : ListKind::kOnce);
  }
  std::string text;
  for (const Value& item : items) {
    text += item.string();
  }
  return text;
}

Value indent(const Value& value, Given arguments) {
  const Value* width = optional(arguments, 0, "width");
  const bool first = flag(arguments, 1, "first", false), blank = flag(arguments, 2, "blank", false);
  const std::string by =
      width != nullptr && width->is_string()
          ? width->string()
          : std::string(
                static_cast<size_t>(
                    width == nullptr ? 4 : std::clamp<int64_t>(width->integer(), 0, 1000)),
                ' ');
  // Splits into lines like str.splitlines() and joins them with \n. The extra newline preserves a
  // final newline of the string.
  std::string out = first ? by : "";
  const Arguments none;
  const std::vector<Value> lines =
      iterate((*find_method(Value(value.string() + "\n"), "splitlines")).callable()(none));
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::string& line = lines[at].string();
    out += at == 0 ? "" : "\n" + (blank || !line.empty() ? by : "");
    out += line;
    check_size(out);
  }
  return out;
}

/// Implements select, reject, selectattr and rejectattr. Keeps items that pass a test, or whose
/// attribute passes it.
Value select(const Value& value, Given arguments, bool by_attribute, bool wanted) {
  const size_t skipped = by_attribute ? 1 : 0;
  if (arguments.values.size() < skipped) {
    fail("selectattr needs the name of an attribute");
  }
  Arguments of_test;
  std::string test;
  if (arguments.values.size() > skipped) {
    test = arguments.values[skipped].string();
    of_test.values.assign(
        arguments.values.begin() + static_cast<std::ptrdiff_t>(skipped) + 1,
        arguments.values.end());
  }
  std::vector<Value> kept;
  for (const Value& item : iterate(value)) {
    const Value tested = by_attribute ? path_of(item, to_text(arguments.values[0])) : item;
    const bool passes = test.empty() ? is_true(tested) : apply_test(test, tested, of_test);
    if (passes == wanted) {
      kept.push_back(item);
    }
  }
  return make_list(std::move(kept), ListKind::kOnce);
}

Value map(const Value& value, Given arguments) {
  const Value* attribute = optional(arguments, 99, "attribute");
  const Value* instead = arguments.find(99, "default");
  std::vector<Value> made;
  if (arguments.values.empty() == (attribute == nullptr)) {
    fail("map needs a filter, or attribute= and no filter");
  }
  if (attribute != nullptr) {
    arguments.check("map", 0, {"attribute", "default"});
  }
  for (const Value& item : iterate(value)) {
    if (attribute != nullptr) {
      Value found = path_of(item, to_text(*attribute));
      made.push_back(found.is_undefined() && instead != nullptr ? *instead : std::move(found));
      continue;
    }
    Arguments rest;
    rest.values.assign(arguments.values.begin() + 1, arguments.values.end());
    rest.named = arguments.named;
    made.push_back(apply_filter(arguments.values[0].string(), item, rest));
  }
  return make_list(std::move(made), ListKind::kOnce);
}

Value sum(const Value& value, Given arguments) {
  const Value* attribute = optional(arguments, 0, "attribute");
  const Value* start = arguments.find(1, "start");
  Value total = start == nullptr ? Value(int64_t{0}) : *start;
  for (const Value& item : iterate(value)) {
    total =
        arithmetic("+", total, attribute == nullptr ? item : path_of(item, to_text(*attribute)));
  }
  return total;
}

Value extreme(const Value& value, Given arguments, bool largest) {
  const bool case_sensitive = flag(arguments, 0, "case_sensitive", false);
  const Value* attribute = optional(arguments, 1, "attribute");
  const std::vector<Value> items = iterate(value);
  const auto key = [&](const Value& item) {
    Value found = attribute == nullptr ? item : path_of(item, to_text(*attribute));
    return sort_key(found, case_sensitive);
  };
  if (items.empty()) {
    return Undefined{"the minimum or maximum of an empty sequence"};
  }
  const Value* best = &items.front();
  for (const Value& item : items) {
    if (largest ? less(key(*best), key(item)) : less(key(item), key(*best))) {
      best = &item;
    }
  }
  return *best;
}

Value escaped(const Value& value, Given) {
  if (value.is_marked()) {
    return value;
  }
  std::string out;
  for (const char c : to_text(value)) {
    out += c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&#34;"
           : c == '\'' ? "&#39;"
                       : std::string(1, c);
  }
  return Value::marked(std::move(out));
}

/// Implements attr: returns an attribute, never an item of a dict.
Value attribute(const Value& value, Given arguments) {
  const std::string name = text_or(arguments, 0, "name", "");
  if (value.is_dict() && value.dict().is_namespace) {
    return attribute_of(value, name);
  }
  return find_method(value, name).value_or(Value(Undefined{name}));
}

/// Implements title. Unlike in str.title(), words start after white space and - ( { [ <.
std::string titled(const std::string& text) {
  std::string out, word;
  const auto add_word = [&] {
    const size_t first = word.empty() ? 0 : text::code_point_length(word.front());
    out += upper_case(word.substr(0, first)) + lower_case(word.substr(first));
    word.clear();
  };
  for (const char32_t c : text::to_code_points(text)) {
    if (is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos) {
      add_word();
      text::append_code_point(out, c);
    } else {
      text::append_code_point(word, c);
    }
  }
  add_word();
  return out;
}

/// Returns the number of runs of \w characters.
int64_t count_words(const std::string& text) {
  int64_t words = 0;
  bool inside = false;
  for (const char32_t c : text::to_code_points(text)) {
    const bool is_in_word = c == '_' || is_letter(c) || is_number(c);
    words += is_in_word && !inside ? 1 : 0;
    inside = is_in_word;
  }
  return words;
}

Value replace(const Value& value, Given arguments) {
  const Value *from = arguments.find(0, "old"), *to = arguments.find(1, "new");
  const Value* most = optional(arguments, 2, "count");
  if (from == nullptr || to == nullptr) {
    fail("replace needs a string to replace and its replacement");
  }
  return replaced(
      to_text(value), to_text(*from), to_text(*to), most == nullptr ? -1 : most->integer());
}

Value batch(const Value& value, Given arguments) {
  const Value* size = optional(arguments, 0, "linecount");
  if (size == nullptr || size->integer() < 1) {
    fail("batch needs a size of at least 1");
  }
  if (size->integer() > kMostItems) {
    fail(fmt::format("batch: lists of more than {} items", kMostItems));
  }
  std::vector<Value> lines, line;
  for (const Value& item : iterate(value)) {
    if (std::ssize(line) == size->integer()) {
      lines.push_back(make_list(std::exchange(line, {})));
    }
    line.push_back(item);
  }
  const Value* filling = optional(arguments, 1, "fill_with");
  while (filling != nullptr && !line.empty() && std::ssize(line) < size->integer()) {
    line.push_back(*filling);
  }
  if (!line.empty()) {
    lines.push_back(make_list(std::move(line)));
  }
  return make_list(std::move(lines), ListKind::kOnce);
}

/// Filter with its maximum number of arguments and their names in order.
struct KnownFilter {
  Filter run;
  size_t most = 0;
  std::vector<const char*> names = {};
  bool any_names = false;
};

const std::map<std::string, KnownFilter>& filters() {
  static const KnownFilter to_length{length}, instead{otherwise, 2, {"default_value", "boolean"}},
      to_escaped{escaped};
  static const std::map<std::string, KnownFilter> all{
      {"tojson", {to_json_filter, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}}},
      {"trim", {trim, 1, {"chars"}}},
      {"length", to_length},
      {"count", to_length},
      {"join", {join, 2, {"d", "attribute"}}},
      {"first", {[](const Value& v, Given) { return first_or_last(v, false); }}},
      {"last", {[](const Value& v, Given) { return first_or_last(v, true); }}},
      {"list", {[](const Value& v, Given) { return make_list(iterate(v)); }}},
      {"int", {to_integer, 2, {"default", "base"}}},
      {"float", {to_float, 1, {"default"}}},
      {"string", {[](const Value& v, Given) { return v.is_marked() ? v : Value(to_text(v)); }}},
      {"safe", {[](const Value& v, Given) { return Value::marked(to_text(v)); }}},
      {"default", instead},
      {"d", instead},
      {"items", {items_of}},
      {"dictsort", {dict_sort, 3, {"case_sensitive", "by", "reverse"}}},
      {"sort", {sort, 3, {"reverse", "case_sensitive", "attribute"}}},
      {"unique", {unique, 2, {"case_sensitive", "attribute"}}},
      {"reverse", {reversed}},
      {"round", {rounded, 2, {"precision", "method"}}},
      {"indent", {indent, 3, {"width", "first", "blank"}}},
      {"upper", {[](const Value& v, Given) { return Value(upper_case(to_text(v))); }}},
      {"lower", {[](const Value& v, Given) { return Value(lower_case(to_text(v))); }}},
      {"capitalize", {[](const Value& v, Given) { return Value(capitalized(to_text(v))); }}},
      {"title", {[](const Value& v, Given) { return Value(titled(to_text(v))); }}},
      {"replace", {replace, 3, {"old", "new", "count"}}},
      {"abs", {[](const Value& v, Given) {
         return v.is_float()       ? Value(std::abs(v.number()))
                : v.integer() >= 0 ? Value(v.integer())
                                   : arithmetic("-", int64_t{0}, v);
       }}},
      {"attr", {attribute, 1, {"name"}}},
      {"batch", {batch, 2, {"linecount", "fill_with"}}},
      {"wordcount", {[](const Value& v, Given) { return Value(count_words(to_text(v))); }}},
      {"selectattr",
       {[](const Value& v, Given a) { return select(v, a, true, true); }, kAnyNumber}},
      {"rejectattr",
       {[](const Value& v, Given a) { return select(v, a, true, false); }, kAnyNumber}},
      {"select", {[](const Value& v, Given a) { return select(v, a, false, true); }, kAnyNumber}},
      {"reject", {[](const Value& v, Given a) { return select(v, a, false, false); }, kAnyNumber}},
      {"map", {map, kAnyNumber, {}, /*any_names=*/true}},
      {"sum", {sum, 2, {"attribute", "start"}}},
      {"min",
       {[](const Value& v, Given a) { return extreme(v, a, false); },
        2,
        {"case_sensitive", "attribute"}}},
      {"max",
       {[](const Value& v, Given a) { return extreme(v, a, true); },
        2,
        {"case_sensitive", "attribute"}}},
      {"escape", to_escaped},
      {"e", to_escaped},
  };
  return all;
}

/// Returns true for filters that treat strings marked as safe like any other string. Other filters
/// would mark their result.
bool takes_marked(const std::string& name) {
  static const std::set<std::string> all{
      "safe",
      "escape",
      "e",
      "string",
      "length",
      "count",
      "tojson",
      "default",
      "d",
      "replace",
      "list",
      "int",
      "float",
      "wordcount",
      "first",
      "last"};
  return all.contains(name);
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) {
    fail(fmt::format("unknown filter '{}'", name));
  }
  const KnownFilter& filter = found->second;
  arguments.check(name, filter.most, filter.names, filter.any_names);
  if (value.is_marked() && !takes_marked(name)) {
    fail(fmt::format(
        "a string marked as safe does not support the filter {}: remove | safe, since nothing is "
        "escaped "
        "in a chat",
        name));
  }
  return filter.run(value, arguments);
}

}  // namespace lockstep::jinja
