// Decoders: from tokens back to text, as a stream. A decoder is a chain of stages; tokens are
// pushed in at one end, and text comes out at the other as soon as it is certain, so that the whole
// stream equals Hugging Face's decoding of the whole list.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/fields.h"

namespace lockstep::text {

/// One stage at work: it takes tokens and gives tokens to the next. A token may come in several
/// fragments, the last followed by end_token().
class DecoderStage {
 public:
  DecoderStage() = default;
  DecoderStage(const DecoderStage&) = delete;
  DecoderStage& operator=(const DecoderStage&) = delete;
  virtual ~DecoderStage() = default;

  virtual void fragment(std::string_view text) = 0;
  virtual void end_token() = 0;
  /// No more tokens come. Called once; passes itself on to the next stage.
  virtual void finish() = 0;
};

/// The description of a chain, which may be at work in many places at once. Immutable.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;
  /// A new stage at work, which gives its tokens to `next`; `next` must outlive it.
  virtual std::unique_ptr<DecoderStage> start(DecoderStage& next) const = 0;
};

/// A decoder at work from end to end: tokens in, text out.
class Decoding {
 public:
  /// The decoders in their order; they must outlive this.
  explicit Decoding(const std::vector<std::unique_ptr<Decoder>>& decoders);
  ~Decoding();
  Decoding(Decoding&&) noexcept;
  Decoding& operator=(Decoding&&) noexcept;

  /// The text that has become certain.
  std::string push(std::string_view token);
  /// The rest.
  std::string finish();

 private:
  class Sink;
  std::unique_ptr<Sink> sink_;
  std::vector<std::unique_ptr<DecoderStage>> stages_;  // the last first
};

/// The chain of a tokenizer.json; an Error names a type that is not known.
std::vector<std::unique_ptr<Decoder>> make_decoders(const Field& field);
/// What stands for a missing decoder: tokens joined by spaces.
std::vector<std::unique_ptr<Decoder>> make_joining_decoder();

}  // namespace lockstep::text
