// Scores answers to questions token by token and generates answers. Batches are distributed over
// the ranks.
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

/// A question, and the question with its correct answer.
struct AskedQuestion {
  std::vector<int32_t> prompt, whole;
};

struct WrittenAnswer {
  std::string input;         // the prompt without special tokens
  std::string ground_truth;  // the correct answer
  std::string generation;
};

/// Reads answers with a model that every data-parallel rank holds, whole or split by tensor
/// parallelism. Calls `progress(done, all)` with the batches of all ranks, equally often on every
/// rank. Every rank must call each method.
class AnswerReader {
 public:
  using Progress = std::function<void(int64_t done, int64_t all)>;
  /// All arguments must outlive the object.
  AnswerReader(
      const nn::LanguageModel& model,
      parallel::ParallelGroups& axes,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      int64_t batch_size,
      c10::Device device,
      Progress progress = nullptr);

  /// Scores each row. The result is the same on every rank and for every number of ranks, because
  /// the rows of each batch are fixed. The common prefix of answers to a question is computed once
  /// (text_scores.h), so such rows should be passed together.
  std::vector<AnswerScore> score(const std::vector<data::EncodedAnswer>& rows);
  /// Best number of rows for write(), if each row may get `max_new_tokens`. Does not depend on the
  /// number of ranks.
  int64_t rows_of_a_round(int64_t max_new_tokens) const;
  /// Generates greedily until one of `stop_tokens` or the model's last position. Batches contain
  /// rows of similar length; the text is the same as for each row alone, unless two tokens are
  /// equally likely. The text is truncated at the first of `stop_words`.
  std::vector<WrittenAnswer> write(
      const std::vector<AskedQuestion>& rows,
      int64_t max_new_tokens,
      const std::vector<int64_t>& stop_tokens,
      const std::vector<std::string>& stop_words = {});
  /// For each token of an answer, returns the distance of its log p from the mean over the
  /// vocabulary, in standard deviations of the distribution at that position (Min-K%++: Zhang et
  /// al., 2024, equation 3).
  std::vector<std::vector<double>> standard_scores(const std::vector<data::EncodedAnswer>& rows);
  /// For each row, returns the mean over the model's parameter tensors of the Euclidean norm of the
  /// loss gradient. Throws Error (kConfig) under tensor parallelism.
  std::vector<double> gradient_norms(const std::vector<data::EncodedAnswer>& rows);

 private:
  /// Calls `compute` for this rank's batches and gathers the returned JSON.
  std::vector<std::string> on_all_ranks(
      int64_t batches, const std::function<std::string(int64_t batch)>& compute);
  /// Calls `compute` for batches of the rows [begin, end), which returns JSON with one value per
  /// row.
  std::vector<std::string> on_all_ranks(
      int64_t rows,
      int64_t rows_at_once,
      const std::function<std::string(int64_t begin, int64_t end)>& compute);
  /// Maximum number of rows per generation batch: each pass reads one token of each row.
  int64_t rows_written_at_once(int64_t max_new_tokens) const;

  const nn::LanguageModel& model_;
  parallel::ParallelGroups& axes_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  int64_t batch_size_;
  c10::Device device_;
  Progress progress_;
};

/// Hugging Face's clean-up of decoded text: removes the space before . ? ! , and before n't 'm 's
/// 've 're.
std::string clean_up_tokenization(std::string text);

}  // namespace lockstep::train
