// `lockstep data show`: prints documents and their loss mask.
#include "cli/data.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/terminal.h"
#include "config/resolve.h"
#include "data/encoder.h"
#include "data/inputs.h"
#include "data/tokenize.h"
#include "start/completion.h"
#include "text/tokenizer.h"
#include "train/batches/datasets.h"
#include "train/batches/labelled_data.h"
#include "train/batches/row_choice.h"
#include "train/checkpointing.h"
#include "train/tasks/preference.h"
#include "train/weights/model_loading.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kDocumentsShown = 3;
constexpr int64_t kTokensShown = 2000;  // of a document, on a terminal
constexpr int64_t kDefaultLength = 1024;

config::ResolveOptions show_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "data show";
  options.common = {
      {"Keys",
       {"data.train",
        "data.format",
        "data.prompt",
        "data.text_field",
        "data.chat_template",
        "data.chat_loss",
        "data.instruction_field",
        "data.input_field",
        "data.output_field",
        "data.long_documents",
        "data.sequence_length",
        "task.type",
        "tokenizer.path",
        "model.path"}}};
  options.required = {"data.train"};
  options.flags = {
      {"rows", Kind::kValue, "Number of documents. int; default: 3"},
      {"skip", Kind::kValue, "Documents to skip. int"},
      {"html", Kind::kValue, "Write the documents to this file as an HTML page. path"},
  };
  return options;
}

/// A document or row of the training data.
struct Sample {
  data::EncodedRow row;
  std::string note{};         // what the row is: "chosen", "label praise"
  bool has_loss_mask = true;  // false for rows that are classified
};

/// Consecutive tokens that all have a loss, or none.
struct Run {
  std::string text;
  bool is_learned = false;
};

struct Shown {
  std::vector<Run> runs;
  std::string note;
  bool has_loss_mask = true;
  int64_t tokens = 0, learned = 0;
  int64_t hidden = 0;  // tokens at the end that are not shown
};

/// Returns the runs of a document. Its first token never has a loss, because no token precedes it.
Shown runs_of(
    const Sample& sample, const std::shared_ptr<const text::Tokenizer>& tokenizer, int64_t limit) {
  const data::EncodedRow& row = sample.row;
  Shown shown;
  shown.note = sample.note;
  shown.has_loss_mask = sample.has_loss_mask;
  text::StreamDecoder decoder(tokenizer);
  for (size_t i = 0; i < row.ids.size(); ++i) {
    const bool is_learned = i > 0 && row.hidden[i] == 0;
    if (static_cast<int64_t>(i) >= limit) {
      shown.learned += is_learned ? 1 : 0;
      ++shown.hidden;
      continue;
    }
    if (shown.runs.empty() || shown.runs.back().is_learned != is_learned) {
      shown.runs.push_back({"", is_learned});
    }
    shown.runs.back().text += decoder.push(row.ids[i]);
    shown.learned += is_learned ? 1 : 0;
  }
  if (!shown.runs.empty()) {
    shown.runs.back().text += decoder.finish();
  }
  shown.tokens = std::ssize(row.ids);
  return shown;
}

std::string title_of(const Shown& shown, int64_t number) {
  return fmt::format(
      "document {}{}: {} tokens{}",
      number,
      shown.note.empty() ? "" : ", " + shown.note,
      shown.tokens,
      shown.has_loss_mask ? fmt::format(", {} of them learned", shown.learned) : "");
}

