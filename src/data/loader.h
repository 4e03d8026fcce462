// Data loader: batches prepared ahead of time by a thread.
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
/// end with labels of kIgnored. `length` is the longest row's, at least 2, rounded up
/// (data/row_lengths.h). If the view is packed, a row of the view is a document of one of these
/// rows, which may hold several, and per-document fields below are in the order of the draws;
/// otherwise each document is a row.
struct MicroBatch {
  int64_t rows = 0, length = 0;
  /// For a packed view: positions of the documents. Otherwise empty.
  std::vector<DocumentPlace> places;
  /// For a packed view: the documents' numbers in the sampler's endless stream.
  std::vector<int64_t> document_samples;
  /// For a packed view, [rows, length]: the document number of each token; padding belongs to the
  /// row's last document.
  std::vector<int64_t> documents;
  std::vector<int64_t> ids, labels;  // rows * length
  /// For rows with several documents, [rows, length]: position in the row at which each token's
  /// document begins; padding is a separate document. Otherwise empty.
  std::vector<int64_t> document_starts;
  /// Encoders treat a row with padding as several documents. Token types of rows of two texts,
  /// [rows, length]: 0, and 1 for the second text. Otherwise empty.
  std::vector<int64_t> token_types;
  bool are_masked = false;  // labels are those of the masked tokens themselves
  /// For pairs: [rows, source_length], padded at the end, and the source's tokens of each row (at
  /// least 1). Otherwise 0 and empty.
  int64_t source_length = 0;
  std::vector<int64_t> source, source_tokens;
  /// For rows with classes, and for rewarded answers: [documents], the class of each (kIgnored:
  /// none), and the position of its last non-padding token (0 if all are padding); for an encoder
  /// of its first token, for an encoder-decoder of its last. No token has a label then. Otherwise
  /// empty.
  std::vector<int64_t> classes, positions;
  std::vector<float> outputs;  // [documents, K] of rows that have outputs instead; else empty
  /// For answers: [documents], the role of each (kPlain if nothing was drawn), and the group of
  /// answers that are scored together, numbered from 0. Otherwise empty.
  std::vector<RowRole> roles;
  std::vector<int64_t> groups;
  std::vector<int64_t> lengths;  // for answers: tokens of each, without padding
  /// For answers whose prompts have a loss: [documents], tokens before the answer. Otherwise empty.
  std::vector<int64_t> prompts;
  std::vector<int64_t> row_tokens;  // [rows]: tokens of each, padding left out
  std::vector<Draw> draws;          // the draws; for answers, groups of rows
  std::vector<int64_t> samples;     // [rows]: numbers of the sampler's endless stream, of packed
                                    // rows their first documents'

  /// Index in ids at which a document begins.
  size_t begin(size_t document) const {
    return places.empty()
               ? document * static_cast<size_t>(length)
               : static_cast<size_t>(places[document].row * length + places[document].begin);
  }
};

struct StepBatch {
  std::vector<MicroBatch> micro_batches;
  int64_t samples = 0;         // of the step, over all ranks
  double epoch = 0;            // after this step
  SamplerState after;          // the sampler state of a checkpoint after this step
  std::vector<int64_t> taken;  // of a mixture: samples of each source so far, over all ranks
};

/// Creates the rows of `draws`, for answers all that are drawn together. Without draws: one row of
/// padding whose labels are kIgnored (sample 0), so that a rank without data takes part in every
/// collective and contributes nothing.
MicroBatch make_micro_batch(const SequenceView& view, const std::vector<Draw>& draws);

/// A thread makes up to `prefetch` steps ahead. One thread calls next().
class Loader {
 public:
  Loader(std::shared_ptr<const SequenceView> view, Sampler sampler, int64_t prefetch = 2);
  /// Stops the thread; a step in the making is finished first, the rest is dropped.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Returns this rank's batch of the next step, epoch after epoch without end. Blocks until it is
  /// ready. An exception of the thread is thrown here after the steps made before it, and again at
  /// every later call.
  StepBatch next();
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Seconds that next() has waited so far.
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
  std::deque<StepBatch> queue_;  // guarded by mutex_, as are the next two
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last member: it uses those above
};

}  // namespace lockstep::data
