// Implements the tokenizer: loads the stages of a tokenizer.json, encodes text and decodes ids.
#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/nearest.h"
#include "text/models/model_reader.h"
#include "text/stages/added_tokens.h"
#include "text/stages/decoder.h"
#include "text/stages/post_processor.h"
#include "text/stages/pre_tokenizer.h"
#include "text/tokenizer_files.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

constexpr size_t kMaximumText = std::numeric_limits<int32_t>::max();
constexpr size_t kPieceBatch = 128;

/// Throws Error if a tokenizer.json has a section that Hugging Face's library does not have.
void check_sections(const Field& field) {
  static const std::vector<std::string> kSections = {
      "version",
      "truncation",
      "padding",
      "added_tokens",
      "normalizer",
      "pre_tokenizer",
      "post_processor",
      "decoder",
      "model"};
  if (!field.is_object()) {
    return;
  }
  for (const auto& [name, value] : field.json().items()) {
    if (std::find(kSections.begin(), kSections.end(), name) == kSections.end()) {
      throw field.error(
          fmt::format("has the unknown section \"{}\".{}", name, did_you_mean(name, kSections)),
          "remove it, or correct its name");
    }
  }
}

AddedToken read_added_token(const Field& field) {
  AddedToken token;
  token.content = field.at("content").string();
  token.single_word = field.boolean_or("single_word", false);
  token.strip_left = field.boolean_or("lstrip", false);
  token.strip_right = field.boolean_or("rstrip", false);
  token.special = field.boolean_or("special", false);
  token.normalized = field.boolean_or("normalized", !token.special);
  return token;
}

}  // namespace

struct Tokenizer::Parts {
  TokenizerFiles files;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::optional<SplitPattern> pattern;  // set if the pre-tokenizer is equivalent to this scanner
  RowTemplate surroundings;
  std::vector<std::unique_ptr<Decoder>> decoders;
  AddedTokens added;
  std::optional<int32_t> bos, eos, pad, mask;
  std::string fingerprint;

  void read(const Field& field, std::optional<ModelTables> tables);
  void read_specials();
  void encode_segment(
      std::string_view text,
      bool at_start,
      Model::Scratch& scratch,
      std::vector<int32_t>& ids) const;
  void encode_raw(
      const Segment& segment,
      bool at_start,
      SpecialTokens specials,
      Model::Scratch& scratch,
      std::vector<int32_t>& ids) const;
  int64_t vocabulary_size() const {
    return std::max<int64_t>(model->highest_id(), added.highest_id()) + 1;
  }
  /// Returns the token to decode, or nullopt if `id` is unknown or skipped.
  std::optional<std::string_view> token_to_decode(int32_t id, DecodedSpecials specials) const;

  /// Scratch objects not in use by any thread.
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Model::Scratch>> scratches;
  std::unique_ptr<Model::Scratch> take_scratch() const {
    const std::lock_guard lock(mutex);
    if (scratches.empty()) {
      return model->make_scratch();
    }
    std::unique_ptr<Model::Scratch> scratch = std::move(scratches.back());
    scratches.pop_back();
    return scratch;
  }
  void give_scratch(std::unique_ptr<Model::Scratch> scratch) const {
    const std::lock_guard lock(mutex);
    scratches.push_back(std::move(scratch));
  }
};

void Tokenizer::Parts::read(const Field& field, std::optional<ModelTables> tables) {
  check_sections(field);
  if (const std::string version = field.string_or("version", "1.0"); version != "1.0") {
    throw field.error(fmt::format("has version \"{}\"", version), "only version 1.0 is supported");
  }
  if (const std::optional<Field> part = field.find("normalizer")) {
    normalizer = make_normalizer(*part);
  }
  const std::optional<Field> splitting = field.find("pre_tokenizer");
  const bool maps_bytes = splitting && ends_with_byte_mapping(*splitting);
  ReadModel read = read_model(
      field.at("model"),
      maps_bytes ? ModelInput::kBytesIfPossible : ModelInput::kText,
      std::move(tables));
  model = std::move(read.model);
  if (splitting) {
    pre_tokenizer = make_pre_tokenizer(
        *splitting, read.takes_bytes ? ByteMapping::kLeave : ByteMapping::kWrite);
    pattern = pre_tokenizer->pattern();
  }
  const std::optional<Field> decoding = field.find("decoder");
  decoders = decoding ? make_decoders(*decoding) : make_joining_decoder();
  if (const std::optional<Field> tokens = field.find("added_tokens")) {
    for (const Field& token : tokens->list()) {
      const std::optional<Field> id = token.find("id");
      added.add(
          *model,
          normalizer.get(),
          read_added_token(token),
          id ? std::optional(id->integer()) : std::nullopt,
          token.place());
    }
  }
  if (const std::optional<Field> part = field.find("post_processor")) {
    surroundings = read_post_processor(*part);
    if (surroundings.highest_id() >= vocabulary_size()) {
      throw part->error(
          fmt::format(
              "adds the id {}, but the highest id of the vocabulary is {}",
              surroundings.highest_id(),
              vocabulary_size() - 1),
          "use the token's id in the vocabulary or in added_tokens");
    }
  }
}

