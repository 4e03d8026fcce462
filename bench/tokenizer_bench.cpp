// Encodes documents once, on one thread, and prints what it took: bench/tokenizer_speed.py's side
// for Lockstep.
//   tokenizer_bench TOKENIZER_FOLDER DOCUMENTS    documents end with a NUL byte
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "text/tokenizer.h"

int main(int count, char** words) {
  if (count != 3) {
    fmt::print(stderr, "usage: tokenizer_bench TOKENIZER_FOLDER DOCUMENTS\n");
    return 2;
  }
  const auto tokenizer = lockstep::text::Tokenizer::load(words[1]);
  const lockstep::MappedFile file(words[2]);
  std::vector<std::string_view> documents;
  for (std::string_view rest = file.text(); !rest.empty();) {
    const size_t end = rest.find('\0');
    documents.push_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  std::vector<std::vector<int32_t>> ids;
  ids.reserve(documents.size());
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string_view document : documents) {
    ids.push_back(tokenizer->encode(document));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  // The ids' sum and number: the other sides' must be the same.
  int64_t sum = 0, tokens = 0;
  for (const std::vector<int32_t>& document : ids) {
    tokens += static_cast<int64_t>(document.size());
    for (const int32_t id : document) {
      sum = (sum * 31 + id) % 1'000'000'007;
    }
  }
  fmt::print("{} {} {}\n", took.count(), tokens, sum);
}
