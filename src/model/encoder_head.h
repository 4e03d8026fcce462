// Layers before the final product of encoder heads and T5's classifier head.
#pragma once

#include <string_view>

#include "model/model_config.h"

namespace lockstep::model {

/// An encoder's head (config.bidirectional) applies dropout, a linear layer, an activation, a layer
/// norm and dropout to each state before its final product. It contains only the layers in the
/// description; the masked language modeling head has no dropout (Devlin et al., "BERT", 2019,
/// section 3). A classifier's head is applied to all tokens of a row, and its output is read at the
/// first token. T5's classifier has a head like RoBERTa's after its decoder, read at the last
/// token.
struct EncoderHead {
  Activation activation = Activation::kGelu;
  double dropout_before = 0, dropout_after = 0;
};

EncoderHead encoder_head(const ModelConfig& config);

/// Parameter prefix of T5's classifier head.
inline constexpr std::string_view kT5ClassifierHead = "classification_head";

}  // namespace lockstep::model
