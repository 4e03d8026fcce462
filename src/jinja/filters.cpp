// Filters, by Jinja's names.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/format.h"
#include "jinja/builtins.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

using Given = const Arguments&;
using Filter = Value (*)(const Value&, Given);

const Value* optional(Given arguments, size_t position, const char* name) {
  const Value* value = arguments.find(position, name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

std::string text_or(Given arguments, size_t position, const char* name, const char* otherwise) {
  const Value* value = optional(arguments, position, name);
  return value == nullptr ? otherwise : to_text(*value);
}

bool flag(Given arguments, size_t position, const char* name, bool otherwise) {
  const Value* value = optional(arguments, position, name);
  return value == nullptr ? otherwise : is_true(*value);
}

/// "a.b" and "0" of an item, as `attribute=` means them.
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
  arguments.check("tojson", 4, {"ensure_ascii", "indent", "separators", "sort_keys"});
  const Value* indent = arguments.find(9, "indent");
  if (indent == nullptr && !arguments.values.empty()) {
    indent = arguments.find(arguments.values.size() > 1 ? 1 : 0, "indent");
  }
  if (arguments.find(2, "separators") != nullptr) {
    fail("tojson takes no separators here");
  }
  const bool is_given = indent != nullptr && indent->is_integer() && !indent->is_bool();
  return to_json(value, is_given ? indent->integer() : -1, flag(arguments, 3, "sort_keys", false));
}

Value trim(const Value& value, Given arguments) {
  const Value* characters = optional(arguments, 0, "chars");
  return strip(
      to_text(value),
      characters == nullptr ? " \t\n\r\v\f" : std::string_view(characters->string()),
      true,
      true);
}

Value length(const Value& value, Given) {
  if (value.is_string()) {
    return static_cast<int64_t>(text::count_code_points(value.string()));
  }
  if (value.is_dict()) {
    return std::ssize(value.dict().entries);
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
  }
  return out;
}

Value first_or_last(const Value& value, bool last) {
  const std::vector<Value> items = iterate(value);
  return items.empty() ? Value(Undefined{"no first item"}) : last ? items.back() : items.front();
}

Value to_integer(const Value& value, Given arguments) {
  const Value* otherwise = arguments.find(0, "default");
  if (value.is_number()) {
    return value.is_float() ? static_cast<int64_t>(value.number()) : value.integer();
  }
  try {
    size_t used = 0;
    const std::string text =
        value.is_string() ? strip(value.string(), " \t\n\r", true, true) : std::string();
    const double number = std::stod(text, &used);
    if (used == text.size() && std::abs(number) < 9e15) {
      return static_cast<int64_t>(number);
    }
  } catch (const std::exception&) {
    // not a number
  }
  return otherwise == nullptr ? Value(int64_t{0}) : *otherwise;
}

Value to_float(const Value& value, Given arguments) {
  const Value* otherwise = arguments.find(0, "default");
  if (value.is_number()) {
    return value.number();
  }
  try {
    size_t used = 0;
    const std::string text = value.is_string() ? value.string() : std::string();
    const double number = std::stod(text, &used);
    if (used == text.size()) {
      return number;
    }
  } catch (const std::exception&) {
    // not a number
  }
  return otherwise == nullptr ? Value(0.0) : *otherwise;
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
    for (const auto& [key, entry] : value.dict().entries) {
      items.push_back(make_list({key, entry}, /*is_tuple=*/true));
    }
  }
  return make_list(std::move(items));
}

/// What sort compares: texts without case, unless that counts.
Value sort_key(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(in_case(value.string(), false)) : value;
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
  const auto key = [&](const Value& item) {
    return sort_key(
        attribute == nullptr ? item : path_of(item, to_text(*attribute)), case_sensitive);
  };
  return make_list(sorted_by(iterate(value), key, flag(arguments, 0, "reverse", false)));
}

Value dict_sort(const Value& value, Given arguments) {
  const bool case_sensitive = flag(arguments, 0, "case_sensitive", false);
  const size_t which = text_or(arguments, 1, "by", "key") == "value" ? 1 : 0;
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
  return make_list(std::move(kept));
}

Value reversed(const Value& value, Given) {
  std::vector<Value> items = iterate(value);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) {
    return make_list(std::move(items));
  }
  std::string text;
  for (const Value& item : items) {
    text += item.string();
  }
  return text;
}

Value rounded(const Value& value, Given arguments) {
  const Value* digits = optional(arguments, 0, "precision");
  const std::string method = text_or(arguments, 1, "method", "common");
  const double scale = std::pow(10.0, digits == nullptr ? 0 : digits->integer());
  const double x = value.number() * scale;
  const double whole = method == "ceil"    ? std::ceil(x)
                       : method == "floor" ? std::floor(x)
                                           : std::nearbyint(x);
  return whole / scale;
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
  const std::string& text = value.string();
  std::string out = first ? by : "";
  for (size_t at = 0; at < text.size(); ++at) {
    out += text[at];
    const bool next_is_blank = at + 1 >= text.size() || text[at + 1] == '\n';
    if (text[at] == '\n' && (blank || !next_is_blank)) {
      out += by;
    }
  }
  return out;
}

