// Implements the normalizers of a tokenizer.json: Unicode forms, BERT, Nmt, Replace, Strip and
// others.
#include "text/stages/normalizer.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "text/stages/matches.h"
#include "text/stages/precompiled.h"
#include "text/unicode/byte_alphabet.h"
#include "text/unicode/unicode.h"
#include "text/unicode/unicode_normalization.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  void normalize(NormalizedText& text) const override {
    for (const auto& part : parts_) {
      part->normalize(text);
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void normalize(NormalizedText& text) const override {
    if (!text.text.empty()) {
      text.text.insert(0, prefix_);
    }
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(Matcher matcher, std::string content)
      : matcher_(std::move(matcher)),
        content_(std::move(content)) {}

  void normalize(NormalizedText& text) const override {
    if (text.text.empty()) {
      return;
    }
    const std::vector<Match> matches = matcher_(text.text);
    if (!matches.empty() && matches[0].is_match && matches[0].end > matches[0].begin) {
      // If several characters are replaced, the position of the result is that of the last
      // character, as in Hugging Face's library.
      const size_t first = code_point_length(text.text[matches[0].begin]);
      const bool is_one = matches[0].end == matches[0].begin + first;
      text.at_start = text.at_start && is_one && !content_.empty();
    }
    std::string replaced;
    replaced.reserve(text.text.size());
    for (const Match& match : matches) {
      replaced += match.is_match
                      ? std::string_view(content_)
                      : std::string_view(text.text).substr(match.begin, match.end - match.begin);
      text.check_growth(replaced.size());
    }
    text.text = std::move(replaced);
  }

 private:
  Matcher matcher_;
  std::string content_;
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  void normalize(NormalizedText& text) const override {
    const Characters characters;
    const char* begin = text.text.data();
    const char* end = begin + text.text.size();
    while (left_ && begin < end && characters.is_space(code_point_at(begin))) {
      begin += code_point_length(*begin);
      text.at_start = false;
    }
    while (right_ && begin < end &&
           characters.is_space(code_point_at(previous_code_point(begin, end)))) {
      end = previous_code_point(begin, end);
    }
    text.text = std::string(begin, end);
  }

 private:
  bool left_, right_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override { text.text = bytes_to_alphabet(text.text); }
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalizationForm form) : form_(form) {}
  void normalize(NormalizedText& text) const override {
    text.text = text::normalize(text.text, form_);
  }

 private:
  NormalizationForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override { text.text = to_lower_case(text.text); }
};

constexpr char32_t kDropped = ~char32_t{0};

/// Replaces each code point with `map(code point)`, which may return kDropped.
template <class Map>
void map_code_points(NormalizedText& text, Map&& map) {
  std::string mapped;
  mapped.reserve(text.text.size());
  for (size_t at = 0; at < text.text.size(); at += code_point_length(text.text[at])) {
    const char32_t result = map(code_point_at(text.text.data() + at));
    if (result != kDropped) {
      append_code_point(mapped, result);
    } else if (mapped.empty()) {
      text.at_start = false;
    }
  }
  text.text = std::move(mapped);
}

class StripAccents final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override {
    const Characters characters;
    map_code_points(
        text, [&](char32_t point) { return characters.in(point, kMarkBit) ? kDropped : point; });
  }
};

/// SentencePiece's "nmt" rules. Removes control characters and maps unusual spaces to ' '.
class Nmt final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override {
    map_code_points(text, [](char32_t point) -> char32_t {
      if ((point >= 0x01 && point <= 0x08) || point == 0x0B || (point >= 0x0E && point <= 0x1F) ||
          point == 0x7F || point == 0x8F || point == 0x9F) {
        return kDropped;
      }
      const bool space = point == 0x09 || point == 0x0A || point == 0x0C || point == 0x0D ||
                         point == 0x1680 || (point >= 0x200B && point <= 0x200F) ||
                         point == 0x2028 || point == 0x2029 || point == 0x2581 || point == 0xFEFF ||
                         point == 0xFFFD;
      return space ? U' ' : point;
    });
  }
};

struct BertOptions {
  bool clean_text, handle_chinese, strip_accents, lowercase;
};

class Bert final : public Normalizer {
 public:
  explicit Bert(BertOptions options) : options_(options) {}

