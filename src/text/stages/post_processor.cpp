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
    throw token.error(fmt::format("names \"{}\", which special_tokens lacks", token.string()));
  }
  for (const Field& id : found->at("ids").list()) {
    ids.push_back(read_id(id));
  }
}

Surroundings read_template(const Field& field) {
  Surroundings surroundings;
  const Field tokens = field.at("special_tokens");
  bool seen_text = false;
  for (const Field& piece : field.at("single").list()) {
    if (const std::optional<Field> sequence = piece.find("Sequence")) {
      if (seen_text || sequence->at("id").string() != "A") {
        throw piece.error("should hold the text (Sequence A) once");
      }
      seen_text = true;
    } else {
      add_template_token(piece, tokens, seen_text ? surroundings.after : surroundings.before);
    }
  }
  if (!seen_text) {
    throw field.at("single").error("lacks the text (Sequence A)");
  }
  return surroundings;
}

/// ["</s>", 2]
int32_t read_pair(const Field& field) {
  const std::vector<Field> pair = field.list();
  if (pair.size() != 2) {
    throw field.error("should be a token and its id");
  }
  return read_id(pair[1]);
}

}  // namespace

Surroundings read_post_processor(const Field& field) {
  const std::string type = field.at("type").string();
  if (type == "ByteLevel") {
    return {};  // it moves offsets, which are not kept
  }
  if (type == "TemplateProcessing") {
    return read_template(field);
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{read_pair(field.at("cls"))}, {read_pair(field.at("sep"))}};
  }
  if (type == "Sequence") {
    Surroundings all;
    for (const Field& part : field.at("processors").list()) {
      Surroundings inner = read_post_processor(part);
      all.before.insert(all.before.begin(), inner.before.begin(), inner.before.end());
      all.after.insert(all.after.end(), inner.after.begin(), inner.after.end());
    }
    return all;
  }
  throw field.error(
      fmt::format("is of type \"{}\", which is not known", type),
      "known post-processors: BertProcessing, ByteLevel, RobertaProcessing, Sequence, "
      "TemplateProcessing");
}

}  // namespace lockstep::text
