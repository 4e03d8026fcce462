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
/// end, with labels of kIgnored. `length` is that of the longest row, at least 2, rounded up
/// (data/row_lengths.h). If the view is packed, each row of the view is a document, and a row of
/// the micro-batch may contain several of them; per-document fields are in the order of the draws.
/// Otherwise each document is a row.
struct MicroBatch {
  int64_t rows = 0, length = 0;
  /// For a packed view: positions of the documents. Otherwise empty.
  std::vector<DocumentPlace> places;
  /// For a packed view: the documents' sample numbers in the sampler's stream.
  std::vector<int64_t> document_samples;
  /// For a packed view, [rows, length]: document index of each token. Padding belongs to the last
  /// document of its row.
  std::vector<int64_t> documents;
  std::vector<int64_t> ids, labels;  // rows * length
  /// For rows with several documents, [rows, length]: start of each token's document within the
  /// row. Padding is a separate document. Otherwise empty.
  std::vector<int64_t> document_starts;
  /// For encoders with rows of two texts, [rows, length]: token types, 1 for the second text,
  /// otherwise 0. Otherwise empty. Encoders treat a row with padding as several documents.
  std::vector<int64_t> token_types;
  bool are_masked = false;  // labels are at the masked tokens and are not shifted
  /// For pairs: [rows, source_length], padded at the end, and the number of source tokens of each
  /// row (at least 1). Otherwise 0 and empty.
  int64_t source_length = 0;
  std::vector<int64_t> source, source_tokens;
  /// For rows with classes and for rewarded answers: [documents], the class of each (kIgnored if it
  /// has none), and the position at which it is predicted: the last non-padding token (0 if all are
  /// padding); for encoders the first token, for encoder-decoders the last. Tokens have no labels.
  /// Otherwise empty.
  std::vector<int64_t> classes, positions;
  std::vector<float> outputs;  // [documents, K] for rows with outputs instead; otherwise empty
  /// For answers: [documents], the role of each (kPlain without draws), and the index of the group
  /// of answers that are scored together. Otherwise empty.
  std::vector<RowRole> roles;
  std::vector<int64_t> groups;
  /// For answers with AnswerRows::margins: [documents]. Otherwise empty.
  std::vector<double> margins;
  std::vector<int64_t> lengths;  // for answers: number of tokens of each, without padding
  /// For answers whose prompts have a loss: [documents], number of tokens before the answer.
  /// Otherwise empty.
  std::vector<int64_t> prompts;
  std::vector<int64_t> row_tokens;  // [rows]: number of tokens of each, without padding
  std::vector<Draw> draws;          // the draws; for answers, one per group of rows
  std::vector<int64_t> samples;  // [rows]: sample numbers in the sampler's stream; for packed rows,
                                 // of their first document

  /// Index in ids at which a document begins.
  size_t begin(size_t document) const {
    return places.empty()
               ? document * static_cast<size_t>(length)
               : static_cast<size_t>(places[document].row * length + places[document].begin);
  }
};

struct StepBatch {
  std::vector<MicroBatch> micro_batches;
  int64_t samples = 0;  // in the step, over all ranks
  double epoch = 0;     // after this step
  SamplerState after;   // the sampler state of a checkpoint after this step
  std::vector<int64_t>
      taken;  // for a mixture: samples drawn from each source so far, over all ranks
};

/// Creates the rows of `draws`; for answers, all rows of each group. Without draws, creates one row
/// of padding with labels of kIgnored (sample 0), so that a rank without data takes part in every
/// collective and contributes nothing.
MicroBatch make_micro_batch(const SequenceView& view, const std::vector<Draw>& draws);

/// Data loader. A background thread prepares up to `prefetch` steps ahead. next() must be called
/// from one thread.
class Loader {
 public:
  Loader(std::shared_ptr<const SequenceView> view, Sampler sampler, int64_t prefetch = 2);
  /// Stops the thread after the step in progress and drops prefetched steps.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Returns this rank's batch of the next step and blocks until it is ready. Epochs follow each
  /// other without end. An exception of the thread is rethrown here after the preceding steps have
  /// been returned, and again at every later call.
  StepBatch next();
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Total time that next() has waited, in seconds.
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
