// Streaming decoders from tokens to text. A decoder is a chain of stages: tokens enter at one end,
// and text is emitted at the other end as soon as later tokens cannot change it. The concatenated
// output equals Hugging Face's decoding of the whole list.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/fields.h"

namespace lockstep::text {

/// Running stage that receives tokens and passes tokens to the next stage. A token may arrive in
/// several fragments, followed by end_token().
class DecoderStage {
 public:
  DecoderStage() = default;
  DecoderStage(const DecoderStage&) = delete;
  DecoderStage& operator=(const DecoderStage&) = delete;
  virtual ~DecoderStage() = default;

  virtual void fragment(std::string_view text) = 0;
  virtual void end_token() = 0;
  /// Signals the end of the input. Called once. Also finishes the next stage.
  virtual void finish() = 0;
};

/// Immutable description of a stage. Several streams may use it concurrently.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;
  /// Returns a new running stage that passes its tokens to `next`, which must outlive it.
  virtual std::unique_ptr<DecoderStage> start(DecoderStage& next) const = 0;
};

/// Running decoder chain: tokens in, text out.
class Decoding {
 public:
  /// Creates a chain of `decoders` in order. They must outlive this object.
  explicit Decoding(const std::vector<std::unique_ptr<Decoder>>& decoders);
  ~Decoding();
  Decoding(Decoding&&) noexcept;
  Decoding& operator=(Decoding&&) noexcept;

  /// Returns the new text that later tokens cannot change.
  std::string push(std::string_view token);
  /// Returns the remaining text.
  std::string finish();

 private:
  class Sink;
  std::unique_ptr<Sink> sink_;
  std::vector<std::unique_ptr<DecoderStage>> stages_;  // in reverse order
};

/// Reads the decoder chain in a tokenizer.json. Throws Error for an unknown type.
std::vector<std::unique_ptr<Decoder>> make_decoders(const Field& field);
/// Returns the default for files without a decoder, which joins tokens with spaces.
std::vector<std::unique_ptr<Decoder>> make_joining_decoder();

}  // namespace lockstep::text
