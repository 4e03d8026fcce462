// Vocabulary of the sample corpus.
#pragma once

#include <array>
#include <string_view>

namespace lockstep::data::words {

using std::string_view;

inline constexpr std::array<string_view, 20> kWomen{
    "Ada",   "Berta", "Clara", "Dora", "Edith", "Flora", "Greta", "Hanna", "Ida",   "Julia",
    "Karin", "Lena",  "Mira",  "Nora", "Olga",  "Paula", "Rosa",  "Selma", "Tilda", "Vera"};
inline constexpr std::array<string_view, 20> kMen{
    "Anton", "Boris", "Conrad", "David", "Emil",  "Felix", "Gustav", "Henry", "Ivan",   "Jonas",
    "Karl",  "Linus", "Martin", "Nils",  "Oskar", "Peter", "Robert", "Simon", "Tobias", "Victor"};
inline constexpr std::array<string_view, 20> kTrades{
    "baker",    "carpenter", "doctor", "farmer",   "fisher",  "gardener", "hunter",
    "jeweller", "librarian", "miller", "musician", "painter", "potter",   "sailor",
    "shepherd", "smith",     "tailor", "teacher",  "trader",  "weaver"};
inline constexpr std::array<string_view, 20> kTempers{
    "brave",  "calm",   "careful", "cheerful", "clever", "curious", "friendly",
    "gentle", "honest", "kind",    "lively",   "lonely", "old",     "patient",
    "poor",   "proud",  "quiet",   "shy",      "strong", "young"};
inline constexpr std::array<string_view, 24> kPlaces{
    "bakery", "barn",    "bridge", "castle", "cave",    "church",     "farm",   "forest",
    "garden", "harbour", "inn",    "island", "library", "lighthouse", "market", "meadow",
    "mill",   "orchard", "school", "shop",   "square",  "stable",     "tower",  "well"};
inline constexpr std::array<string_view, 18> kQualities{
    "blue",
    "broken",
    "brown",
    "clean",
    "golden",
    "green",
    "heavy",
    "little",
    "long",
    "new",
    "old",
    "red",
    "round",
    "silver",
    "small",
    "strange",
    "white",
    "wooden"};
inline constexpr std::array<string_view, 30> kThings{
    "apple",  "basket", "bell", "blanket", "book",    "bottle",  "box",    "brush",
    "candle", "coin",   "cup",  "drum",    "feather", "flute",   "hammer", "hat",
    "key",    "knife",  "lamp", "letter",  "map",     "mirror",  "needle", "ring",
    "rope",   "sack",   "shoe", "spoon",   "stone",   "umbrella"};
inline constexpr std::array<string_view, 24> kAnimals{
    "ant",   "bear",  "bee",  "bird",   "camel", "cat",   "cow",   "dog",
    "duck",  "eagle", "fish", "fox",    "frog",  "goat",  "horse", "lion",
    "mouse", "owl",   "pig",  "rabbit", "sheep", "snake", "tiger", "wolf"};
inline constexpr std::array<string_view, 13> kNumbers{
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve"};

}  // namespace lockstep::data::words