std::string for_terminal(const Shown& shown, bool is_coloured) {
  std::string text;
  for (const Run& run : shown.runs) {
    const char* before =
        is_coloured ? (run.is_learned ? "\x1b[32m" : "\x1b[2m") : (run.is_learned ? "⟦" : "");
    const char* after = is_coloured ? "\x1b[0m" : (run.is_learned ? "⟧" : "");
    text += fmt::format("{}{}{}", before, run.text, after);
  }
  if (shown.hidden > 0) {
    text += fmt::format("\n... and {} more tokens (--html FILE writes all)", shown.hidden);
  }
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

std::string page_of(
    const std::vector<Shown>& rows, const std::function<int64_t(size_t)>& number_of) {
  std::string page =
      "<!doctype html><meta charset=\"utf-8\"><title>data</title><style>body{font:15px/1.5 "
      "system-ui;max-width:60em;margin:2em auto;padding:0 1em}pre{white-space:pre-wrap;border:1px "
      "solid #ccc;padding:1em;color:#777}b{font-weight:normal;color:#000;background:#c8f0c8}"
      "</style><p><b>Marked</b> tokens have a loss.</p>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    page += fmt::format("<h3>{}</h3>\n<pre>", escaped(title_of(rows[i], number_of(i))));
    for (const Run& run : rows[i].runs) {
      page += fmt::format(
          "{}{}{}", run.is_learned ? "<b>" : "", escaped(run.text), run.is_learned ? "</b>" : "");
    }
    page += "</pre>\n";
  }
  return page;
}

std::shared_ptr<const text::Tokenizer> tokenizer_of(const config::Config& config) {
  const std::string& path = config.tokenizer.path;
  return train::load_tokenizer(
      path,
      path.empty() ? train::find_source(config.model.path, config.model.preset)
                   : model::ModelSource{});
}

/// The rows to show: `count` after the first `skip`.
struct Range {
  int64_t skip = 0, count = kDocumentsShown;
};

std::vector<Sample> first_documents(
    const config::Config& config,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const Range& range) {
  data::DataOptions options = train::data_options(config.data);
  options.chat = train::chat_template_of(config.data, *tokenizer);
  std::vector<Sample> samples;
  const auto read = [&](const std::vector<std::string>& files, const std::string& key) {
    for (data::EncodedRow& row : data::encode_first(
             data::find_inputs(files, options.format, key),
             options,
             data::make_encoder(tokenizer, config.data.append_eos),
             range.skip,
             range.count)) {
      samples.push_back({std::move(row)});
    }
  };
  if (config.data.mixture.empty()) {
    read(options.train, "data.train");
  }
  for (const config::MixtureSource& source : config.data.mixture) {
    read(source.files, train::source_key(source));
  }
  return samples;
}

