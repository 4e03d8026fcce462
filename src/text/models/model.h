// The model of a tokenizer: from pieces of text to ids.
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
  /// The working memory of one thread, with what it may remember of earlier pieces.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  /// Appends the ids of each piece, in order. Pieces are not empty, valid UTF-8 (or bytes, for a
  /// model that takes bytes), and lie in `text`, of which more may be read. Thread-safe with a
  /// scratch a thread.
  virtual void encode(
      std::string_view text,
      std::span<const std::string_view> pieces,
      Scratch& scratch,
      std::vector<int32_t>& ids) const = 0;
  virtual std::unique_ptr<Scratch> make_scratch() const { return std::make_unique<Scratch>(); }

  virtual std::optional<int32_t> find(std::string_view token) const = 0;
  /// The token as the file writes it.
  virtual std::optional<std::string_view> token(int32_t id) const = 0;
  /// How many tokens there are; an added token that the model lacks takes this as its id.
  virtual int64_t size() const = 0;
  virtual int32_t highest_id() const = 0;
};

}  // namespace lockstep::text
