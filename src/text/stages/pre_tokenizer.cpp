// Implements the pre-tokenizers of a tokenizer.json: ByteLevel, Metaspace, Split, Whitespace and
// others.
#include "text/stages/pre_tokenizer.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "text/stages/matches.h"
#include "text/unicode/byte_alphabet.h"
#include "text/unicode/unicode.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

/// Replaces each piece with its parts. `cut(piece, add)` calls add(begin, end) for each part.
template <class Cut>
void replace_pieces(Pieces& pieces, Cut&& cut) {
  std::vector<Piece> parts;
  parts.reserve(pieces.pieces.size());
  for (const Piece& piece : pieces.pieces) {
    cut(piece, [&](std::string_view text, bool at_start) {
      if (!text.empty()) {
        parts.push_back({text, at_start});
      }
    });
  }
  pieces.pieces = std::move(parts);
}

class MatchSplit final : public PreTokenizer {
 public:
  MatchSplit(Matcher matcher, SplitBehavior behavior, bool invert)
      : matcher_(std::move(matcher)),
        behavior_(behavior),
        invert_(invert) {}

  void split(Pieces& pieces) const override {
    replace_pieces(pieces, [&](const Piece& piece, auto&& add) {
      std::vector<Match> matches = matcher_(piece.text);
      if (invert_) {
        for (Match& match : matches) {
          match.is_match = !match.is_match;
        }
      }
      for (const Match& match : apply_behavior(std::move(matches), behavior_)) {
        add(piece.text.substr(match.begin, match.end - match.begin),
            piece.at_start && match.begin == 0);
      }
    });
  }

 private:
  Matcher matcher_;
  SplitBehavior behavior_;
  bool invert_;
};

class PatternSplit final : public PreTokenizer {
 public:
  explicit PatternSplit(SplitPattern pattern) : pattern_(pattern) {}

  void split(Pieces& pieces) const override {
    replace_pieces(pieces, [&](const Piece& piece, auto&& add) {
      split_by(pattern_, piece.text, [&](std::string_view part) {
        add(part, piece.at_start && part.data() == piece.text.data());
      });
    });
  }
  std::optional<SplitPattern> pattern() const override { return pattern_; }

 private:
  SplitPattern pattern_;
};

class PrefixSpace final : public PreTokenizer {
 public:
  void split(Pieces& pieces) const override {
    for (Piece& piece : pieces.pieces) {
      if (piece.text.front() != ' ') {
        std::string spaced(1, ' ');
        spaced += piece.text;
        piece.text = pieces.keep(std::move(spaced));
      }
    }
  }
};

class MapBytes final : public PreTokenizer {
 public:
  void split(Pieces& pieces) const override {
    for (Piece& piece : pieces.pieces) {
      piece.text = pieces.keep(bytes_to_alphabet(piece.text));
    }
  }
};

enum class PrependScheme { kFirst, kAlways, kNever };

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  MetaspacePreTokenizer(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split) {}

  void split(Pieces& pieces) const override {
    for (Piece& piece : pieces.pieces) {
      piece.text = pieces.keep(mark(piece));
    }
    if (split_) {
      MatchSplit(make_string_matcher(replacement_), SplitBehavior::kMergedWithNext, false)
          .split(pieces);
    }
  }

 private:
  std::string mark(const Piece& piece) const {
    const bool prepend =
        scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_start);
    std::string marked;
    if (prepend && piece.text.front() != ' ' && !piece.text.starts_with(replacement_)) {
      marked = replacement_;
    }
    for (const char byte : piece.text) {
      if (byte == ' ') {
        marked += replacement_;
      } else {
        marked.push_back(byte);
      }
    }
    return marked;
  }

  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}

  void split(Pieces& pieces) const override {
    replace_pieces(pieces, [&](const Piece& piece, auto&& add) {
      size_t begin = 0;
      size_t at = 0;
      int64_t count = 0;
      while (at < piece.text.size()) {
        at += code_point_length(piece.text[at]);
        if (++count == length_ || at == piece.text.size()) {
          add(piece.text.substr(begin, at - begin), piece.at_start && begin == 0);
          begin = at;
          count = 0;
        }
      }
    });
  }

 private:
  int64_t length_;
};

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}

  void split(Pieces& pieces) const override {
    for (const auto& part : parts_) {
      part->split(pieces);
    }
  }
  std::optional<SplitPattern> pattern() const override {
    return parts_.size() == 1 ? parts_[0]->pattern() : std::nullopt;
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

/// Returns a matcher for every code point that satisfies predicate(characters, code point).
template <class Predicate>
Matcher match_each(Predicate predicate) {
  return [predicate](std::string_view text) {
    const Characters characters;
    std::vector<Match> matches;
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t after = at + code_point_length(text[at]);
      if (predicate(characters, code_point_at(text.data() + at))) {
        if (done < at) {
          matches.push_back({done, at, false});
        }
        matches.push_back({at, after, true});
        done = after;
      }
      at = after;
    }
    if (done < text.size()) {
      matches.push_back({done, text.size(), false});
    }
    return matches;
  };
}

/// Matches \w+|[^\w\s]+ as the regex crate does; the text between matches is white space.
std::vector<Match> match_words(std::string_view text) {
  const Characters characters;
  const auto kind = [&](size_t at) {
    const char32_t point = code_point_at(text.data() + at);
    return characters.in(point, kWordBit) ? 0 : characters.is_space(point) ? 2 : 1;
  };
  std::vector<Match> matches;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const int first = kind(at);
    do {
      at += code_point_length(text[at]);
    } while (at < text.size() && kind(at) == first);
    matches.push_back({begin, at, first != 2});
  }
  return matches;
}