std::vector<Sample> first_answers(
    const config::Config& config,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t length,
    const Range& range) {
  const data::EncodedPreferences read = train::training_answers(config, tokenizer, length);
  const int64_t answers = train::rows_of_sequence(config);  // of a row
  const int64_t end = std::min(std::ssize(read.answers), (range.skip + range.count) * answers);
  std::vector<Sample> samples;
  for (int64_t i = range.skip * answers; i < end; ++i) {
    const data::EncodedAnswer& answer = read.answers[static_cast<size_t>(i)];
    const bool is_chosen = read.roles[static_cast<size_t>(i)] == data::RowRole::kChosen;
    Sample sample{.row = {}, .note = is_chosen ? "chosen" : "rejected"};
    sample.row.ids = answer.prompt;
    sample.row.ids.insert(sample.row.ids.end(), answer.answer.begin(), answer.answer.end());
    sample.row.hidden.assign(sample.row.ids.size(), 0);
    std::fill_n(sample.row.hidden.begin(), answer.prompt.size(), 1);
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<Sample> first_labelled_rows(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t length,
    const Range& range) {
  data::LabelledRows rows =
      train::read_labelled_data(config, model, train::LabelsNeeded::kNone).train.rows;
  const auto first = std::min(range.skip, std::ssize(rows.rows));
  const auto last = std::min(range.skip + range.count, std::ssize(rows.rows));
  rows.rows = {rows.rows.begin() + first, rows.rows.begin() + last};
  const std::vector<data::RowIds> ids = train::ids_of_rows(rows, model, tokenizer, length);
  std::vector<Sample> samples;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto& label = rows.rows[i].label;
    samples.push_back(
        {.row = {ids[i].ids, std::vector<uint8_t>(ids[i].ids.size(), 1)},
         .note = label ? fmt::format("label {}", fmt::join(label->words, ", ")) : "no label",
         .has_loss_mask = false});
  }
  return samples;
}

/// Samples of the task's kind. Only preferences and labels need the model, for its length.
std::vector<Sample> first_samples(
    const config::Config& config,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const Range& range) {
  const bool has_model = !config.model.path.empty() || !config.model.preset.empty();
  const model::ModelConfig model =
      has_model ? train::find_source(config.model.path, config.model.preset).config
                : model::ModelConfig{};
  const auto length = [&] {
    return has_model                         ? train::sequence_length_of(config, model)
           : config.data.sequence_length > 0 ? config.data.sequence_length
                                             : kDefaultLength;
  };
  if (train::trains_on_answers(config.task)) {
    return first_answers(config, tokenizer, length(), range);
  }
  if (!config::writes_labels(config.task) && train::classifies(config, model)) {
    return first_labelled_rows(config, model, tokenizer, length(), range);
  }
  config::Config chosen = config;
  const train::RowChoice rows = train::choose_rows(config, model);
  chosen.data = rows.section;
  if (!rows.note.empty()) {
    log_info("{}", rows.note);
  }
  return first_documents(chosen, tokenizer, range);
}

int show(const config::Resolution& resolution) {
  const config::Config& config = resolution.config;
  const auto tokenizer = tokenizer_of(config);
  const Range range{
      resolution.integer("skip", 0).value_or(0),
      resolution.integer("rows", 1).value_or(kDocumentsShown)};
  const auto file = resolution.value("html");
  std::vector<Shown> shown;
  for (const Sample& sample : first_samples(config, tokenizer, range)) {
    shown.push_back(
        runs_of(sample, tokenizer, file ? std::numeric_limits<int64_t>::max() : kTokensShown));
  }
  const int64_t each = train::trains_on_answers(config.task) ? train::rows_of_sequence(config) : 1;
  const auto number_of = [&](size_t i) { return range.skip + 1 + static_cast<int64_t>(i) / each; };
  if (file) {
    write_file_atomically(*file, page_of(shown, number_of));
    fmt::print("{}: {} documents\n", *file, shown.size());
    return 0;
  }
  if (shown.empty()) {
    fmt::print(
        "no documents{}\n", range.skip > 0 ? fmt::format(" after the first {}", range.skip) : "");
  }
  const bool is_coloured = has_colours(STDOUT_FILENO);
  for (size_t i = 0; i < shown.size(); ++i) {
    fmt::print("{}\n{}\n\n", title_of(shown[i], number_of(i)), for_terminal(shown[i], is_coloured));
  }
  return 0;
}

}  // namespace

int run_data(std::vector<std::string> arguments) {
  const std::string word = arguments.empty() ? "" : arguments.front();
  if (start::asks_for_completion(arguments)) {
    if (arguments.size() < 3) {
      fmt::print(
          "{}",
          start::complete(
              {{.name = "", .kind = start::Completable::Kind::kPositional, .values = {"show"}}},
              arguments));
      return 0;
    }
    arguments.erase(arguments.begin() + 1);
  } else if (word == "show") {
    arguments.erase(arguments.begin());
  } else if (!word.starts_with("--help") && word != "-h") {
    throw Error(
        ErrorKind::kConfig,
        word.empty() ? "lockstep data: a subcommand is required: show"
                     : fmt::format("lockstep data: unknown subcommand '{}'", word),
        "lockstep data show data.train=FILE tokenizer.path=FOLDER");
  }
  const config::Resolution resolution = config::resolve(arguments, show_options());
  if (resolution.help) {
    return start::print_help(show_options(), resolution, arguments);
  }
  return show(resolution);
}

}  // namespace lockstep::cli
