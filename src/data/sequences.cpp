// Computes the rows of a token file for each kind of packing.
#include "data/sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/divide.h"

namespace lockstep::data {
namespace {

constexpr int64_t kStride = 1024;  // documents between two entries of first_rows_

}  // namespace

SequenceView::SequenceView(
    std::shared_ptr<const TokenDataset> dataset,
    int64_t length,
    Packing packing,
    LongDocuments long_documents,
    int64_t start)
    : dataset_(std::move(dataset)),
      length_(length),
      packing_(packing),
      long_documents_(long_documents),
      start_(start) {
  constexpr int64_t kLongest = int64_t{1} << 30;
  if (length < 2 || length > kLongest) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("data.sequence_length={} is outside 2 to {}", length, kLongest),
        "at least two tokens are required: the second is predicted from the first");
  }
  if (packing_ == Packing::kConcatenated) {
    size_ = dataset_->tokens() / length_ + (dataset_->tokens() % length_ == 0 ? 0 : 1);
    return;
  }
  if (packing_ == Packing::kPairs) {
    size_ = dataset_->documents();
    return;
  }
  if (packing_ == Packing::kDocuments) {
    bins_ = Bins(pieces(), length_);
    size_ = bins_.rows();
    return;
  }
  for (int64_t document = 0; document < dataset_->documents(); ++document) {
    if (document % kStride == 0) {
      first_rows_.push_back(size_);
    }
    size_ += rows_of(document);
  }
}

SequenceView::SequenceView(
    std::shared_ptr<const TokenDataset> dataset,
    int64_t length,
    std::vector<int64_t> classes,
    std::vector<float> outputs)
    : SequenceView(std::move(dataset), length, Packing::kPerDocument, LongDocuments::kTruncate) {
  if (std::ssize(classes) != size_ ||
      (!outputs.empty() && (size_ == 0 || std::ssize(outputs) % size_ != 0))) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "{} classes and {} outputs do not match {} rows",
            classes.size(),
            outputs.size(),
            size_));
  }
  classes_ = std::move(classes);
  outputs_ = std::move(outputs);
}

SequenceView::SequenceView(
    std::shared_ptr<const TokenDataset> dataset, int64_t length, AnswerRows answers)
    : SequenceView(std::move(dataset), length, Packing::kPerDocument, LongDocuments::kTruncate) {
  const int64_t roles = std::ssize(answers.roles);
  const bool fits = answers.partners ? answers.partners->rows() == roles &&
                                           answers.partners->rows_at_once() == answers.at_once
                                     : roles % answers.at_once == 0;
  if (roles > size_ || !fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "{} roles do not match {} rows, {} at once",
            answers.roles.size(),
            size_,
            answers.at_once));
  }
  size_ = roles;
  answers_ = std::move(answers);
}

SequenceView::SequenceView(std::vector<MixedRows> sources)
    : dataset_(sources.at(0).rows->dataset_),
      length_(sources[0].rows->length_),
      packing_(sources[0].rows->packing_),
      long_documents_(sources[0].rows->long_documents_),
      start_(sources[0].rows->start_),
      encoder_(sources[0].rows->encoder_),
      decoder_start_(sources[0].rows->decoder_start_),
      is_packed_(sources[0].rows->is_packed_),
      sources_(std::move(sources)) {
  for (const MixedRows& source : sources_) {
    const SequenceView& rows = *source.rows;
    size_ += rows.size_;
    source_ends_.push_back(size_);
    classes_.insert(classes_.end(), rows.classes_.begin(), rows.classes_.end());
    outputs_.insert(outputs_.end(), rows.outputs_.begin(), rows.outputs_.end());
  }
}

SequenceView::SourceRow SequenceView::row_of_source(int64_t index) const {
  check_row(index);
  const auto end = std::upper_bound(source_ends_.begin(), source_ends_.end(), index);
  const auto source = static_cast<size_t>(end - source_ends_.begin());
  return {sources_[source].rows.get(), index - (source == 0 ? 0 : source_ends_[source - 1])};
}

std::string SequenceView::content_hash() const {
  if (sources_.empty()) {
    return dataset_->content_hash();
  }
  Hasher hasher;
  for (const MixedRows& source : sources_) {
    hasher.update_field(source.rows->content_hash());
  }
  return hasher.hex();
}

