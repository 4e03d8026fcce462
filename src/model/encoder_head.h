// Layers before the final product of an encoder's head and of T5's classifier.
#pragma once

#include <string_view>

#include "model/model_config.h"

namespace lockstep::model {

/// The head of an encoder (config.bidirectional) applies dropout, a linear, an activation, a layer
/// norm and dropout to each state, and then its final product. Only the layers in the description
/// are present; masked language modeling has no dropout (Devlin et al., "BERT", 2019, section 3). A
/// classifier's head is applied to all tokens of a row; its result is read at the first. T5's
/// classifier has a head like RoBERTa's after its decoder and is read at the last token.
struct EncoderHead {
  Activation activation = Activation::kGelu;
  double dropout_before = 0, dropout_after = 0;
};

EncoderHead encoder_head(const ModelConfig& config);

/// Parameter prefix of T5's classifier head.
inline constexpr std::string_view kT5ClassifierHead = "classification_head";

}  // namespace lockstep::model
