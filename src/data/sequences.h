// A token file as rows for the model: blocks of the stream, several documents a row, one, or pairs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/bins.h"
#include "data/masking.h"
#include "data/options.h"
#include "data/partners.h"
#include "data/token_dataset.h"

namespace lockstep::data {

/// The label of a position without loss (Hugging Face's and PyTorch's).
inline constexpr int64_t kIgnored = -100;

/// What an answer is to the others: of two answers to one prompt, or of one that is judged alone,
/// the wanted and the unwanted one; of unlearning, what is to be forgotten (to which the wanted one
/// is an alternate) and what is to be kept.
enum class RowRole : int8_t { kPlain, kChosen, kRejected, kForget, kRetain };

/// Answers of rows, a document each, and how they are drawn.
struct AnswerRows {
  std::vector<RowRole> roles;   // of each row; fewer: the view has the first so many rows alone
  int64_t at_once = 1;          // rows that are drawn together, and never parted
  bool learns_prompts = false;  // prompts of chosen rows have labels too
  bool are_rewarded = false;    // no token has a label: a head of one class reads each row's last
  std::optional<PartnerRows> partners = {};  // whose rows_at_once() `at_once` then is
  /// Of pairs for a reward model: by how much the chosen answer's reward is to exceed the rejected
  /// one's, for each row (both of a pair have it); empty: 0.
  std::vector<double> margins = {};
};

/// How an encoder reads rows: all tokens of a document at once, and so never padding. What a row is
/// told of is its first token (of rows with classes), or those that are hidden.
struct EncoderRows {
  std::optional<Masking> masking = {};
  bool tells_segments =
      false;  // what a document's prompt is, is its first segment, the rest another
};

class SequenceView;

/// One source of a mixture: its rows, and how much of what is drawn is of it.
struct MixedRows {
  std::string name;
  std::shared_ptr<const SequenceView> rows;
  double weight = 1;
  std::optional<int64_t> max_epochs = {};
};

/// Rows of at most `length` tokens. Concatenated: consecutive blocks of the whole stream, documents
/// end to end, the last block short; nothing is lost. Per document: each row is of one document,
/// and a longer document goes on in the next row (kSplit) or is cut off (kTruncate). Documents: the
/// rows of that, several in one as they fit best (data/bins.h), with where each begins. Pairs: a
/// document's prompt is the source of its row, and the row is `start` and the rest of the document;
/// either has at most `length` tokens, `start` not counted, and what is longer loses what stands
/// before its last token. `lockstep eval` counts blocks in order. Immutable, thread-safe; memory
/// does not grow with the corpus beyond one number for 1,024 documents, or of Documents 16 bytes
/// for each.
class SequenceView {
 public:
  SequenceView(
      std::shared_ptr<const TokenDataset> dataset,
      int64_t length,
      Packing packing = Packing::kConcatenated,
      LongDocuments long_documents = LongDocuments::kSplit,
      int64_t start = 0);
  /// A document a row, each with a class: classes[i] is row i's, kIgnored where it has none. With
  /// `outputs`, [rows, K], each row has K numbers instead, and its class is 0 or kIgnored.
  SequenceView(
      std::shared_ptr<const TokenDataset> dataset,
      int64_t length,
      std::vector<int64_t> classes,
      std::vector<float> outputs = {});
  /// A document a row, and `answers.at_once` of them a sequence.
  SequenceView(std::shared_ptr<const TokenDataset> dataset, int64_t length, AnswerRows answers);

  /// The rows of several sources, one after the other: of one tokenizer and length, packed alike,
  /// without roles; all or none of them with classes.
  explicit SequenceView(std::vector<MixedRows> sources);

  /// The same rows for an encoder.
  void set_encoder(EncoderRows rows) { encoder_ = std::move(rows); }
  const std::optional<EncoderRows>& encoder() const { return encoder_; }
  /// The same rows for an encoder and a decoder: the encoder reads a row, and the decoder `start`
  /// and the row but for its last token, at which the row is told its class.
  void set_decoder_start(int64_t start) { decoder_start_ = start; }
  const std::optional<int64_t>& decoder_start() const { return decoder_start_; }
  /// The same rows, of which a micro-batch puts several in one where they fit (data/packed_rows.h).
  void set_packed(bool packed) { is_packed_ = packed; }
  bool is_packed() const { return is_packed_; }

