// Batches, made ahead of time by a thread.
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

/// Rows for one forward and backward pass, row-major [rows, length]. Short rows are padded at the
/// end with labels of kIgnored. `length` is the longest row's, at least 2, rounded up
/// (data/row_lengths.h). Where the view is packed, a row of the view is a document of one of these
/// rows, which may hold several, and what is said below to be of documents is in the order of the
/// draws; else a document is a row.
struct MicroBatch {
  int64_t rows = 0, length = 0;
  /// Of a packed view: where the documents lie. Else empty.
  std::vector<DocumentPlace> places;
  /// Likewise: the documents' numbers in the sampler's endless stream.
  std::vector<int64_t> document_samples;
  /// Likewise [rows, length]: the number of the document that each token is of; padding is its
  /// row's last one's.
  std::vector<int64_t> documents;
  std::vector<int64_t> ids, labels;  // rows * length
  /// Of rows that hold several documents: [rows, length], where in its row the document of each
  /// token begins; padding is a document by itself. Else empty.
  std::vector<int64_t> document_starts;
  /// Of an encoder, for whom a row with padding holds several documents. Token types are of rows of
  /// two texts, [rows, length]: 0, and 1 of the second. Else empty.
  std::vector<int64_t> token_types;
  bool are_masked = false;  // labels are those of the hidden tokens themselves
  /// Of pairs: [rows, source_length], padded at the end, and how many of each row are the source's
  /// (at least 1). Else 0, and empty.
  int64_t source_length = 0;
  std::vector<int64_t> source, source_tokens;
  /// Of rows with classes, and of answers that are rewarded: [documents], each one's class,
  /// kIgnored for none, and the position in it of its last token that is no padding (0 where all
  /// are), of an encoder of its first, of an encoder and a decoder of its last. Then no token has a
  /// label. Else empty.
  std::vector<int64_t> classes, positions;
  std::vector<float> outputs;  // [documents, K] of rows that have outputs instead; else empty
  /// Of answers: [documents], what each is (kPlain where nothing was drawn), and which are judged
  /// together, by numbers from 0. Else empty.
  std::vector<RowRole> roles;
  std::vector<int64_t> groups;
  std::vector<double> margins;   // of answers with AnswerRows::margins: [documents]; else empty
  std::vector<int64_t> lengths;  // likewise: tokens of each, padding left out
  /// Of answers whose prompts are learned: [documents], tokens before the answer. Else empty.
  std::vector<int64_t> prompts;
  std::vector<int64_t> row_tokens;  // [rows]: tokens of each, padding left out
  std::vector<Draw> draws;          // what was drawn; of answers, groups of rows
  std::vector<int64_t> samples;     // [rows]: numbers of the sampler's endless stream, of packed
                                    // rows their first documents'

  /// Where in ids a document begins.
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
  SamplerState after;          // what a checkpoint after this step holds
  std::vector<int64_t> taken;  // of a mixture: samples of each source so far, over all ranks
};

/// The rows of `draws`, of answers all that are drawn together. Without draws: one row of padding,
/// all of whose labels are kIgnored (sample 0), so that a rank without data takes part in every
/// collective and adds nothing.
MicroBatch make_micro_batch(const SequenceView& view, const std::vector<Draw>& draws);

/// A thread makes up to `prefetch` steps ahead. One thread calls next().
class Loader {
 public:
  Loader(std::shared_ptr<const SequenceView> view, Sampler sampler, int64_t prefetch = 2);
  /// Stops the thread; a step in the making is finished first, the rest is dropped.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next step's batch of this rank; endless, epoch after epoch. Waits where it is not ready.
  /// An exception of the thread comes out here, after the steps that were made before it, and again
  /// at every later call.
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
  std::thread thread_;  // last: it uses what stands above
};

}  // namespace lockstep::data