void Tokenizer::Parts::read_specials() {
  const SpecialNames names = read_special_names(files);
  const auto find = [&](const std::optional<std::string>& name) -> std::optional<int32_t> {
    if (!name) {
      return std::nullopt;
    }
    const std::optional<int32_t> id = added.find(*name);
    return id ? id : model->find(*name);
  };
  bos = find(names.bos);
  eos = find(names.eos);
  pad = find(names.pad);
  mask = find(names.mask);
  const bool two_files = !files.contents.contains("tokenizer.json");
  if (two_files && !names.bos && !names.eos) {
    bos = eos = find("<|endoftext|>");
  }
}

void Tokenizer::Parts::encode_segment(
    std::string_view text,
    bool at_start,
    Model::Scratch& scratch,
    std::vector<int32_t>& ids) const {
  std::array<std::string_view, kPieceBatch> batch;
  size_t count = 0;
  if (pattern) {
    split_by(*pattern, text, [&](std::string_view piece) {
      batch[count++] = piece;
      if (count == kPieceBatch) {
        model->encode(text, batch, scratch, ids);
        count = 0;
      }
    });
    model->encode(text, std::span(batch).first(count), scratch, ids);
    return;
  }
  Pieces pieces{{{text, at_start}}, {}};
  if (pre_tokenizer != nullptr) {
    pre_tokenizer->split(pieces);
  }
  for (const Piece& piece : pieces.pieces) {
    model->encode(piece.text, std::span(&piece.text, 1), scratch, ids);
  }
}

void Tokenizer::Parts::encode_raw(
    const Segment& segment,
    bool at_start,
    SpecialTokens specials,
    Model::Scratch& scratch,
    std::vector<int32_t>& ids) const {
  NormalizedText normalized{"", at_start};
  std::string_view text = segment.text;
  if (normalizer != nullptr) {
    normalized.text = segment.text;
    normalizer->normalize(normalized);
    assert(valid_utf8_prefix(normalized.text) == normalized.text.size());
    text = normalized.text;
  }
  std::vector<Segment> segments;
  added.split(text, true, specials == SpecialTokens::kRecognise, segments);
  for (const Segment& part : segments) {
    if (part.id) {
      ids.push_back(*part.id);
    } else {
      const bool first = normalized.at_start && part.text.data() == text.data();
      encode_segment(part.text, first, scratch, ids);
    }
  }
}

std::optional<std::string_view> Tokenizer::Parts::token_to_decode(
    int32_t id, DecodedSpecials specials) const {
  std::optional<std::string_view> token;
  if (const std::string* from_added = added.decoded(id)) {
    token = *from_added;
  } else {
    token = model->token(id);
  }
  if (token && specials == DecodedSpecials::kSkip && added.is_special(*token)) {
    return std::nullopt;
  }
  return token;
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& folder_or_file) {
  return parse(read_tokenizer_files(folder_or_file));
}