  void normalize(NormalizedText& text) const override {
    const Characters characters;
    if (options_.clean_text) {
      map_code_points(text, [&](char32_t point) {
        if (characters.in(point, kControlBit)) {
          return kDropped;
        }
        return characters.is_space(point) ? U' ' : point;
      });
    }
    if (options_.handle_chinese) {
      text.text = space_ideographs(text.text);
    }
    if (options_.strip_accents) {
      text.text = text::normalize(text.text, NormalizationForm::kNfd);
      map_code_points(text, [&](char32_t point) {
        return characters.in(point, kNonspacingBit) ? kDropped : point;
      });
    }
    if (options_.lowercase) {
      text.text = to_lower_case(text.text);
    }
  }

 private:
  static bool is_ideograph(char32_t point) {
    return (point >= 0x4E00 && point <= 0x9FFF) || (point >= 0x3400 && point <= 0x4DBF) ||
           (point >= 0x20000 && point <= 0x2A6DF) || (point >= 0x2A700 && point <= 0x2B81F) ||
           (point >= 0x2B920 && point <= 0x2CEAF) || (point >= 0xF900 && point <= 0xFAFF) ||
           (point >= 0x2F800 && point <= 0x2FA1F);
  }
  static std::string space_ideographs(std::string_view text) {
    std::string spaced;
    for (size_t at = 0; at < text.size();) {
      const size_t length = code_point_length(text[at]);
      const bool ideograph = is_ideograph(code_point_at(text.data() + at));
      spaced += ideograph ? " " : "";
      spaced += text.substr(at, length);
      spaced += ideograph ? " " : "";
      at += length;
    }
    return spaced;
  }
  BertOptions options_;
};

std::unique_ptr<Normalizer> make_bert(const Field& field) {
  BertOptions options{};
  options.clean_text = field.boolean_or("clean_text", true);
  options.handle_chinese = field.boolean_or("handle_chinese_chars", true);
  options.lowercase = field.boolean_or("lowercase", true);
  options.strip_accents = field.boolean_or("strip_accents", options.lowercase);
  return std::make_unique<Bert>(options);
}

std::optional<NormalizationForm> form_named(std::string_view name) {
  constexpr std::pair<std::string_view, NormalizationForm> kForms[] = {
      {"NFC", NormalizationForm::kNfc},
      {"NFD", NormalizationForm::kNfd},
      {"NFKC", NormalizationForm::kNfkc},
      {"NFKD", NormalizationForm::kNfkd}};
  for (const auto& [known, form] : kForms) {
    if (known == name) {
      return form;
    }
  }
  return std::nullopt;
}

std::unique_ptr<Normalizer> make_sequence(const Field& field) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const Field& part : field.at("normalizers").list()) {
    parts.push_back(make_normalizer(part));
  }
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

}  // namespace

void NormalizedText::check_growth(size_t size) {
  // Unicode normalization expands a character at most 11 times, and space replacement 3 times. 64
  // allows for both.
  constexpr size_t kMostTimes = 64, kAlways = size_t{1} << 16;
  most = most > 0 ? most : kAlways + kMostTimes * text.size();
  if (size > most) {
    throw Error(
        ErrorKind::kData,
        fmt::format("the tokenizer's normalizer expands a text to more than {} bytes", most),
        "check its replacements (normalizer in tokenizer.json)");
  }
}

std::unique_ptr<Normalizer> make_normalizer(const Field& field) {
  const std::string type = field.at("type").string();
  if (type == "Sequence") {
    return make_sequence(field);
  }
  if (type == "Prepend") {
    return std::make_unique<Prepend>(field.at("prepend").string());
  }
  if (type == "Replace") {
    return std::make_unique<ReplaceNormalizer>(
        make_matcher(field.at("pattern")), field.at("content").string());
  }
  if (type == "Strip") {
    return std::make_unique<StripNormalizer>(
        field.at("strip_left").boolean(), field.at("strip_right").boolean());
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelNormalizer>();
  }
  if (const std::optional<NormalizationForm> form = form_named(type)) {
    return std::make_unique<UnicodeForm>(*form);
  }
  if (type == "Lowercase") {
    return std::make_unique<Lowercase>();
  }
  if (type == "StripAccents") {
    return std::make_unique<StripAccents>();
  }
  if (type == "Nmt") {
    return std::make_unique<Nmt>();
  }
  if (type == "BertNormalizer" || type == "Bert") {
    return make_bert(field);
  }
  if (type == "Precompiled") {
    return make_precompiled(field);
  }
  throw field.error(
      fmt::format("has the unknown type \"{}\"", type),
      "known normalizers: BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, "
      "Nmt, "
      "Precompiled, "
      "Prepend, Replace, Sequence, Strip, StripAccents");
}

}  // namespace lockstep::text
