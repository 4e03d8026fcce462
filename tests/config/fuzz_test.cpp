// Fuzz tests with deterministic mutations of real inputs: every reader returns a value or throws an
// Error.
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/counter_random.h"
#include "config/core/yaml.h"
#include "config/harness.h"
#include "config/hydra/override.h"
#include "config/print.h"

namespace lockstep::config {
namespace fuzz_test {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : state_(seed) {}

  size_t below(size_t bound) { return mix_bits(state_ += 0x9e3779b97f4a7c15ULL) % bound; }

  std::string mutate(std::string text, const std::string& other) {
    static constexpr std::string_view kLetters =
        "{}[]:,=\"'\\$&*!|>-#%@`~+. \n\t\xc3\x80\xff"
        "a0";
    for (size_t times = 1 + below(4); times > 0; --times) {
      const size_t at = below(text.size() + 1);
      const size_t size = std::min(below(8), text.size() - at);
      switch (below(5)) {
        case 0:
          text.insert(at, 1, kLetters[below(kLetters.size())]);
          break;
        case 1:
          text.erase(at, size);
          break;
        case 2:
          text.insert(at, text.substr(at, size));
          break;
        case 3:
          text.resize(at);
          break;
        default: {
          const size_t from = below(other.size());
          text.insert(at, other.substr(from, below(12)));
        }
      }
    }
    return text;
  }

 private:
  uint64_t state_;
};

/// LOCKSTEP_FUZZ=100 multiplies the number of inputs by 100.
int64_t inputs(int64_t count) {
  const char* times = std::getenv("LOCKSTEP_FUZZ");
  return count * (times == nullptr ? 1 : std::max(1, std::atoi(times)));
}

template <class Body>
void survive(const std::string& input, Body&& body) {
  try {
    body();
  } catch (const Error&) {
    // reported with its location
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << " for:\n" << input;
  }
}

constexpr const char* kYaml =
    "defaults:\n  - _self_\n  - model: x\na: &x {b: 1, c: [1, 'two', \"three\"]}\nd: *x\ne: |\n  "
    "text\n"
    "f: {<<: *x, g: ${a.b}}\n# comment\nh: !!str 5\n";
constexpr const char* kJson =
    "{\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\n\"], // c\n \"b\": {\"c\": {}}, /* d */ \"e\": "
    "[]}";
constexpr const char* kOverride =
    "a.b/c@d={x: [1, 'y z', ${oc.env:A,b}], w: int(3.5), v: sort([2,1])}\\,=";

TEST(Fuzz, Yaml) {
  Mutator mutator(1);
  for (int64_t i = inputs(4000); i > 0; --i) {
    const std::string text = mutator.mutate(kYaml, kJson);
    survive(text, [&] { parse_yaml(text, "fuzz"); });
  }
}

TEST(Fuzz, Json) {
  Mutator mutator(2);
  for (int64_t i = inputs(20000); i > 0; --i) {
    const std::string text = mutator.mutate(kJson, kYaml);
    survive(text, [&] { parse_json_with_comments(text, "fuzz"); });
  }
}

TEST(Fuzz, Overrides) {
  Mutator mutator(3);
  for (int64_t i = inputs(20000); i > 0; --i) {
    const std::string text = mutator.mutate(kOverride, kYaml);
    survive(text, [&] { parse_override(text); });
  }
}

TEST(Fuzz, WholeConfigurations) {
  const Harness harness;
  Config config;
  config.data.train = {"a", "b"};
  const std::string yaml = to_yaml(config) + "name: x\nother: ${name}${training.seed}\n";
  Mutator mutator(4);
  for (int64_t i = inputs(250); i > 0; --i) {
    const std::string text = mutator.mutate(yaml, kOverride);
    harness.write("a.yaml", text);
    const std::string flag = mutator.mutate("--learning_rate=1e-4", kOverride);
    const std::string override =
        mutator.mutate("training.lr_scheduler_kwargs.num_cycles=2", kOverride);
    survive(text + flag + override, [&] {
      harness.run(
          {"-c",
           "@/a.yaml",
           "deepspeed=" + mutator.mutate("{bf16: {enabled: auto}}", kJson),
           flag,
           override});
    });
  }
}

}  // namespace fuzz_test
}  // namespace lockstep::config
