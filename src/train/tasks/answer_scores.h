// What a model says of answers to questions, token by token, and what it answers itself: on ranks
// that take batches in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "data/preferences.h"
#include "nn/language_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "text/tokenizer.h"
#include "train/tasks/text_scores.h"

namespace lockstep::train {

/// A question, and it with the answer that is right.
struct AskedQuestion {
  std::vector<int32_t> prompt, whole;
};

struct WrittenAnswer {
  std::string input;         // the question as it was asked, without special tokens
  std::string ground_truth;  // the answer that is right
  std::string generation;
};

/// Of a model that every rank of the data axis has, by tensor parallelism in parts or whole. Every
/// rank must call; `progress(done, all)` is told of this rank's batches.
class AnswerReader {
 public:
  using Progress = std::function<void(int64_t done, int64_t all)>;
  /// Everything must outlive it.
  AnswerReader(
      const nn::LanguageModel& model,
      parallel::ParallelGroups& axes,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      int64_t batch_size,
      c10::Device device,
      Progress progress = nullptr);

  /// Of each row, the same on every rank, whatever their number: batches are of fixed rows. What
  /// answers of a question share is computed once (text_scores.h), so rows are best given together.
  std::vector<AnswerScore> score(const std::vector<data::EncodedAnswer>& rows);
  /// So many rows write() takes best, where each may get so many new tokens: the same whatever the
  /// number of ranks.
  int64_t rows_of_a_round(int64_t max_new_tokens) const;
  /// Greedily, until one of `stop_tokens`, as far as the model's positions go: rows of like length
  /// together, the same text as each alone but where two tokens are as likely.
  /// What follows one of `stop_words` is left out.
  std::vector<WrittenAnswer> write(
      const std::vector<AskedQuestion>& rows,
      int64_t max_new_tokens,
      const std::vector<int64_t>& stop_tokens,
      const std::vector<std::string>& stop_words = {});
  /// Of each answer's tokens how far its log p is above the mean over the vocabulary, in standard
  /// deviations of the distribution there (Min-K%++: Zhang et al., 2024, equation 3).
  std::vector<std::vector<double>> standard_scores(const std::vector<data::EncodedAnswer>& rows);
  /// Of each row the mean over the model's parameters of the Euclidean norm of its loss's gradient.
  /// Error (kConfig): under tensor parallelism.
  std::vector<double> gradient_norms(const std::vector<data::EncodedAnswer>& rows);

 private:
  /// Calls `compute` with each batch whose turn it is, and gathers what it returns, JSON.
  std::vector<std::string> on_all_ranks(
      int64_t batches, const std::function<std::string(int64_t batch)>& compute);
  /// Likewise with the rows [begin, end) of batches of so many; JSON of one value a row.
  std::vector<std::string> on_all_ranks(
      int64_t rows,
      int64_t rows_at_once,
      const std::function<std::string(int64_t begin, int64_t end)>& compute);
  /// The most rows that are written together: a token of each is read in one pass.
  int64_t rows_written_at_once(int64_t max_new_tokens) const;

  const nn::LanguageModel& model_;
  parallel::ParallelGroups& axes_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  int64_t batch_size_;
  c10::Device device_;
  Progress progress_;
};

/// Hugging Face's clean-up of decoded text: no space before . ? ! , and before n't 'm 's 've 're.
std::string clean_up_tokenization(std::string text);

}  // namespace lockstep::train
