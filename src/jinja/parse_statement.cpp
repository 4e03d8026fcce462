// Parser for template statements.
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "base/format.h"
#include "jinja/parser.h"

namespace lockstep::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : tokens_(std::move(tokens)),
        expressions_(tokens_) {}

  Block whole() {
    Block all = until({});
    if (!tokens_.is(TokenKind::kEnd)) {
      tokens_.fail_here("the end of the template");
    }
    return all;
  }

 private:
  /// Parses statements up to a block with one of the names `ends`. Reads that name, but not the end
  /// of its tag.
  Block until(std::initializer_list<std::string_view> ends) {
    constexpr int kDeepest = 100;
    if (++depth_ > kDeepest) {
      fail(fmt::format("line {}: blocks are nested deeper than {}", tokens_.peek().line, kDeepest));
    }
    Block all;
    while (!tokens_.is(TokenKind::kEnd)) {
      const Token token = tokens_.next();
      if (token.kind == TokenKind::kText) {
        all.push_back(make_statement(Statement::Kind::kText, token));
        all.back().name = token.text;
      } else if (token.kind == TokenKind::kOutputBegin) {
        all.push_back(make_statement(Statement::Kind::kOutput, token));
        all.back().expression = expressions_.tuple();
        tokens_.expect(TokenKind::kOutputEnd, "}}");
      } else {
        const Token name = tokens_.peek();
        for (const std::string_view end : ends) {
          if (tokens_.take_name(end)) {
            ended_by_ = name.text;
            --depth_;
            return all;
          }
        }
        all.push_back(block());
      }
    }
    if (ends.size() > 0) {
      tokens_.fail_here(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    }
    --depth_;
    return all;
  }

  static Statement make_statement(Statement::Kind kind, const Token& token) {
    Statement made{};
    made.kind = kind;
    made.line = token.line;
    return made;
  }

  void end_of_tag() { tokens_.expect(TokenKind::kBlockEnd, "%}"); }

  Statement block() {
    const Token token = tokens_.peek();
    const std::string name = tokens_.expect_any_name("a block name");
    if (name == "if") {
      return if_block(token);
    }
    if (name == "for") {
      return for_block(token);
    }
    if (name == "set") {
      return set_block(token);
    }
    if (name == "macro") {
      return macro_block(token);
    }
    if (name == "filter") {
      Statement made = make_statement(Statement::Kind::kFilter, token);
      auto body = std::make_unique<Expression>();
      body->kind = Expression::Kind::kName;
      body->name = kBody;
      made.expression = expressions_.filters(std::move(body), /*starts_with_name=*/true);
      return with_own_body(std::move(made), "endfilter");
    }
    if (name == "with") {
      return with_block(token);
    }
    if (name == "generation") {
      return with_body(make_statement(Statement::Kind::kGenerated, token), "endgeneration");
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) {
        fail(fmt::format(
            "line {}: {{% {} %}} is not in a loop, or is in a set, filter or macro block inside "
            "one",
            token.line,
            name));
      }
      end_of_tag();
      return make_statement(
          name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, token);
    }
    fail(fmt::format("line {}: unknown block '{}'", token.line, name));
  }

  Statement with_body(Statement made, std::string_view end) {
    end_of_tag();
    made.body = until({end});
    end_of_tag();
    return made;
  }

  /// Parses a body whose output is captured. break and continue statements cannot leave it.
  Statement with_own_body(Statement made, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    made = with_body(std::move(made), end);
    loops_ = loops;
    return made;
  }

  Statement if_block(const Token& token) {
    Statement made = make_statement(Statement::Kind::kIf, token);
    made.expression = expressions_.tuple(/*with_choice=*/false);
    end_of_tag();
    made.body = until({"elif", "else", "endif"});
    if (ended_by_ == "elif") {
      made.otherwise.push_back(if_block(tokens_.peek()));
      return made;  // the innermost `elif` has already read the end tag
    }
    if (ended_by_ == "else") {
      end_of_tag();
      made.otherwise = until({"endif"});
    }
    end_of_tag();
    return made;
  }

  /// Parses assignment targets. `loop` is not allowed in a for statement.
  std::vector<std::string> targets(bool in_loop) {
    static const std::set<std::string> kConstants{"true", "false", "none", "True", "False", "None"};
    std::vector<std::string> names;
    const bool closes = tokens_.take_operator("(");
    do {
      const Token& token = tokens_.peek();
      if (kConstants.contains(token.text) || (in_loop && token.text == "loop")) {
        fail(fmt::format("line {}: cannot assign to '{}'", token.line, token.text));
      }
      names.push_back(tokens_.expect_any_name("a name"));
    } while (tokens_.take_operator(","));
    if (closes) {
      tokens_.expect_operator(")");
    }
    return names;
  }

  Statement for_block(const Token& token) {
    Statement made = make_statement(Statement::Kind::kFor, token);
    made.targets = targets(/*in_loop=*/true);
    if (!tokens_.take_name("in")) {
      tokens_.fail_here("'in'");
    }
    made.expression = expressions_.tuple(/*with_choice=*/false);
    if (tokens_.take_name("if")) {
      made.condition = expressions_.expression();
    }
    if (tokens_.is_name("recursive")) {
      fail(fmt::format("line {}: recursive loops are not supported", token.line));
    }
    end_of_tag();
    ++loops_;
    made.body = until({"else", "endfor"});
    --loops_;
    if (ended_by_ == "else") {
      end_of_tag();
      made.otherwise = until({"endfor"});
    }
    end_of_tag();
    return made;
  }

  Statement set_block(const Token& token) {
    Statement made = make_statement(Statement::Kind::kSet, token);
    made.targets = targets(loops_ > 0 && tokens_.peek(1).text != ".");
    if (tokens_.take_operator(".")) {
      made.targets.back() += "." + tokens_.expect_any_name("an attribute");
    }
    if (tokens_.take_operator("=")) {
      made.expression = expressions_.tuple();
      end_of_tag();
      return made;
    }
    if (tokens_.take_operator("|")) {
      auto body = std::make_unique<Expression>();
      body->kind = Expression::Kind::kName;
      body->name = kBody;
      made.condition = expressions_.filters(std::move(body), /*starts_with_name=*/true);
    }
    return with_own_body(std::move(made), "endset");
  }

  std::vector<NamedExpression> parameters() {
    std::vector<NamedExpression> all;
    tokens_.expect_operator("(");
    while (!tokens_.take_operator(")")) {
      NamedExpression& parameter = all.emplace_back();
      parameter.name = tokens_.expect_any_name("a parameter name");
      if (tokens_.take_operator("=")) {
        parameter.value = expressions_.expression();
      }
      if (!tokens_.is_operator(")")) {
        tokens_.expect_operator(",");
      }
    }
    return all;
  }

  Statement macro_block(const Token& token) {
    Statement made = make_statement(Statement::Kind::kMacro, token);
    made.name = tokens_.expect_any_name("a macro name");
    made.parameters = parameters();
    check_parameters(made);
    return with_own_body(std::move(made), "endmacro");
  }

  static void check_parameters(const Statement& macro) {
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const NamedExpression& one = macro.parameters[i];
      for (size_t before = 0; before < i; ++before) {
        if (macro.parameters[before].name == one.name) {
          fail(fmt::format("line {}: the macro has two parameters named {}", macro.line, one.name));
        }
      }
      if (i > 0 && one.value == nullptr && macro.parameters[i - 1].value != nullptr) {
        fail(fmt::format(
            "line {}: the macro's parameter {} needs a default, because the previous one has one",
            macro.line,
            one.name));
      }
    }
  }

  Statement with_block(const Token& token) {
    Statement made = make_statement(Statement::Kind::kWith, token);
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      NamedExpression& variable = made.parameters.emplace_back();
      variable.name = tokens_.expect_any_name("a name");
      tokens_.expect_operator("=");
      variable.value = expressions_.expression();
      if (!tokens_.take_operator(",")) {
        break;
      }
    }
    return with_body(std::move(made), "endwith");
  }

  TokenReader tokens_;
  ExpressionParser expressions_;
  std::string ended_by_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Block parse(std::string_view source) {
  return StatementParser(tokenize(source)).whole();
}

}  // namespace lockstep::jinja
