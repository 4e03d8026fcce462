// Generative classification. A language model is trained to write a row's label after a prompt, and
// predicts the most likely label.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "data/chat.h"
#include "data/labelled_rows.h"
#include "data/sequences.h"
#include "parallel/ranks/parallel_groups.h"
#include "train/batches/labelled_data.h"
#include "train/tasks/classification.h"
#include "train/tasks/label_scores.h"

namespace lockstep::train {

/// Converts rows to prompts and labels to completions, for training, evaluation and prediction.
class PromptForm {
 public:
  /// `chats` is the tokenizer's chat template if generative.chat is set. Throws Error (kConfig) if
  /// - generative.chat is set and there is no template, or its answers do not follow the prompt
  /// - the prompt template does not end with {label}, names another field, or leaves no token of
  ///   `limit` for the text
  /// - the number of verbalizers differs from the number of labels, or two have the same tokens
  /// - decode=greedy is set, a label is a prefix of another, and there is no end-of-text token
  /// - decode=first_token is set and two labels start with the same token
  PromptForm(
      const config::GenerativeSection& section,
      const std::vector<std::string>& labels,
      const data::Encoder& encoder,
      int64_t limit,
      std::shared_ptr<const data::ChatTemplate> chats = nullptr);

  /// Returns the tokens before the label. If the prompt with the longest label exceeds the limit,
  /// the end of the row's text is truncated, then the end of its pair. The template is never
  /// truncated.
  std::vector<int32_t> prompt(const data::LabelledRow& row) const;
  /// Returns the tokens of a label, including the end-of-text token.
  const std::vector<int32_t>& label(size_t i) const { return labels_.at(i); }
  const std::vector<std::vector<int32_t>>& labels() const { return labels_; }
  /// Returns the prompt for an empty text.
  std::vector<int32_t> empty_prompt() const { return encode("", ""); }
  /// Returns the divisors of the labels' log-likelihoods (generative.normalize).
  const std::vector<double>& lengths() const { return lengths_; }

 private:
  struct Part {
    std::string literal;
    enum class Field { kNone, kText, kPair } field = Field::kNone;  // field after the literal
  };
  std::vector<int32_t> encode(std::string_view text, std::string_view pair) const;
  /// Returns the tokens of an assistant answer, including its end-of-turn marker.
  std::vector<int32_t> answer(const std::string& label) const;

  const data::Encoder& encoder_;
  std::shared_ptr<const data::ChatTemplate> chats_;  // null: generative.chat is not set
  std::vector<Part> parts_;
  std::vector<std::vector<int32_t>> labels_;
  std::vector<double> lengths_;
  int64_t most_ = 0;  // maximum prompt length in tokens
};

/// Opens the data of generative classification. Training rows are prompts followed by labels,
/// packed according to data.packing; only the labels have a loss unless prompts are trained, too.
/// Validation and test rows are prompts with their classes. The returned head contains the labels
/// for scoring predictions; the model keeps its language model head. For `read`, see
/// open_classifier_data(). Throws Error (kConfig) if the model is not a decoder, and like
/// PromptForm. Must be called on every rank.
ClassifierData open_generative_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::function<LabelledData()>& read);

/// Returns the configuration for reading single-label rows. `labels` are the labels of a trained
/// model. If empty, they are task.labels or the labels of the training rows.
config::Config config_of_rows(config::Config config, const std::vector<std::string>& labels = {});

/// Classifies prompts like classify(). The "logits" of a row are the scores of its labels
/// (label_scores.h). `batch_size` is a number of prompts, or of rows if the plan needs one row per
/// label.
Classified classify_written(
    const PromptReader& reader,
    const WrittenLabels& labels,
    const data::SequenceView& rows,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

/// Returns a reader for `model`, a parallel::ParallelModel or EvaluationModel, which must outlive
/// the reader.
template <typename Model>
PromptReader reader_of(Model& model, c10::Device device) {
  return {
      model.cacheable(),
      [&model](std::span<const nn::ForwardInputs> batches) { return model.row_scores(batches); },
      device};
}

}  // namespace lockstep::train
