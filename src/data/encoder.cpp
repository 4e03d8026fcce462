// Adapts tokenizers to data preparation.
#include "data/encoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace {

using text::SpecialTokens;
using text::Template;

/// Returns the BOS token, which is the id that the tokenizer's template puts first.
std::optional<int32_t> find_begin(const text::Tokenizer& tokenizer) {
  const std::vector<int32_t> with =
      tokenizer.encode("a", SpecialTokens::kRecognise, Template::kApply);
  const std::vector<int32_t> without =
      tokenizer.encode("a", SpecialTokens::kRecognise, Template::kOmit);
  const auto at = std::search(with.begin(), with.end(), without.begin(), without.end());
  const auto before = at == with.end() ? 0 : at - with.begin();
  if (before > 1) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the tokenizer's template puts {} tokens before a text; at most one is supported",
            before),
        "change post_processor in its tokenizer.json");
  }
  return before == 1 ? std::optional(with.front()) : std::nullopt;
}

bool splits_at_spaces(const Encoder& encoder) {
  static constexpr std::array<std::array<std::string_view, 2>, 5> kTrials{{
      {"the end", " of it"},
      {"one, two.", " 3 four"},
      {"a line\n", " and  more"},
      {"spaces  ", " (here)"},
      {"na\xC3\xAFve", " \xE4\xB8\xAD\xE6\x96\x87"},
  }};
  for (const auto& [first, second] : kTrials) {
    std::vector<int32_t> parts = encoder.encode(first);
    const std::vector<int32_t> rest = encoder.encode(second);
    parts.insert(parts.end(), rest.begin(), rest.end());
    if (parts != encoder.encode(std::string(first) + std::string(second))) {
      return false;
    }
  }
  return true;
}

}  // namespace

Encoder make_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, bool append_eos) {
  Encoder encoder;
  encoder.fingerprint = tokenizer->fingerprint();
  encoder.vocabulary_size = tokenizer->vocabulary_size();
  encoder.begin = find_begin(*tokenizer);
  encoder.end = append_eos ? tokenizer->eos() : std::nullopt;
  encoder.pad = tokenizer->pad() ? tokenizer->pad() : tokenizer->eos();
  encoder.encode = [tokenizer = std::move(tokenizer)](std::string_view text) {
    return tokenizer->encode(text, SpecialTokens::kRecognise, Template::kOmit);
  };
  encoder.pieces = splits_at_spaces(encoder);
  return encoder;
}

Encoder make_row_encoder(std::shared_ptr<const text::Tokenizer> tokenizer) {
  const text::RowTemplate& form = tokenizer->row_template();
  Encoder encoder = make_encoder(tokenizer, /*append_eos=*/false);
  if (form.after.size() > 1) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the tokenizer's template puts {} tokens after a text; at most one is supported",
            form.after.size()),
        "change post_processor in its tokenizer.json");
  }
  encoder.end = form.after.empty() ? std::nullopt : std::optional(form.after.front());
  encoder.rows = form;
  return encoder;
}

Encoder make_source_encoder(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t end) {
  Encoder encoder = make_row_encoder(std::move(tokenizer));
  text::RowTemplate& form = *encoder.rows;
  if (form.after.empty()) {
    form.after = form.between = form.pair_after = {end};
    form.between_of_first = 1;
  }
  if (form.after.back() != end || form.pair_after.empty() || form.pair_after.back() != end) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the tokenizer's template ends a text with token {}, but the classifier is read at the "
            "model's end of text, {}",
            form.after.back(),
            end),
        "use the same token for eos_token_id of config.json and post_processor of tokenizer.json");
  }
  encoder.end = end;
  return encoder;
}

}  // namespace lockstep::data
