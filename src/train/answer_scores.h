// What a model says of answers to questions, token by token, and what it answers itself: on ranks
// that take batches in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "data/preferences.h"
#include "nn/language_model.h"
#include "parallel/ranks/axes.h"
#include "text/tokenizer.h"

namespace lockstep::train {

/// Of an answer's tokens, in their order.
struct AnswerScore {
  std::vector<double> log_likelihoods;
  std::vector<bool> likeliest;  // that each was
  /// The mean of -log p; 0 of no tokens.
  double loss() const;
};

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
      parallel::Axes& axes,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      int64_t batch_size,
      c10::Device device,
      Progress progress = nullptr);

  /// Of each row, the same on every rank, whatever their number: batches are of fixed rows.
  std::vector<AnswerScore> score(const std::vector<data::EncodedAnswer>& rows);
  /// Greedily, until one of `stop_tokens`, as far as the model's positions go.
  std::vector<WrittenAnswer> write(
      const std::vector<AskedQuestion>& rows,
      int64_t max_new_tokens,
      const std::vector<int64_t>& stop_tokens);

 private:
  /// Calls `compute` with the rows [begin, end) of each batch whose turn it is, and gathers what it
  /// returns, JSON of one value a row.
  std::vector<std::string> on_all_ranks(
      int64_t rows, const std::function<std::string(int64_t begin, int64_t end)>& compute);
  std::vector<AnswerScore> score_batch(
      const std::vector<data::EncodedAnswer>& rows, int64_t begin, int64_t end) const;

  const nn::LanguageModel& model_;
  parallel::Axes& axes_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  int64_t batch_size_;
  c10::Device device_;
  Progress progress_;
};

/// Hugging Face's clean-up of decoded text: no space before . ? ! , and before n't 'm 's 've 're.
std::string clean_up_tokenization(std::string text);

}  // namespace lockstep::train
