// Template evaluator. Internal to jinja.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/syntax.h"
#include "jinja/template.h"

namespace lockstep::jinja {

/// Variables of a scope and its enclosing scopes. Each loop iteration, macro call and `with` block
/// has its own scope.
struct Scope {
  explicit Scope(std::shared_ptr<const Scope> around = nullptr) : around(std::move(around)) {}
  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
  std::shared_ptr<const Scope> around;
  std::vector<std::pair<std::string, Value>> names;
};

class Evaluator {
 public:
  explicit Evaluator(std::shared_ptr<Scope> globals) : scope_(std::move(globals)) {}
  Rendering run(const Block& block);
  /// Returns the line of the last executed statement, for errors.
  int64_t line() const { return line_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  void write(std::string_view text);
  /// Runs `body` in a new scope nested in `around`.
  template <class Body>
  Flow in_scope(std::shared_ptr<const Scope> around, const Body& body);
  /// Returns the output of a block as a string.
  std::string written_by(const Block& block);

  Flow run_block(const Block& block);
  Flow run_statement(const Statement& statement);
  Flow run_for(const Statement& statement);
  void run_set(const Statement& statement);
  void define_macro(const Statement& statement);
  std::string call_macro(
      const Statement& macro, std::shared_ptr<const Scope> around, const Arguments& arguments);
  void assign(const std::vector<std::string>& targets, const Value& value);

  Value evaluate(const Expression& expression);
  Value evaluate_kind(const Expression& expression);
  Value evaluate_parts(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Arguments arguments_of(const Expression& expression);
  Value name_of(const Expression& expression);

  std::shared_ptr<Scope> scope_;
  std::string out_;
  std::vector<TextSpan> generated_;
  bool is_inside_ = false;  // inside a macro or a set block, where output is captured
  int64_t line_ = 1;
  int depth_ = 0, macros_ = 0;
};

}  // namespace lockstep::jinja
