// Chooses data.prompt from the first rows, and data.long_documents from data.prompt.
#include "train/batches/row_choice.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/tasks.h"
#include "data/inputs.h"
#include "data/row_form.h"
#include "train/batches/datasets.h"
#include "train/batches/labelled_data.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {
namespace {

std::string_view plural_of(data::Prompt prompt) {
  return prompt == data::Prompt::kChat     ? "chats"
         : prompt == data::Prompt::kAlpaca ? "instructions"
                                           : "pairs of a prompt and an answer";
}

/// Files of one source. All rows of a run have one form.
struct Source {
  std::string key;
  std::vector<std::string> files;
};

std::vector<Source> sources_to_read(const config::DataSection& section) {
  std::vector<Source> sources;
  for (const config::MixtureSource& source : sources_of(section)) {
    sources.push_back({source_key(source), source.files});
  }
  for (const auto& [key, files] :
       {std::pair{"data.train", &section.train},
        {"data.validation", &section.validation},
        {"data.test", &section.test}}) {
    if (sources.empty() && !files->empty()) {
      sources.push_back({key, *files});
    }
  }
  return sources;
}

/// Sets data.prompt and, for pairs, their fields.
void recognize(RowChoice& choice) {
  config::DataSection& section = choice.section;
  const data::DataOptions options = data_options(section);
  std::optional<data::RowForm> first;
  std::string first_key;
  for (const Source& source : sources_to_read(section)) {
    const data::RowForm form = data::recognize_rows(
        data::find_inputs(source.files, options.format, source.key), options, source.key);
    if (first && first->prompt != form.prompt) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the rows of {} would be data.prompt={}, but those of {} data.prompt={}",
              first_key,
              data::name_of(first->prompt),
              source.key,
              data::name_of(form.prompt)),
          "convert one of them, or set data.prompt");
    }
    if (!first) {
      first = form;
      first_key = source.key;
    }
  }
  const data::RowForm form = first.value_or(data::RowForm{});
  section.prompt = data::name_of(form.prompt);
  if (form.prompt == data::Prompt::kNone) {
    return;
  }
  choice.note = fmt::format(
      "{}: rows are {} ({}): data.prompt={}",
      first_key,
      plural_of(form.prompt),
      form.fields,
      section.prompt);
  if (form.prompt == data::Prompt::kPairs) {
    section.instruction_field = form.instruction_field;
    section.output_field = form.output_field;
  }
}

/// Keys of chats are only valid once the rows are known to be chats. data.chat_loss=all asks for
/// nothing else: TRL's files have it for any rows.
void check_chat_keys(const config::DataSection& section) {
  if (section.prompt == "chat") {
    return;
  }
  for (const auto& [key, is_set] :
       {std::pair{"data.chat_template", !section.chat_template.empty()},
        {"data.chat_loss", section.chat_loss == "last"}}) {
    if (is_set) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{}: only used with chats, but the rows are data.prompt={}", key, section.prompt),
          "set data.prompt=chat, or remove it");
    }
  }
}

}  // namespace

RowChoice choose_rows(const config::Config& config, const model::ModelConfig& model) {
  RowChoice choice{config.data, ""};
  config::DataSection& section = choice.section;
  if (section.prompt == "auto") {
    const bool has_own_rows = config::trains_on_answers(config.task) ||
                              config::unlearns(config.task) || config::writes_labels(config.task) ||
                              classifies(config, model);
    if (has_own_rows || model.bidirectional) {
      section.prompt = "none";
    } else {
      recognize(choice);
    }
    if (!config::trains_on_answers(config.task) && !config::writes_labels(config.task)) {
      check_chat_keys(section);
    }
  }
  if (section.long_documents == "auto") {
    section.long_documents = section.prompt == "none" ? "split" : "truncate";
  }
  return choice;
}

config::DataSection choose_rows(
    const config::Config& config,
    const model::ModelConfig& model,
    comm::Communicator& communicator) {
  const auto chosen = nlohmann::json::parse(on_first_rank(communicator, [&] {
    const RowChoice choice = choose_rows(config, model);
    if (!choice.note.empty()) {
      log_info("{}", choice.note);
    }
    const config::DataSection& section = choice.section;
    return nlohmann::json{
        section.prompt, section.long_documents, section.instruction_field, section.output_field}
        .dump();
  }));
  config::DataSection section = config.data;
  section.prompt = chosen.at(0);
  section.long_documents = chosen.at(1);
  section.instruction_field = chosen.at(2);
  section.output_field = chosen.at(3);
  return section;
}

}  // namespace lockstep::train
