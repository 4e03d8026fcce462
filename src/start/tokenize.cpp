// `lockstep tokenize`: converts text to token ids and back.
#include "start/tokenize.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "start/parse.h"
#include "text/tokenizer.h"

namespace lockstep::start {
namespace {

struct TokenizeOptions {
  std::string model;
  std::string file = "-";
  bool whole = false, json = false, decode = false;
  bool specials_as_text = false, no_template = false, skip_specials = false;
};

std::string read_input(const std::string& name) {
  if (name != "-") {
    return read_file(name);
  }
  std::string text;
  std::string buffer(1 << 16, '\0');
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    text.append(buffer, 0, count);
  }
  return text;
}

/// Writes a line to standard output. Throws Error if the pipe is closed or the disk is full.
void write_line(std::string line) {
  line.push_back('\n');
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) {
    throw Error(ErrorKind::kRun, "standard output cannot be written");
  }
}

std::string to_line(const std::vector<int32_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, ","));
}

std::vector<int32_t> ids_of(const nlohmann::json& json, const std::string& place) {
  const auto is_id = [](const nlohmann::json& id) {
    return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX;
  };
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_id)) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} is not a list of ids", place),
        "give one JSON array of ids per line, as `lockstep tokenize` prints them");
  }
  return json.get<std::vector<int32_t>>();
}

void for_each_line(
    const std::string& input, const std::function<void(std::string_view, size_t)>& line) {
  std::string_view rest = input;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    line(rest.substr(0, end), number);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
}

std::string string_of(std::string_view line, const std::string& place) {
  const nlohmann::json json = parse_json(line, place);
  if (!json.is_string()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} is not a JSON string", place),
        "omit --json for plain text");
  }
  return json.get<std::string>();
}

void run(const TokenizeOptions& options) {
  const std::shared_ptr<const text::Tokenizer> tokenizer = text::Tokenizer::load(options.model);
  const std::string input = read_input(options.file);
  const auto encode = [&](std::string_view text) {
    write_line(to_line(tokenizer->encode(
        text,
        options.specials_as_text ? text::SpecialTokens::kAsText : text::SpecialTokens::kRecognise,
        options.no_template ? text::Template::kOmit : text::Template::kApply)));
  };
  const auto decode = [&](std::string_view line, const std::string& place) {
    const std::string text = tokenizer->decode(
        ids_of(parse_json(line, place), place),
        options.skip_specials ? text::DecodedSpecials::kSkip : text::DecodedSpecials::kKeep);
    write_line(options.json ? nlohmann::json(text).dump() : text);
  };
  if (options.whole) {
    encode(input);
  } else {
    for_each_line(input, [&](std::string_view line, size_t number) {
      const std::string place = fmt::format("{}, line {}", options.file, number);
      if (options.decode) {
        decode(line, place);
      } else {
        encode(options.json ? string_of(line, place) : std::string(line));
      }
    });
  }
  if (std::fflush(stdout) != 0) {
    throw Error(ErrorKind::kRun, "standard output cannot be written");
  }
}

}  // namespace

int run_tokenize(std::vector<std::string> arguments) {
  TokenizeOptions options;
  CLI::App app("Print the ids of each line of text, one JSON array per line.", "lockstep tokenize");
  app.add_option("--model", options.model, "Folder of a tokenizer, or a tokenizer.json. path")
      ->required();
  app.add_option("file", options.file, "Text file; - reads standard input. path")
      ->capture_default_str();
  auto* whole =
      app.add_flag("--whole", options.whole, "Treat the input as one text, including newlines");
  auto* json = app.add_flag("--json", options.json, "Lines are JSON strings");
  auto* decode =
      app.add_flag("--decode", options.decode, "Lines are JSON arrays of ids; print their text");
  whole->excludes(json)->excludes(decode);
  app.add_flag(
      "--specials-as-text",
      options.specials_as_text,
      "Encode special tokens in the text as ordinary text (for untrusted text)");
  app.add_flag("--no-template", options.no_template, "Do not add special tokens such as <s>");
  app.add_flag("--skip-specials", options.skip_specials, "With --decode: omit special tokens");
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  run(options);
  return 0;
}

}  // namespace lockstep::start