std::shared_ptr<const Tokenizer> Tokenizer::parse(TokenizerFiles files) {
  auto parts = std::make_unique<Parts>();
  parts->files = std::move(files);
  const std::string& folder = parts->files.place;
  const bool one_file = parts->files.contents.contains("tokenizer.json");
  const std::string place = (folder.empty() ? "" : folder + "/") +
                            (one_file ? "tokenizer.json:" : "vocab.json and merges.txt:");
  TokenizerDescription description = read_description(parts->files);
  parts->read(Field(*description.json, place), std::move(description.tables));
  parts->read_specials();
  Hasher hasher;
  for (const auto& [name, content] : parts->files.contents) {
    // The chat template does not affect ids.
    if (is_used_tokenizer_file(name) && name != "chat_template.jinja") {
      hasher.update_field(name);
      hasher.update_field(content);
    }
  }
  parts->fingerprint = hasher.hex();
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

std::vector<int32_t> Tokenizer::encode(
    std::string_view text, SpecialTokens specials, Template surroundings) const {
  if (text.size() > kMaximumText) {
    throw Error(
        ErrorKind::kData,
        fmt::format("a text of {} bytes is too long to encode at once", text.size()),
        "split it into documents of at most 2 GiB");
  }
  std::string valid;
  if (valid_utf8_prefix(text) != text.size()) {
    valid = replace_invalid_utf8(text);
    text = valid;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (surroundings == Template::kApply) {
    ids = parts_->surroundings.before;
  }
  std::vector<Segment> segments;
  parts_->added.split(text, false, specials == SpecialTokens::kRecognise, segments);
  std::unique_ptr<Model::Scratch> scratch = parts_->take_scratch();
  for (const Segment& segment : segments) {
    if (segment.id) {
      ids.push_back(*segment.id);
    } else {
      const bool first = segment.text.data() == text.data();
      parts_->encode_raw(segment, first, specials, *scratch, ids);
    }
  }
  parts_->give_scratch(std::move(scratch));
  if (surroundings == Template::kApply) {
    const std::vector<int32_t>& after = parts_->surroundings.after;
    ids.insert(ids.end(), after.begin(), after.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodedSpecials specials) const {
  Decoding decoding(parts_->decoders);
  std::string text;
  for (const int32_t id : ids) {
    if (const std::optional<std::string_view> token = parts_->token_to_decode(id, specials)) {
      text += decoding.push(*token);
    }
  }
  return text + decoding.finish();
}

int64_t Tokenizer::vocabulary_size() const {
  return parts_->vocabulary_size();
}

std::optional<int32_t> Tokenizer::bos() const {
  return parts_->bos;
}
std::optional<int32_t> Tokenizer::eos() const {
  return parts_->eos;
}
std::optional<int32_t> Tokenizer::pad() const {
  return parts_->pad;
}

std::optional<int32_t> Tokenizer::mask() const {
  return parts_->mask;
}

const RowTemplate& Tokenizer::row_template() const {
  return parts_->surroundings;
}

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  const std::optional<int32_t> id = parts_->added.find(token);
  return id ? id : parts_->model->find(token);
}

std::optional<std::string> Tokenizer::token(int32_t id) const {
  if (const AddedToken* added = parts_->added.token(id)) {
    return added->content;
  }
  const std::optional<std::string_view> token = parts_->model->token(id);
  return token ? std::optional<std::string>(*token) : std::nullopt;
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = parts_->added.token(id);
  return added != nullptr && added->special;
}

const std::string& Tokenizer::fingerprint() const {
  return parts_->fingerprint;
}

std::map<std::string, std::string> Tokenizer::files() const {
  std::map<std::string, std::string> files = parts_->files.contents;
  if (!files.contains("tokenizer.json")) {
    files["tokenizer.json"] = two_files_as_json(parts_->files);
  }
  return files;
}

void Tokenizer::save(const std::filesystem::path& folder) const {
  create_folders(folder);
  for (const auto& [name, content] : files()) {
    write_file_atomically(folder / name, content);
  }
}

struct StreamDecoder::State {
  std::shared_ptr<const Tokenizer> tokenizer;
  DecodedSpecials specials;
  Decoding decoding;
};

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, DecodedSpecials specials) {
  Decoding decoding(tokenizer->parts().decoders);
  state_ = std::make_unique<State>(State{std::move(tokenizer), specials, std::move(decoding)});
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  const std::optional<std::string_view> token =
      state_->tokenizer->parts().token_to_decode(id, state_->specials);
  return token ? state_->decoding.push(*token) : std::string();
}

std::string StreamDecoder::finish() {
  return state_->decoding.finish();
}

}  // namespace lockstep::text
