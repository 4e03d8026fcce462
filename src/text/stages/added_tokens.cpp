// Finds added tokens and splits text at them.
#include "text/stages/added_tokens.h"

#include <algorithm>

#include "base/format.h"
#include "text/models/vocabulary.h"
#include "text/unicode/unicode.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() &&
         Characters().in(
             code_point_at(previous_code_point(text.data(), text.data() + text.size())), kWordBit);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && Characters().in(code_point_at(text.data()), kWordBit);
}

/// Returns the start of the white space that ends at `at`, no earlier than `from`.
size_t space_before(std::string_view text, size_t from, size_t at) {
  const Characters characters;
  while (at > from) {
    const char* const previous = previous_code_point(text.data(), text.data() + at);
    if (!characters.is_space(code_point_at(previous))) {
      break;
    }
    at = static_cast<size_t>(previous - text.data());
  }
  return at;
}

size_t space_after(std::string_view text, size_t at) {
  const Characters characters;
  while (at < text.size() && characters.is_space(code_point_at(text.data() + at))) {
    at += code_point_length(text[at]);
  }
  return at;
}

}  // namespace

void TokenFinder::add(std::string_view text, int32_t id) {
  if (text.empty()) {
    return;
  }
  uint32_t node = 0;
  for (const char byte : text) {
    const auto next = static_cast<uint32_t>(nodes_.size());
    const auto [child, is_new] =
        nodes_[node].children.try_emplace(static_cast<unsigned char>(byte), next);
    node = child->second;
    if (is_new) {
      nodes_.emplace_back();
    }
  }
  nodes_[node].id = id;
}

std::optional<TokenFinder::Match> TokenFinder::find(std::string_view text, size_t from) const {
  const auto& first = nodes_[0].children;
  // Most text contains no added token. If all tokens start with the same byte, such as '<', memchr
  // is used.
  const bool one = first.size() == 1;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (one) {
      begin = text.find(static_cast<char>(first.begin()->first), begin);
      if (begin == std::string_view::npos) {
        return std::nullopt;
      }
    }
    std::optional<Match> longest;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto& children = nodes_[node].children;
      const auto child = children.find(static_cast<unsigned char>(text[at]));
      if (child == children.end()) {
        break;
      }
      node = child->second;
      if (nodes_[node].id >= 0) {
        longest = Match{begin, at + 1, nodes_[node].id};
      }
    }
    if (longest) {
      return longest;
    }
  }
  return std::nullopt;
}

void AddedTokens::add(
    const Model& model,
    const Normalizer* normalizer,
    AddedToken token,
    std::optional<int64_t> id,
    const std::string& place) {
  if (token.content.empty()) {
    return;
  }
  int32_t given = static_cast<int32_t>(std::max<int64_t>(model.size(), highest_id() + 1));
  if (const std::optional<int32_t> known = find(token.content)) {
    given = *known;
  } else if (const std::optional<int32_t> in_model = model.find(token.content)) {
    given = *in_model;
  }
  if (id && *id != given) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: \"{}\" has the id {}, but the next free id is {}",
            place,
            token.content,
            *id,
            given),
        "list added tokens by ascending id, continuing the vocabulary without gaps");
  }
  if (given > kMaximumTokenId) {
    throw Error(ErrorKind::kData, fmt::format("{} has too many tokens", place));
  }
  ids_[token.content] = given;
  if (token.special) {
    specials_.insert(token.content);
  }
  NormalizedText content{token.content, true};
  if (token.normalized && normalizer != nullptr) {
    normalizer->normalize(content);
  }
  (token.normalized ? normalized_ : raw_).add(content.text, given);
  decoded_[given] = std::move(content.text);
  tokens_[given] = std::move(token);
}

void AddedTokens::split(
    std::string_view text, bool normalized, bool specials, std::vector<Segment>& segments) const {
  const TokenFinder& finder = normalized ? normalized_ : raw_;
  size_t done = 0;
  size_t from = 0;
  while (!finder.empty() && from < text.size()) {
    const std::optional<TokenFinder::Match> match = finder.find(text, from);
    if (!match) {
      break;
    }
    from = match->end;
    const AddedToken& token = tokens_.at(match->id);
    const bool inside_word = token.single_word && (ends_with_word(text.substr(0, match->begin)) ||
                                                   starts_with_word(text.substr(match->end)));
    if ((!specials && is_special(token.content)) || inside_word) {
      continue;
    }
    // Resolves overlaps as Hugging Face tokenizers do. Stripping may extend into the previous
    // token, and a later token may start within stripped white space. A token that strips white
    // space on its left starts at the end of the previous token and is dropped if it becomes empty.
    // Other tokens reuse the stripped characters.
    size_t begin = match->begin;
    if (token.strip_left) {
      begin = begin > done ? space_before(text, done, begin) : done;
    }
    const size_t end = token.strip_right ? space_after(text, match->end) : match->end;
    if (begin >= end) {
      continue;
    }
    if (done < begin) {
      segments.push_back({text.substr(done, begin - done), std::nullopt});
    }
    segments.push_back({text.substr(begin, end - begin), match->id});
    done = end;
  }
  if (done < text.size()) {
    segments.push_back({text.substr(done), std::nullopt});
  }
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* AddedTokens::decoded(int32_t id) const {
  const auto found = decoded_.find(id);
  return found == decoded_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::token(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

}  // namespace lockstep::text
