// Generates instructions and labelled texts.
#include "data/sample_tasks.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/format.h"
#include "data/sample_dice.h"
#include "data/sample_story.h"
#include "data/sample_text.h"
#include "data/sample_words.h"

namespace lockstep::data {
namespace {

std::string spaced(const std::vector<std::string>& items) {
  return fmt::format("{}", fmt::join(items, " "));
}

std::vector<std::string> random_words(Dice& dice) {
  return dice.some(words::kAnimals, static_cast<size_t>(dice.between(3, 7)));
}

std::vector<int64_t> random_numbers(Dice& dice) {
  std::vector<int64_t> numbers(static_cast<size_t>(dice.between(3, 7)));
  for (int64_t& number : numbers) {
    number = dice.between(0, 99);
  }
  return numbers;
}

SampleInstruction arithmetic(Dice& dice) {
  const int64_t a = dice.between(0, 99);
  const int64_t b = dice.between(0, 99);
  switch (dice.below(4)) {
    case 0:
      return {"Add the two numbers.", fmt::format("{} {}", a, b), std::to_string(a + b), "add"};
    case 1:
      return {
          "Subtract the second number from the first.",
          fmt::format("{} {}", a, b),
          std::to_string(a - b),
          "subtract"};
    case 2:
      return {
          "Multiply the two numbers.",
          fmt::format("{} {}", a % 13, b % 13),
          std::to_string(a % 13 * (b % 13)),
          "multiply"};
    default: {
      const std::string animal = dice.pick(words::kTrades);
      return {
          fmt::format("There were {} {}s, and {} more came. How many are there now?", a, animal, b),
          "",
          std::to_string(a + b),
          "add_in_words"};
    }
  }
}

SampleInstruction sorting(Dice& dice) {
  if (dice.chance(50)) {
    auto list = random_words(dice);
    const std::string input = spaced(list);
    std::sort(list.begin(), list.end());
    return {"Sort the words by the alphabet.", input, spaced(list), "sort_words"};
  }
  auto list = random_numbers(dice);
  const std::string input = fmt::format("{}", fmt::join(list, " "));
  std::sort(list.begin(), list.end());
  return {
      "Sort the numbers, the smallest first.",
      input,
      fmt::format("{}", fmt::join(list, " ")),
      "sort_numbers"};
}

SampleInstruction counting(Dice& dice) {
  if (dice.chance(50)) {
    const auto kinds = dice.some(words::kAnimals, 3);
    std::vector<std::string> list(static_cast<size_t>(dice.between(3, 9)));
    for (std::string& word : list) {
      word = kinds[static_cast<size_t>(dice.below(3))];
    }
    const auto count = std::count(list.begin(), list.end(), kinds[0]);
    return {
        fmt::format("How often does the word {} stand in the text?", kinds[0]),
        spaced(list),
        std::to_string(count),
        "count_word"};
  }
  const auto list = random_words(dice);
  return {"How many words are there?", spaced(list), std::to_string(list.size()), "count_words"};
}

SampleInstruction rearranging(Dice& dice) {
  auto list = random_words(dice);
  const std::string input = spaced(list);
  switch (dice.below(4)) {
    case 0:
      std::reverse(list.begin(), list.end());
      return {"Write the words in reverse order.", input, spaced(list), "reverse_words"};
    case 1: {
      std::string word = list.front();
      std::reverse(word.begin(), word.end());
      return {"Spell the word backwards.", list.front(), word, "reverse_letters"};
    }
    case 2:
      return {"Copy the text.", input, input, "copy"};
    default: {
      const std::vector<std::string> twice{input, input};
      return {"Write the text twice.", input, spaced(twice), "copy_twice"};
    }
  }
}

SampleInstruction choosing(Dice& dice) {
  if (dice.chance(40)) {
    const auto list = random_numbers(dice);
    const bool largest = dice.chance(50);
    const int64_t answer = largest ? *std::max_element(list.begin(), list.end())
                                   : *std::min_element(list.begin(), list.end());
    return {
        fmt::format("Which number is the {}?", largest ? "largest" : "smallest"),
        fmt::format("{}", fmt::join(list, " ")),
        std::to_string(answer),
        largest ? "largest" : "smallest"};
  }
  static constexpr std::array<std::string_view, 3> kOrdinals{"first", "second", "third"};
  const auto list = random_words(dice);
  const auto at = static_cast<size_t>(dice.below(4));
  return {
      fmt::format("Write the {} word.", at < 3 ? kOrdinals[at] : "last"),
      spaced(list),
      at < 3 ? list[at] : list.back(),
      "choose"};
}

SampleInstruction about_a_story(Dice& dice) {
  Story story = tell_story(
      derive_key(static_cast<uint64_t>(dice.below(int64_t{1} << 31)), 7), dice.between(2, 5));
  story.text.pop_back();
  return {
      story.questions.front().question,
      std::move(story.text),
      story.questions.front().answer,
      "story"};
}

/// Returns a judgment of a thing. It is praise if exactly one of these is true: the word is good,
/// or it is negated.
std::string judgement(Dice& dice, bool praise) {
  static constexpr std::array<std::string_view, 6> kGood{
      "well made", "worth its price", "useful", "strong", "easy to use", "beautiful"};
  static constexpr std::array<std::string_view, 6> kBad{
      "broken", "too heavy", "dirty", "a waste of money", "ugly", "weak"};
  const bool negated = dice.chance(50);
  const std::string word = dice.pick(
      praise != negated ? std::span<const std::string_view>(kGood)
                        : std::span<const std::string_view>(kBad));
  return (negated ? dice.pick({"is not ", "is not at all ", "is by no means "})
                  : dice.pick({"is ", "is really ", "is quite "})) +
         word;
}

}  // namespace

SampleInstruction make_instruction(uint64_t key) {
  Dice dice(key);
  switch (dice.below(12)) {
    case 0:
    case 1:
    case 2:
      return arithmetic(dice);
    case 3:
    case 4:
      return sorting(dice);
    case 5:
    case 6:
      return counting(dice);
    case 7:
    case 8:
      return rearranging(dice);
    case 9:
    case 10:
      return choosing(dice);
    default:
      return about_a_story(dice);
  }
}

LabelledText make_labelled(uint64_t key) {
  Dice dice(key);
  const std::string thing = dice.pick(words::kQualities) + " " + dice.pick(words::kThings);
  const std::string shop = dice.pick(words::kPlaces);
  const std::string name = dice.chance(50) ? dice.pick(words::kWomen) : dice.pick(words::kMen);
  const int64_t kind = dice.below(4);
  if (kind < 2) {
    const bool praise = dice.chance(50);
    std::string text = fmt::format(
        "I have had the {} from the {} for {} weeks. It {}",
        thing,
        shop,
        words::kNumbers[static_cast<size_t>(dice.between(2, 12))],
        judgement(dice, praise));
    text += dice.chance(60) ? ", and it " + judgement(dice, praise) + "." : ".";
    if (dice.chance(30)) {
      text += fmt::format(" {} said: \"It {}.\"", name, judgement(dice, praise));
    }
    return {text, praise ? "praise" : "complaint"};
  }
  const std::string it = judgement(dice, dice.chance(50));
  const std::string pattern =
      kind == 2 ? dice.pick(
                      {"Does anyone know whether the {thing} from the {shop} {it}?",
                       "Is it true that the {thing} {it}, {name}?",
                       "At the {shop} they have {a thing}. Can you tell me if it {it}?"})
                : dice.pick(
                      {"Please bring the {thing} back to the {shop}, {name}; it {it}.",
                       "Send {name} another {thing}, please. This one {it}.",
                       "Dear {name}, keep the {thing} at the {shop} for me, for it {it}."});
  return {
      fill(
          pattern,
          {{"thing", thing},
           {"a thing", with_article(thing)},
           {"shop", shop},
           {"it", it},
           {"name", name}}),
      kind == 2 ? "question" : "request"};
}

}  // namespace lockstep::data
