// Implements a tree-walking evaluator of templates: statements, scopes, macros and expressions.
#include "jinja/evaluator.h"

#include <algorithm>

#include "base/format.h"
#include "jinja/builtins.h"
#include "jinja/work.h"

namespace lockstep::jinja {
namespace {

constexpr int kDeepestCall = 100;

using Kind = Expression::Kind;

/// Returns the `loop` object of one iteration of a for statement.
Value loop_of(const std::vector<Value>& items, size_t at, int64_t depth) {
  auto loop = std::make_shared<Dict>();
  loop->is_namespace = loop->is_loop = true;
  const int64_t index = static_cast<int64_t>(at), size = std::ssize(items);
  loop->entries = {
      {"index", index + 1},
      {"index0", index},
      {"revindex", size - index},
      {"revindex0", size - index - 1},
      {"first", index == 0},
      {"last", index + 1 == size},
      {"length", size},
      {"depth", depth},
      {"depth0", depth - 1},
      {"previtem", at > 0 ? items[at - 1] : Value(Undefined{"there is no previous item"})},
      {"nextitem",
       at + 1 < items.size() ? items[at + 1] : Value(Undefined{"there is no next item"})},
      {"cycle", make_callable([at](const Arguments& arguments) {
         if (arguments.values.empty()) {
           fail("cycle needs at least one item");
         }
         return arguments.values[at % arguments.values.size()];
       })}};
  return loop;
}

/// Adds the cost of a filter or method that reads the whole value.
void add_what_is_read(const Value& value) {
  if (value.is_string()) {
    Work::add(2 * std::ssize(value.string()));
  } else if (value.is_list()) {
    Work::add_items(std::ssize(value.list().items));
  }
}

}  // namespace

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->around.get()) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) {
        return &value;
      }
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [known, old] : names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

Rendering Evaluator::run(const Block& block) {
  run_block(block);
  return {std::move(out_), std::move(generated_)};
}

void Evaluator::write(std::string_view text) {
  if (std::ssize(out_) + std::ssize(text) > kMostBytes) {
    fail("the output of the template exceeds 64 MiB");
  }
  out_ += text;
}

template <class Body>
Evaluator::Flow Evaluator::in_scope(std::shared_ptr<const Scope> around, const Body& body) {
  if (++depth_ > kDeepestCall) {
    fail(fmt::format("loops and macros are nested deeper than {}", kDeepestCall));
  }
  const auto before = std::exchange(scope_, std::make_shared<Scope>(std::move(around)));
  const Flow flow = body();
  scope_ = before;
  --depth_;
  return flow;
}

std::string Evaluator::written_by(const Block& block) {
  std::string before = std::exchange(out_, "");
  const bool was_inside = std::exchange(is_inside_, true);
  run_block(block);
  is_inside_ = was_inside;
  return std::exchange(out_, std::move(before));
}