int64_t SequenceView::prompt_tokens(int64_t index) const {
  if (!sources_.empty()) {
    const SourceRow found = row_of_source(index);
    return found.rows->prompt_tokens(found.index);
  }
  const DocumentSpan span = dataset_->document(index);
  return span.prompt_end - span.begin;
}

int64_t SequenceView::rows_of(int64_t document) const {
  const DocumentSpan span = dataset_->document(document);
  const int64_t rows = divide_up(span.end - span.begin, length_);
  return long_documents_ == LongDocuments::kTruncate ? std::min<int64_t>(rows, 1) : rows;
}

std::vector<Piece> SequenceView::pieces() const {
  std::vector<Piece> pieces;
  for (int64_t document = 0; document < dataset_->documents(); ++document) {
    const DocumentSpan span = dataset_->document(document);
    const int64_t rows = rows_of(document);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = span.begin + row * length_;
      pieces.push_back({begin, static_cast<int32_t>(std::min(length_, span.end - begin))});
    }
  }
  return pieces;
}

double SequenceView::padding() const {
  double filled = 0;
  for (int64_t row = 0; row < size_; ++row) {
    filled += static_cast<double>(tokens(row));
  }
  return size_ == 0 ? 0 : 1 - filled / (static_cast<double>(size_) * static_cast<double>(length_));
}

void SequenceView::check_row(int64_t index) const {
  if (index < 0 || index >= size_) {
    throw Error(ErrorKind::kInternal, fmt::format("sequence {} of {} requested", index, size_));
  }
}

SequenceView::Range SequenceView::range(int64_t index) const {
  check_row(index);
  if (packing_ == Packing::kConcatenated) {
    const int64_t begin = index * length_;
    return {begin, std::min(begin + length_, dataset_->tokens()), -1};
  }
  const auto block = std::upper_bound(first_rows_.begin(), first_rows_.end(), index) - 1;
  int64_t row = *block;
  int64_t document = (block - first_rows_.begin()) * kStride;
  for (int64_t rows = rows_of(document); row + rows <= index; rows = rows_of(document)) {
    row += rows;
    ++document;
  }
  const DocumentSpan span = dataset_->document(document);
  const int64_t begin = span.begin + (index - row) * length_;
  return {begin, std::min(begin + length_, span.end), document};
}

int64_t SequenceView::kept(int64_t begin, int64_t end) const {
  return std::min(end - begin, length_);
}

void SequenceView::read_in_memory(int64_t begin, int64_t end, std::span<int64_t> ids) const {
  const auto count = static_cast<size_t>(kept(begin, end));
  if (count > 0) {
    dataset_->read(begin, ids.first(count));
    ids[count - 1] = dataset_->token(end - 1);  // truncation removes tokens before EOS
  }
}

int64_t SequenceView::source_tokens(int64_t index) const {
  if (!sources_.empty()) {
    const SourceRow found = row_of_source(index);
    return found.rows->source_tokens(found.index);
  }
  if (!has_sources()) {
    return 0;
  }
  const DocumentSpan span = dataset_->document(index);
  return kept(span.begin, span.prompt_end);
}

void SequenceView::read_source(int64_t index, std::span<int64_t> ids) const {
  if (!sources_.empty()) {
    const SourceRow found = row_of_source(index);
    return found.rows->read_source(found.index, ids);
  }
  const DocumentSpan span = dataset_->document(index);
  read_in_memory(span.begin, span.prompt_end, ids);
}

int64_t SequenceView::tokens(int64_t index) const {
  if (!sources_.empty()) {
    const SourceRow found = row_of_source(index);
    return found.rows->tokens(found.index);
  }
  if (has_sources()) {
    const DocumentSpan span = dataset_->document(index);
    return 1 + kept(span.prompt_end, span.end);
  }
  if (has_documents()) {
    check_row(index);
    const auto row = bins_.row(index);
    return std::accumulate(row.begin(), row.end(), int64_t{0}, [](int64_t sum, const Piece& piece) {
      return sum + piece.tokens;
    });
  }
  const Range found = range(index);
  return found.end - found.begin;
}

