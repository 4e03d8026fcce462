// Porter stemmer for English words.
#pragma once

#include <string>

namespace lockstep::metrics {

/// Returns the stem of a word of lower-case letters and digits. Follows NLTK's PorterStemmer in its
/// default mode (Porter, "An algorithm for suffix stripping", 1980, with NLTK's extensions). Words
/// of one or two letters are returned unchanged.
std::string porter_stem(const std::string& word);

}  // namespace lockstep::metrics
