// Creates micro-batches on a background thread.
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
  for (size_t row = 0; row < draws.size() && view.has_documents(); ++row) {
    view.read_document_starts(
        draws[row].sequence, std::span(batch.document_starts).subspan(row * length, length));
  }
  for (size_t i = 0; i < batch.places.size(); ++i) {
    std::fill_n(
        batch.document_starts.begin() + static_cast<std::ptrdiff_t>(batch.begin(i)),
        view.tokens(draws[i].sequence),
        batch.places[i].begin);
  }
  for (size_t row = 0; row < batch.row_tokens.size() && !draws.empty(); ++row) {
    const auto starts = std::span(batch.document_starts).subspan(row * length, length);
    std::fill(starts.begin() + batch.row_tokens[row], starts.end(), batch.row_tokens[row]);
  }
}

/// Sets the document index of each token.
void add_documents(const SequenceView& view, const std::vector<Draw>& draws, MicroBatch& batch) {
  batch.documents.assign(batch.ids.size(), 0);
  for (size_t i = 0; i < batch.places.size(); ++i) {
    const DocumentPlace place = batch.places[i];
    const bool is_last = place.begin + view.tokens(draws[i].sequence) ==
                         batch.row_tokens[static_cast<size_t>(place.row)];
    std::fill_n(
        batch.documents.begin() + static_cast<std::ptrdiff_t>(batch.begin(i)),
        is_last ? batch.length - place.begin : view.tokens(draws[i].sequence),
        static_cast<int64_t>(i));
  }
}

/// Makes the row the input of the encoder, and the row shifted right by one the input of the
/// decoder.
void add_decoder(int64_t start, MicroBatch& batch) {
  batch.source = batch.ids;
  batch.source_length = batch.length;
  for (const int64_t tokens : batch.row_tokens) {
    batch.source_tokens.push_back(std::max<int64_t>(1, tokens));
  }
  const auto length = static_cast<size_t>(batch.length);
  for (size_t row = 0; row < static_cast<size_t>(batch.rows); ++row) {
    const auto ids = std::span(batch.ids).subspan(row * length, length);
    std::shift_right(ids.begin(), ids.end(), 1);
    ids.front() = start;
  }
}

/// Assigns the class of each document to its last token and removes all token labels. As in Hugging
/// Face's classifiers, padding is recognized by its id alone. If a text ends with the padding
/// token, the class is therefore assigned to the token before it.
void add_classes(
    const SequenceView& view,
    const std::vector<Draw>& draws,
    const std::function<int64_t(int64_t sequence)>& class_of,
    MicroBatch& batch) {
  const int64_t pad = view.dataset().pad();
  const size_t documents = std::max<size_t>(1, draws.size());
  batch.labels.assign(batch.labels.size(), kIgnored);
  batch.classes.assign(documents, kIgnored);
  batch.positions.assign(documents, 0);
  const size_t outputs = view.outputs().empty() ? 0 : view.outputs().size() / view.classes().size();
  batch.outputs.assign(documents * outputs, 0.0F);
  for (size_t i = 0; i < draws.size(); ++i) {
    const int64_t sequence = draws[i].sequence;
    batch.classes[i] = class_of(sequence);
    std::copy_n(
        view.outputs().begin() +
            static_cast<std::ptrdiff_t>(static_cast<size_t>(sequence) * outputs),
        outputs,
        batch.outputs.begin() + static_cast<std::ptrdiff_t>(i * outputs));
    if (view.decoder_start()) {  // a row ends with EOS, even if EOS is also the padding token
      batch.positions[i] = view.tokens(sequence) - 1;
      continue;
    }
    for (int64_t at = view.encoder() ? 0 : view.tokens(sequence) - 1;
         at > 0 && batch.positions[i] == 0;
         --at) {
      const bool is_padding = batch.ids[batch.begin(i) + static_cast<size_t>(at)] == pad;
      batch.positions[i] = is_padding ? 0 : at;
    }
  }
}

/// Adds the inputs that only encoders need.
void add_encoder_inputs(
    const SequenceView& view, const std::vector<Draw>& draws, MicroBatch& batch) {
  batch.are_masked = view.encoder()->masking.has_value();
  batch.token_types.assign(view.encoder()->tells_segments ? batch.ids.size() : 0, 0);
  for (size_t i = 0; i < draws.size(); ++i) {
    const auto tokens = static_cast<size_t>(view.tokens(draws[i].sequence));
    if (batch.are_masked) {
      view.encoder()->masking->apply(
          draws[i].sample,
          std::span(batch.ids).subspan(batch.begin(i), tokens),
          std::span(batch.labels).subspan(batch.begin(i), tokens));
    }
    const auto first = static_cast<size_t>(
        view.encoder()->tells_segments ? view.prompt_tokens(draws[i].sequence) : 0);
    if (first > 0 && first < tokens) {
      const auto types = std::span(batch.token_types).subspan(batch.begin(i), tokens);
      std::fill(types.begin() + static_cast<std::ptrdiff_t>(first), types.end(), 1);
    }
  }
}

