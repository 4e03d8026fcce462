// Implements the decoders of a tokenizer.json as streaming stages.
#include "text/stages/decoder.h"

#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "text/stages/matches.h"
#include "text/unicode/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

/// Base class of stages that process complete tokens.
class WholeTokens : public DecoderStage {
 public:
  explicit WholeTokens(DecoderStage& next) : next_(next) {}
  void fragment(std::string_view text) final { token_ += text; }
  void end_token() final { take(std::exchange(token_, {})); }
  void finish() final {
    flush();
    next_.finish();
  }

 protected:
  virtual void take(std::string token) = 0;
  virtual void flush() {}
  void give(std::string_view token) {
    next_.fragment(token);
    next_.end_token();
  }
  DecoderStage& next() { return next_; }

 private:
  DecoderStage& next_;
  std::string token_;
};

/// Decoder whose stage is Stage(next, options...).
template <class Stage, class... Options>
class DecoderOf final : public Decoder {
 public:
  explicit DecoderOf(Options... options) : options_(std::move(options)...) {}
  std::unique_ptr<DecoderStage> start(DecoderStage& next) const override {
    return std::apply(
        [&](const Options&... options) { return std::make_unique<Stage>(next, options...); },
        options_);
  }

 private:
  std::tuple<Options...> options_;
};

template <class Stage, class... Options>
std::unique_ptr<Decoder> decoder_of(Options... options) {
  return std::make_unique<DecoderOf<Stage, Options...>>(std::move(options)...);
}

/// Joins the bytes of all tokens into one UTF-8 token. Invalid sequences become U+FFFD.
class ByteLevelDecoder final : public WholeTokens {
 public:
  explicit ByteLevelDecoder(DecoderStage& next) : WholeTokens(next) {}

 private:
  void take(std::string token) override {
    append_bytes(token);
    while (!bytes_.empty()) {
      const size_t good = valid_utf8_prefix(bytes_);
      if (good > 0) {
        next().fragment(std::string_view(bytes_).substr(0, good));
        bytes_.erase(0, good);
        continue;
      }
      const IllFormed bad = ill_formed_at_start(bytes_);
      if (bad.incomplete) {
        return;
      }
      next().fragment(kReplacementCharacter);
      bytes_.erase(0, bad.length);
    }
  }
  void flush() override {
    next().fragment(replace_invalid_utf8(bytes_));
    next().end_token();
  }
  /// Appends a token's bytes. A token with a character outside the byte alphabet is appended
  /// unchanged.
  void append_bytes(const std::string& token) {
    const size_t before = bytes_.size();
    for (size_t at = 0; at < token.size(); at += code_point_length(token[at])) {
      const int byte = character_to_byte(code_point_at(token.data() + at));
      if (byte < 0) {
        bytes_.resize(before);
        bytes_ += token;
        return;
      }
      bytes_.push_back(static_cast<char>(byte));
    }
  }

  std::string bytes_;  // start of an incomplete character
};

class ReplaceDecoder final : public WholeTokens {
 public:
  ReplaceDecoder(DecoderStage& next, Matcher matcher, std::string content)
      : WholeTokens(next),
        matcher_(std::move(matcher)),
        content_(std::move(content)) {}

 private:
  void take(std::string token) override {
    std::string replaced;
    if (!token.empty()) {
      for (const Match& match : matcher_(token)) {
        replaced += match.is_match
                        ? std::string_view(content_)
                        : std::string_view(token).substr(match.begin, match.end - match.begin);
      }
    }
    give(replaced);
  }
  Matcher matcher_;
  std::string content_;
};

/// Decodes runs of "<0xNN>" as UTF-8. Each byte of an invalid run becomes U+FFFD.
class ByteFallback final : public WholeTokens {
 public:
  explicit ByteFallback(DecoderStage& next) : WholeTokens(next) {}

 private:
  void take(std::string token) override {
    unsigned byte = 0;
    const char* const last = token.data() + 5;
    if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
        std::from_chars(token.data() + (token[3] == '+' ? 4 : 3), last, byte, 16).ptr == last) {
      run_.push_back(static_cast<char>(byte));
      return;
    }
    flush();
    give(token);
  }
  void flush() override {
    if (run_.empty()) {
      return;
    }
    if (valid_utf8_prefix(run_) == run_.size()) {
      give(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) {
        give(kReplacementCharacter);
      }
    }
    run_.clear();
  }
  std::string run_;
};

