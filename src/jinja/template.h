// Sandboxed Jinja templates, compatible with the chat templates of transformers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "jinja/syntax.h"

namespace lockstep::jinja {

/// Bytes [begin, end) of a string.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

struct Rendering {
  std::string text;
  std::vector<TextSpan> generated;  // spans in {% generation %}, outside of macros
};

/// Compiled template. Immutable and thread-safe. Renders the same text as transformers'
/// apply_chat_template (trim_blocks, lstrip_blocks, loop controls, tojson, raise_exception,
/// strftime_now). A template can only read its variables; its steps, sizes and depths are limited.
/// Unsupported features cause an Error: include, import, extends, call, recursive loops, formatting
/// with %, integers beyond 64 bits, and filters that no chat template uses.
class Template {
 public:
  /// Compiles a template. Throws Error (data) with `place` and the line.
  Template(std::string_view source, std::string place);
  /// Renders with an object of variables. Dicts keep the order of their keys. Throws Error (data)
  /// with `place` and the line if the template raises an exception or is invalid.
  Rendering render(const nlohmann::ordered_json& variables) const;
  /// Returns true if the template contains {% generation %}.
  bool marks_generation() const { return marks_generation_; }

 private:
  std::string place_;
  std::shared_ptr<const Block> block_;
  bool marks_generation_ = false;
};

}  // namespace lockstep::jinja