/// Expands the draws to one draw per row.
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
  const size_t documents = std::max<size_t>(1, rows.size());
  batch.roles.assign(documents, RowRole::kPlain);
  batch.groups.assign(documents, 0);
  batch.lengths.assign(documents, 0);
  batch.margins.assign(answers.margins.empty() ? 0 : documents, 0);
  batch.prompts.assign(answers.learns_prompts ? documents : 0, 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t sequence = rows[i].sequence;
    batch.roles[i] = answers.roles[static_cast<size_t>(sequence)];
    batch.groups[i] = static_cast<int64_t>(i) / answers.at_once;
    batch.lengths[i] = view.tokens(sequence);
    if (!answers.margins.empty()) {
      batch.margins[i] = answers.margins[static_cast<size_t>(sequence)];
    }
    if (answers.learns_prompts && batch.roles[i] == RowRole::kChosen) {
      const auto begin = static_cast<std::ptrdiff_t>(batch.begin(i));
      batch.prompts[i] = view.prompt_tokens(sequence);
      std::copy_n(batch.ids.begin() + begin, batch.prompts[i], batch.labels.begin() + begin);
    }
  }
}

/// Packs the drawn documents into rows and reads them.
void read_rows(const SequenceView& view, const std::vector<Draw>& draws, MicroBatch& batch) {
  std::vector<int64_t> tokens;
  for (const Draw& draw : draws) {
    tokens.push_back(view.tokens(draw.sequence));
  }
  PackedRows packed =
      view.is_packed() ? pack_rows(tokens, view.length()) : rows_of_one(tokens, view.length());
  batch.rows = packed.rows;
  batch.length = packed.length;
  const auto rows = static_cast<size_t>(batch.rows);
  const size_t cells = rows * static_cast<size_t>(batch.length);
  batch.ids.assign(cells, view.dataset().pad());
  batch.labels.assign(cells, kIgnored);
  batch.samples.assign(rows, 0);
  batch.row_tokens.assign(rows, 0);
  batch.places = view.is_packed() ? packed.places : std::vector<DocumentPlace>{};
  for (size_t i = 0; i < draws.size(); ++i) {
    const DocumentPlace place = packed.places[i];
    const auto row = static_cast<size_t>(place.row);
    const auto room = static_cast<size_t>(batch.length - place.begin);
    view.read(
        draws[i].sequence,
        std::span(batch.ids).subspan(batch.begin(i), room),
        std::span(batch.labels).subspan(batch.begin(i), room));
    if (place.begin == 0) {
      batch.samples[row] = draws[i].sample;
    }
    if (view.is_packed()) {
      batch.document_samples.push_back(draws[i].sample);
    }
    batch.row_tokens[row] += tokens[i];
  }
}

}  // namespace

MicroBatch make_micro_batch(const SequenceView& view, const std::vector<Draw>& drawn) {
  const std::vector<Draw> draws = rows_of(view, drawn);
  MicroBatch batch;
  batch.draws = drawn;
  read_rows(view, draws, batch);
  const bool is_padded =
      std::ranges::any_of(batch.row_tokens, [&](int64_t tokens) { return tokens < batch.length; });
  if (view.has_documents() || view.is_packed() || (view.encoder() && is_padded)) {
    add_document_starts(view, draws, batch);
  }
  if (view.is_packed()) {
    add_documents(view, draws, batch);
  }
  if (view.encoder()) {
    add_encoder_inputs(view, draws, batch);
  }
  if (view.has_sources()) {
    add_sources(view, draws, batch);
  }
  if (view.decoder_start()) {
    add_decoder(*view.decoder_start(), batch);
  }
  if (view.has_classes()) {
    add_classes(
        view, draws, [&](int64_t row) { return view.classes()[static_cast<size_t>(row)]; }, batch);
  }
  if (view.has_roles()) {
    add_answers(view, draws, batch);
  }
  for (size_t i = 0; i < batch.places.size(); ++i) {
    batch.labels[batch.begin(i)] = kIgnored;  // not predicted from the previous document
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
  ::pthread_setname_np(::pthread_self(), "lockstep-data");  // visible in debuggers and profilers
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
