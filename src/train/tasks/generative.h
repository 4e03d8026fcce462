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
#include "data/chat.h"
#include "data/labelled_rows.h"
#include "data/sequences.h"
#include "parallel/ranks/parallel_groups.h"
#include "train/batches/labelled_data.h"
#include "train/tasks/classification.h"
#include "train/tasks/label_scores.h"

namespace lockstep::train {

/// Rows as prompts, and labels as what follows them: one way for training, evaluation and
/// prediction.
class PromptForm {
 public:
  /// `chats`, with generative.chat the tokenizer's. Error (kConfig): it has none, or one whose
  /// answers do not follow what asks for them; the template does not end with {label}, names
  /// another field, or leaves no token for a text among `limit`; verbalizers that are not one for
  /// each label, or are encoded alike; of greedy writing one that another begins with, where no end
  /// of text tells them apart; of first tokens two that are the same.
  PromptForm(
      const config::GenerativeSection& section,
      const std::vector<std::string>& labels,
      const data::Encoder& encoder,
      int64_t limit,
      std::shared_ptr<const data::ChatTemplate> chats = nullptr);

  /// The tokens before the label. What is longer than the limit, with the longest label behind it,
  /// is cut at the end of the row's text, then of its pair, and not of the template.
  std::vector<int32_t> prompt(const data::LabelledRow& row) const;
  /// The tokens of a label, the end of text behind them.
  const std::vector<int32_t>& label(size_t i) const { return labels_.at(i); }
  const std::vector<std::vector<int32_t>>& labels() const { return labels_; }
  /// The prompt of a row without a text.
  std::vector<int32_t> empty_prompt() const { return encode("", ""); }
  /// What log-likelihoods are divided by (generative.normalize).
  const std::vector<double>& lengths() const { return lengths_; }

 private:
  struct Part {
    std::string literal;
    enum class Field { kNone, kText, kPair } field = Field::kNone;  // behind the literal
  };
  std::vector<int32_t> encode(std::string_view text, std::string_view pair) const;
  /// The tokens of an answer of the assistant, with the mark of its end.
  std::vector<int32_t> answer(const std::string& label) const;

  const data::Encoder& encoder_;
  std::shared_ptr<const data::ChatTemplate> chats_;  // null: texts stand by themselves
  std::vector<Part> parts_;
  std::vector<std::vector<int32_t>> labels_;
  std::vector<double> lengths_;
  int64_t most_ = 0;  // tokens of a prompt
};

/// Rows for training: prompts without loss, then labels, packed as data.packing says. Validation
/// and test: the prompts, with their classes. The head is that of the labels, by which answers are
/// judged; the model's own stays a language model's. `read` as open_classifier_data(). Every rank
/// must call. Error (kConfig): the model is no decoder; PromptForm's.
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

/// As classify(): the "logits" of a row are those of its labels (label_scores.h). The batches are
/// of so many prompts, or rows where the plan takes a row for each label.
Classified classify_written(
    const PromptReader& reader,
    const WrittenLabels& labels,
    const data::SequenceView& rows,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

/// What reads the prompts of a parallel::ParallelModel or EvaluationModel, which must outlive it.
template <typename Model>
PromptReader reader_of(Model& model, c10::Device device) {
  return {
      model.cacheable(),
      [&model](std::span<const nn::ForwardInputs> batches) { return model.row_scores(batches); },
      device};
}

}  // namespace lockstep::train
