// Fuzz targets for text parsers, and the list of all targets.
#include "fuzz/parsers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rank_status.h"
#include "checkpoint/safetensors.h"
#include "config/compat/deepspeed.h"
#include "config/core/problems.h"
#include "config/core/yaml.h"
#include "config/hydra/override.h"
#include "config/resolve.h"
#include "data/records.h"
#include "fuzz/helpers.h"
#include "jinja/template.h"
#include "launch/agent/health_check.h"
#include "launch/agent/membership.h"
#include "launch/agent/replicated_state.h"
#include "launch/plan/hostfile.h"
#include "launch/plan/plan_parts.h"
#include "launch/plan/shell_words.h"
#include "launch/plan/std_spec.h"
#include "launch/system/store_protocol.h"
#include "launch/workers/failure_report.h"
#include "launch/workers/output.h"
#include "model/model_config.h"
#include "text/stages/regex.h"
#include "text/stages/regex_syntax.h"
#include "text/tokenizer.h"
#include "watch/control/server.h"
#include "watch/page/http_server.h"

namespace lockstep::fuzz {
namespace {

void read_yaml(Bytes bytes) {
  (void)config::parse_yaml(bytes, "f.yaml");
}

void read_json_with_comments(Bytes bytes) {
  (void)config::parse_json_with_comments(bytes, "f.json");
}

void read_strict_json(Bytes bytes) {
  // Writing and reading the value again must give the same value.
  const nlohmann::json value = parse_json(bytes, "f.json");
  check(bytes.find('\0') == Bytes::npos, "the whole text is parsed");
  check(parse_json(value.dump(), "again") == value, "JSON survives writing and reading");
}

void read_override(Bytes bytes) {
  (void)config::looks_like_override(bytes);
  try {
    (void)config::parse_override(bytes);
  } catch (const Error&) {
  }
  (void)config::parse_override_value(bytes, "a value");
}

/// One word of a command line per line. No word may name a file outside of the scratch folder.
void read_command_line(Bytes bytes) {
  scratch();
  std::vector<std::string> words = lines_of(bytes);
  std::erase_if(words, [](const std::string& word) {
    return word.find('/') != std::string::npos || word.find("..") != std::string::npos;
  });
  config::ResolveOptions options;
  options.command = "train";
  options.flags = {
      {"nproc", config::Flag::Kind::kValue, "ranks"},
      {"dry-run", config::Flag::Kind::kSwitch, "no training"},
      {"model", config::Flag::Kind::kKey, "a model", "model.path"}};
  options.environment = [](const std::string&) { return std::optional<std::string>(); };
  (void)config::resolve(words, options);
}

void read_configuration(Bytes bytes) {
  config::ResolveOptions options;
  options.command = "train";
  options.environment = [](const std::string&) { return std::optional<std::string>(); };
  (void)config::resolve({"-c", file_of(bytes, "config/f.yaml").string()}, options);
}

void read_deepspeed_file(Bytes bytes) {
  config::Problems problems;
  (void)config::read_deepspeed(config::parse_json_with_comments(bytes, "ds.json"), problems);
  config::ResolveOptions options;
  options.command = "train";
  options.environment = [](const std::string&) { return std::optional<std::string>(); };
  (void)config::resolve({"training.deepspeed=" + file_of(bytes, "ds.json").string()}, options);
}

constexpr std::array<Bytes, 5> kTexts{
    "The quick brown fox, 12 of them.",
    "",
    " \t\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 a\xcc\x88",
    "\xff\xfe<|endoftext|></s>[MASK]",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

void use(const text::Tokenizer& tokenizer) {
  for (const Bytes text : kTexts) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    for (const int32_t id : ids) {
      check(id >= 0 && id < tokenizer.vocabulary_size(), "an id is in the vocabulary");
    }
    (void)tokenizer.decode(ids);
  }
  const std::vector<int32_t> strange{-1, 0, 1, 1 << 30, INT32_MAX, INT32_MIN};
  (void)tokenizer.decode(strange, text::DecodedSpecials::kSkip);
}

void read_tokenizer(Bytes bytes) {
  use(*text::Tokenizer::parse({"folder", {{"tokenizer.json", std::string(bytes)}}}));
}

/// Input: tokenizer_config.json, a line "====", added_tokens.json.
void read_tokenizer_config(Bytes bytes) {
  static const std::string kTokenizer =
      R"({"added_tokens":[{"id":2,"content":"<s>"}],)"
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";
  const auto [config, added] = before_and_behind(bytes, kBetween);
  std::map<std::string, std::string> files{
      {"tokenizer.json", kTokenizer}, {"tokenizer_config.json", std::string(config)}};
  if (!added.empty()) {
    files["added_tokens.json"] = added;
  }
  use(*text::Tokenizer::parse({"folder", std::move(files)}));
}

/// Input: vocab.json, a line "====", merges.txt.
void read_tokenizer_pair(Bytes bytes) {
  const auto [vocabulary, merges] = before_and_behind(bytes, kBetween);
  use(*text::Tokenizer::parse(
      {"folder", {{"vocab.json", std::string(vocabulary)}, {"merges.txt", std::string(merges)}}}));
}

void read_regex(Bytes bytes) {
  const text::Regex regex(std::string(bytes), "a pattern");
  for (const Bytes text : kTexts) {
    size_t at = 0;
    if (text.empty() || text.front() == '\xff') {  // requires valid UTF-8
      continue;
    }
    for (const text::Match& match : regex.matches(text)) {
      check(match.begin == at && match.end >= at, "matches cover the text");
      at = match.end;
    }
    check(at == text.size(), "matches cover the text");
  }
}

void read_template(Bytes bytes) {
  const jinja::Template made(bytes, "a template");
  static const auto kVariables = nlohmann::ordered_json::parse(
      R"({"messages":[{"role":"user","content":"Hi é"},{"role":"assistant","content":"Ho"}],)"
      R"("bos_token":"<s>","eos_token":"</s>","add_generation_prompt":true,"tools":null,"n":3})");
  const jinja::Rendering text = made.render(kVariables);
  for (const jinja::TextSpan& span : text.generated) {
    check(span.begin <= span.end && span.end <= text.text.size(), "spans are within the text");
  }
}

/// True for gzip and zstd, which the target `compressed` covers: a few bytes may decompress to a
/// megabyte, which takes as long as a thousand other inputs.
bool is_compressed(Bytes bytes) {
  return bytes.starts_with("\x1f\x8b") || bytes.starts_with("\x28\xb5\x2f\xfd");
}

void read_json_lines(Bytes bytes) {
  if (is_compressed(bytes)) {
    return;
  }
  const auto reader = data::open_json(file_of(bytes, "f.jsonl"));
  for (data::Record record; reader->next(record);) {
    check(record.line >= 1 && record.column >= 1, "a record has a place");
  }
}

void read_table(Bytes bytes, char delimiter) {
  if (is_compressed(bytes)) {
    return;
  }
  const fs::path path = file_of(bytes, "f.csv");
  const auto reader = data::open_table(path, delimiter);
  (void)reader->columns();
  for (data::Record record; reader->next(record);) {
    (void)data::split_row(record, delimiter, path);
  }
}
void read_csv(Bytes bytes) {
  read_table(bytes, ',');
  // A written field must be read back unchanged, except for characters that text files do not
  // contain.
  std::string field(bytes.substr(0, 200));
  std::erase_if(field, [](char c) { return c == '\r' || c == '\0'; });
  const std::string row = "a,b\n" + data::csv_field(field) + ",1\n";
  const fs::path path = file_of(row, "g.csv");
  try {
    const auto reader = data::open_table(path, ',');
    data::Record record;
    if (reader->next(record)) {
      check(
          data::split_row(record, ',', path).at(0) == field,
          "a field survives writing and reading");
    }
  } catch (const Error&) {  // invalid UTF-8
  }
}
void read_tsv(Bytes bytes) {
  read_table(bytes, '\t');
}
void read_text(Bytes bytes) {
  if (is_compressed(bytes)) {
    return;
  }
  const auto reader = data::open_text(file_of(bytes, "f.txt"), {});
  size_t all = 0;
  for (data::Record record; reader->next(record);) {
    all += record.text.size();
  }
  check(all <= bytes.size() + 3, "the text does not grow");
}

void read_model_configuration(Bytes bytes) {
  (void)model::parse_model_config(bytes, "config.json");
}

/// Messages that clients send to the store: chunks with a length byte each, alternately from two
/// clients.
void read_store_messages(Bytes bytes) {
  constexpr uint64_t kHeld = uint64_t{1} << 20;
  launch::StoreProtocol store([](uint64_t, const std::string&) { return true; }, kHeld);
  // Returns false if the client is refused.
  const auto take = [&](uint64_t client, Bytes sent) {
    auto progress = store.take(client, sent);
    while (progress == launch::StoreProtocol::Progress::kHasRequests) {
      progress = store.take(client, {});
    }
    return progress == launch::StoreProtocol::Progress::kNeedsBytes;
  };
  const std::string greeting = launch::StoreProtocol::greeting_and_ping(1);
  std::array<bool, 2> open{true, true};
  // The first byte selects whether the clients have sent the greeting, so that most inputs get past
  // it.
  if (!bytes.empty() && bytes.front() != '\0') {
    for (uint64_t client = 0; client < open.size(); ++client) {
      open.at(client) = take(client, greeting);
    }
  }
  bytes = bytes.substr(std::min<size_t>(1, bytes.size()));
  for (uint64_t turn = 0; bytes.size() > 1 && (open[0] || open[1]); ++turn) {
    const auto length = std::min<size_t>(static_cast<uint8_t>(bytes.front()), bytes.size() - 1);
    if (open.at(turn % 2)) {
      open.at(turn % 2) = take(turn % 2, bytes.substr(1, length));
    }
    check(store.held() <= kHeld, "the store does not exceed its memory limit");
    bytes = bytes.substr(1 + length);
  }
  store.forget(0);
  store.forget(1);
}

void read_agent_message(Bytes bytes) {
  const nlohmann::json message = parse_json(bytes, "a message", ErrorKind::kPeerLost);
  if (message.is_object() && message.contains("hosts") && message["hosts"].is_array()) {
    const launch::ReplicatedJobState replicated_state = launch::replicated_state_from_json(message);
    check(
        launch::replicated_state_from_json(launch::to_json(replicated_state)).term() ==
            replicated_state.term(),
        "a heritage travels");
    return;
  }
  const launch::NodeInfo node = launch::node_from_json(message);
  (void)launch::to_json(node).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void read_failure(Bytes bytes) {
  const auto failure = launch::failure_from_json(std::string(bytes));
  if (failure) {
    const std::string text = launch::to_json(*failure);
    check(text.size() <= (size_t{192} << 10), "a failure is short");
    check(launch::failure_from_json(text).has_value(), "a failure travels");
    const std::string report = launch::report("job", {*failure});
    check(report.find('\x1b') == std::string::npos, "no report contains an escape sequence");
  }
  (void)launch::read_error_file(file_of(bytes, "error.json"));
}

void read_hostfile(Bytes bytes) {
  const auto hosts = launch::parse_hostfile(bytes, "hostfile");
  check(launch::decode_world(launch::encode_world(hosts)).size() == hosts.size(), "hosts travel");
}

void read_hosts(Bytes bytes) {
  const std::string text(bytes.substr(0, 4096));
  const std::vector<launch::HostSlots> hosts{{"n1", {0, 1, 2}}, {"n2", {0, 1}}};
  const auto attempt = [](const auto& body) {
    try {
      body();
    } catch (const Error&) {
    }
  };
  attempt([&] { (void)launch::filter_hosts(hosts, text, ""); });
  attempt([&] { (void)launch::filter_hosts(hosts, "", text); });
  attempt([&] { (void)launch::decode_world(text); });
  attempt([&] {
    check(launch::expand_hosts(text).size() <= 65'536, "the number of hosts is limited");
  });
  attempt([&] { (void)launch::StdSpec::parse(text, "--tee"); });
  attempt([&] { (void)launch::parse_endpoint(text); });
}

void read_shell_words(Bytes bytes) {
  const std::string text(bytes);
  // A quoted string must be split back into one word.
  if (text.find('\0') == std::string::npos) {
    check(
        launch::shell_split(launch::shell_quote(text)) == std::vector<std::string>{text},
        "a quoted word is one word");
  }
  try {
    (void)launch::parse_environment_file(text, "a file");
  } catch (const Error&) {
  }
  (void)launch::shell_split(text);
}

void read_http_request(Bytes bytes) {
  watch::HttpRequest request;
  (void)watch::parse_request(bytes, request);
  (void)request.header("host");
  const launch::Health health;
  (void)health.answer(bytes);
}

void read_control_request(Bytes bytes) {
  (void)watch::parse_act(nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false));
}

void read_pulse_page(Bytes bytes) {
  std::string page(4096, '\0');
  page += bytes;
  if (const auto told = read_rank_status(file_of(page, "pulse"))) {
    for (const PendingCall& wait : told->waits) {
      (void)told->find_group(wait);
    }
  }
}

void read_safetensors(Bytes bytes) {
  const checkpoint::SafetensorsFile file(file_of(bytes, "model.safetensors"));
  uint64_t all = 0;
  for (const checkpoint::TensorEntry& tensor : file.header().tensors) {
    for (const std::byte byte : file.bytes(tensor)) {  // all bytes are readable
      all += static_cast<uint8_t>(byte);
    }
    check(file.find(tensor.name) != nullptr, "a tensor is found by its name");
  }
  check(all <= 255 * static_cast<uint64_t>(bytes.size()), "tensors do not overlap");
}

void read_terminal_text(Bytes bytes) {
  const std::string text = launch::printable(bytes);
  check(text.find('\x1b') == std::string::npos, "no escapes");
  check(launch::printable(text) == text, "printable text is unchanged");
}

constexpr std::array kParsers{
    Parser{"yaml", read_yaml},
    Parser{"json_comments", read_json_with_comments},
    Parser{"json", read_strict_json},
    Parser{"override", read_override},
    Parser{"command_line", read_command_line},
    Parser{"configuration", read_configuration},
    Parser{"deepspeed", read_deepspeed_file},
    Parser{"tokenizer", read_tokenizer},
    Parser{"tokenizer_config", read_tokenizer_config},
    Parser{"tokenizer_pair", read_tokenizer_pair},
    Parser{"regex", read_regex},
    Parser{"template", read_template},
    Parser{"jsonl", read_json_lines},
    Parser{"csv", read_csv},
    Parser{"tsv", read_tsv},
    Parser{"text", read_text},
    Parser{"model_config", read_model_configuration},
    Parser{"store", read_store_messages},
    Parser{"agent_message", read_agent_message},
    Parser{"failure", read_failure},
    Parser{"hostfile", read_hostfile},
    Parser{"hosts", read_hosts},
    Parser{"shell_words", read_shell_words},
    Parser{"http", read_http_request},
    Parser{"control", read_control_request},
    Parser{"run_record", read_run_record},
    Parser{"resumed_record", read_resumed_record},
    Parser{"rank_times", read_rank_times},
    Parser{"pulse", read_pulse_page},
    Parser{"safetensors", read_safetensors},
    Parser{"terminal", read_terminal_text},
    Parser{"manifest", read_manifest_text},
    Parser{"shards", read_shards},
    Parser{"compressed", read_compressed},
    Parser{"token_file", read_token_file},
    Parser{"unicode", read_unicode},
    Parser{"schedule", read_schedule_file},
    Parser{"cluster", read_cluster_file},
    Parser{"trainer_state", read_trainer_state_file},
    Parser{"timer", read_timer_request},
    Parser{"strangers", read_strangers},
    Parser{"member", read_member},
};

}  // namespace

std::span<const Parser> parsers() {
  return kParsers;
}

}  // namespace lockstep::fuzz