/// Joins all tokens into one.
class Fuse final : public DecoderStage {
 public:
  explicit Fuse(DecoderStage& next) : next_(next) {}
  void fragment(std::string_view text) override { next_.fragment(text); }
  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }

 private:
  DecoderStage& next_;
};

/// Strips up to `start` copies of a character from the start of each token and up to `stop` from
/// its end.
class StripDecoder final : public DecoderStage {
 public:
  StripDecoder(DecoderStage& next, std::string content, int64_t start, int64_t stop)
      : next_(next),
        content_(std::move(content)),
        start_(start),
        stop_(stop) {}

  void fragment(std::string_view text) override {
    held_ += text;
    while (at_start_ && dropped_ < start_ && held_.starts_with(content_)) {
      held_.erase(0, content_.size());
      ++dropped_;
    }
    if (at_start_ && dropped_ < start_ && held_.empty()) {
      return;
    }
    at_start_ = false;
    size_t certain = held_.size();
    for (int64_t i = 0; i < stop_ && ends_with_content(certain); ++i) {
      certain -= content_.size();
    }
    next_.fragment(std::string_view(held_).substr(0, certain));
    held_.erase(0, certain);
  }
  void end_token() override {
    // Drops the held text: at most `stop_` copies of the character at the end of the token.
    held_.clear();
    at_start_ = true;
    dropped_ = 0;
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  bool ends_with_content(size_t end) const {
    return std::string_view(held_).substr(0, end).ends_with(content_);
  }
  DecoderStage& next_;
  std::string content_;
  int64_t start_, stop_;
  std::string held_;
  bool at_start_ = true;
  int64_t dropped_ = 0;
};

/// Replaces the Metaspace replacement character with a space, or with nothing in the first token.
class MetaspaceDecoder final : public WholeTokens {
 public:
  MetaspaceDecoder(DecoderStage& next, std::string replacement, bool prepends)
      : WholeTokens(next),
        replacement_(std::move(replacement)),
        drop_(prepends) {}

 private:
  void take(std::string token) override {
    std::string decoded;
    for (size_t at = 0; at < token.size();) {
      const size_t length = code_point_length(token[at]);
      const std::string_view character = std::string_view(token).substr(at, length);
      if (character != replacement_) {
        decoded += character;
      } else if (!drop_) {
        decoded.push_back(' ');
      }
      at += length;
    }
    drop_ = false;
    give(decoded);
  }
  std::string replacement_;
  bool drop_;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// Removes the spaces that BERT tokenization inserts before punctuation and contractions.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  };
  for (const auto& [from, to] : kChanges) {
    replace_all(text, from, to);
  }
}

class WordPiece final : public WholeTokens {
 public:
  WordPiece(DecoderStage& next, std::string prefix, bool cleanup)
      : WholeTokens(next),
        prefix_(std::move(prefix)),
        cleanup_(cleanup) {}

 private:
  void take(std::string token) override {
    if (!first_) {
      if (token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else {
        token = " " + token;
      }
    }
    first_ = false;
    if (cleanup_) {
      clean_up(token);
    }
    give(token);
  }
  std::string prefix_;
  bool cleanup_, first_ = true;
};

/// Replaces the suffix with a space, or with nothing in the last token. The latest token is held
/// back until the next one arrives.
class BpeSuffix final : public WholeTokens {
 public:
  BpeSuffix(DecoderStage& next, std::string suffix)
      : WholeTokens(next),
        suffix_(std::move(suffix)) {}

 private:
  void take(std::string token) override {
    if (has_held_) {
      release(" ");
    }
    held_ = std::move(token);
    has_held_ = true;
  }
  void flush() override {
    if (has_held_) {
      release("");
    }
  }
  void release(std::string_view replacement) {
    if (!suffix_.empty()) {
      replace_all(held_, suffix_, replacement);
    }
    give(held_);
  }
  std::string suffix_, held_;
  bool has_held_ = false;
};

class Ctc final : public WholeTokens {
 public:
  Ctc(DecoderStage& next, std::string padding, std::string delimiter, bool cleanup)
      : WholeTokens(next),
        padding_(std::move(padding)),
        delimiter_(std::move(delimiter)),
        cleanup_(cleanup) {}

