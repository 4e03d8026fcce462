// Generates stories.
#include "data/sample_story.h"

#include <initializer_list>
#include <utility>

#include "base/format.h"
#include "data/sample_dice.h"
#include "data/sample_text.h"
#include "data/sample_words.h"

namespace lockstep::data {
namespace {

constexpr int kNobody = -1;

struct Person {
  std::string name, trade, temper;
  bool woman = false;
  int place = 0, first_move = -1;

  const char* they() const { return woman ? "she" : "he"; }
  const char* their() const { return woman ? "her" : "his"; }
};

struct Thing {
  std::string name;  // "red lamp"
  int holder = kNobody, place = 0;
};

class Teller {
 public:
  explicit Teller(uint64_t key) : dice_(key) {}

  Story tell(int64_t events) {
    set_scene();
    introduce();
    for (int64_t i = 0; i < events; ++i) {
      if (i > 0 && dice_.chance(20)) {
        start_paragraph();
      }
      happen();
    }
    close();
    Story story;
    story.questions = ask();
    story.text = std::move(text_);
    return story;
  }

 private:
  // ---- the scene

  void set_scene() {
    places_ = dice_.some(words::kPlaces, static_cast<size_t>(dice_.between(4, 6)));
    const auto trades = dice_.some(words::kTrades, 3);
    const auto tempers = dice_.some(words::kTempers, 3);
    const auto women = dice_.some(words::kWomen, 3);
    const auto men = dice_.some(words::kMen, 3);
    const auto count = static_cast<size_t>(dice_.chance(30) ? 3 : 2);
    for (size_t i = 0; i < count; ++i) {
      const bool woman = dice_.chance(50);
      people_.push_back(
          {woman ? women[i] : men[i], trades[i], tempers[i], woman, random_place(), -1});
    }
    const auto nouns = dice_.some(words::kThings, static_cast<size_t>(dice_.between(3, 5)));
    const auto qualities = dice_.some(words::kQualities, nouns.size());
    for (size_t i = 0; i < nouns.size(); ++i) {
      Thing thing{qualities[i] + " " + nouns[i], kNobody, random_place()};
      if (i == 0 || dice_.chance(40)) {
        thing.holder = i == 0 ? 0 : random_person();
      }
      things_.push_back(std::move(thing));
    }
  }

  int random_place() { return static_cast<int>(dice_.below(static_cast<int64_t>(places_.size()))); }
  int random_person() {
    return static_cast<int>(dice_.below(static_cast<int64_t>(people_.size())));
  }
  const std::string& place(int index) const { return places_[static_cast<size_t>(index)]; }
  Person& person(int index) { return people_[static_cast<size_t>(index)]; }
  Thing& thing(int index) { return things_[static_cast<size_t>(index)]; }

  std::vector<int> carried_by(int who) const {
    std::vector<int> found;
    for (size_t i = 0; i < things_.size(); ++i) {
      if (things_[i].holder == who) {
        found.push_back(static_cast<int>(i));
      }
    }
    return found;
  }
  std::vector<int> lying_at(int where) const {
    std::vector<int> found = carried_by(kNobody);
    std::erase_if(found, [&](int i) { return things_[static_cast<size_t>(i)].place != where; });
    return found;
  }
  std::vector<int> others_with(int who) const {
    std::vector<int> found;
    for (size_t i = 0; i < people_.size(); ++i) {
      if (static_cast<int>(i) != who &&
          people_[i].place == people_[static_cast<size_t>(who)].place) {
        found.push_back(static_cast<int>(i));
      }
    }
    return found;
  }
  int one_of(const std::vector<int>& list) {
    return list[static_cast<size_t>(dice_.below(static_cast<int64_t>(list.size())))];
  }
  std::string names_of(const std::vector<int>& things, bool definite) const {
    std::vector<std::string> names;
    for (const int i : things) {
      const std::string& name = things_[static_cast<size_t>(i)].name;
      names.push_back(definite ? "the " + name : with_article(name));
    }
    return listed(names);
  }

  // ---- sentences

  void say(const std::string& sentence) {
    if (!text_.empty() && text_.back() != '\n') {
      text_ += ' ';
    }
    text_ += capital(sentence);
  }
  void start_paragraph() {
    text_ += '\n';
    subject_ = kNobody;
  }
  /// Returns the person's name, or a pronoun if the last sentence was about the same person.
  std::string subject(int who) {
    const bool pronoun = subject_ == who && dice_.chance(65);
    subject_ = who;
    return pronoun ? person(who).they() : person(who).name;
  }
  /// Returns a connecting phrase with a probability of 25 %, otherwise an empty string.
  std::string tie() {
    return dice_.chance(25)
               ? dice_.pick({"then ", "after that ", "soon ", "a little later ", "in the end "})
               : "";
  }

