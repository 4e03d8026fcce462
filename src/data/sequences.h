// Rows of a token file for the model: blocks of the token stream, several documents per row, one
// document per row, or pairs.
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

/// Label of positions without loss, as in PyTorch and Hugging Face.
inline constexpr int64_t kIgnored = -100;

/// Role of an answer. In preference data, an answer is chosen or rejected. In unlearning, it
/// belongs to the forget set or the retain set; alternates of forget rows are chosen answers.
enum class RowRole : int8_t { kPlain, kChosen, kRejected, kForget, kRetain };

/// Roles of answers (one document per row), and how their rows are drawn.
struct AnswerRows {
  std::vector<RowRole> roles;   // one per row; the view has only as many rows as there are roles
  int64_t at_once = 1;          // number of rows that are always drawn together
  bool learns_prompts = false;  // prompts of chosen rows have labels, too
  bool are_rewarded = false;    // tokens have no labels; a score is read at each row's last token
  std::optional<PartnerRows> partners = {};  // rows_at_once() must be equal to `at_once`
  /// For reward models: minimum difference between the rewards of the chosen and the rejected
  /// answer, per row. Both rows of a pair have the same value. Empty: 0.
  std::vector<double> margins = {};
};

/// Settings for the rows of encoders. All tokens of a document attend to each other, but not to
/// padding. Targets are at the first token of a row (classes) or at masked tokens.
struct EncoderRows {
  std::optional<Masking> masking = {};
  bool tells_segments =
      false;  // a document's prompt is the first segment and the rest the second one
};

class SequenceView;

/// Source of a mixture: its rows and its weight.
struct MixedRows {
  std::string name;
  std::shared_ptr<const SequenceView> rows;
  double weight = 1;
  std::optional<int64_t> max_epochs = {};
};

/// Rows of at most `length` tokens.
///
/// - kConcatenated: consecutive blocks of the whole stream, in which documents follow each other;
///   the last block may be short
/// - kPerDocument: one document per row; a longer document is continued in the next row (kSplit)
///   or truncated (kTruncate)
/// - kDocuments: the same pieces as kPerDocument, several of them packed into a row
///   (data/bins.h)
/// - kPairs: the source is the document's prompt, and the row is `start` followed by the rest of
///   the document; each has at most `length` tokens without `start`, and truncation keeps the last
///   token
///
/// `lockstep eval` numbers blocks in this order. Immutable and thread-safe. Needs memory for one
/// number per 1,024 documents, or 16 bytes per document for kDocuments.
class SequenceView {
 public:
  SequenceView(
      std::shared_ptr<const TokenDataset> dataset,
      int64_t length,
      Packing packing = Packing::kConcatenated,
      LongDocuments long_documents = LongDocuments::kSplit,
      int64_t start = 0);
  /// One document per row, each with a class. classes[i] is the class of row i, or kIgnored if it
  /// has none. With `outputs`, [rows, K], each row has K numbers instead, and its class is 0 or
  /// kIgnored.
  SequenceView(
      std::shared_ptr<const TokenDataset> dataset,
      int64_t length,
      std::vector<int64_t> classes,
      std::vector<float> outputs = {});
  /// One answer per row, and `answers.at_once` rows per draw.
  SequenceView(std::shared_ptr<const TokenDataset> dataset, int64_t length, AnswerRows answers);

  /// Rows of several sources, in order. All sources must have the same tokenizer, length and
  /// packing, and no roles. Either all or none have classes.
  explicit SequenceView(std::vector<MixedRows> sources);

  /// Sets the additional inputs of an encoder.
  void set_encoder(EncoderRows rows) { encoder_ = std::move(rows); }
  const std::optional<EncoderRows>& encoder() const { return encoder_; }
  /// For encoder-decoder classifiers: the encoder reads a row. The decoder reads `start` and the
  /// row without its last token. The row's class is predicted at the last position.
  void set_decoder_start(int64_t start) { decoder_start_ = start; }
  const std::optional<int64_t>& decoder_start() const { return decoder_start_; }
  /// Sets whether a micro-batch may pack several rows into one (data/packed_rows.h).
  void set_packed(bool packed) { is_packed_ = packed; }
  bool is_packed() const { return is_packed_; }

  /// Returns the number of draws: rows, or groups of rows for answers.
  int64_t size() const {
    return answers_.partners ? answers_.partners->size() : size_ / answers_.at_once;
  }
  int64_t rows() const { return size_; }
  int64_t rows_at_once() const { return answers_.at_once; }
  int64_t length() const { return length_; }
  /// Returns the dataset of the first source. Its vocabulary and padding token apply to all
  /// sources.
  const TokenDataset& dataset() const { return *dataset_; }
  /// Returns the sources of a mixture. Otherwise empty.
  const std::vector<MixedRows>& sources() const { return sources_; }
  /// Returns a hash of the data.
  std::string content_hash() const;
  /// Returns the number of tokens in row `index`, 1 to length(). For pairs, `start` is included.
  int64_t tokens(int64_t index) const;
  /// Returns the number of tokens in the row's source, or 0 if rows are not pairs.
  int64_t source_tokens(int64_t index) const;
  bool has_sources() const { return packing_ == Packing::kPairs; }
  Packing packing() const { return is_packed_ ? Packing::kDocuments : packing_; }
  /// Returns true if rows contain several documents that do not attend to each other.
  bool has_documents() const { return packing_ == Packing::kDocuments; }
  /// For rows with several documents: writes the start of each token's document within the row.
  /// `starts` must have at least tokens(index) elements.
  void read_document_starts(int64_t index, std::span<int64_t> starts) const;
  /// Returns the fraction of padding in length() x rows() tokens, from 0 to 1. Reads the lengths of
  /// all rows.
  double padding() const;
  /// Returns true if rows have classes instead of token targets.
  bool has_classes() const { return !classes_.empty(); }
  const std::vector<int64_t>& classes() const { return classes_; }
  /// Returns the outputs, [size(), K]. Empty if rows have classes.
  const std::vector<float>& outputs() const { return outputs_; }
  /// Returns true if rows are answers with roles.
  bool has_roles() const { return !answers_.roles.empty(); }
  const AnswerRows& answers() const { return answers_; }
  /// Returns the number of tokens before an answer.
  int64_t prompt_tokens(int64_t index) const;
  /// Counts the documents (or pieces of documents) in the rows, and those without any token that
  /// has a loss. Reads all rows if the dataset has prompts or a loss mask. Otherwise counts
  /// nothing.
  struct LearnedDocuments {
    int64_t all = 0, without_loss = 0;
  };
  LearnedDocuments learned_documents() const;
  /// Writes the source to the start of `ids`, which must have at least source_tokens(index)
  /// elements.
  void read_source(int64_t index, std::span<int64_t> ids) const;
  /// Writes the row to the start of `ids` and `labels`, which must have at least tokens(index)
  /// elements each, and returns its number of tokens. Labels are at the same positions as ids (the
  /// model shifts them). Labels of prompts are kIgnored.
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
  /// Reads the tokens of a range of the stream.
  void read_range(Range range, std::span<int64_t> ids, std::span<int64_t> labels) const;
  /// Returns the number of tokens of [begin, end) that a row of pairs contains. They are the first
  /// tokens and the last one.
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
