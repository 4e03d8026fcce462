// Rows of a token file for the model: blocks of the stream, several documents per row, one per row,
// or pairs.
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

/// Label of a position without loss, as in PyTorch and Hugging Face.
inline constexpr int64_t kIgnored = -100;

/// Role of an answer: for pairs and individually scored answers, chosen or rejected; for
/// unlearning, forget set (whose alternate is the chosen one) or retain set.
enum class RowRole : int8_t { kPlain, kChosen, kRejected, kForget, kRetain };

/// Roles of rows of answers (one document each) and how the rows are drawn.
struct AnswerRows {
  std::vector<RowRole> roles;   // per row; if there are fewer, the view has only that many rows
  int64_t at_once = 1;          // rows that are always drawn together
  bool learns_prompts = false;  // prompts of chosen rows also have labels
  bool are_rewarded = false;    // tokens have no labels; a score is read at each row's last token
  std::optional<PartnerRows> partners = {};  // its rows_at_once() equals `at_once`
  /// Reward models: minimum difference between the rewards of the chosen and the rejected answer,
  /// per row (the same for both rows of a pair). Empty: 0.
  std::vector<double> margins = {};
};

/// Settings of encoder rows. All tokens of a document attend to each other, but not to padding. The
/// target of a row is at its first token (classes) or at the masked tokens.
struct EncoderRows {
  std::optional<Masking> masking = {};
  bool tells_segments =
      false;  // a document's prompt is the first segment and the rest the second one
};

class SequenceView;

/// One source of a mixture: its rows and its weight.
struct MixedRows {
  std::string name;
  std::shared_ptr<const SequenceView> rows;
  double weight = 1;
  std::optional<int64_t> max_epochs = {};
};

/// Rows of at most `length` tokens. kConcatenated: consecutive blocks of the whole stream,
/// documents end to end, the last block short. kPerDocument: one document per row; a longer
/// document continues in the next row (kSplit) or is truncated (kTruncate). kDocuments: the same
/// pieces packed several per row (data/bins.h), with their starts. kPairs: a document's prompt is
/// the source of its row, and the row is `start` and the rest of the document; each has at most
/// `length` tokens, not counting `start`, and truncation keeps the last token. `lockstep eval`
/// counts blocks in order. Immutable and thread-safe; memory is one number per 1,024 documents, for
/// kDocuments 16 bytes per document.
class SequenceView {
 public:
  SequenceView(
      std::shared_ptr<const TokenDataset> dataset,
      int64_t length,
      Packing packing = Packing::kConcatenated,
      LongDocuments long_documents = LongDocuments::kSplit,
      int64_t start = 0);
  /// One document per row, each with a class: classes[i] is row i's, kIgnored if it has none. With
  /// `outputs`, [rows, K], each row has K numbers instead, and its class is 0 or kIgnored.
  SequenceView(
      std::shared_ptr<const TokenDataset> dataset,
      int64_t length,
      std::vector<int64_t> classes,
      std::vector<float> outputs = {});
  /// One document per row, and `answers.at_once` rows per sequence.
  SequenceView(std::shared_ptr<const TokenDataset> dataset, int64_t length, AnswerRows answers);

  /// Rows of several sources, in order. The sources must have the same tokenizer, length and
  /// packing, and no roles; either all or none have classes.
  explicit SequenceView(std::vector<MixedRows> sources);

  /// Sets the additional inputs of an encoder.
  void set_encoder(EncoderRows rows) { encoder_ = std::move(rows); }
  const std::optional<EncoderRows>& encoder() const { return encoder_; }
  /// For an encoder-decoder: the encoder reads a row, and the decoder `start` and the row without
  /// its last token, at which the row's class is predicted.
  void set_decoder_start(int64_t start) { decoder_start_ = start; }
  const std::optional<int64_t>& decoder_start() const { return decoder_start_; }
  /// Allows a micro-batch to pack several rows into one (data/packed_rows.h).
  void set_packed(bool packed) { is_packed_ = packed; }
  bool is_packed() const { return is_packed_; }

