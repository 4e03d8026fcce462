// Classification without a head: a language model learns each row's label as a text behind a
// prompt, and decides for the label that is likeliest there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "data/labelled_rows.h"
#include "data/sequences.h"
#include "parallel/ranks/axes.h"
#include "train/batches/labelled_data.h"
#include "train/tasks/classification.h"

namespace lockstep::train {

/// Rows as prompts, and labels as what follows them: one way for training, evaluation and
/// prediction.
class PromptForm {
 public:
  /// Error (kConfig): the template does not end with {label}, names another field, or leaves no
  /// token for a text among `limit`; verbalizers that are not one for each label, or are encoded
  /// alike.
  PromptForm(
      const config::GenerativeSection& section,
      const std::vector<std::string>& labels,
      const data::Encoder& encoder,
      int64_t limit);

  /// The tokens before the label. What is longer than the limit, with the longest label behind it,
  /// is cut at the end of the row's text, then of its pair, and not of the template.
  std::vector<int32_t> prompt(const data::LabelledRow& row) const;
  /// The tokens of a label, the end of text behind them.
  const std::vector<int32_t>& label(size_t i) const { return labels_.at(i); }
  /// What log-likelihoods are divided by (generative.normalize).
  const std::vector<double>& lengths() const { return lengths_; }

 private:
  struct Part {
    std::string literal;
    enum class Field { kNone, kText, kPair } field = Field::kNone;  // behind the literal
  };
  std::vector<int32_t> encode(std::string_view text, std::string_view pair) const;

  const data::Encoder& encoder_;
  std::vector<Part> parts_;
  std::vector<std::vector<int32_t>> labels_;
  std::vector<double> lengths_;
  int64_t most_ = 0;  // tokens of a prompt
};

/// Rows for training: prompts without loss, then labels, packed as data.packing says. Validation
/// and test: of each row its prompt with every label, drawn together; the right one is kChosen. The
/// head is that of the labels, by which answers are judged; the model's own stays a language
/// model's. `read` as open_classifier_data(). Every rank must call. Error (kConfig): the model is
/// no decoder; PromptForm's.
ClassifierData open_generative_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::function<LabelledData()>& read);

/// The configuration by which rows of one label each are read; `labels`: of a model that was
/// trained, empty: task.labels, or those of the training rows.
config::Config config_of_rows(config::Config config, const std::vector<std::string>& labels = {});

/// The class of each row of such a set; data::kNoClass: it has none.
std::vector<int64_t> classes_of_candidates(const data::SequenceView& rows);

/// The log-likelihoods of rows of batches, as parallel::ParallelModel::row_scores.
using RowScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

/// As classify(): the "logits" of a row are its labels' log-likelihoods, over `lengths`.
Classified classify_by_likelihood(
    const RowScorer& scorer,
    const data::SequenceView& rows,
    const std::vector<double>& lengths,
    int64_t batch_size,
    parallel::Axes& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace lockstep::train
