// Tests of the data loader: micro-batches and background loading.
#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "data_testing.h"

namespace lockstep::data {
namespace loader_test {

std::shared_ptr<const SequenceView> make_view(const TemporaryFolder& folder, int64_t length) {
  const auto path = write_tokens(folder, {{{1, 2, 3, 9}}, {{4, 5, 9}, 2}, {{6, 7, 8, 9}}});
  return std::make_shared<SequenceView>(TokenDataset::open(path), length);
}

SamplerOptions sequential(int64_t sequences, int64_t batch) {
  SamplerOptions options;
  options.sequences = sequences;
  options.global_batch = batch;
  options.micro_batch = batch;
  options.order = SampleOrder::kSequential;
  return options;
}

TEST(MicroBatch, PadsShortRowsAndMasksThem) {
  const TemporaryFolder folder;
  const auto view = make_view(folder, 4);
  const MicroBatch batch = make_micro_batch(*view, {{2, 12}, {1, 13}});
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 4);
  EXPECT_EQ(batch.ids, (std::vector<int64_t>{7, 8, 9, 999, 4, 5, 9, 6}));
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{7, 8, 9, -100, -100, -100, 9, 6}));
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{12, 13}));
  EXPECT_EQ(make_micro_batch(*view, {{2, 0}}).length, 4);  // same length as the view
}

TEST(MicroBatch, IsAsLongAsAMultipleOfEightThatHoldsItsLongestRow) {
  const TemporaryFolder folder;
  const auto set =
      TokenDataset::open(write_tokens(folder, {{{1, 2, 9}}, {{5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 9}}}));
  const SequenceView view(set, 30, Packing::kPerDocument);
  const MicroBatch batch = make_micro_batch(view, {{1, 0}, {0, 0}});
  EXPECT_EQ(batch.length, 16);
  EXPECT_EQ(std::count(batch.labels.begin(), batch.labels.end(), kIgnored), 5 + 13);
  EXPECT_EQ(make_micro_batch(view, {{0, 0}}).length, 8);
}

