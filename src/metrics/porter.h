// English words without their endings.
#pragma once

#include <string>

namespace lockstep::metrics {

/// The stem of a word of lower-case letters and digits, as NLTK's PorterStemmer has it in its own
/// mode (Porter, "An algorithm for suffix stripping", 1980, with NLTK's changes). A word of two
/// letters or less is its stem.
std::string porter_stem(const std::string& word);

}  // namespace lockstep::metrics
