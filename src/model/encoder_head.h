// What stands before the product of an encoder's head, and of T5's classifier.
#pragma once

#include <string_view>

#include "model/model_config.h"

namespace lockstep::model {

/// The head of an encoder (config.bidirectional) makes of each state dropout, a linear, an
/// activation, a layer norm and dropout, and then its product: of what the description lists, and
/// of masked language modelling without the dropouts (Devlin et al., "BERT", 2019, section 3). A
/// classifier's acts on all tokens of a row, of which the first is read. T5's classifier has one
/// like RoBERTa's behind its decoder, of whose tokens the last is read.
struct EncoderHead {
  Activation activation = Activation::kGelu;
  double dropout_before = 0, dropout_after = 0;
};

EncoderHead encoder_head(const ModelConfig& config);

/// What the names of the parameters of T5's begin with.
inline constexpr std::string_view kT5ClassifierHead = "classification_head";

}  // namespace lockstep::model
