// `lockstep data show`: prints documents and their loss mask.
#include "cli/data.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "config/print.h"
#include "config/resolve.h"
#include "data/encoder.h"
#include "data/inputs.h"
#include "data/tokenize.h"
#include "text/tokenizer.h"
#include "train/batches/datasets.h"
#include "train/checkpointing.h"
#include "train/weights/model_loading.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kDocumentsShown = 3;

config::ResolveOptions show_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "data show";
  options.required = {"data.train"};
  options.flags = {
      {"rows", Kind::kValue, "Number of documents. int; default: 3"},
      {"skip", Kind::kValue, "Documents to skip. int"},
      {"html", Kind::kValue, "Write the documents to this file as an HTML page. path"},
  };
  return options;
}

/// Consecutive tokens, all with a loss or all without.
struct Run {
  std::string text;
  bool is_learned = false;
};

struct Shown {
  std::vector<Run> runs;
  int64_t tokens = 0, learned = 0;
};

/// Returns the runs of a document. Its first token never has a loss, because no token precedes it.
Shown runs_of(
    const data::EncodedRow& row, const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  Shown shown;
  text::StreamDecoder decoder(tokenizer);
  for (size_t i = 0; i < row.ids.size(); ++i) {
    const bool is_learned = i > 0 && row.hidden[i] == 0;
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
      "document {}: {} tokens, {} of them learned", number, shown.tokens, shown.learned);
}

std::string for_terminal(const Shown& shown, bool has_colours) {
  std::string text;
  for (const Run& run : shown.runs) {
    const char* before =
        has_colours ? (run.is_learned ? "\x1b[32m" : "\x1b[2m") : (run.is_learned ? "⟦" : "");
    const char* after = has_colours ? "\x1b[0m" : (run.is_learned ? "⟧" : "");
    text += fmt::format("{}{}{}", before, run.text, after);
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

std::string page_of(const std::vector<Shown>& rows, int64_t first) {
  std::string page =
      "<!doctype html><meta charset=\"utf-8\"><title>data</title><style>body{font:15px/1.5 "
      "system-ui;max-width:60em;margin:2em auto;padding:0 1em}pre{white-space:pre-wrap;border:1px "
      "solid #ccc;padding:1em;color:#777}b{font-weight:normal;color:#000;background:#c8f0c8}"
      "</style><p>What is <b>marked</b> is learned.</p>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    page += fmt::format("<h3>{}</h3>\n<pre>", title_of(rows[i], first + static_cast<int64_t>(i)));
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

int show(const config::Resolution& resolution) {
  const config::Config& config = resolution.config;
  const auto tokenizer = tokenizer_of(config);
  data::DataOptions options = train::data_options(config.data);
  options.chat = train::chat_template_of(config.data, *tokenizer);
  const int64_t skip = resolution.integer("skip", 0).value_or(0);
  const int64_t count = resolution.integer("rows", 1).value_or(kDocumentsShown);
  std::vector<data::EncodedRow> rows;
  const auto read = [&](const std::vector<std::string>& files, const std::string& key) {
    for (data::EncodedRow& row : data::encode_first(
             data::find_inputs(files, options.format, key),
             options,
             data::make_encoder(tokenizer, config.data.append_eos),
             skip,
             count)) {
      rows.push_back(std::move(row));
    }
  };
  if (config.data.mixture.empty()) {
    read(options.train, "data.train");
  }
  for (const config::MixtureSource& source : config.data.mixture) {
    read(source.files, train::source_key(source));
  }
  std::vector<Shown> shown;
  for (const data::EncodedRow& row : rows) {
    shown.push_back(runs_of(row, tokenizer));
  }
  if (const auto file = resolution.value("html")) {
    write_file_atomically(*file, page_of(shown, skip + 1));
    fmt::print("{}: {} documents\n", *file, shown.size());
    return 0;
  }
  if (shown.empty()) {
    fmt::print("no documents{}\n", skip > 0 ? fmt::format(" after the first {}", skip) : "");
  }
  const bool has_colours = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  for (size_t i = 0; i < shown.size(); ++i) {
    fmt::print(
        "{}\n{}\n\n",
        title_of(shown[i], skip + 1 + static_cast<int64_t>(i)),
        for_terminal(shown[i], has_colours));
  }
  return 0;
}

}  // namespace

int run_data(std::vector<std::string> arguments) {
  const std::string word = arguments.empty() ? "" : arguments.front();
  if (word == "--help" || word == "-h") {
    fmt::print("{}", config::help(show_options()));
    return 0;
  }
  if (word != "show") {
    throw Error(
        ErrorKind::kConfig,
        word.empty() ? "lockstep data: the subcommand is required: show"
                     : fmt::format("lockstep data: unknown subcommand '{}'", word),
        "lockstep data show data.train=FILE tokenizer.path=FOLDER");
  }
  arguments.erase(arguments.begin());
  const config::Resolution resolution = config::resolve(arguments, show_options());
  if (resolution.help) {
    fmt::print("{}", config::help(show_options()));
    return 0;
  }
  return show(resolution);
}

}  // namespace lockstep::cli
