// Writes the sample corpus.
#include "data/sample.h"

#include <cmath>
#include <functional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/records.h"
#include "data/sample_dice.h"
#include "data/sample_story.h"
#include "data/sample_tasks.h"

namespace lockstep::data {
namespace {

/// Returns true if an instruction belongs to the validation file. Decided by its text, so that
/// equal instructions are in the same file.
bool is_held_out(const SampleInstruction& made) {
  return hash_hex(made.instruction + "\n" + made.input)[0] == '0';  // one in sixteen
}

std::string json_line(const SampleInstruction& made) {
  nlohmann::ordered_json object;
  object["instruction"] = made.instruction;
  object["input"] = made.input;
  object["output"] = made.output;
  object["kind"] = made.kind;
  return object.dump() + "\n";
}

/// Returns a story for the text files, followed by questions that it answers.
std::string story_text(uint64_t key) {
  Dice dice(derive_key(key, 1));
  const Story story = tell_story(key, dice.between(6, 16));
  std::string text = story.text;
  const auto count = static_cast<size_t>(dice.between(1, 3));
  for (size_t i = 0; i < count && i < story.questions.size(); ++i) {
    text += story.questions[i].question + " " + story.questions[i].answer + "\n";
  }
  return text + "\n";
}

class Corpus {
 public:
  explicit Corpus(const SampleOptions& options) : options_(options) {}

  /// Writes one file. Its pieces are made from the keys 0, 1, 2, ... of a stream of its own, until
  /// the file has its share of bytes.
  void write(
      std::string_view name,
      uint64_t stream,
      double share,
      std::string text,
      const std::function<std::string(uint64_t)>& make) {
    const auto wanted = static_cast<size_t>(std::llround(options_.megabytes * share * 1e6));
    const uint64_t key = derive_key(derive_key(options_.seed, 0x5a6d), stream);
    const size_t head = text.size();
    for (uint64_t i = 0; text.size() < wanted || text.size() == head; ++i) {
      text += make(derive_key(key, i));
    }
    const std::filesystem::path path = options_.folder / name;
    write_file_atomically(path, text, ErrorKind::kEnvironment);
    report_.files.emplace_back(path, text.size());
  }
  SampleReport take() { return std::move(report_); }

 private:
  const SampleOptions& options_;
  SampleReport report_;
};

}  // namespace

SampleReport write_sample_corpus(const SampleOptions& options) {
  constexpr double kLeast = 0.01;
  constexpr double kMost = 1000;
  if (!(options.megabytes >= kLeast && options.megabytes <= kMost)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "a sample corpus of {} MB: must be between {} and {}",
            options.megabytes,
            kLeast,
            kMost));
  }
  create_folders(options.folder, ErrorKind::kEnvironment);
  const auto instruction = [](bool held_out) {
    return [held_out](uint64_t key) {
      const SampleInstruction made = make_instruction(key);
      return is_held_out(made) == held_out ? json_line(made) : std::string();
    };
  };
  const auto labelled = [](uint64_t key) {
    const LabelledText made = make_labelled(key);
    return csv_field(made.text) + "," + made.label + "\n";
  };
  Corpus corpus(options);
  corpus.write("train.txt", 0, 0.70, "", story_text);
  corpus.write("validation.txt", 1, 0.05, "", story_text);
  corpus.write("test.txt", 2, 0.05, "", story_text);
  corpus.write("instructions.jsonl", 3, 0.12, "", instruction(false));
  corpus.write("instructions_validation.jsonl", 4, 0.01, "", instruction(true));
  corpus.write("labelled.csv", 5, 0.06, "text,label\n", labelled);
  corpus.write("labelled_validation.csv", 6, 0.01, "text,label\n", labelled);
  return corpus.take();
}

}  // namespace lockstep::data
