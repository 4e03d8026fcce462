// Interface of tokenizer models, which map pieces of text to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::text {

class Model {
 public:
  /// Per-thread working memory. May include a cache of pieces.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  /// Appends the ids of all pieces in order. Pieces are non-empty views into `text` and valid
  /// UTF-8, or bytes if the model encodes bytes. The model may read any byte of `text`. Thread-safe
  /// if each thread has its own scratch.
  virtual void encode(
      std::string_view text,
      std::span<const std::string_view> pieces,
      Scratch& scratch,
      std::vector<int32_t>& ids) const = 0;
  virtual std::unique_ptr<Scratch> make_scratch() const { return std::make_unique<Scratch>(); }

  virtual std::optional<int32_t> find(std::string_view token) const = 0;
  /// Returns the token as written in the file.
  virtual std::optional<std::string_view> token(int32_t id) const = 0;
  /// Returns the number of tokens, which is the id of the first added token that is not in the
  /// model.
  virtual int64_t size() const = 0;
  virtual int32_t highest_id() const = 0;
};

}  // namespace lockstep::text