bool is_white_space(const Characters& characters, char32_t point) {
  return characters.is_space(point);
}
bool is_punctuation(const Characters& characters, char32_t point) {
  return characters.in(point, kPunctuationBit);
}
bool is_numeric(const Characters& characters, char32_t point) {
  return characters.in(point, kNumericBit);
}

template <class Predicate>
std::unique_ptr<PreTokenizer> split_at(Predicate predicate, SplitBehavior behavior) {
  return std::make_unique<MatchSplit>(match_each(predicate), behavior, false);
}

std::unique_ptr<PreTokenizer> make_metaspace(const Field& field) {
  std::string replacement;
  append_code_point(replacement, field.at("replacement").character());
  const std::string name = field.string_or("prepend_scheme", "always");
  PrependScheme scheme = PrependScheme::kAlways;
  if (name == "first") {
    scheme = PrependScheme::kFirst;
  } else if (name == "never") {
    scheme = PrependScheme::kNever;
  } else if (name != "always") {
    throw field.at("prepend_scheme").error("should be always, first or never");
  }
  if (!field.boolean_or("add_prefix_space", true)) {  // older spelling of "never"
    if (field.find("prepend_scheme") && scheme != PrependScheme::kNever) {
      throw field.error("has add_prefix_space false, which contradicts its prepend_scheme");
    }
    scheme = PrependScheme::kNever;
  }
  return std::make_unique<MetaspacePreTokenizer>(
      std::move(replacement), scheme, field.boolean_or("split", true));
}

std::unique_ptr<PreTokenizer> make_split(const Field& field) {
  const Field pattern = field.at("pattern");
  const SplitBehavior behavior = read_split_behavior(field.at("behavior"));
  const bool invert = field.boolean_or("invert", false);
  const std::optional<Field> regex = pattern.find("Regex");
  if (regex && !pattern.find("String")) {
    // Known patterns match every character, so there is no text between matches.
    const std::optional<SplitPattern> known = known_pattern(regex->string());
    if (known &&
        (behavior == SplitBehavior::kIsolated || (behavior == SplitBehavior::kRemoved && invert))) {
      return std::make_unique<PatternSplit>(*known);
    }
  }
  return std::make_unique<MatchSplit>(make_matcher(pattern), behavior, invert);
}

void add_byte_level(
    const Field& field, ByteMapping mapping, std::vector<std::unique_ptr<PreTokenizer>>& parts) {
  if (field.boolean_or("add_prefix_space", true)) {
    parts.push_back(std::make_unique<PrefixSpace>());
  }
  if (field.boolean_or("use_regex", true)) {
    parts.push_back(std::make_unique<PatternSplit>(SplitPattern::kGpt2));
  }
  if (mapping == ByteMapping::kWrite) {
    parts.push_back(std::make_unique<MapBytes>());
  }
}

void add_parts(
    const Field& field, ByteMapping mapping, std::vector<std::unique_ptr<PreTokenizer>>& parts);

std::unique_ptr<PreTokenizer> make_simple(const Field& field, const std::string& type) {
  if (type == "Split") {
    return make_split(field);
  }
  if (type == "Metaspace") {
    return make_metaspace(field);
  }
  if (type == "Digits") {
    return split_at(
        is_numeric,
        field.boolean_or("individual_digits", false) ? SplitBehavior::kIsolated
                                                     : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    const std::optional<Field> behavior = field.find("behavior");
    return split_at(
        is_punctuation, behavior ? read_split_behavior(*behavior) : SplitBehavior::kIsolated);
  }
  if (type == "Whitespace") {
    return std::make_unique<MatchSplit>(match_words, SplitBehavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") {
    return split_at(is_white_space, SplitBehavior::kRemoved);
  }
  if (type == "CharDelimiterSplit" || type == "Delimiter") {
    std::string delimiter;
    append_code_point(delimiter, field.at("delimiter").character());
    return std::make_unique<MatchSplit>(
        make_string_matcher(std::move(delimiter)), SplitBehavior::kRemoved, false);
  }
  if (type == "FixedLength") {
    const int64_t length = field.integer_or("length", 5);
    if (length < 1) {
      throw field.at("length").error("should be at least 1");
    }
    return std::make_unique<FixedLength>(length);
  }
  throw field.error(
      fmt::format("has the unknown type \"{}\"", type),
      "known pre-tokenizers: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, "
      "FixedLength, "
      "Metaspace, Punctuation, Sequence, Split, Whitespace, "
      "WhitespaceSplit");
}

void add_parts(
    const Field& field, ByteMapping mapping, std::vector<std::unique_ptr<PreTokenizer>>& parts) {
  const std::string type = field.at("type").string();
  if (type == "ByteLevel") {
    add_byte_level(field, mapping, parts);
  } else if (type == "BertPreTokenizer") {
    parts.push_back(split_at(is_white_space, SplitBehavior::kRemoved));
    parts.push_back(split_at(is_punctuation, SplitBehavior::kIsolated));
  } else if (type == "Sequence") {
    const std::vector<Field> list = field.at("pretokenizers").list();
    for (size_t i = 0; i < list.size(); ++i) {
      add_parts(list[i], i + 1 == list.size() ? mapping : ByteMapping::kWrite, parts);
    }
  } else {
    parts.push_back(make_simple(field, type));
  }
}

}  // namespace

bool ends_with_byte_mapping(const Field& field) {
  const std::string type = field.at("type").string();
  if (type == "Sequence") {
    const std::vector<Field> list = field.at("pretokenizers").list();
    return !list.empty() && ends_with_byte_mapping(list.back());
  }
  return type == "ByteLevel";
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Field& field, ByteMapping mapping) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  add_parts(field, mapping, parts);
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace lockstep::text
