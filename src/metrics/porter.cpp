// Implements the Porter stemmer with NLTK's changes.
#include "metrics/porter.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace lockstep::metrics {
namespace {

struct Ending {
  std::string_view from, to;
};

/// Irregular words, which the rules would stem incorrectly.
constexpr Ending kFixed[] = {
    {"sky", "sky"},
    {"skies", "sky"},
    {"dying", "die"},
    {"lying", "lie"},
    {"tying", "tie"},
    {"news", "news"},
    {"innings", "inning"},
    {"inning", "inning"},
    {"outings", "outing"},
    {"outing", "outing"},
    {"cannings", "canning"},
    {"canning", "canning"},
    {"howe", "howe"},
    {"proceed", "proceed"},
    {"exceed", "exceed"},
    {"succeed", "succeed"},
};

bool is_vowel(std::string_view word, size_t at) {
  const char c = word[at];
  if (c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u') {
    return true;
  }
  return c == 'y' && at > 0 && !is_vowel(word, at - 1);
}

/// Returns Porter's measure m, the number of vowel-consonant sequences in the stem.
int measure(std::string_view stem) {
  int count = 0;
  for (size_t i = 1; i < stem.size(); ++i) {
    count += is_vowel(stem, i - 1) && !is_vowel(stem, i) ? 1 : 0;
  }
  return count;
}

bool has_vowel(std::string_view stem) {
  for (size_t i = 0; i < stem.size(); ++i) {
    if (is_vowel(stem, i)) {
      return true;
    }
  }
  return false;
}

bool ends_with_double_consonant(std::string_view word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && !is_vowel(word, n - 1);
}

/// Returns true if the word ends in consonant-vowel-consonant and the last letter is not w, x or y,
/// or if the word is a vowel followed by a consonant.
bool ends_short(std::string_view word) {
  const size_t n = word.size();
  if (n == 2) {
    return is_vowel(word, 0) && !is_vowel(word, 1);
  }
  const char last = n > 0 ? word[n - 1] : '\0';
  return n >= 3 && !is_vowel(word, n - 3) && is_vowel(word, n - 2) && !is_vowel(word, n - 1) &&
         last != 'w' && last != 'x' && last != 'y';
}

std::string without(const std::string& word, std::string_view ending) {
  return word.substr(0, word.size() - ending.size());
}

/// Applies the first ending that matches. If `fits` rejects the resulting stem, no further ending
/// is tried.
template <class Fits>
std::string replace_first(
    const std::string& word, std::span<const Ending> endings, const Fits& fits) {
  for (const auto& [from, to] : endings) {
    if (word.ends_with(from)) {
      const std::string stem = without(word, from);
      return fits(stem, from) ? stem + std::string(to) : word;
    }
  }
  return word;
}

bool is_measured(std::string_view stem, std::string_view /*ending*/) {
  return measure(stem) > 0;
}

std::string step_1a(const std::string& word) {
  if (word.size() == 4 && word.ends_with("ies")) {
    return without(word, "ies") + "ie";
  }
  constexpr Ending kEndings[] = {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};
  return replace_first(word, kEndings, [](const auto&, auto) { return true; });
}

/// Restores a stem after -ed or -ing was removed ("hopp" becomes "hop", "siz" becomes "size").
std::string mended(const std::string& stem) {
  for (const std::string_view ending : {"at", "bl", "iz"}) {
    if (stem.ends_with(ending)) {
      return stem + "e";
    }
  }
  if (ends_with_double_consonant(stem)) {
    const char last = stem.back();
    return last == 'l' || last == 's' || last == 'z' ? stem : stem.substr(0, stem.size() - 1);
  }
  return measure(stem) == 1 && ends_short(stem) ? stem + "e" : stem;
}

std::string step_1b(const std::string& word) {
  if (word.ends_with("ied")) {
    return without(word, "ied") + (word.size() == 4 ? "ie" : "i");
  }
  if (word.ends_with("eed")) {
    const std::string stem = without(word, "eed");
    return measure(stem) > 0 ? stem + "ee" : word;
  }
  for (const std::string_view ending : {"ed", "ing"}) {
    if (word.ends_with(ending) && has_vowel(without(word, ending))) {
      return mended(without(word, ending));
    }
  }
  return word;
}

std::string step_1c(const std::string& word) {
  if (!word.ends_with('y')) {
    return word;
  }
  const std::string stem = without(word, "y");
  return stem.size() >= 2 && !is_vowel(stem, stem.size() - 1) ? stem + "i" : word;
}

std::string step_2(const std::string& word) {
  if (word.ends_with("alli") && measure(without(word, "alli")) > 0) {
    return step_2(without(word, "alli") + "al");
  }
  constexpr Ending kEndings[] = {
      {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
      {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
      {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
      {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
      {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
      {"fulli", "ful"},   {"logi", "log"},
  };
  return replace_first(word, kEndings, [](const std::string& stem, std::string_view ending) {
    return measure(ending == "logi" ? stem + "l" : stem) > 0;
  });
}

std::string step_3(const std::string& word) {
  constexpr Ending kEndings[] = {
      {"icate", "ic"},
      {"ative", ""},
      {"alize", "al"},
      {"iciti", "ic"},
      {"ical", "ic"},
      {"ful", ""},
      {"ness", ""}};
  return replace_first(word, kEndings, is_measured);
}

std::string step_4(const std::string& word) {
  constexpr Ending kEndings[] = {
      {"al", ""},   {"ance", ""}, {"ence", ""}, {"er", ""},    {"ic", ""},
      {"able", ""}, {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""},
      {"ent", ""},  {"ion", ""},  {"ou", ""},   {"ism", ""},   {"ate", ""},
      {"iti", ""},  {"ous", ""},  {"ive", ""},  {"ize", ""},
  };
  return replace_first(word, kEndings, [](const std::string& stem, std::string_view ending) {
    const bool follows = ending != "ion" || stem.ends_with('s') || stem.ends_with('t');
    return measure(stem) > 1 && follows;
  });
}

std::string step_5(std::string word) {
  if (word.ends_with('e')) {
    const std::string stem = without(word, "e");
    const int count = measure(stem);
    if (count > 1 || (count == 1 && !ends_short(stem))) {
      word = stem;
    }
  }
  return word.ends_with("ll") && measure(without(word, "l")) > 1 ? without(word, "l") : word;
}

}  // namespace

std::string porter_stem(const std::string& word) {
  const auto* fixed = std::ranges::find(kFixed, std::string_view(word), &Ending::from);
  if (fixed != std::end(kFixed)) {
    return std::string(fixed->to);
  }
  if (word.size() <= 2) {
    return word;
  }
  return step_5(step_4(step_3(step_2(step_1c(step_1b(step_1a(word)))))));
}

}  // namespace lockstep::metrics
