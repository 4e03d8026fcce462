// Implements the normalizer for SentencePiece's precompiled character map.
#include "text/stages/precompiled.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "text/unicode/graphemes.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

/// Darts-clone double array. Each unit contains the offset of the children, a label and a leaf
/// value.
class DoubleArray {
 public:
  explicit DoubleArray(std::vector<uint32_t> units) : units_(std::move(units)) {}

  /// Returns the value of the shortest key that is a prefix of `text`. SentencePiece's map uses the
  /// shortest match.
  std::optional<uint32_t> shortest_prefix(std::string_view text) const {
    size_t place = 0;
    if (units_.empty()) {
      return std::nullopt;
    }
    place ^= offset(units_[0]);
    for (const char byte : text) {
      const auto label = static_cast<uint8_t>(byte);
      place ^= label;
      if (label == 0 || place >= units_.size() || (units_[place] & kLabelMask) != label) {
        return std::nullopt;
      }
      const uint32_t unit = units_[place];
      place ^= offset(unit);
      if ((unit & kHasLeaf) != 0) {
        return place < units_.size() ? std::optional(units_[place] & ~kLeafMark) : std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr uint32_t kLeafMark = uint32_t{1} << 31;
  static constexpr uint32_t kLabelMask = kLeafMark | 0xFF;
  static constexpr uint32_t kHasLeaf = 1 << 8;
  static size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1 << 9)) >> 6); }
  std::vector<uint32_t> units_;
};

class Precompiled final : public Normalizer {
 public:
  Precompiled(DoubleArray trie, std::string replacements)
      : trie_(std::move(trie)),
        replacements_(std::move(replacements)) {}

  void normalize(NormalizedText& text) const override {
    std::string normal;
    normal.reserve(text.text.size());
    for (size_t at = 0; at < text.text.size();) {
      const size_t end = grapheme_end(text.text, at);
      const std::string_view cluster = std::string_view(text.text).substr(at, end - at);
      at = end;
      // If a prefix of a short cluster is a key, the whole cluster is replaced. Otherwise its code
      // points are replaced individually.
      if (cluster.size() < kShortCluster) {
        if (const std::optional<std::string_view> found = replacement(cluster)) {
          normal += *found;
          text.check_growth(normal.size());
          continue;
        }
      }
      for (size_t i = 0; i < cluster.size();) {
        const size_t length = code_point_length(cluster[i]);
        const std::string_view part = cluster.substr(i, length);
        normal += replacement(part).value_or(part);
        text.check_growth(normal.size());
        i += length;
      }
    }
    text.text = std::move(normal);
  }

 private:
  static constexpr size_t kShortCluster = 6;  // bytes

  std::optional<std::string_view> replacement(std::string_view text) const {
    const std::optional<uint32_t> place = trie_.shortest_prefix(text);
    // The offset is untrusted and may point into the middle of a character, but the output must be
    // valid UTF-8.
    if (!place || *place >= replacements_.size() || is_continuation(replacements_[*place])) {
      return std::nullopt;
    }
    const size_t end = replacements_.find('\0', *place);
    return std::string_view(replacements_).substr(*place, end - *place);
  }

  DoubleArray trie_;
  std::string replacements_;  // zero-terminated strings
};

std::optional<std::string> decode_base64(std::string_view text) {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : text) {
    const int8_t value = values[static_cast<uint8_t>(digit)];
    if (value < 0) {
      return std::nullopt;
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(const Field& field) {
  const Field map = field.at("precompiled_charsmap");
  const std::optional<std::string> bytes = decode_base64(map.string());
  if (!bytes) {
    throw map.error("is not base64");
  }
  uint32_t trie_bytes = 0;
  if (bytes->size() >= sizeof(trie_bytes)) {
    std::memcpy(&trie_bytes, bytes->data(), sizeof(trie_bytes));
  }
  if (bytes->size() < sizeof(trie_bytes) || trie_bytes % 4 != 0 ||
      trie_bytes > bytes->size() - sizeof(trie_bytes)) {
    throw map.error("is truncated: its trie extends past the end");
  }
  std::vector<uint32_t> units(trie_bytes / 4);
  if (!units.empty()) {  // memcpy does not accept null, which data() of an empty vector may return
    std::memcpy(units.data(), bytes->data() + sizeof(trie_bytes), trie_bytes);
  }
  std::string replacements = bytes->substr(sizeof(trie_bytes) + trie_bytes);
  if (valid_utf8_prefix(replacements) != replacements.size()) {
    throw map.error("contains replacements that are not valid UTF-8");
  }
  return std::make_unique<Precompiled>(DoubleArray(std::move(units)), std::move(replacements));
}

}  // namespace lockstep::text
