// Implements ROUGE-1 and ROUGE-L.
#include "metrics/rouge.h"

#include <algorithm>
#include <map>

#include "metrics/porter.h"

namespace lockstep::metrics {
namespace {

constexpr size_t kShortWord = 3;  // words up to this length are not stemmed

/// Replaces the two non-ASCII letters whose lower case is ASCII: the Kelvin sign and I with a dot.
std::string with_plain_letters(std::string_view text) {
  std::string result(text);
  for (const auto& [from, to] : {std::pair{"\xE2\x84\xAA", "k"}, {"\xC4\xB0", "i "}}) {
    for (size_t at = result.find(from); at != std::string::npos; at = result.find(from, at)) {
      result.replace(at, std::string_view(from).size(), to);
    }
  }
  return result;
}

size_t longest_common_subsequence(
    const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<size_t> lengths(b.size() + 1, 0);
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = lengths[j + 1];
      lengths[j + 1] = word == b[j] ? diagonal + 1 : std::max(above, lengths[j]);
      diagonal = above;
    }
  }
  return lengths.back();
}

size_t common_words(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::map<std::string, size_t> counts;
  for (const std::string& word : a) {
    ++counts[word];
  }
  size_t common = 0;
  for (const std::string& word : b) {
    if (size_t& left = counts[word]; left > 0) {
      --left;
      ++common;
    }
  }
  return common;
}

}  // namespace

std::vector<std::string> rouge_words(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : with_plain_letters(text)) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9')) {
      words.back() += lower;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) {
    words.pop_back();
  }
  for (std::string& word : words) {
    word = word.size() > kShortWord ? porter_stem(word) : word;
  }
  return words;
}

Rouge rouge(std::string_view target, std::string_view prediction) {
  const std::vector<std::string> wanted = rouge_words(target), said = rouge_words(prediction);
  if (wanted.empty() || said.empty()) {
    return {};
  }
  const auto share = [](size_t some, size_t all) {
    return static_cast<double>(some) / static_cast<double>(all);
  };
  const size_t longest = longest_common_subsequence(wanted, said);
  Rouge result;
  result.rouge1_recall = share(common_words(wanted, said), wanted.size());
  result.rougeL_recall = share(longest, wanted.size());
  const double precision = share(longest, said.size());
  if (longest > 0) {
    result.rougeL_f1 = 2 * precision * result.rougeL_recall / (precision + result.rougeL_recall);
  }
  return result;
}

}  // namespace lockstep::metrics
