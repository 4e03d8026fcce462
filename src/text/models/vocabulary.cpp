// Implements the vocabulary as an open-addressing hash table over one string of all tokens.
#include "text/models/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::text {

Vocabulary::Vocabulary(
    std::vector<std::pair<std::string, int64_t>> tokens, const std::string& source) {
  int64_t highest = -1;
  size_t bytes = 0;
  for (const auto& [token, id] : tokens) {
    if (id < 0 || id > kMaximumTokenId) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: \"{}\" has the invalid id {}", source, token, id),
          fmt::format("ids are whole numbers from 0 to {}", kMaximumTokenId));
    }
    highest = std::max(highest, id);
    bytes += token.size();
  }
  if (bytes > std::numeric_limits<uint32_t>::max()) {
    throw Error(ErrorKind::kData, fmt::format("{} contains more than 4 GiB of tokens", source));
  }
  text_.reserve(bytes);
  places_.resize(static_cast<size_t>(highest + 1));
  slots_.assign(std::bit_ceil(tokens.size() * 2 + 1), -1);
  for (const auto& [token, wide_id] : tokens) {
    const auto id = static_cast<int32_t>(wide_id);
    Place& place = places_[static_cast<size_t>(id)];
    if (place.length >= 0) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: the id {} is assigned to both \"{}\" and \"{}\"", source, id, at(place), token),
          "give each token a unique id");
    }
    place = {static_cast<uint32_t>(text_.size()), static_cast<int32_t>(token.size())};
    text_ += token;
    if (insert(token, id)) {
      throw Error(
          ErrorKind::kData, fmt::format("{} contains the token \"{}\" twice", source, token));
    }
  }
  size_ = static_cast<int64_t>(tokens.size());
}

std::optional<int32_t> Vocabulary::insert(std::string_view token, int32_t id) {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(token)&mask;
  while (slots_[slot] >= 0) {
    if (at(places_[static_cast<size_t>(slots_[slot])]) == token) {
      return slots_[slot];
    }
    slot = (slot + 1) & mask;
  }
  slots_[slot] = id;
  return std::nullopt;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) {
    return std::nullopt;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = std::hash<std::string_view>{}(token)&mask; slots_[slot] >= 0;
       slot = (slot + 1) & mask) {
    if (at(places_[static_cast<size_t>(slots_[slot])]) == token) {
      return slots_[slot];
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> Vocabulary::token(int32_t id) const {
  if (id < 0 || id > highest_id() || places_[static_cast<size_t>(id)].length < 0) {
    return std::nullopt;
  }
  return at(places_[static_cast<size_t>(id)]);
}

}  // namespace lockstep::text