  /// What is drawn: rows, or of answers groups of them.
  int64_t size() const {
    return answers_.partners ? answers_.partners->size() : size_ / answers_.at_once;
  }
  int64_t rows() const { return size_; }
  int64_t rows_at_once() const { return answers_.at_once; }
  int64_t length() const { return length_; }
  /// Of several sources the first one's: vocabulary and padding are those of all.
  const TokenDataset& dataset() const { return *dataset_; }
  /// Of several sources; else none.
  const std::vector<MixedRows>& sources() const { return sources_; }
  /// A hash of what rows are made from.
  std::string content_hash() const;
  /// Tokens of row `index`, 1 to length(); with `start`, where it is one of pairs.
  int64_t tokens(int64_t index) const;
  /// Tokens of its source; 0 where rows are no pairs.
  int64_t source_tokens(int64_t index) const;
  bool has_sources() const { return packing_ == Packing::kPairs; }
  Packing packing() const { return is_packed_ ? Packing::kDocuments : packing_; }
  /// Whether a row of the view holds documents that do not see each other.
  bool has_documents() const { return packing_ == Packing::kDocuments; }
  /// Of such a row: for each of its tokens, where in the row its document begins. `starts` is at
  /// least tokens(index) long.
  void read_document_starts(int64_t index, std::span<int64_t> starts) const;
  /// The share of length() x rows() that rows do not fill, 0 to 1. Looks at all of them.
  double padding() const;
  /// Whether a row is to be told a class, and its tokens nothing.
  bool has_classes() const { return !classes_.empty(); }
  const std::vector<int64_t>& classes() const { return classes_; }
  /// [size(), K], or nothing: rows have classes.
  const std::vector<float>& outputs() const { return outputs_; }
  /// Whether rows are answers, of roles.
  bool has_roles() const { return !answers_.roles.empty(); }
  const AnswerRows& answers() const { return answers_; }
  /// Of a row of an answer: the tokens before it.
  int64_t prompt_tokens(int64_t index) const;
  /// Counts the documents, or pieces of documents, of the rows and those of them in which no token
  /// has a loss. Reads all rows if the dataset has prompts or a loss mask; otherwise counts
  /// nothing.
  struct LearnedDocuments {
    int64_t all = 0, without_loss = 0;
  };
  LearnedDocuments learned_documents() const;
  /// Writes the source to the front of `ids`, at least source_tokens(index) long.
  void read_source(int64_t index, std::span<int64_t> ids) const;
  /// Writes the row to the front of both, each at least tokens(index) long, and returns its tokens.
  /// Labels stand at the same positions as ids (the model shifts them); those of prompts are
  /// kIgnored.
  int64_t read(int64_t index, std::span<int64_t> ids, std::span<int64_t> labels) const;

 private:
  struct Range {
    int64_t begin, end;  // of the stream
    int64_t document;    // that holds `begin`; -1: not known yet
  };
  Range range(int64_t index) const;
  /// The source that has row `index`, and its number there.
  struct SourceRow {
    const SequenceView* rows;
    int64_t index;
  };
  SourceRow row_of_source(int64_t index) const;
  void check_row(int64_t index) const;
  std::vector<Piece> pieces() const;
  /// Of the stream's tokens [begin, end), which are in `document` first (-1: not known yet).
  void read_range(Range range, std::span<int64_t> ids, std::span<int64_t> labels) const;
  /// Tokens of [begin, end) that a row of pairs has, and their place in `ids`: the first of them,
  /// and the last one.
  int64_t kept(int64_t begin, int64_t end) const;
  void read_in_memory(int64_t begin, int64_t end, std::span<int64_t> ids) const;
  int64_t rows_of(int64_t document) const;

  std::shared_ptr<const TokenDataset> dataset_;
  int64_t length_;
  Packing packing_;
  LongDocuments long_documents_;
  int64_t start_;
  int64_t size_ = 0;
  std::vector<int64_t> classes_;  // [size_], or none
  std::vector<float> outputs_;    // [size_, K], or none
  std::optional<EncoderRows> encoder_;
  std::optional<int64_t> decoder_start_;
  bool is_packed_ = false;
  AnswerRows answers_;               // roles: [size_], or none
  std::vector<int64_t> first_rows_;  // of documents 0, 1024, 2048, ...
  Bins bins_;                        // of kDocuments
  std::vector<MixedRows> sources_;
  std::vector<int64_t> source_ends_;  // the rows of each source and of those before it
};

}  // namespace lockstep::data