/// selectattr and rejectattr, select and reject: those whose attribute, or which, pass a test.
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
  return make_list(std::move(kept));
}

Value map(const Value& value, Given arguments) {
  const Value* attribute = optional(arguments, 99, "attribute");
  const Value* instead = arguments.find(99, "default");
  std::vector<Value> made;
  for (const Value& item : iterate(value)) {
    if (attribute != nullptr) {
      Value found = path_of(item, to_text(*attribute));
      made.push_back(found.is_undefined() && instead != nullptr ? *instead : std::move(found));
      continue;
    }
    if (arguments.values.empty()) {
      fail("map needs a filter or attribute=");
    }
    Arguments rest;
    rest.values.assign(arguments.values.begin() + 1, arguments.values.end());
    rest.named = arguments.named;
    made.push_back(apply_filter(arguments.values[0].string(), item, rest));
  }
  return make_list(std::move(made));
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

Value extreme(const Value& value, bool largest) {
  const std::vector<Value> items = iterate(value);
  const auto by_key = [](const Value& a, const Value& b) {
    return less(sort_key(a, false), sort_key(b, false));
  };
  if (items.empty()) {
    return Undefined{"the extreme of nothing"};
  }
  return largest ? *std::max_element(items.begin(), items.end(), by_key)
                 : *std::min_element(items.begin(), items.end(), by_key);
}

Value escaped(const Value& value, Given) {
  std::string out;
  for (const char c : to_text(value)) {
    out += c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&#34;"
           : c == '\'' ? "&#39;"
                       : std::string(1, c);
  }
  return out;
}

Value replace(const Value& value, Given arguments) {
  const Value *from = arguments.find(0, "old"), *to = arguments.find(1, "new");
  const Value* most = optional(arguments, 2, "count");
  if (from == nullptr || to == nullptr) {
    fail("replace needs what to replace, and by what");
  }
  return replaced(
      to_text(value), to_text(*from), to_text(*to), most == nullptr ? -1 : most->integer());
}

Value batch(const Value& value, Given arguments) {
  const Value* size = optional(arguments, 0, "linecount");
  if (size == nullptr || size->integer() < 1) {
    fail("batch needs a number of at least 1");
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
  return make_list(std::move(lines));
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all{
      {"tojson", to_json_filter},
      {"trim", trim},
      {"length", length},
      {"count", length},
      {"join", join},
      {"first", [](const Value& v, Given) { return first_or_last(v, false); }},
      {"last", [](const Value& v, Given) { return first_or_last(v, true); }},
      {"list", [](const Value& v, Given) { return make_list(iterate(v)); }},
      {"int", to_integer},
      {"float", to_float},
      {"string", [](const Value& v, Given) { return Value(to_text(v)); }},
      {"safe", [](const Value& v, Given) { return v; }},
      {"default", otherwise},
      {"d", otherwise},
      {"items", items_of},
      {"dictsort", dict_sort},
      {"sort", sort},
      {"unique", unique},
      {"reverse", reversed},
      {"round", rounded},
      {"indent", indent},
      {"upper", [](const Value& v, Given) { return Value(in_case(to_text(v), true)); }},
      {"lower", [](const Value& v, Given) { return Value(in_case(to_text(v), false)); }},
      {"capitalize", [](const Value& v, Given) { return Value(capitalized(to_text(v))); }},
      {"title",
       [](const Value& v, Given) {
         return find_method(Value(to_text(v)), "title")->callable()({});
       }},
      {"replace", replace},
      {"abs",
       [](const Value& v, Given) {
         return v.is_float() ? Value(std::abs(v.number())) : Value(std::abs(v.integer()));
       }},
      {"attr",
       [](const Value& v, Given a) {
         return find_method(v, text_or(a, 0, "name", "")).value_or(Value(Undefined{"attr"}));
       }},
      {"batch", batch},
      {"wordcount",
       [](const Value& v, Given) {
         return Value(std::ssize(iterate(find_method(Value(to_text(v)), "split")->callable()({}))));
       }},
      {"selectattr", [](const Value& v, Given a) { return select(v, a, true, true); }},
      {"rejectattr", [](const Value& v, Given a) { return select(v, a, true, false); }},
      {"select", [](const Value& v, Given a) { return select(v, a, false, true); }},
      {"reject", [](const Value& v, Given a) { return select(v, a, false, false); }},
      {"map", map},
      {"sum", sum},
      {"min", [](const Value& v, Given) { return extreme(v, false); }},
      {"max", [](const Value& v, Given) { return extreme(v, true); }},
      {"escape", escaped},
      {"e", escaped},
  };
  return all;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) {
    fail(fmt::format("there is no filter '{}'", name));
  }
  return found->second(value, arguments);
}

}  // namespace lockstep::jinja