Evaluator::Flow Evaluator::run_block(const Block& block) {
  for (const Statement& statement : block) {
    const Flow flow = run_statement(statement);
    if (flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement) {
  using Of = Statement::Kind;
  Work::add(Work::kStep);
  line_ = statement.line;
  switch (statement.kind) {
    case Of::kText:
      write(statement.name);
      return Flow::kNext;
    case Of::kOutput:
      write(to_text(evaluate(*statement.expression)));
      return Flow::kNext;
    case Of::kIf:
      return run_block(
          is_true(evaluate(*statement.expression)) ? statement.body : statement.otherwise);
    case Of::kFor:
      return run_for(statement);
    case Of::kSet:
      run_set(statement);
      return Flow::kNext;
    case Of::kMacro:
      define_macro(statement);
      return Flow::kNext;
    case Of::kFilter:
      return in_scope(scope_, [&] {
        scope_->set(std::string(kBody), written_by(statement.body));
        write(to_text(evaluate(*statement.expression)));
        return Flow::kNext;
      });
    case Of::kWith: {
      std::vector<Value>
          values;  // evaluated in the enclosing scope, so the variables do not see each other
      for (const NamedExpression& variable : statement.parameters) {
        values.push_back(evaluate(*variable.value));
      }
      return in_scope(scope_, [&] {
        for (size_t i = 0; i < values.size(); ++i) {
          scope_->set(statement.parameters[i].name, values[i]);
        }
        return run_block(statement.body);
      });
    }
    case Of::kGenerated: {
      const size_t begin = out_.size();
      const Flow flow = run_block(statement.body);
      if (!is_inside_) {
        generated_.push_back({begin, out_.size()});
      }
      return flow;
    }
    case Of::kBreak:
      return Flow::kBreak;
    case Of::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_for(const Statement& statement) {
  std::vector<Value> items = iterate(evaluate(*statement.expression));
  if (statement.condition != nullptr) {
    std::erase_if(items, [&](const Value& item) {
      bool keeps = false;
      in_scope(scope_, [&] {
        assign(statement.targets, item);
        keeps = is_true(evaluate(*statement.condition));
        return Flow::kNext;
      });
      return !keeps;
    });
  }
  bool any_whole = false;  // true if an iteration was completed; otherwise `else` is run
  for (size_t at = 0; at < items.size(); ++at) {
    Work::add(Work::kStep);
    const Flow flow = in_scope(scope_, [&] {
      assign(statement.targets, items[at]);
      scope_->set("loop", loop_of(items, at, 1));
      return run_block(statement.body);
    });
    any_whole = any_whole || flow == Flow::kNext;
    if (flow == Flow::kBreak) {
      break;
    }
  }
  return any_whole ? Flow::kNext : run_block(statement.otherwise);
}

void Evaluator::assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    const size_t dot = targets[0].find('.');
    if (dot == std::string::npos) {
      scope_->set(targets[0], value);
      return;
    }
    const std::string name = targets[0].substr(0, dot);
    const Value* space = scope_->find(name);
    if (space == nullptr || !space->is_dict() || !space->dict().is_namespace ||
        space->dict().is_loop) {
      fail(fmt::format("cannot set an attribute of '{}': it is not a namespace", name));
    }
    space->dict().set(targets[0].substr(dot + 1), value);
    return;
  }
  const std::vector<Value> items = iterate(value);
  if (items.size() != targets.size()) {
    fail(fmt::format("cannot unpack {} values into {} names", items.size(), targets.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    scope_->set(targets[i], items[i]);
  }
}

void Evaluator::run_set(const Statement& statement) {
  if (statement.expression != nullptr) {
    assign(statement.targets, evaluate(*statement.expression));
    return;
  }
  Value text;
  in_scope(scope_, [&] {
    text = written_by(statement.body);
    return Flow::kNext;
  });
  if (statement.condition != nullptr) {  // {% set x | filter %}
    in_scope(scope_, [&] {
      scope_->set(std::string(kBody), text);
      text = evaluate(*statement.condition);
      return Flow::kNext;
    });
  }
  assign(statement.targets, text);
}

void Evaluator::define_macro(const Statement& statement) {
  // A weak reference avoids a cycle, because a macro may call itself. Scope and tree live at most
  // as long as the rendering.
  const std::weak_ptr<const Scope> around = scope_;
  scope_->set(statement.name, make_callable([this, &statement, around](const Arguments& arguments) {
                return Value(call_macro(statement, around.lock(), arguments));
              }));
}

std::string Evaluator::call_macro(
    const Statement& macro, std::shared_ptr<const Scope> around, const Arguments& arguments) {
  const int64_t called_from = line_;
  for (const auto& [name, value] : arguments.named) {
    const bool is_known = std::any_of(
        macro.parameters.begin(),
        macro.parameters.end(),
        [&, &given = name](const NamedExpression& parameter) { return parameter.name == given; });
    if (!is_known) {
      fail(fmt::format("the macro {} has no argument {}", macro.name, name));
    }
  }
  for (size_t i = 0; i < std::min(arguments.values.size(), macro.parameters.size()); ++i) {
    for (const auto& [name, value] : arguments.named) {
      if (name == macro.parameters[i].name) {
        fail(fmt::format("the macro {} got multiple values for its argument {}", macro.name, name));
      }
    }
  }
  if (arguments.values.size() > macro.parameters.size()) {
    fail(fmt::format(
        "the macro {} takes {} arguments, but {} were given",
        macro.name,
        macro.parameters.size(),
        arguments.values.size()));
  }
  std::string text;
  ++macros_;
  in_scope(std::move(around), [&] {
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const NamedExpression& parameter = macro.parameters[i];
      const Value* given = arguments.find(i, parameter.name);
      scope_->set(
          parameter.name,
          given != nullptr             ? *given
          : parameter.value != nullptr ? evaluate(*parameter.value)
                                       : Value(Undefined{parameter.name}));
    }
    text = written_by(macro.body);
    return Flow::kNext;
  });
  --macros_;
  line_ = called_from;
  return text;
}

Value Evaluator::name_of(const Expression& expression) {
  const Value* found = scope_->find(expression.name);
  if (found == nullptr && macros_ > 0 &&
      (expression.name == "varargs" || expression.name == "kwargs" ||
       expression.name == "caller")) {
    fail(fmt::format(
        "'{}' in a macro is not supported: name the macro's arguments", expression.name));
  }
  return found != nullptr ? *found : global_function(expression.name);
}

Arguments Evaluator::arguments_of(const Expression& expression) {
  Arguments made;
  for (const NamedExpression& argument : expression.arguments) {
    Value value = evaluate(*argument.value);
    if (argument.name.empty()) {
      made.values.push_back(std::move(value));
    } else {
      made.named.emplace_back(argument.name, std::move(value));
    }
  }
  return made;
}

Value Evaluator::evaluate(const Expression& e) {
  Work::add(Work::kStep);
  Value value = evaluate_kind(e);
  if (value.is_string()) {
    Work::add_bytes(std::ssize(value.string()));
  } else if (value.is_list() && e.kind != Kind::kName) {  // a name shares its list without a copy
    Work::add_items(std::ssize(value.list().items));
  }
  return value;
}

Value Evaluator::evaluate_kind(const Expression& e) {
  const auto part = [&](size_t i) { return evaluate(*e.parts[i]); };
  switch (e.kind) {
    case Kind::kConstant:
      return e.value;
    case Kind::kName:
      return name_of(e);
    case Kind::kAttribute: {
      const Value value = part(0);
      add_what_is_read(value);  // methods read the value
      return attribute_of(value, e.name);
    }
    case Kind::kItem:
      return item_of(part(0), part(1));
    case Kind::kFilter: {
      const Value value = part(0);
      add_what_is_read(value);
      return apply_filter(e.name, value, arguments_of(e));
    }
    case Kind::kTest:
      return apply_test(e.name, part(0), arguments_of(e));
    case Kind::kNot:
      return !is_true(part(0));
    case Kind::kAnd: {
      Value left = part(0);
      return is_true(left) ? part(1) : left;
    }
    case Kind::kOr: {
      Value left = part(0);
      return is_true(left) ? left : part(1);
    }
    case Kind::kChoose:
      return is_true(part(1))        ? part(0)
             : e.parts[2] != nullptr ? part(2)
                                     : Value(Undefined{"an inline if without else"});
    default:
      return evaluate_parts(e);
  }
}

Value Evaluator::evaluate_parts(const Expression& e) {
  const auto part = [&](size_t i) { return evaluate(*e.parts[i]); };
  switch (e.kind) {
    case Kind::kNegative: {
      const Value value = part(0);
      return value.is_float() ? Value(-value.number()) : arithmetic("-", int64_t{0}, value);
    }
    case Kind::kPositive:
      return arithmetic("+", int64_t{0}, part(0));
    case Kind::kArithmetic:
      return arithmetic(e.operators[0], part(0), part(1));
    case Kind::kCompare:
      return evaluate_compare(e);
    case Kind::kDict:
      return evaluate_dict(e);
    case Kind::kSlice:
      return evaluate_slice(e);
    case Kind::kCall:
      return evaluate_call(e);
    default:
      break;
  }
  std::vector<Value> items;
  for (size_t i = 0; i < e.parts.size(); ++i) {
    items.push_back(part(i));
  }
  return make_list(std::move(items), e.kind == Kind::kTuple ? ListKind::kTuple : ListKind::kList);
}

Value Evaluator::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    if (!compare(expression.operators[i], left, right)) {
      return false;
    }
    left = std::move(right);
  }
  return true;
}

Value Evaluator::evaluate_dict(const Expression& expression) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i]);
    check_key(key);
    dict->set(key, evaluate(*expression.parts[i + 1]));
  }
  return dict;
}

Value Evaluator::evaluate_slice(const Expression& expression) {
  const auto part = [&](size_t i) {
    return expression.parts[i] == nullptr ? Value() : evaluate(*expression.parts[i]);
  };
  return slice_of(part(0), part(1), part(2), part(3));
}

Value Evaluator::evaluate_call(const Expression& expression) {
  const Value callee = evaluate(*expression.parts[0]);
  const Callable& function = callee.callable();
  return function(arguments_of(expression));
}

}  // namespace lockstep::jinja