void SequenceView::read_document_starts(int64_t index, std::span<int64_t> starts) const {
  if (!sources_.empty()) {
    const SourceRow found = row_of_source(index);
    return found.rows->read_document_starts(found.index, starts);
  }
  check_row(index);
  size_t at = 0;
  for (const Piece& piece : bins_.row(index)) {
    const auto count = static_cast<size_t>(piece.tokens);
    std::fill_n(starts.begin() + static_cast<std::ptrdiff_t>(at), count, static_cast<int64_t>(at));
    at += count;
  }
}

SequenceView::LearnedDocuments SequenceView::learned_documents() const {
  LearnedDocuments found;
  if (!sources_.empty()) {
    for (const MixedRows& source : sources_) {
      const LearnedDocuments of_source = source.rows->learned_documents();
      found.all += of_source.all;
      found.without_loss += of_source.without_loss;
    }
    return found;
  }
  if (has_sources() || (!dataset_->has_hidden() && !dataset_->has_prompts())) {
    return found;
  }
  std::vector<int64_t> ids(static_cast<size_t>(length_)), labels(ids.size());
  const auto count = [&](size_t begin, size_t tokens) {
    const auto first = labels.begin() + static_cast<std::ptrdiff_t>(begin);
    // Labels are shifted by one, so the first token of a document is never predicted.
    const bool learns =
        std::any_of(first + 1, first + static_cast<std::ptrdiff_t>(tokens), [](int64_t label) {
          return label != kIgnored;
        });
    ++found.all;
    found.without_loss += learns ? 0 : 1;
  };
  for (int64_t row = 0; row < size_; ++row) {
    const auto tokens = static_cast<size_t>(read(row, ids, labels));
    if (!has_documents()) {
      count(0, tokens);
      continue;
    }
    size_t begin = 0;
    for (const Piece& piece : bins_.row(row)) {
      count(begin, static_cast<size_t>(piece.tokens));
      begin += static_cast<size_t>(piece.tokens);
    }
  }
  return found;
}

int64_t SequenceView::read(int64_t index, std::span<int64_t> ids, std::span<int64_t> labels) const {
  if (!sources_.empty()) {
    const SourceRow found = row_of_source(index);
    return found.rows->read(found.index, ids, labels);
  }
  if (has_sources()) {
    const DocumentSpan span = dataset_->document(index);
    ids[0] = start_;
    read_in_memory(span.prompt_end, span.end, ids.subspan(1));
    const int64_t count = 1 + kept(span.prompt_end, span.end);
    std::copy_n(ids.begin(), count, labels.begin());
    labels[0] = kIgnored;
    return count;
  }
  if (has_documents()) {
    check_row(index);
    size_t at = 0;
    for (const Piece& piece : bins_.row(index)) {
      read_range(
          {piece.begin, piece.begin + piece.tokens, -1}, ids.subspan(at), labels.subspan(at));
      labels[at] = kIgnored;  // not predicted from the previous document
      at += static_cast<size_t>(piece.tokens);
    }
    return static_cast<int64_t>(at);
  }
  const Range found = range(index);
  read_range(found, ids, labels);
  return found.end - found.begin;
}

void SequenceView::read_range(
    Range found, std::span<int64_t> ids, std::span<int64_t> labels) const {
  const int64_t count = found.end - found.begin;
  dataset_->read(found.begin, ids.first(static_cast<size_t>(count)));
  std::copy_n(ids.begin(), count, labels.begin());
  for (int64_t at = 0; dataset_->has_hidden() && at < count; ++at) {
    if (dataset_->is_hidden(found.begin + at)) {
      labels[static_cast<size_t>(at)] = kIgnored;
    }
  }
  if (!dataset_->has_prompts()) {
    return;
  }
  int64_t document = found.document >= 0 ? found.document : dataset_->document_of(found.begin);
  for (DocumentSpan span{}; document < dataset_->documents(); ++document) {
    span = dataset_->document(document);
    if (span.begin >= found.end) {
      break;
    }
    const int64_t begin = std::max(span.begin, found.begin);
    const int64_t end = std::min(span.prompt_end, found.end);
    for (int64_t at = begin; at < end; ++at) {
      labels[static_cast<size_t>(at - found.begin)] = kIgnored;
    }
  }
}

}  // namespace lockstep::data
