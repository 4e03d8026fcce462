// Tokenizes files into the cache.
#include "data/prepare.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/chat.h"
#include "data/field_use.h"
#include "data/file_marks.h"
#include "data/inputs.h"
#include "data/split.h"
#include "data/token_dataset.h"
#include "data/token_file.h"
#include "data/tokenize.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Format version, part of every cache key. Change it if the same input would result in other
/// tokens.
constexpr std::string_view kRecipe = "lockstep tokens 1";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string hash_file(const fs::path& path, const FileMarks& marks) {
  constexpr std::string_view kPurpose = "hash of the contents";
  if (const auto known = marks.find(path, kPurpose)) {
    return *known;
  }
  const std::optional<std::string> state = marks.state_of(path);
  constexpr size_t kBlock = size_t{1} << 22;
  const File file(path, File::Mode::kRead, ErrorKind::kData);
  const uint64_t size = file.size();
  Hasher hasher;
  std::vector<std::byte> block;
  for (uint64_t at = 0; at < size; at += block.size()) {
    block.resize(std::min<uint64_t>(kBlock, size - at));
    file.read_at(at, block);
    hasher.update(block);
  }
  const std::string hash = hasher.hex();
  marks.remember(path, kPurpose, state, hash);
  return hash;
}

/// List of files, and the splits made from it in one pass.
struct Group {
  std::string key_name;  // "data.train"
  std::vector<InputFile> inputs;
  double validation_fraction = 0, test_fraction = 0;
  std::string hash;  // hash of everything that affects the tokens

  bool held_out() const { return validation_fraction > 0 || test_fraction > 0; }
};

/// Returns the size of the sections into which text is divided for held-out splits. Sections are
/// selected from all parts of the files. They are small enough that the smaller split has several.
size_t section_bytes(const Group& group) {
  if (!group.held_out()) {
    return 0;
  }
  uint64_t bytes = 0;
  for (const InputFile& input : group.inputs) {
    if (input.format == Format::kText) {
      bytes += File(input.path, File::Mode::kRead, ErrorKind::kData).size();
    }
  }
  double fraction = 1;
  for (const double share : {group.validation_fraction, group.test_fraction}) {
    fraction = share > 0 ? std::min(fraction, share) : fraction;
  }
  const double wanted = static_cast<double>(bytes) * fraction / 4;
  return static_cast<size_t>(std::clamp(wanted, 1024.0, 65536.0));
}

std::string key_of(const Group& group, const DataOptions& options, const Encoder& encoder) {
  Hasher hasher;
  const auto add = [&](std::string_view text) { hasher.update_field(text); };
  const auto id = [](const std::optional<int32_t>& token) {
    return token ? std::to_string(*token) : std::string("none");
  };
  add(kRecipe);
  add(encoder.fingerprint);
  add(fmt::format(
      "{} {} {} {} {}",
      encoder.vocabulary_size,
      id(encoder.begin),
      id(encoder.end),
      id(encoder.pad),
      encoder.pieces));
  add(fmt::format(
      "{} {} {}",
      static_cast<int>(options.prompt),
      static_cast<int>(options.text_documents),
      static_cast<int>(options.invalid_utf8)));
  if (encoder.ends_prompts) {
    add("the end after prompts");
  }
  if (options.prompt == Prompt::kChat) {
    add(options.messages_field);
    add(fmt::format("{}", static_cast<int>(options.chat_loss)));
    add(options.chat->fingerprint());
  } else if (options.prompt == Prompt::kNone) {
    add(options.text_field);
  } else {
    add(options.instruction_field);
    add(options.input_field);
    add(options.output_field);
  }
  if (group.held_out()) {
    add(fmt::format(
        "{} {} {}", group.validation_fraction, group.test_fraction, options.split_seed));
  }
  for (const InputFile& input : group.inputs) {
    add(name_of(input.format));
    add(hash_file(input.path, FileMarks(options.cache_dir)));
    if (input.rows) {
      add(fmt::format("rows {} to {}", input.rows->begin, input.rows->end));
    }
  }
  return hasher.hex();
}

fs::path path_of(const Group& group, const DataOptions& options, Split split) {
  static constexpr std::array<std::string_view, 3> kNames{"-train", "-validation", "-test"};
  const std::string_view suffix = group.held_out() ? kNames[static_cast<size_t>(split)] : "";
  return options.cache_dir / fmt::format("{}{}.tokens", group.hash, suffix);
}

