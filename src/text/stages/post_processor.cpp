// Converts the post-processor in a tokenizer.json to a RowTemplate.
#include "text/stages/post_processor.h"

#include "base/format.h"
#include "text/models/vocabulary.h"

namespace lockstep::text {
namespace {

int32_t read_id(const Field& field) {
  const int64_t id = field.integer();
  if (id < 0 || id > kMaximumTokenId) {
    throw field.error(fmt::format("should be an id from 0 to {}", kMaximumTokenId));
  }
  return static_cast<int32_t>(id);
}

void add_template_token(const Field& piece, const Field& tokens, std::vector<int32_t>& ids) {
  const Field token = piece.at("SpecialToken").at("id");
  const std::optional<Field> found = tokens.find(token.string());
  if (!found) {
    throw token.error(
        fmt::format("contains \"{}\", which is not in special_tokens", token.string()));
  }
  for (const Field& id : found->at("ids").list()) {
    ids.push_back(read_id(id));
  }
}

/// Element of a template: special tokens or one of the two texts.
struct TemplatePiece {
  std::vector<int32_t> ids;  // empty if the element is a text
  char text = 0;             // 'A', 'B', or 0 for special tokens
  int64_t type = 0;
};

std::vector<TemplatePiece> read_pieces(const Field& list, const Field& tokens) {
  std::vector<TemplatePiece> pieces;
  for (const Field& piece : list.list()) {
    TemplatePiece& made = pieces.emplace_back();
    const std::optional<Field> sequence = piece.find("Sequence");
    const Field of = sequence ? *sequence : piece.at("SpecialToken");
    if (const std::optional<Field> type = of.find("type_id")) {
      made.type = type->integer();
    }
    if (!sequence) {
      add_template_token(piece, tokens, made.ids);
    } else if (const std::string name = sequence->at("id").string(); name == "A" || name == "B") {
      made.text = name.front();
    } else {
      throw piece.error("should be Sequence A or Sequence B");
    }
  }
  return pieces;
}

void append(std::vector<int32_t>& to, const std::vector<int32_t>& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

void read_single(const Field& field, const Field& tokens, RowTemplate& form) {
  bool seen_text = false;
  for (const TemplatePiece& piece : read_pieces(field, tokens)) {
    if (piece.text != 0) {
      if (seen_text || piece.text != 'A') {
        throw field.error("should contain the text (Sequence A) exactly once");
      }
      seen_text = true;
    }
    append(seen_text ? form.after : form.before, piece.ids);
  }
  if (!seen_text) {
    throw field.error("does not contain the text (Sequence A)");
  }
}

void read_two(const Field& field, const Field& tokens, RowTemplate& form) {
  std::string seen;
  int64_t type_of_first = 0;
  for (const TemplatePiece& piece : read_pieces(field, tokens)) {
    if (piece.text != 0) {
      seen += piece.text;
      type_of_first = piece.text == 'A' ? piece.type : type_of_first;
      form.tells_segments = form.tells_segments || (seen == "AB" && piece.type != type_of_first);
    } else if (seen == "A") {
      form.between_of_first += piece.type == type_of_first ? std::ssize(piece.ids) : 0;
      append(form.between, piece.ids);
    } else {
      append(seen.empty() ? form.pair_before : form.pair_after, piece.ids);
    }
  }
  if (seen != "AB") {
    throw field.error("should contain each text exactly once, Sequence A before Sequence B");
  }
}

RowTemplate read_template(const Field& field) {
  RowTemplate form;
  const Field tokens = field.at("special_tokens");
  read_single(field.at("single"), tokens, form);
  if (const std::optional<Field> pair = field.find("pair")) {
    read_two(*pair, tokens, form);
  }
  return form;
}

/// Reads a token with its id, ["</s>", 2].
int32_t read_pair(const Field& field) {
  const std::vector<Field> pair = field.list();
  if (pair.size() != 2) {
    throw field.error("should be a token and its id");
  }
  return read_id(pair[1]);
}

/// Reads BertProcessing or RobertaProcessing. RoBERTa inserts two tokens between the texts and does
/// not distinguish segments.
RowTemplate read_named(const Field& field, bool is_bert) {
  const int32_t cls = read_pair(field.at("cls")), sep = read_pair(field.at("sep"));
  RowTemplate form{.before = {cls}, .after = {sep}, .pair_before = {cls}, .pair_after = {sep}};
  form.between.assign(is_bert ? 1 : 2, sep);
  form.between_of_first = is_bert ? 1 : 2;
  form.tells_segments = is_bert;
  return form;
}

void put_around(RowTemplate& inner, const RowTemplate& outer) {
  const auto before = [](std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
    ids.insert(ids.begin(), more.begin(), more.end());
  };
  before(inner.before, outer.before);
  before(inner.pair_before, outer.pair_before);
  append(inner.after, outer.after);
  append(inner.pair_after, outer.pair_after);
  append(inner.between, outer.between);
  inner.between_of_first += outer.between_of_first;
  inner.tells_segments = inner.tells_segments || outer.tells_segments;
}

}  // namespace

RowTemplate read_post_processor(const Field& field) {
  const std::string type = field.at("type").string();
  if (type == "ByteLevel") {
    return {};  // ByteLevel only changes offsets, which are not stored
  }
  if (type == "TemplateProcessing") {
    return read_template(field);
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return read_named(field, type == "BertProcessing");
  }
  if (type == "Sequence") {
    RowTemplate all;
    for (const Field& part : field.at("processors").list()) {
      put_around(all, read_post_processor(part));
    }
    return all;
  }
  throw field.error(
      fmt::format("has the unknown type \"{}\"", type),
      "known post-processors: BertProcessing, ByteLevel, RobertaProcessing, Sequence, "
      "TemplateProcessing");
}

}  // namespace lockstep::text