  /// Appends one of the patterns, with its placeholders replaced.
  void say_one(
      std::initializer_list<std::string_view> patterns, Gaps gaps, const std::string& before = "") {
    say(before + fill(dice_.pick(patterns), gaps));
  }

  void introduce() {
    for (int who = 0; who < static_cast<int>(people_.size()); ++who) {
      introduce(who);
      subject_ = who;
      if (const auto things = carried_by(who); !things.empty()) {
        say_one(
            {"{who} had {things}.", "{who} owned {things}.", "{who} always carried {things}."},
            {{"who", subject(who)}, {"things", names_of(things, false)}});
      }
    }
    for (int where = 0; where < static_cast<int>(places_.size()); ++where) {
      if (const auto things = lying_at(where); !things.empty()) {
        say(fmt::format("{} lay at the {}.", names_of(things, false), place(where)));
        subject_ = kNobody;
      }
    }
    start_paragraph();
  }

  void introduce(int who) {
    const Person& p = person(who);
    const std::string work = p.temper + " " + p.trade;
    if (who == 0) {
      say_one(
          {"Once there was {work} named {name}, who lived by the {home}.",
           "{name} was {work} and lived by the {home}.",
           "By the {home} lived {work} whose name was {name}."},
          {{"name", p.name}, {"work", with_article(work)}, {"home", place(p.place)}});
      return;
    }
    say_one(
        {"{name}, a friend of {friend}, was {a work} and lived by the {home}.",
         "{friend} had a friend, the {work} {name}, who lived by the {home}.",
         "At the {home} lived {name}, {a work}, whom {friend} knew well."},
        {{"name", p.name},
         {"work", work},
         {"a work", with_article(work)},
         {"home", place(p.place)},
         {"friend", people_.front().name}});
  }

  // ---- events

  void happen() {
    const int who = random_person();
    std::vector<int> mine = carried_by(who);
    std::vector<int> here = lying_at(person(who).place);
    std::erase(mine, last_);  // do not move the same thing again immediately
    std::erase(here, last_);
    const std::vector<int> others = others_with(who);
    const int64_t roll = dice_.below(100);
    if (!here.empty() && roll < 30) {
      take(who, one_of(here));
    } else if (!mine.empty() && !others.empty() && roll < 60) {
      give(who, one_of(others), one_of(mine));
    } else if (!others.empty() && roll < 75) {
      talk(who, one_of(others));
    } else if (!mine.empty() && roll < 80) {
      leave(who, one_of(mine));
    } else if (roll < 90) {
      go(who);
    } else {
      pause(who);
    }
  }

  void go(int who) {
    Person& p = person(who);
    const std::string& from = place(p.place);
    const auto places = static_cast<int64_t>(places_.size());
    p.place = static_cast<int>((p.place + 1 + dice_.below(places - 1)) % places);
    p.first_move = p.first_move < 0 ? p.place : p.first_move;
    const std::string before = tie();
    const std::string called = subject(who);
    const auto mine = carried_by(who);
    std::string with;
    if (!mine.empty() && dice_.chance(30)) {
      with = fmt::format(
          " with {} in {} {}",
          names_of(mine, true),
          p.their(),
          dice_.pick({"bag", "hands", "arms"}));
    }
    say_one(
        {"{who} went to the {to}{with}.",
         "{who} walked to the {to}{with}.",
         "{who} took the road to the {to}{with}.",
         "{who} left the {from} and went to the {to}{with}.",
         "{who} hurried from the {from} to the {to}{with}."},
        {{"who", called}, {"to", place(p.place)}, {"from", from}, {"with", with}},
        before);
    if (const auto others = others_with(who); !others.empty() && dice_.chance(60)) {
      say_one(
          {"There {they} met {other}.", "{other} was there too.", "{other} was waiting there."},
          {{"they", p.they()}, {"other", person(one_of(others)).name}});
      subject_ = kNobody;
    }
  }

  void take(int who, int what) {
    Thing& t = thing(what);
    last_ = what;
    t.holder = who;
    const std::string before = tie();
    const std::string called = subject(who);
    say_one(
        {"{who} picked up the {thing}.",
         "{who} found the {thing} and took it along.",
         "{who} saw the {thing} there and put it in {their} bag.",
         "{who} took the {thing}."},
        {{"who", called}, {"thing", t.name}, {"their", person(who).their()}},
        before);
  }

  void leave(int who, int what) {
    Thing& t = thing(what);
    last_ = what;
    t.holder = kNobody;
    t.place = person(who).place;
    const std::string before = tie();
    const std::string called = subject(who);
    say_one(
        {"{who} left the {thing} at the {place}.",
         "{who} put the {thing} down by the {place}.",
         "{who} did not need the {thing} any more and left it at the {place}."},
        {{"who", called}, {"thing", t.name}, {"place", place(t.place)}},
        before);
  }