TEST(MicroBatch, TellsWhereDocumentsBeginAndPaddingIsOne) {
  const TemporaryFolder folder;
  const auto set =
      TokenDataset::open(write_tokens(folder, {{{1, 9}}, {{2, 3, 9}}, {{4, 5, 6, 9}}}));
  const SequenceView view(set, 6, Packing::kDocuments);
  const MicroBatch batch = make_micro_batch(view, {{0, 3}, {1, 4}});
  EXPECT_EQ(batch.length, 6);
  EXPECT_EQ(batch.ids, (std::vector<int64_t>{1, 9, 4, 5, 6, 9, 2, 3, 9, 999, 999, 999}));
  EXPECT_EQ(batch.document_starts, (std::vector<int64_t>{0, 0, 2, 2, 2, 2, 0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(
      batch.labels, (std::vector<int64_t>{-100, 9, -100, 5, 6, 9, -100, 3, 9, -100, -100, -100}));
  EXPECT_EQ(make_micro_batch(view, {}).document_starts, std::vector<int64_t>(6, 0));
}

TEST(MicroBatch, PadsTheSourcesOfPairs) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(write_tokens(folder, {{{1, 2, 9, 3, 9}, 3}, {{4, 9}, 0}}));
  const SequenceView view(set, 4, Packing::kPairs, LongDocuments::kSplit, 7);
  const MicroBatch batch = make_micro_batch(view, {{0, 5}, {1, 6}});
  EXPECT_EQ(batch.length, 4);
  EXPECT_EQ(batch.ids, (std::vector<int64_t>{7, 3, 9, 999, 7, 4, 9, 999}));
  EXPECT_EQ(batch.source_length, 4);
  EXPECT_EQ(batch.source, (std::vector<int64_t>{1, 2, 9, 999, 999, 999, 999, 999}));
  EXPECT_EQ(
      batch.source_tokens, (std::vector<int64_t>{3, 1}));  // an empty source counts as one token
  const MicroBatch empty = make_micro_batch(view, {});
  EXPECT_EQ(empty.source, std::vector<int64_t>(4, 999));
  EXPECT_EQ(empty.labels, std::vector<int64_t>(4, -100));
}

TEST(MicroBatch, AnEncoderReadsARowAndADecoderTheSameOnePlaceOn) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(write_tokens(folder, {{{1, 2, 3, 9}}, {{4, 9}}}));
  SequenceView view(set, 4, {2, 1});
  view.set_decoder_start(7);
  const MicroBatch batch = make_micro_batch(view, {{0, 5}, {1, 6}});
  EXPECT_EQ(batch.source, (std::vector<int64_t>{1, 2, 3, 9, 4, 9, 999, 999}));
  EXPECT_EQ(batch.source_length, 4);
  EXPECT_EQ(batch.source_tokens, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(batch.ids, (std::vector<int64_t>{7, 1, 2, 3, 7, 4, 9, 999}));
  EXPECT_EQ(batch.positions, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(batch.classes, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(make_micro_batch(view, {}).source_tokens, std::vector<int64_t>{1});
}

TEST(MicroBatch, WithoutDrawsIsOneMaskedRow) {
  const TemporaryFolder folder;
  const MicroBatch batch = make_micro_batch(*make_view(folder, 4), {});
  EXPECT_EQ(batch.rows, 1);
  EXPECT_EQ(batch.length, 4);
  EXPECT_EQ(batch.ids, std::vector<int64_t>(4, 999));
  EXPECT_EQ(batch.labels, std::vector<int64_t>(4, -100));
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{0}));
}

TEST(Loader, GivesStepsInOrderAndTheirStates) {
  const TemporaryFolder folder;
  const auto view = make_view(folder, 4);
  for (const int64_t prefetch : {1, 2, 7}) {
    Loader loader(view, Sampler(sequential(3, 2), {0, 0, 1}), prefetch);
    EXPECT_EQ(loader.steps_per_epoch(), 2);
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      const StepBatch first = loader.next();
      EXPECT_EQ(first.after, (SamplerState{epoch, 2, 1}));
      EXPECT_EQ(first.micro_batches.at(0).rows, 2);
      const StepBatch second = loader.next();
      EXPECT_EQ(second.samples, 1);
      EXPECT_EQ(second.after, (SamplerState{epoch + 1, 0, 1}));
      EXPECT_EQ(second.micro_batches.at(0).samples, (std::vector<int64_t>{3 * epoch + 2}));
      EXPECT_EQ(second.epoch, static_cast<double>(epoch + 1));
    }
  }
}

TEST(Loader, HandsOverErrorsAfterGoodStepsAndKeepsThem) {
  const TemporaryFolder folder;
  // The sampler expects more sequences than the dataset has, so reading the fourth one fails.
  Loader loader(make_view(folder, 4), Sampler(sequential(5, 1), {0, 0, 1}), 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(loader.next().samples, 1);
  }
  for (int i = 0; i < 2; ++i) {
    expect_parts(error_of([&] { loader.next(); }, ErrorKind::kInternal), {"sequence 3 of 3"});
  }
}

TEST(Loader, StopsAtOnceWhenNobodyTakes) {
  const TemporaryFolder folder;
  const auto view = make_view(folder, 4);
  for (int i = 0; i < 50; ++i) {
    Loader loader(view, Sampler(sequential(3, 1), {0, 0, 1}), 2);
    if (i % 2 == 0) {
      loader.next();
    }
  }
}

TEST(Loader, MeasuresOnlyItsOwnWaiting) {
  const TemporaryFolder folder;
  Loader loader(make_view(folder, 4), Sampler(sequential(3, 1), {0, 0, 1}), 2);
  loader.next();
  const double before = loader.waited_seconds();
  EXPECT_GE(before, 0);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));  // two further steps have been prefetched
  loader.next();
  EXPECT_LT(loader.waited_seconds() - before, 0.04);
}

}  // namespace loader_test
}  // namespace lockstep::data
