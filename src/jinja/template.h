// Jinja templates, as transformers runs them for chats: in a sandbox, with bounds.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "jinja/syntax.h"

namespace lockstep::jinja {

/// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

struct Rendering {
  std::string text;
  std::vector<TextSpan> generated;  // what {% generation %} marks, outside of macros
};

/// Immutable and thread-safe. Text for text what transformers' apply_chat_template renders
/// (trim_blocks, lstrip_blocks, loop controls, tojson, raise_exception, strftime_now). Nothing
/// outside can be reached, values cannot be changed, and steps, sizes and depths have bounds. What
/// is not there is an error, never another text: include, import, extends, call, recursive loops,
/// formatting by %, integers beyond 64 bits, filters that no chat template uses.
class Template {
 public:
  /// Error (kData) with `place` and the line.
  Template(std::string_view source, std::string place);
  /// With an object of variables, in its order. Error (kData): what the template raises, or does
  /// wrong, with `place` and the line.
  Rendering render(const nlohmann::ordered_json& variables) const;
  /// Whether {% generation %} is in it.
  bool marks_generation() const { return marks_generation_; }

 private:
  std::string place_;
  std::shared_ptr<const Block> block_;
  bool marks_generation_ = false;
};

}  // namespace lockstep::jinja
