// Encodes documents once, on one thread, and prints what it took: bench/tokenizer_speed.py's side
// for Lockstep.
//   tokenizer_bench TOKENIZER_FOLDER DOCUMENTS            documents end with a NUL byte
//   tokenizer_bench TOKENIZER_FOLDER FILE THREADS CACHE   as training tokenizes a text file, into
//   this folder
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "data/prepare.h"
#include "data/token_dataset.h"
#include "text/tokenizer.h"

namespace {

// Seconds of reading, tokenizing and writing a file, and its tokens.
void tokenize_file(
    const std::shared_ptr<const lockstep::text::Tokenizer>& tokenizer,
    const char* file,
    int threads,
    const char* cache) {
  lockstep::data::DataOptions options;
  options.train = {file};
  options.format = lockstep::data::Format::kText;
  options.cache_dir = cache;
  options.threads = threads;
  const auto begin = std::chrono::steady_clock::now();
  const auto prepared =
      lockstep::data::prepare_data(options, lockstep::data::make_encoder(tokenizer));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto tokens = lockstep::data::TokenDataset::open(prepared.train);
  fmt::print("{} {} {}\n", took.count(), tokens->tokens(), tokens->content_hash());
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 && count != 5) {
    fmt::print(stderr, "usage: tokenizer_bench TOKENIZER_FOLDER DOCUMENTS [THREADS CACHE]\n");
    return 2;
  }
  const auto tokenizer = lockstep::text::Tokenizer::load(words[1]);
  if (count == 5) {
    tokenize_file(tokenizer, words[2], std::atoi(words[3]), words[4]);
    return 0;
  }
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
