#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <utility>

#include <pthread.h>

#include "data/row_lengths.h"

namespace lockstep::data {

namespace {

void add_sources(const SequenceView& view, const std::vector<Draw>& draws, MicroBatch& batch) {
  batch.source_length = 1;
  for (const Draw& draw : draws) {
    batch.source_length = std::max(batch.source_length, view.source_tokens(draw.sequence));
  }
  batch.source_length = padded_length(batch.source_length, view.length());
  const auto length = static_cast<size_t>(batch.source_length);
  batch.source.assign(static_cast<size_t>(batch.rows) * length, view.dataset().pad());
  batch.source_tokens.assign(static_cast<size_t>(batch.rows), 1);
  for (size_t row = 0; row < draws.size(); ++row) {
    view.read_source(draws[row].sequence, std::span(batch.source).subspan(row * length, length));
    batch.source_tokens[row] = std::max<int64_t>(1, view.source_tokens(draws[row].sequence));
  }
}

void add_document_starts(
    const SequenceView& view, const std::vector<Draw>& draws, MicroBatch& batch) {
  const auto length = static_cast<size_t>(batch.length);
  batch.document_starts.assign(static_cast<size_t>(batch.rows) * length, 0);
  for (size_t row = 0; row < draws.size(); ++row) {
    const auto starts = std::span(batch.document_starts).subspan(row * length, length);
    const int64_t tokens = view.tokens(draws[row].sequence);
    if (view.has_documents()) {
      view.read_document_starts(draws[row].sequence, starts);
    }
    std::fill(starts.begin() + tokens, starts.end(), tokens);
  }
}

/// Gives each row a class at its last token and no token a label. What padding is, is asked of the
/// ids alone: a text that ends in the padding's token is read before it, as Hugging Face's
/// classifiers do.
void add_classes(
    const SequenceView& view,
    const std::vector<Draw>& draws,
    const std::function<int64_t(int64_t sequence)>& class_of,
    MicroBatch& batch) {
  const int64_t pad = view.dataset().pad();
  batch.labels.assign(batch.labels.size(), kIgnored);
  batch.classes.assign(static_cast<size_t>(batch.rows), kIgnored);
  batch.positions.assign(static_cast<size_t>(batch.rows), 0);
  const size_t outputs = view.outputs().empty() ? 0 : view.outputs().size() / view.classes().size();
  batch.outputs.assign(static_cast<size_t>(batch.rows) * outputs, 0.0F);
  for (size_t row = 0; row < draws.size(); ++row) {
    const int64_t sequence = draws[row].sequence;
    batch.classes[row] = class_of(sequence);
    std::copy_n(
        view.outputs().begin() +
            static_cast<std::ptrdiff_t>(static_cast<size_t>(sequence) * outputs),
        outputs,
        batch.outputs.begin() + static_cast<std::ptrdiff_t>(row * outputs));
    for (int64_t at = view.encoder() ? 0 : batch.length - 1; at > 0 && batch.positions[row] == 0;
         --at) {
      const bool is_padding =
          batch.ids[row * static_cast<size_t>(batch.length) + static_cast<size_t>(at)] == pad;
      batch.positions[row] = is_padding ? 0 : at;
    }
  }
}

/// What an encoder is told of rows.
void add_encoder_inputs(
    const SequenceView& view, const std::vector<Draw>& draws, MicroBatch& batch) {
  const auto length = static_cast<size_t>(batch.length);
  batch.are_masked = view.encoder()->masking.has_value();
  batch.token_types.assign(view.encoder()->tells_segments ? batch.ids.size() : 0, 0);
  for (size_t row = 0; row < draws.size(); ++row) {
    const auto tokens = static_cast<size_t>(batch.row_tokens[row]);
    if (batch.are_masked) {
      view.encoder()->masking->apply(
          draws[row].sample,
          std::span(batch.ids).subspan(row * length, tokens),
          std::span(batch.labels).subspan(row * length, tokens));
    }
    const auto first = static_cast<size_t>(
        view.encoder()->tells_segments ? view.prompt_tokens(draws[row].sequence) : 0);
    if (first > 0 && first < tokens) {
      const auto types = std::span(batch.token_types).subspan(row * length, length);
      std::fill(
          types.begin() + static_cast<std::ptrdiff_t>(first),
          types.begin() + static_cast<std::ptrdiff_t>(tokens),
          1);
    }
  }
}

/// The rows of what is drawn: each is a draw by itself.
std::vector<Draw> rows_of(const SequenceView& view, const std::vector<Draw>& draws) {
  const int64_t at_once = view.rows_at_once();
  std::vector<Draw> rows;
  const std::optional<PartnerRows>& partners = view.answers().partners;
  for (const Draw& draw : draws) {
    const std::vector<int64_t> taken = partners ? partners->rows_of(draw) : std::vector<int64_t>();
    for (int64_t i = 0; i < at_once; ++i) {
      const int64_t row = partners ? taken[static_cast<size_t>(i)] : draw.sequence * at_once + i;
      rows.push_back({row, draw.sample * at_once + i});
    }
  }
  return rows;
}

void add_answers(const SequenceView& view, const std::vector<Draw>& rows, MicroBatch& batch) {
  const AnswerRows& answers = view.answers();
  if (answers.are_rewarded) {
    add_classes(view, rows, [](int64_t /*row*/) { return 0; }, batch);
  }
  batch.roles.assign(static_cast<size_t>(batch.rows), RowRole::kPlain);
  batch.groups.assign(static_cast<size_t>(batch.rows), 0);
  batch.lengths.assign(static_cast<size_t>(batch.rows), 0);
  batch.prompts.assign(answers.learns_prompts ? static_cast<size_t>(batch.rows) : 0, 0);
  for (size_t row = 0; row < rows.size(); ++row) {
    const int64_t sequence = rows[row].sequence;
    batch.roles[row] = answers.roles[static_cast<size_t>(sequence)];
    batch.groups[row] = static_cast<int64_t>(row) / answers.at_once;
    batch.lengths[row] = view.tokens(sequence);
    if (answers.learns_prompts && batch.roles[row] == RowRole::kChosen) {
      const size_t begin = row * static_cast<size_t>(batch.length);
      batch.prompts[row] = view.prompt_tokens(sequence);
      std::copy_n(batch.ids.begin() + begin, batch.prompts[row], batch.labels.begin() + begin);
    }
  }
}

}  // namespace

MicroBatch make_micro_batch(const SequenceView& view, const std::vector<Draw>& drawn) {
  const std::vector<Draw> draws = rows_of(view, drawn);
  MicroBatch batch;
  batch.draws = drawn;
  batch.rows = std::max<int64_t>(1, static_cast<int64_t>(draws.size()));
  batch.length = 2;
  for (const Draw& draw : draws) {
    batch.length = std::max(batch.length, view.tokens(draw.sequence));
  }
  batch.length = padded_length(batch.length, view.length());
  const auto length = static_cast<size_t>(batch.length);
  const size_t cells = static_cast<size_t>(batch.rows) * length;
  batch.ids.assign(cells, view.dataset().pad());
  batch.labels.assign(cells, kIgnored);
  batch.samples.assign(static_cast<size_t>(batch.rows), 0);
  batch.row_tokens.assign(static_cast<size_t>(batch.rows), 0);
  for (size_t row = 0; row < draws.size(); ++row) {
    view.read(
        draws[row].sequence,
        std::span(batch.ids).subspan(row * length, length),
        std::span(batch.labels).subspan(row * length, length));
    batch.samples[row] = draws[row].sample;
    batch.row_tokens[row] = view.tokens(draws[row].sequence);
  }
  const bool is_padded =
      std::any_of(batch.row_tokens.begin(), batch.row_tokens.end(), [&](int64_t tokens) {
        return tokens < batch.length;
      });
  if (view.has_documents() || (view.encoder() && is_padded)) {
    add_document_starts(view, draws, batch);
  }
  if (view.encoder()) {
    add_encoder_inputs(view, draws, batch);
  }
  if (view.has_sources()) {
    add_sources(view, draws, batch);
  }
  if (view.has_classes()) {
    add_classes(
        view, draws, [&](int64_t row) { return view.classes()[static_cast<size_t>(row)]; }, batch);
  }
  if (view.has_roles()) {
    add_answers(view, draws, batch);
  }
  return batch;
}

Loader::Loader(std::shared_ptr<const SequenceView> view, Sampler sampler, int64_t prefetch)
    : view_(std::move(view)),
      sampler_(sampler),
      prefetch_(static_cast<size_t>(std::max<int64_t>(1, prefetch))),
      steps_per_epoch_(sampler.steps_per_epoch()),
      thread_([this] { run(); }) {}

Loader::~Loader() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  taken_.notify_all();
  thread_.join();
}

