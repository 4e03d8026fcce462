// The ends of the names of what is trained beside a layer. Internal to model.
#pragma once

#include <string_view>

namespace lockstep::model {

inline constexpr std::string_view kMagnitudesEnd = ".lora_magnitude_vector";
inline constexpr std::string_view kRowsEnd = ".token_adapter.trainable_tokens_delta";

}  // namespace lockstep::model
