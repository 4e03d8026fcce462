// Masks tokens for masked language modeling.
#include "data/masking.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/counter_random.h"
#include "base/error.h"
#include "data/sequences.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kWordPiece = "##";
/// Marks of word starts: space, tab and newline in the byte alphabet, and SentencePiece's mark.
constexpr std::array<std::string_view, 4> kBegins = {"\u0120", "\u0109", "\u010A", "\u2581"};

bool begins_word(std::string_view token) {
  return std::any_of(kBegins.begin(), kBegins.end(), [&](std::string_view mark) {
    return token.starts_with(mark);
  });
}
bool goes_on(std::string_view token) {
  return token.size() > kWordPiece.size() && token.starts_with(kWordPiece);
}
bool is_true(const std::vector<bool>& of_tokens, int64_t id) {
  return id >= 0 && id < std::ssize(of_tokens) && of_tokens[static_cast<size_t>(id)];
}

}  // namespace

void Masking::apply(int64_t sample, std::span<int64_t> ids, std::span<int64_t> labels) const {
  const uint64_t key =
      derive_key(derive_key(seed, hash_name("masked tokens")), static_cast<uint64_t>(sample));
  size_t word =
      0;  // position of the first token of the word; its random number applies to the whole word
  bool is_after_text = false;  // the previous token could be selected
  for (size_t place = 0; place < ids.size(); ++place) {
    const int64_t id = ids[place];
    const bool is_text = !is_true(specials, id) && labels[place] != kIgnored;
    if (!is_after_text || !is_true(continuing, id)) {
      word = place;
    }
    is_after_text = is_text;
    // Each position has three random numbers, even if they are not used.
    const uint64_t draw = 3 * static_cast<uint64_t>(place);
    if (!is_text || random_uniform(key, 3 * static_cast<uint64_t>(word)) >= probability) {
      labels[place] = kIgnored;
      continue;
    }
    labels[place] = id;
    const double kind = random_uniform(key, draw + 1);
    if (kind < mask_share) {
      ids[place] = mask;
    } else if (kind < mask_share + random_share) {
      ids[place] =
          static_cast<int64_t>(random_bits(key, draw + 2) % static_cast<uint64_t>(vocabulary));
    }
  }
}

std::vector<bool> continuing_tokens(const text::Tokenizer& tokenizer) {
  const int64_t size = tokenizer.vocabulary_size();
  std::vector<std::string> tokens(static_cast<size_t>(size));
  for (int64_t id = 0; id < size; ++id) {
    tokens[static_cast<size_t>(id)] = tokenizer.token(static_cast<int32_t>(id)).value_or("");
  }
  const bool marks_rest = std::any_of(tokens.begin(), tokens.end(), goes_on);
  if (!marks_rest && std::none_of(tokens.begin(), tokens.end(), begins_word)) {
    throw Error(
        ErrorKind::kConfig,
        "data.whole_word_mask: the tokenizer marks neither tokens that start a word nor tokens "
        "that continue one (##)",
        "remove it, or use a WordPiece, byte-level or SentencePiece tokenizer");
  }
  std::vector<bool> continuing(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    continuing[id] = marks_rest ? goes_on(tokens[id]) : !begins_word(tokens[id]);
  }
  return continuing;
}

}  // namespace lockstep::data