void Loader::run() {
  ::pthread_setname_np(::pthread_self(), "lockstep-data");  // for those who look at threads
  try {
    while (true) {
      StepDraws draws = sampler_.next();
      StepBatch step;
      for (const std::vector<Draw>& rows : draws.micro_batches) {
        step.micro_batches.push_back(make_micro_batch(*view_, rows));
      }
      step.samples = draws.samples;
      step.epoch = draws.epoch;
      step.after = draws.after;
      step.taken = std::move(draws.taken);
      std::unique_lock lock(mutex_);
      taken_.wait(lock, [this] { return stopping_ || queue_.size() < prefetch_; });
      if (stopping_) {
        return;
      }
      queue_.push_back(std::move(step));
      made_.notify_one();
    }
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    error_ = std::current_exception();
    made_.notify_one();
  }
}

StepBatch Loader::next() {
  std::unique_lock lock(mutex_);
  if (queue_.empty() && !error_) {
    const auto start = std::chrono::steady_clock::now();
    made_.wait(lock, [this] { return !queue_.empty() || error_ != nullptr; });
    waited_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (queue_.empty()) {
    std::rethrow_exception(error_);
  }
  StepBatch step = std::move(queue_.front());
  queue_.pop_front();
  taken_.notify_one();
  return step;
}

}  // namespace lockstep::data