  void give(int who, int other, int what) {
    Thing& t = thing(what);
    last_ = what;
    t.holder = other;
    const std::string before = tie();
    const std::string called = subject(who);
    const std::string& to = person(other).name;
    say_one(
        {"{who} gave the {thing} to {other}.",
         "{who} handed {other} the {thing}.",
         "{who} let {other} have the {thing}."},
        {{"who", called}, {"thing", t.name}, {"other", to}},
        before);
    if (dice_.chance(35)) {
      say_one(
          {"\"Thank you, {who},\" said {other}.",
           "\"I will take good care of the {thing},\" said {other}.",
           "{other} was glad to have it."},
          {{"who", person(who).name}, {"other", to}, {"thing", t.name}});
      subject_ = other;
    }
  }

  /// One person asks for a thing, and another person answers.
  void talk(int who, int other) {
    const auto what = static_cast<int>(dice_.below(static_cast<int64_t>(things_.size())));
    const Thing& t = thing(what);
    subject_ = kNobody;
    if (t.holder == who) {
      say_one(
          {"\"Look, I have the {thing},\" said {who} to {other}.",
           "{who} showed {other} the {thing}."},
          {{"thing", t.name}, {"who", person(who).name}, {"other", person(other).name}});
      return;
    }
    std::string answer = "It is at the " + place(t.place);
    if (t.holder == other) {
      answer = "I have it here";
    } else if (t.holder != kNobody) {
      answer = person(t.holder).name + " has it";
    } else if (t.place == person(other).place) {
      answer = "It is here, you are standing before it";
    }
    say_one(
        {"\"Where is the {thing}?\" asked {who}. \"{answer},\" said {other}.",
         "\"Do you know where the {thing} is?\" asked {who}. \"{answer},\" answered {other}."},
        {{"thing", t.name},
         {"who", person(who).name},
         {"answer", answer},
         {"other", person(other).name}});
  }

  void pause(int who) {
    const Person& p = person(who);
    const auto mine = carried_by(who);
    const std::string called = subject(who);
    if (dice_.chance(40)) {
      say(fmt::format(
          "{} now carried {} thing{}{}.",
          called,
          words::kNumbers[mine.size()],
          mine.size() == 1 ? "" : "s",
          mine.empty() ? "" : ": " + names_of(mine, true)));
      return;
    }
    say_one(
        {"{who} rested for a while at the {place}.",
         "{who} thought of {their} work, for {they} was a {trade}.",
         "{who} looked at the sky over the {place} and waited for the rain to end.",
         "{who} sang a song that every {trade} knows.",
         "{who} was still as {temper} as ever."},
        {{"who", called},
         {"place", place(p.place)},
         {"their", p.their()},
         {"they", p.they()},
         {"trade", p.trade},
         {"temper", p.temper}});
  }

  void close() {
    start_paragraph();
    say(dice_.pick(
        {"At last the sun went down.",
         "That was the end of the day.",
         "In the evening everyone went to sleep.",
         "The next morning the story was told in every house."}));
    text_ += '\n';
  }

  // ---- questions

  std::vector<StoryQuestion> ask() {
    std::vector<StoryQuestion> all;
    for (const Thing& t : things_) {
      if (t.holder == kNobody) {
        all.push_back(
            {fmt::format("Where is the {} now?", t.name),
             fmt::format("It is at the {}.", place(t.place))});
      } else {
        all.push_back(
            {fmt::format("Who has the {} now?", t.name),
             fmt::format("{} has it.", person(t.holder).name)});
      }
    }
    for (int who = 0; who < static_cast<int>(people_.size()); ++who) {
      const Person& p = person(who);
      all.push_back(
          {fmt::format("What does {} carry?", p.name),
           fmt::format("{} carries {}.", capital(p.they()), names_of(carried_by(who), true))});
      all.push_back(
          {fmt::format("Where is {} now?", p.name),
           fmt::format("{} is at the {}.", capital(p.they()), place(p.place))});
      all.push_back(
          {fmt::format("What is the trade of {}?", p.name),
           fmt::format("{} is {}.", capital(p.they()), with_article(p.trade))});
      if (p.first_move >= 0) {
        all.push_back(
            {fmt::format("Where did {} go first?", p.name),
             fmt::format("{} went to the {}.", capital(p.they()), place(p.first_move))});
      }
    }
    dice_.shuffle(all);
    return all;
  }

  Dice dice_;
  std::string text_;
  std::vector<std::string> places_;
  std::vector<Person> people_;
  std::vector<Thing> things_;
  int subject_ = kNobody;  // person that the last sentence was about
  int last_ = -1;          // thing that moved last
};

}  // namespace

Story tell_story(uint64_t key, int64_t events) {
  return Teller(key).tell(events);
}

}  // namespace lockstep::data
