// What is read and how it becomes documents: the `data` section, resolved. No environment, no YAML.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

class ChatTemplate;

enum class Format { kAuto, kText, kJson, kCsv, kTsv };
/// How plain text is cut in documents; docs/data.md says which to choose.
enum class TextDocuments { kFile, kLine, kParagraph };
enum class Prompt { kNone, kAlpaca, kPairs, kChat };
/// What of a chat has a loss.
enum class ChatLoss { kAssistant, kLast, kAll };
enum class InvalidUtf8 { kError, kReplace };
enum class Packing {
  kConcatenated,  // documents end to end, in blocks
  kDocuments,     // several documents a row, none of which sees another
  kPerDocument,   // one document a row
  kPairs,  // one document a row, its prompt as a source beside it: for an encoder and a decoder
};
/// What becomes of a document that is longer than a sequence, where sequences are per document.
enum class LongDocuments { kSplit, kTruncate };

struct DataOptions {
  std::vector<std::string> train, validation, test;  // files, globs, folders
  std::vector<std::string> validation_mm, test_mm;   // of rows with labels: second ones
  std::string train_key = "data.train";              // what errors call the first of them
  Format format = Format::kAuto;                     // data.format; kAuto: from each file's name
  std::string text_field = "text";                   // data.text_field
  std::string text_delimiter = " ";                  // data.text_delimiter
  /// data.prompt. kAlpaca: a record is an instruction, an input that may be empty, and an output;
  /// the prompt that the first two make has no loss. kPairs: the instruction is the prompt, as it
  /// stands, and the output what follows it. kChat: messages of roles, put together by a template.
  Prompt prompt = Prompt::kNone;
  /// Of kChat: the field of the messages, and what the template makes of them. A record without the
  /// field has `conversations` of ShareGPT's form, or prompt and completion.
  std::string messages_field = "messages";        // data.messages_field
  ChatLoss chat_loss = ChatLoss::kAssistant;      // data.chat_loss
  std::shared_ptr<const ChatTemplate> chat;       // data.chat_template, or the tokenizer's
  std::string instruction_field = "instruction";  // data.instruction_field
  std::string input_field = "input";              // data.input_field
  std::string output_field = "output";            // data.output_field
  /// data.label_field, of classification; empty: no labels are read. With one, a record is a text,
  /// another one beside it where text_pair_field is named, and a label, or one for each field.
  std::vector<std::string> label_fields;
  std::string
      label_delimiter;  // data.label_delimiter: cuts a label in several; empty: nothing does
  std::string text_pair_field;                          // data.text_pair_field
  bool needs_labels = true;                             // else a record without the field has none
  TextDocuments text_documents = TextDocuments::kFile;  // data.text_documents
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;       // data.invalid_utf8
  /// data.validation_fraction, data.test_fraction: shares of the documents of `train` that are held
  /// out, in [0, 1), used where no files are given for that split.
  double validation_fraction = 0;
  double test_fraction = 0;
  uint64_t split_seed = 0;          // data.split_seed: which documents these are
  std::filesystem::path cache_dir;  // data.cache_dir; the token files are written here
  int threads = 0;                  // of the tokenization; 0: one a core
};

/// The values of the users' words; anything else is an Error of kind kConfig that names the key and
/// what is allowed.
Format parse_format(std::string_view word);                 // auto text json jsonl csv tsv
Prompt parse_prompt(std::string_view word);                 // none alpaca pairs chat
ChatLoss parse_chat_loss(std::string_view word);            // assistant last all
TextDocuments parse_text_documents(std::string_view word);  // file line paragraph
InvalidUtf8 parse_invalid_utf8(std::string_view word);      // error replace
LongDocuments parse_long_documents(std::string_view word);  // split truncate
std::string_view name_of(Packing packing);
std::string_view name_of(Format format);
std::string_view name_of(Prompt prompt);

/// Everything that is wrong with the options themselves (no file is looked at); empty: nothing.
std::vector<std::string> problems_of(const DataOptions& options);

}  // namespace lockstep::data