std::vector<Split> splits_of(const Group& group) {
  std::vector<Split> splits{Split::kTrain};
  if (group.validation_fraction > 0) {
    splits.push_back(Split::kValidation);
  }
  if (group.test_fraction > 0) {
    splits.push_back(Split::kTest);
  }
  return splits;
}

/// Returns true if `path` is a complete token file with this key.
bool is_ready(const fs::path& path, const std::string& key) {
  constexpr std::string_view kPurpose = "verified";
  std::error_code code;
  if (!fs::exists(path, code)) {
    return false;
  }
  try {
    const auto set = TokenDataset::open(path);
    const FileMarks marks(path.parent_path());
    if (marks.find(path, kPurpose) != key) {
      const std::optional<std::string> state = marks.state_of(path);
      set->verify();
      marks.remember(path, kPurpose, state, set->key());
    }
    if (set->key() == key) {
      return true;
    }
    log_warning("{} was created from different inputs; creating it again", path.string());
  } catch (const Error& error) {
    log_warning("{}; creating it again", error.message());
  }
  return false;
}

void check_not_empty(const Group& group, Split split, const TokenFileWriter& writer) {
  if (writer.tokens() > 0) {
    return;
  }
  if (!group.held_out()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the files contain no text ({} files)", group.key_name, group.inputs.size()),
        "name files that are not empty");
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{}: no document is left for the {} split (data.validation_fraction={}, "
          "data.test_fraction={})",
          group.key_name,
          split == Split::kTrain        ? "train"
          : split == Split::kValidation ? "validation"
                                        : "test",
          group.validation_fraction,
          group.test_fraction),
      "change the fractions, add text, or set files for that split");
}

/// Writer for the token files of a group.
class GroupWriter {
 public:
  GroupWriter(const Group& group, const DataOptions& options, const Encoder& encoder)
      : group_(group),
        splitter_(group.validation_fraction, group.test_fraction, options.split_seed) {
    const int32_t pad = encoder.pad ? *encoder.pad : encoder.end.value_or(0);
    for (const Split split : splits_of(group)) {
      writers_[split] = std::make_unique<TokenFileWriter>(
          path_of(group, options, split), group.hash, encoder.vocabulary_size, pad);
    }
  }

  void take(const EncodedDocument& document) {
    if (document.begins) {
      current_ = writers_.at(splitter_.next()).get();
      prompt_tokens_ = document.prompt_tokens;
    }
    current_->add(document.ids, document.hidden);
    if (document.ends) {
      current_->end_document(prompt_tokens_);
    }
    tell_progress();
  }

  void commit() {
    for (const auto& [split, writer] : writers_) {
      check_not_empty(group_, split, *writer);
    }
    for (const auto& [split, writer] : writers_) {
      writer->commit();
    }
  }

  int64_t tokens() const {
    int64_t sum = 0;
    for (const auto& [split, writer] : writers_) {
      sum += writer->tokens();
    }
    return sum;
  }
  int64_t documents() const {
    int64_t sum = 0;
    for (const auto& [split, writer] : writers_) {
      sum += writer->documents();
    }
    return sum;
  }

 private:
  void tell_progress() {
    constexpr double kInterval = 10;
    if (seconds_since(told_) >= kInterval) {
      told_ = Clock::now();
      log_info("{}: {} documents, {} tokens so far", group_.key_name, documents(), tokens());
    }
  }

  const Group& group_;
  Splitter splitter_;
  std::map<Split, std::unique_ptr<TokenFileWriter>> writers_;
  TokenFileWriter* current_ = nullptr;
  int64_t prompt_tokens_ = 0;
  Clock::time_point told_ = Clock::now();
};

/// Creates the token files of a group unless they exist.
void prepare_group(Group& group, const DataOptions& options, const Encoder& encoder) {
  const std::string unused = field_use(group.inputs.front(), options).unused();
  if (!unused.empty()) {
    log_info("{}: fields {}", group.key_name, unused);
  }
  group.hash = key_of(group, options, encoder);
  bool ready = true;
  for (const Split split : splits_of(group)) {
    ready = is_ready(path_of(group, options, split), group.hash) && ready;
  }
  if (ready) {
    log_info(
        "{}: tokenized before ({})",
        group.key_name,
        path_of(group, options, Split::kTrain).string());
    return;
  }
  const Clock::time_point start = Clock::now();
  GroupWriter writer(group, options, encoder);
  TextCutting cutting;
  cutting.documents = options.text_documents;
  cutting.parts = encoder.pieces;
  cutting.section_bytes = section_bytes(group);
  int64_t empty = 0;
  in_context("tokenizing " + group.key_name, [&] {
    empty = tokenize_files(
        group.inputs, options, cutting, encoder, [&](const EncodedDocument& document) {
          writer.take(document);
        });
  });
  writer.commit();
  log_info(
      "{}: {} file{}, {} document{}, {} tokens{} in {:.1f} s ({})",
      group.key_name,
      group.inputs.size(),
      group.inputs.size() == 1 ? "" : "s",
      writer.documents(),
      writer.documents() == 1 ? "" : "s",
      writer.tokens(),
      empty > 0 ? fmt::format(", {} without text skipped", empty) : "",
      seconds_since(start),
      path_of(group, options, Split::kTrain).string());
}

