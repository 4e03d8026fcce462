// Small byte-level tokenizer for tests, trained on a few sentences.
#pragma once

#include <memory>
#include <string>

#include "text/train_bpe.h"

namespace lockstep::text {

inline const std::string& sample_text() {
  static const std::string text = [] {
    std::string repeated;
    for (int i = 0; i < 8; ++i) {
      repeated +=
          "The quick brown fox jumps over the lazy dog. It's 1,234 o'clock; we've said they'll do "
          "it!\nH\u00e9l\u00e8ne \u00e0 \u00c5ngstr\u00f6m: \u4f60\u597d\u4e16\u754c "
          "\u041f\u0440\u0438\u0432\u0435\u0442 \U0001F600\U0001F680\n\n\tdef f(x):\n\t    return "
          "x\n";
    }
    return repeated;
  }();
  return text;
}

inline TokenizerFiles sample_files(int64_t size = 360) {
  BpeTrainingOptions options;
  options.vocabulary_size = size;
  options.special_tokens = {"<|endoftext|>", "<|user|>"};
  BpeTrainer trainer(options);
  trainer.add(sample_text());
  return trainer.train();
}

inline std::shared_ptr<const Tokenizer> sample_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::parse(sample_files());
  return tokenizer;
}

}  // namespace lockstep::text
