// Data loader with background prefetch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/packed_rows.h"
#include "data/sampler.h"
#include "data/sequences.h"

namespace lockstep::data {

/// Rows of one forward and backward pass, row-major [rows, length]. Short rows are padded at the
/// end, with kIgnored as labels. `length` is the length of the longest row, at least 2, rounded up
/// (data/row_lengths.h). If the view is packed, each row of the view is a document, and a row of
/// the micro-batch may contain several documents. Fields per document are in the order of the
/// draws. If the view is not packed, each document is a row.
struct MicroBatch {
  int64_t rows = 0, length = 0;
  /// Positions of the documents in a packed view. Otherwise empty.
  std::vector<DocumentPlace> places;
  /// Sample numbers of the documents in the sampler's stream, for a packed view.
  std::vector<int64_t> document_samples;
  /// [rows, length]: document index of each token, for a packed view. Padding belongs to the last
  /// document of its row.
  std::vector<int64_t> documents;
  std::vector<int64_t> ids, labels;  // rows * length
  /// [rows, length]: start of each token's document within the row, for rows with several
  /// documents. Padding counts as a separate document. Otherwise empty.
  std::vector<int64_t> document_starts;
  /// [rows, length]: token types, for encoders with rows of two texts: 1 for the second text,
  /// otherwise 0. Otherwise empty. For encoders, a row with padding counts as several documents.
  std::vector<int64_t> token_types;
  bool are_masked = false;  // labels are at the masked tokens and not shifted
  /// For pairs: [rows, source_length], padded at the end, and the number of source tokens in each
  /// row (at least 1). Otherwise 0 and empty.
  int64_t source_length = 0;
  std::vector<int64_t> source, source_tokens;
  /// For rows with classes and for rewarded answers: [documents]. `classes` is the class of each
  /// document, or kIgnored if it has none. `positions` is the position at which it is predicted:
  /// the first token for encoders, the last token for encoder-decoders, otherwise the last token
  /// that is not padding (0 if all are padding). Tokens have no labels. Otherwise empty.
  std::vector<int64_t> classes, positions;
  std::vector<float>
      outputs;  // [documents, K], for rows with outputs instead of classes; otherwise empty
  /// For answers: [documents]. `roles` is the role of each document (kPlain without draws), and
  /// `groups` the index of its group of answers that are scored together. Otherwise empty.
  std::vector<RowRole> roles;
  std::vector<int64_t> groups;
  /// For answers with AnswerRows::margins: [documents]. Otherwise empty.
  std::vector<double> margins;
  std::vector<int64_t> lengths;  // [documents]: number of tokens without padding, for answers
  /// [documents]: number of tokens before the answer, for answers whose prompts have a loss.
  /// Otherwise empty.
  std::vector<int64_t> prompts;
  std::vector<int64_t> row_tokens;  // [rows]: number of tokens without padding
  std::vector<Draw> draws;          // draws of the rows; for answers, one per group of rows
  std::vector<int64_t> samples;  // [rows]: sample numbers in the sampler's stream; for packed rows,
                                 // of their first document

  /// Returns the index in `ids` at which a document begins.
  size_t begin(size_t document) const {
    return places.empty()
               ? document * static_cast<size_t>(length)
               : static_cast<size_t>(places[document].row * length + places[document].begin);
  }
};

struct StepBatch {
  std::vector<MicroBatch> micro_batches;
  int64_t samples = 0;  // number of samples in the step, over all ranks
  double epoch = 0;     // after this step
  SamplerState after;   // sampler state to save in a checkpoint after this step
  std::vector<int64_t>
      taken;  // for a mixture: samples drawn from each source so far, over all ranks
};

/// Creates the rows of `draws`; for answers, all rows of each group. Without draws, creates one row
/// of padding with kIgnored as labels (sample 0). A rank without data can then take part in every
/// collective without contributing to the loss.
MicroBatch make_micro_batch(const SequenceView& view, const std::vector<Draw>& draws);

/// Data loader. A background thread prepares up to `prefetch` steps in advance. next() must always
/// be called on the same thread.
class Loader {
 public:
  Loader(std::shared_ptr<const SequenceView> view, Sampler sampler, int64_t prefetch = 2);
  /// Stops the thread after the current step and drops prefetched steps.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Returns this rank's batch of the next step. Blocks until it is ready. Epochs are repeated
  /// without end. If the thread throws an exception, it is rethrown after all earlier steps have
  /// been returned, and in every later call.
  StepBatch next();
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Returns the total time in seconds that next() has waited.
  double waited_seconds() const { return waited_seconds_; }

 private:
  void run();

  std::shared_ptr<const SequenceView> view_;
  Sampler sampler_;
  const size_t prefetch_;
  const int64_t steps_per_epoch_;
  double waited_seconds_ = 0;

  std::mutex mutex_;
  std::condition_variable made_, taken_;
  std::deque<StepBatch> queue_;  // guarded by mutex_, as are the next two members
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last member: the thread uses the members above
};

}  // namespace lockstep::data
