// SentencePiece's precompiled character map, used by T5, XLM-R and related models: a trie of keys
// with replacements.
#pragma once

#include <memory>

#include "text/stages/normalizer.h"

namespace lockstep::text {

/// Reads the normalizer from "precompiled_charsmap" (base64). Throws Error if the map is invalid.
std::unique_ptr<Normalizer> make_precompiled(const Field& field);

}  // namespace lockstep::text
