// Implements BPE: symbol lookup, unknown tokens and merging of pieces.
#include "text/models/bpe.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "text/models/merger.h"
#include "text/models/piece_cache.h"
#include "text/unicode/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {

struct BpeModel::Memory final : Model::Scratch {
  PieceCache cache;
  Merger merger;
  std::vector<int32_t> symbols;
};

bool BpeModel::can_take_bytes(const BpeDescription& description) {
  return description.continuing_prefix.empty() && description.end_of_word_suffix.empty() &&
         !description.byte_fallback;
}

BpeModel::BpeModel(BpeDescription description, Pieces pieces, const std::string& source)
    : vocabulary_(std::move(description.vocabulary)),
      pieces_(pieces),
      unknown_token_(std::move(description.unknown_token)),
      continuing_prefix_(std::move(description.continuing_prefix)),
      end_of_word_suffix_(std::move(description.end_of_word_suffix)),
      fuse_unknown_(description.fuse_unknown),
      byte_fallback_(description.byte_fallback),
      ignore_merges_(description.ignore_merges) {
  if (unknown_token_) {
    unknown_id_ = vocabulary_.find(*unknown_token_);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto index = static_cast<size_t>(byte);
    std::string character;
    append_code_point(character, byte_to_character(static_cast<uint8_t>(byte)));
    byte_ids_[index] = vocabulary_.find(character).value_or(-1);
    fallback_ids_[index] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  read_merges(description.merges, source);
}

void BpeModel::read_merges(
    const std::vector<std::pair<std::string, std::string>>& merges, const std::string& source) {
  merges_ = PairMap(merges.size());
  ids_by_rank_.reserve(merges.size());
  std::string together;
  for (const auto& merge : merges) {
    const std::string &left = merge.first, &right = merge.second;
    const auto rank = static_cast<uint32_t>(ids_by_rank_.size());
    const auto find = [&](const std::string& token) {
      const std::optional<int32_t> id = vocabulary_.find(token);
      if (!id) {
        throw Error(
            ErrorKind::kData,
            fmt::format(
                "{}: merge {} joins \"{}\" and \"{}\", but \"{}\" is not in the vocabulary",
                source,
                rank,
                left,
                right,
                token),
            "use the vocabulary and merges of the same tokenizer");
      }
      return *id;
    };
    const int32_t left_id = find(left);
    const int32_t right_id = find(right);
    together = left;
    together += std::string_view(right).substr(std::min(continuing_prefix_.size(), right.size()));
    ids_by_rank_.push_back(find(together));
    merges_.insert(left_id, right_id, {rank, ids_by_rank_.back()});
  }
}

std::unique_ptr<Model::Scratch> BpeModel::make_scratch() const {
  return std::make_unique<Memory>();
}

void BpeModel::encode(
    std::string_view text,
    std::span<const std::string_view> pieces,
    Scratch& scratch,
    std::vector<int32_t>& ids) const {
  auto& memory = static_cast<Memory&>(scratch);
  constexpr size_t kRoom = PieceCache::kShortIds;
  size_t used = ids.size();
  ids.resize(used + kRoom * pieces.size());
  const char* const readable_end = text.data() + text.size();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    std::span<const int32_t> found;
    if (piece.size() <= PieceCache::kShortPiece) {
      const PieceCache::Key key = PieceCache::key_of(piece, readable_end);
      if (const PieceCache::Entry* entry = memory.cache.find(key)) {
        std::copy_n(entry->ids, kRoom, ids.data() + used);
        used += entry->count;
        continue;
      }
      if (const std::vector<int32_t>* many = memory.cache.find_long(piece)) {
        found = *many;
      } else {
        encode_piece(piece, memory);
        found = memory.symbols;
        if (found.size() <= kRoom) {
          memory.cache.insert(key, found);
        } else {
          memory.cache.insert_long(piece, found);
        }
      }
    } else if (const std::vector<int32_t>* many = memory.cache.find_long(piece)) {
      found = *many;
    } else {
      encode_piece(piece, memory);
      found = memory.symbols;
      memory.cache.insert_long(piece, found);
    }
    const size_t needed = used + found.size() + kRoom * (pieces.size() - i);
    if (ids.size() < needed) {
      ids.resize(std::max(needed, ids.size() + ids.size() / 2));
    }
    std::copy(found.begin(), found.end(), ids.begin() + static_cast<std::ptrdiff_t>(used));
    used += found.size();
  }
  ids.resize(used);
}

void BpeModel::encode_piece(std::string_view piece, Memory& memory) const {
  std::vector<int32_t>& symbols = memory.symbols;
  symbols.clear();
  if (ignore_merges_) {
    const std::optional<int32_t> whole =
        vocabulary_.find(pieces_ == Pieces::kBytes ? bytes_to_alphabet(piece) : std::string(piece));
    if (whole) {
      symbols.push_back(*whole);
      return;
    }
  }
  if (pieces_ == Pieces::kBytes) {
    read_bytes(piece, symbols);
  } else {
    read_characters(piece, symbols);
  }
  memory.merger.merge(merges_, ids_by_rank_, symbols);
}

int32_t BpeModel::unknown_id() const {
  if (!unknown_id_) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the text contains a character that is not in the vocabulary, and neither is the "
            "unk_token \"{}\"",
            *unknown_token_),
        "add the token to model.vocab of tokenizer.json, or set model.unk_token to null");
  }
  return *unknown_id_;
}

/// Collects unknown characters so that adjacent ones can be fused into one token.
struct BpeModel::Unknown {
  const BpeModel& model;
  std::vector<int32_t>& symbols;
  std::optional<int32_t> waiting;

  void add() {
    if (!model.unknown_token_) {
      return;
    }
    if (waiting && !model.fuse_unknown_) {
      symbols.push_back(*waiting);
    }
    waiting = model.unknown_id();
  }
  void flush() {
    if (waiting) {
      symbols.push_back(*waiting);
      waiting.reset();
    }
  }
};

void BpeModel::read_bytes(std::string_view piece, std::vector<int32_t>& symbols) const {
  Unknown unknown{*this, symbols, std::nullopt};
  for (const char byte : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id >= 0) {
      unknown.flush();
      symbols.push_back(id);
    } else {
      unknown.add();
    }
  }
  unknown.flush();
}

void BpeModel::read_characters(std::string_view piece, std::vector<int32_t>& symbols) const {
  Unknown unknown{*this, symbols, std::nullopt};
  std::string decorated;
  for (size_t at = 0; at < piece.size();) {
    const size_t length = code_point_length(piece[at]);
    std::string_view character = piece.substr(at, length);
    const bool first = at == 0;
    at += length;
    const bool last = at == piece.size();
    if ((!first && !continuing_prefix_.empty()) || (last && !end_of_word_suffix_.empty())) {
      decorated = first ? "" : continuing_prefix_;
      decorated += character;
      decorated += last ? end_of_word_suffix_ : "";
      character = decorated;
    }
    if (const std::optional<int32_t> id = vocabulary_.find(character)) {
      unknown.flush();
      symbols.push_back(*id);
    } else if (!fall_back_to_bytes(character, symbols)) {
      unknown.add();
    }
  }
  unknown.flush();
}

bool BpeModel::fall_back_to_bytes(std::string_view character, std::vector<int32_t>& symbols) const {
  const auto known = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)] >= 0; };
  if (!byte_fallback_ || !std::all_of(character.begin(), character.end(), known)) {
    return false;
  }
  for (const char byte : character) {
    symbols.push_back(fallback_ids_[static_cast<uint8_t>(byte)]);
  }
  return true;
}

}  // namespace lockstep::text
