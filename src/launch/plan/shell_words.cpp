// Splits shell words and reads environment files.
#include "launch/plan/shell_words.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

std::string shell_quote(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=:,@+").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) {
    return word;
  }
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

std::vector<std::string> shell_split(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (quote != 0 && letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '\'' || letter == '"')) {
      quote = letter;
      inside = true;
    } else if (letter == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      inside = true;
    } else if (quote == 0 && std::isspace(static_cast<unsigned char>(letter)) != 0) {
      if (inside) {
        words.push_back(word);
      }
      word.clear();
      inside = false;
    } else {
      word += letter;
      inside = true;
    }
  }
  if (quote != 0) {
    throw Error(
        ErrorKind::kConfig, fmt::format("unterminated quote in: {}", text), "close the quote");
  }
  if (inside) {
    words.push_back(word);
  }
  return words;
}

Environment parse_environment_file(const std::string& text, const std::string& source) {
  Environment result;
  int number = 0;
  for (std::string line : split(text, '\n')) {
    ++number;
    line.erase(line.find_last_not_of(" \r\t") + 1);
    if (line.empty() || line[0] == '#') {
      continue;
    }
    const size_t equals = line.find('=');
    const std::string name = line.substr(0, equals);
    const bool good = equals != std::string::npos && !name.empty() &&
                      std::all_of(name.begin(), name.end(), [](unsigned char c) {
                        return std::isalnum(c) != 0 || c == '_';
                      });
    if (!good) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{}:{}: '{}' is not NAME=VALUE", source, number, line.substr(0, 80)));
    }
    result[name] = line.substr(equals + 1);
  }
  return result;
}

}  // namespace lockstep::launch
