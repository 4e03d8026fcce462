// Options of data preparation: the values of the `data` section, independent of YAML and
// environment variables.
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
/// Splitting of plain text into documents (docs/data.md).
enum class TextDocuments { kFile, kLine, kParagraph };
enum class Prompt { kNone, kAlpaca, kPairs, kChat };
/// Parts of a chat that have a loss: all assistant messages, the last one, or all messages.
enum class ChatLoss { kAssistant, kLast, kAll };
enum class InvalidUtf8 { kError, kReplace };
enum class Packing {
  kConcatenated,  // blocks of the concatenated documents
  kDocuments,     // several documents per row that do not attend to each other
  kPerDocument,   // one document per row
  kPairs,         // one document per row with its prompt as the source: for an encoder-decoder
};
/// What to do with documents that are longer than a sequence if sequences are per document.
enum class LongDocuments { kSplit, kTruncate };

struct DataOptions {
  std::vector<std::string> train, validation, test;  // files, globs, folders
  std::vector<std::string> validation_mm,
      test_mm;  // second evaluation sets for labelled rows, as MNLI's mismatched set
  std::string train_key = "data.train";  // name of the key in errors
  Format format = Format::kAuto;         // data.format; kAuto: from each file's name
  std::string text_field = "text";       // data.text_field
  std::string text_delimiter = " ";      // data.text_delimiter
  /// data.prompt. kAlpaca: a record has an instruction, an optional input and an output; a prompt
  /// is made of instruction and input and has no loss. kPairs: the instruction is used as prompt
  /// without changes, and the output follows it. kChat: a record has messages with roles, which a
  /// template renders.
  Prompt prompt = Prompt::kNone;
  /// For kChat: the field with the messages, and the template. If a record does not have this
  /// field, it must have ShareGPT's `conversations`, or prompt and completion.
  std::string messages_field = "messages";        // data.messages_field
  ChatLoss chat_loss = ChatLoss::kAssistant;      // data.chat_loss
  std::shared_ptr<const ChatTemplate> chat;       // data.chat_template, or the tokenizer's
  std::string instruction_field = "instruction";  // data.instruction_field
  std::string input_field = "input";              // data.input_field
  std::string output_field = "output";            // data.output_field
  /// data.label_field, for classification. A record has a text, a second text if text_pair_field is
  /// set, and one label or one label per field. Empty: no labels are read.
  std::vector<std::string> label_fields;
  std::string
      label_delimiter;  // data.label_delimiter: splits a label into several; empty: no splitting
  std::string text_pair_field;                          // data.text_pair_field
  bool needs_labels = true;                             // if false, the label field may be missing
  TextDocuments text_documents = TextDocuments::kFile;  // data.text_documents
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;       // data.invalid_utf8
  /// data.validation_fraction and data.test_fraction: fractions of the documents of `train` to hold
  /// out, in [0, 1). Only used if no files are given for the split.
  double validation_fraction = 0;
  double test_fraction = 0;
  uint64_t split_seed = 0;          // data.split_seed: selects the documents to hold out
  std::filesystem::path cache_dir;  // data.cache_dir; the token files are written here
  int threads = 0;                  // tokenization threads; 0: one per core
};

/// Parse the values of keys. Throw Error (config) with the key and the allowed values if the value
/// is invalid.
Format parse_format(std::string_view word);                 // auto text json jsonl csv tsv
Prompt parse_prompt(std::string_view word);                 // none alpaca pairs chat
ChatLoss parse_chat_loss(std::string_view word);            // assistant last all
TextDocuments parse_text_documents(std::string_view word);  // file line paragraph
InvalidUtf8 parse_invalid_utf8(std::string_view word);      // error replace
LongDocuments parse_long_documents(std::string_view word);  // split truncate
std::string_view name_of(Packing packing);
std::string_view name_of(Format format);
std::string_view name_of(Prompt prompt);

/// Returns all problems of the options, without reading files. Empty if there are none.
std::vector<std::string> problems_of(const DataOptions& options);

}  // namespace lockstep::data