  /// Number of draws: rows, or groups of rows for answers.
  int64_t size() const {
    return answers_.partners ? answers_.partners->size() : size_ / answers_.at_once;
  }
  int64_t rows() const { return size_; }
  int64_t rows_at_once() const { return answers_.at_once; }
  int64_t length() const { return length_; }
  /// Dataset of the first source; its vocabulary and padding apply to all sources.
  const TokenDataset& dataset() const { return *dataset_; }
  /// Sources of a mixture; otherwise empty.
  const std::vector<MixedRows>& sources() const { return sources_; }
  /// Returns a hash of the data.
  std::string content_hash() const;
  /// Number of tokens of row `index`, 1 to length(); for pairs including `start`.
  int64_t tokens(int64_t index) const;
  /// Number of tokens of the row's source; 0 if rows are not pairs.
  int64_t source_tokens(int64_t index) const;
  bool has_sources() const { return packing_ == Packing::kPairs; }
  Packing packing() const { return is_packed_ ? Packing::kDocuments : packing_; }
  /// True if rows contain several documents that do not attend to each other.
  bool has_documents() const { return packing_ == Packing::kDocuments; }
  /// For such rows: writes the start of each token's document within the row. `starts` has at least
  /// tokens(index) elements.
  void read_document_starts(int64_t index, std::span<int64_t> starts) const;
  /// Returns the fraction of length() x rows() that is padding, 0 to 1. Reads the lengths of all
  /// rows.
  double padding() const;
  /// True if rows have classes instead of token targets.
  bool has_classes() const { return !classes_.empty(); }
  const std::vector<int64_t>& classes() const { return classes_; }
  /// [size(), K] outputs; empty if rows have classes.
  const std::vector<float>& outputs() const { return outputs_; }
  /// True if rows are answers with roles.
  bool has_roles() const { return !answers_.roles.empty(); }
  const AnswerRows& answers() const { return answers_; }
  /// For an answer: number of tokens before it.
  int64_t prompt_tokens(int64_t index) const;
  /// Counts the documents, or pieces of documents, of the rows and those of them in which no token
  /// has a loss. Reads all rows if the dataset has prompts or a loss mask; otherwise counts
  /// nothing.
  struct LearnedDocuments {
    int64_t all = 0, without_loss = 0;
  };
  LearnedDocuments learned_documents() const;
  /// Writes the source to the front of `ids`, which has at least source_tokens(index) elements.
  void read_source(int64_t index, std::span<int64_t> ids) const;
  /// Writes the row to the front of both, each with at least tokens(index) elements, and returns
  /// its tokens. Labels are at the same positions as ids (the model shifts them); those of prompts
  /// are kIgnored.
  int64_t read(int64_t index, std::span<int64_t> ids, std::span<int64_t> labels) const;

 private:
  struct Range {
    int64_t begin, end;  // positions in the stream
    int64_t document;    // document that contains `begin`; -1 if unknown
  };
  Range range(int64_t index) const;
  /// Source that contains row `index`, and the row's index in it.
  struct SourceRow {
    const SequenceView* rows;
    int64_t index;
  };
  SourceRow row_of_source(int64_t index) const;
  void check_row(int64_t index) const;
  std::vector<Piece> pieces() const;
  /// Reads the stream's tokens [begin, end); `document` contains the first one (-1 if unknown).
  void read_range(Range range, std::span<int64_t> ids, std::span<int64_t> labels) const;
  /// Tokens of [begin, end) that a row of pairs has, and their place in `ids`: the first ones and
  /// the last one.
  int64_t kept(int64_t begin, int64_t end) const;
  void read_in_memory(int64_t begin, int64_t end, std::span<int64_t> ids) const;
  int64_t rows_of(int64_t document) const;

  std::shared_ptr<const TokenDataset> dataset_;
  int64_t length_;
  Packing packing_;
  LongDocuments long_documents_;
  int64_t start_;
  int64_t size_ = 0;
  std::vector<int64_t> classes_;  // [size_], or empty
  std::vector<float> outputs_;    // [size_, K], or empty
  std::optional<EncoderRows> encoder_;
  std::optional<int64_t> decoder_start_;
  bool is_packed_ = false;
  AnswerRows answers_;               // roles: [size_], or empty
  std::vector<int64_t> first_rows_;  // first rows of documents 0, 1024, 2048, ...
  Bins bins_;                        // for kDocuments
  std::vector<MixedRows> sources_;
  std::vector<int64_t> source_ends_;  // cumulative row counts of the sources
};

}  // namespace lockstep::data