/// Removes unfinished files of processes that have ended. Files of other hosts are removed after a
/// week.
void remove_abandoned(const fs::path& folder) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string ours = fmt::format(".tmp-{}-", host.data());
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    const size_t at = name.find(".tokens.tmp-");
    if (at == std::string::npos) {
      continue;
    }
    const auto age = fs::file_time_type::clock::now() - entry.last_write_time(code);
    const size_t mine = name.find(ours, at);
    bool dead = !code && age > std::chrono::hours(24 * 7);
    if (!code && mine != std::string::npos) {
      const long pid = std::strtol(name.c_str() + mine + ours.size(), nullptr, 10);
      dead = pid > 0 && age > std::chrono::minutes(1) && ::kill(static_cast<pid_t>(pid), 0) != 0 &&
             errno == ESRCH;
    }
    if (dead) {
      fs::remove(entry.path(), code);
    }
  }
}

void check_options(const DataOptions& options, const Encoder& encoder) {
  std::vector<std::string> problems = problems_of(options);
  if (options.train.empty() && options.validation.empty() && options.test.empty()) {
    problems.emplace_back("no data is set: data.train, data.validation or data.test is required");
  }
  if (!problems.empty()) {
    throw Error(ErrorKind::kConfig, fmt::format("{}", fmt::join(problems, "\n")));
  }
  if (options.prompt == Prompt::kChat && options.chat == nullptr) {
    throw Error(ErrorKind::kInternal, "data.prompt=chat without a template");
  }
  const auto fits = [&](const std::optional<int32_t>& id) {
    return !id || (*id >= 0 && *id < encoder.vocabulary_size);
  };
  if (encoder.vocabulary_size < 1 || encoder.vocabulary_size > int64_t{1} << 31 ||
      !fits(encoder.begin) || !fits(encoder.end) || !fits(encoder.pad)) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the tokenizer's special tokens are outside its vocabulary of {}",
            encoder.vocabulary_size),
        "its files do not match: download them again");
  }
}

}  // namespace

PreparedData prepare_data(const DataOptions& options, const Encoder& encoder) {
  check_options(options, encoder);
  std::array<Group, 3> groups;
  groups[0].key_name = options.train_key;
  groups[1].key_name = "data.validation";
  groups[2].key_name = "data.test";
  const std::array<const std::vector<std::string>*, 3> words{
      &options.train, &options.validation, &options.test};
  for (size_t i = 0; i < groups.size(); ++i) {  // check all names first
    groups[i].inputs = find_inputs(*words[i], options.format, groups[i].key_name);
  }
  if (!groups[0].inputs.empty()) {
    groups[0].validation_fraction = options.validation.empty() ? options.validation_fraction : 0;
    groups[0].test_fraction = options.test.empty() ? options.test_fraction : 0;
  }
  create_folders(options.cache_dir, ErrorKind::kData);
  remove_abandoned(options.cache_dir);
  for (Group& group : groups) {
    if (!group.inputs.empty()) {
      prepare_group(group, options, encoder);
    }
  }
  PreparedData prepared;
  if (!groups[0].inputs.empty()) {
    prepared.train = path_of(groups[0], options, Split::kTrain);
  }
  if (!groups[1].inputs.empty()) {
    prepared.validation = path_of(groups[1], options, Split::kTrain);
  } else if (groups[0].validation_fraction > 0) {
    prepared.validation = path_of(groups[0], options, Split::kValidation);
  }
  if (!groups[2].inputs.empty()) {
    prepared.test = path_of(groups[2], options, Split::kTrain);
  } else if (groups[0].test_fraction > 0) {
    prepared.test = path_of(groups[0], options, Split::kTest);
  }
  return prepared;
}

}  // namespace lockstep::data
