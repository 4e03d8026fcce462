// YAML parser with line numbers and limits, based on yaml-cpp events.
#include "config/core/yaml.h"

#include <map>
#include <set>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"

namespace lockstep::config {
namespace {

/// Builds a Value from yaml-cpp events. yaml-cpp's own nodes are avoided because of their recursion
/// and aliasing.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::string source) : source_(std::move(source)) {}

  Value take() { return done_ ? std::move(root_) : Value::map(origin_at(0)); }
  int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(Value::null(origin(mark)), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    origin(mark);
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      fail("an alias refers to a value that contains it");
    }
    count(size_of(found->second));
    place(found->second);
  }

  void OnScalar(
      const YAML::Mark& mark,
      const std::string& tag,
      YAML::anchor_t anchor,
      const std::string& text) override {
    Origin at = origin(mark);
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    check_tag(tag);
    if (!quoted && is_null(text)) {
      add(Value::null(std::move(at)), anchor);
    } else {
      add(Value::scalar(text, quoted, std::move(at)), anchor);
    }
  }

  void OnSequenceStart(
      const YAML::Mark& mark,
      const std::string& tag,
      YAML::anchor_t anchor,
      YAML::EmitterStyle::value) override {
    start(Value::list(origin(mark)), tag, anchor);
  }
  void OnSequenceEnd() override { end(); }

  void OnMapStart(
      const YAML::Mark& mark,
      const std::string& tag,
      YAML::anchor_t anchor,
      YAML::EmitterStyle::value) override {
    start(Value::map(origin(mark)), tag, anchor);
  }
  void OnMapEnd() override {
    Open& open = stack_.back();
    for (Value& merged : open.merged) {
      for (Entry& entry : merged.entries) {
        if (open.value.find(entry.name) == nullptr) {
          open.value.entries.push_back(std::move(entry));
        }
      }
    }
    end();
  }

 private:
  struct Open {
    Value value;
    YAML::anchor_t anchor = 0;
    bool has_name = false;
    std::string name;
    Origin name_origin;
    std::set<std::string> names;
    std::vector<Value> merged;  // maps merged with <<, highest priority first
  };

  static bool is_null(const std::string& text) {
    return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kConfig, fmt::format("{}:{}: {}", source_, line_, what));
  }

  Origin origin_at(int line) const {
    return {.source = Origin::Source::kFile, .place = fmt::format("{}:{}", source_, line)};
  }
  Origin origin(const YAML::Mark& mark) {
    line_ = mark.line + 1;
    return origin_at(line_);
  }

  void check_tag(const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!" && !tag.starts_with("tag:yaml.org,2002:")) {
      fail(fmt::format("unknown tag {}: code in a configuration is never run", tag));
    }
    if (tag.find("python") != std::string::npos) {
      fail(fmt::format("tag {} is not allowed: code in a configuration is never run", tag));
    }
  }

  void count(size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaximumNodes) {
      fail(fmt::format("more than {} values after alias expansion", kMaximumNodes));
    }
  }

  static size_t size_of(const Value& value) {
    size_t size = 1;
    for (const Value& item : value.items) {
      size += size_of(item);
    }
    for (const Entry& entry : value.entries) {
      size += size_of(entry.value);
    }
    return size;
  }

  void start(Value value, const std::string& tag, YAML::anchor_t anchor) {
    check_tag(tag);
    count(1);
    if (stack_.size() >= static_cast<size_t>(kMaximumDepth)) {
      fail(fmt::format("nested deeper than {} levels", kMaximumDepth));
    }
    if (!stack_.empty() && stack_.back().value.is_map() && !stack_.back().has_name) {
      fail("map keys must be scalars");
    }
    stack_.push_back(
        {.value = std::move(value),
         .anchor = anchor,
         .name = {},
         .name_origin = {},
         .names = {},
         .merged = {}});
  }

  void end() {
    Open open = std::move(stack_.back());
    stack_.pop_back();
    if (open.anchor != 0) {
      anchors_[open.anchor] = open.value;
    }
    place(std::move(open.value));
  }

  void add(Value value, YAML::anchor_t anchor) {
    count(1);
    if (anchor != 0) {
      anchors_[anchor] = value;
    }
    place(std::move(value));
  }

  void place(Value value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      done_ = true;
      return;
    }
    Open& open = stack_.back();
    if (open.value.is_list()) {
      open.value.items.push_back(std::move(value));
    } else if (!open.has_name) {
      set_name(open, value);
    } else {
      open.has_name = false;
      if (!value.is_scalar()) {  // yaml-cpp places it where its first item is, or the next key
        value.origin = open.name_origin;
      }
      if (open.name == "<<") {
        merge_into(open, std::move(value));
      } else {
        open.value.entries.push_back({std::move(open.name), std::move(value)});
      }
    }
  }

  void set_name(Open& open, const Value& value) {
    if (!value.is_scalar() && !value.is_null()) {
      fail("map keys must be scalars");
    }
    open.name = value.is_null() ? "null" : value.text;
    open.name_origin = value.origin;
    open.has_name = true;
    if (!open.names.insert(open.name).second) {
      fail(fmt::format("duplicate key '{}' in a map", open.name));
    }
  }

  void merge_into(Open& open, Value value) {
    std::vector<Value> maps;
    if (value.is_list()) {
      maps = std::move(value.items);
    } else {
      maps.push_back(std::move(value));
    }
    for (Value& map : maps) {
      if (!map.is_map()) {
        fail("<< accepts only maps");
      }
      open.merged.push_back(std::move(map));
    }
  }

  std::string source_;
  int line_ = 0;
  size_t nodes_ = 0;
  bool done_ = false;
  Value root_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, Value> anchors_;
};

}  // namespace

Value parse_yaml(std::string_view text, const std::string& source) {
  if (text.size() > kMaximumBytes) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is {} bytes; the maximum size of a configuration is {}",
            source,
            text.size(),
            kMaximumBytes));
  }
  if (text.find('\0') != std::string_view::npos) {
    throw Error(ErrorKind::kConfig, source + " is not a text file: it contains a zero byte");
  }
  Builder builder(source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      Builder second(source);
      if (parser.HandleNextDocument(second)) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format(
                "{}:{}: only one YAML document per file is supported", source, second.line()));
      }
    }
  } catch (const YAML::Exception& error) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{}:{}: invalid YAML (column {}): {}",
            source,
            error.mark.line + 1,
            error.mark.column + 1,
            error.msg));
  }
  return builder.take();
}

Value read_config_file(const std::filesystem::path& path) {
  const std::string text = read_file(path, ErrorKind::kConfig, kLongestJson);
  return path.extension() == ".json" ? parse_json_with_comments(text, path.string())
                                     : parse_yaml(text, path.string());
}

}  // namespace lockstep::config