 private:
  void take(std::string token) override {
    if (!first_ && token == previous_) {
      return;
    }
    first_ = false;
    previous_ = token;
    if (!padding_.empty()) {
      replace_all(token, padding_, "");
    }
    if (cleanup_) {
      clean_up(token);
      if (!delimiter_.empty()) {
        replace_all(token, delimiter_, " ");
      }
    }
    if (!token.empty()) {
      give(token);
    }
  }
  std::string padding_, delimiter_, previous_;
  bool cleanup_, first_ = true;
};

class JoinBySpaces final : public WholeTokens {
 public:
  explicit JoinBySpaces(DecoderStage& next) : WholeTokens(next) {}

 private:
  void take(std::string token) override {
    give(first_ ? token : " " + token);
    first_ = false;
  }
  bool first_ = true;
};

std::string character_of(const Field& field) {
  std::string text;
  append_code_point(text, field.character());
  return text;
}

int64_t count_of(const Field& field) {
  const int64_t count = field.integer();
  if (count < 0) {
    throw field.error("should not be negative");
  }
  return count;
}

void add_decoders(const Field& field, std::vector<std::unique_ptr<Decoder>>& decoders) {
  const std::string type = field.at("type").string();
  if (type == "Sequence") {
    for (const Field& part : field.at("decoders").list()) {
      add_decoders(part, decoders);
    }
  } else if (type == "ByteLevel") {
    decoders.push_back(decoder_of<ByteLevelDecoder>());
  } else if (type == "Replace") {
    decoders.push_back(decoder_of<ReplaceDecoder>(
        make_matcher(field.at("pattern")), field.at("content").string()));
  } else if (type == "ByteFallback") {
    decoders.push_back(decoder_of<ByteFallback>());
  } else if (type == "Fuse") {
    decoders.push_back(decoder_of<Fuse>());
  } else if (type == "Strip") {
    decoders.push_back(decoder_of<StripDecoder>(
        character_of(field.at("content")),
        count_of(field.at("start")),
        count_of(field.at("stop"))));
  } else if (type == "Metaspace") {
    const bool prepends = field.string_or("prepend_scheme", "always") != "never" &&
                          field.boolean_or("add_prefix_space", true);
    decoders.push_back(
        decoder_of<MetaspaceDecoder>(character_of(field.at("replacement")), prepends));
  } else if (type == "WordPiece") {
    decoders.push_back(
        decoder_of<WordPiece>(field.string_or("prefix", "##"), field.boolean_or("cleanup", true)));
  } else if (type == "BPEDecoder") {
    decoders.push_back(decoder_of<BpeSuffix>(field.string_or("suffix", "</w>")));
  } else if (type == "CTC") {
    decoders.push_back(decoder_of<Ctc>(
        field.string_or("pad_token", "<pad>"),
        field.string_or("word_delimiter_token", "|"),
        field.boolean_or("cleanup", true)));
  } else {
    throw field.error(
        fmt::format("has the unknown type \"{}\"", type),
        "known decoders: BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, "
        "Replace, "
        "Sequence, Strip, WordPiece");
  }
}

}  // namespace

class Decoding::Sink final : public DecoderStage {
 public:
  void fragment(std::string_view text) override { text_ += text; }
  void end_token() override {}
  void finish() override {}
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

Decoding::Decoding(const std::vector<std::unique_ptr<Decoder>>& decoders)
    : sink_(std::make_unique<Sink>()) {
  DecoderStage* next = sink_.get();
  for (auto decoder = decoders.rbegin(); decoder != decoders.rend(); ++decoder) {
    stages_.push_back((*decoder)->start(*next));
    next = stages_.back().get();
  }
}

Decoding::~Decoding() = default;
Decoding::Decoding(Decoding&&) noexcept = default;
Decoding& Decoding::operator=(Decoding&&) noexcept = default;

std::string Decoding::push(std::string_view token) {
  DecoderStage& first = stages_.empty() ? *sink_ : *stages_.back();
  first.fragment(token);
  first.end_token();
  return sink_->take();
}

std::string Decoding::finish() {
  DecoderStage& first = stages_.empty() ? *sink_ : *stages_.back();
  first.finish();
  return sink_->take();
}

std::vector<std::unique_ptr<Decoder>> make_decoders(const Field& field) {
  std::vector<std::unique_ptr<Decoder>> decoders;
  add_decoders(field, decoders);
  return decoders;
}

std::vector<std::unique_ptr<Decoder>> make_joining_decoder() {
  std::vector<std::unique_ptr<Decoder>> decoders;
  decoders.push_back(decoder_of<JoinBySpaces>());
  return decoders;
}

}  // namespace lockstep::text
