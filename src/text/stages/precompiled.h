// SentencePiece's precompiled character map, as T5, XLM-R and their kin have it: a trie of what is
// replaced, and the replacements.
#pragma once

#include <memory>

#include "text/stages/normalizer.h"

namespace lockstep::text {

/// The normalizer of "precompiled_charsmap", in base64. An Error tells of one that is not whole.
std::unique_ptr<Normalizer> make_precompiled(const Field& field);

}  // namespace lockstep::text
