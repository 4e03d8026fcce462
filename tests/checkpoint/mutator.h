// Random mutations of JSON files for parser tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

/// Returns the number of inputs of a fuzz test: LOCKSTEP_FUZZ, or `usual`.
inline int64_t fuzz_rounds(int64_t usual) {
  const char* const count = std::getenv("LOCKSTEP_FUZZ");
  return count != nullptr ? std::atoll(count) : usual;
}

/// Inserts, replaces, erases, flips and repeats tokens of Lockstep's formats.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t limit) { return random_() % limit; }

  std::string mutate(std::string text) {
    static constexpr std::string_view kTokens[] = {
        "{",
        "}",
        "[",
        "]",
        "\"",
        ",",
        ":",
        "0",
        "1e9",
        "-1",
        "null",
        "\\u0000",
        "[0]",
        " ",
        "\xff",
        "4294967296",
        "18446744073709551615",
        "\"dtype\"",
        "\"shape\"",
        "\"data_offsets\"",
        "__metadata__",
        "..",
        "/",
        "\"size\"",
        "\"chunks\"",
        "model.safetensors"};
    for (uint64_t edits = 1 + below(4); edits > 0; --edits) {
      const size_t at = below(text.size() + 1);
      const std::string_view token = kTokens[below(std::size(kTokens))];
      switch (below(5)) {
        case 0:
          text.insert(at, token);
          break;
        case 1:
          text.replace(at, below(6), token);
          break;
        case 2:
          text.erase(at, below(8));
          break;
        case 3:
          if (at < text.size()) {
            text[at] = static_cast<char>(random_());
          }
          break;
        default:
          text.insert(at, text.substr(below(text.size() + 1), below(80)));
      }
    }
    return text;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace lockstep::checkpoint
