// Implements regular expressions of a tokenizer.json with PCRE2 under time and memory limits.
#include "text/stages/regex.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <time.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/format.h"
#include "text/stages/regex_syntax.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

// PCRE2 limits per start position. Patterns of real tokenizers stay far below them.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kDepthLimit = 1'000'000;
constexpr uint32_t kHeapLimitKilobytes = 64 * 1024;
constexpr size_t kJitStackBytes = 128 << 20;  // reserved address space; committed on use
// Start positions tried between two checks of the clock.
constexpr size_t kWindow = 32;
// CPU time limit: ten times the cost of slow patterns.
constexpr double kSecondsAtLeast = 1;
constexpr double kSecondsPerByte = 1e-6;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

struct FreeJitStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

/// PCRE2 match state. Created once per thread because a tokenizer stage may search each word
/// separately.
struct MatchMemory {
  std::unique_ptr<pcre2_match_data, FreeMatchData> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context{
      pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack{
      pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)};

  MatchMemory() {
    if (data == nullptr || context == nullptr || stack == nullptr) {
      throw Error(ErrorKind::kOutOfMemory, "out of memory while matching a regular expression");
    }
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kDepthLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKilobytes);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  static MatchMemory& of_thread() {
    thread_local MatchMemory memory;
    return memory;
  }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, std::string place)
    : code_(std::make_unique<Code>()),
      pattern_(pattern),
      place_(std::move(place)) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::string translated = to_pcre(pattern, place_);
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (context != nullptr) {
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  }
  // Oniguruma uses Ruby syntax, in which ^ and $ always match at line boundaries.
  code_->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()),
      translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
      &error,
      &offset,
      context.get());
  if (code_->code == nullptr) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the pattern {} is invalid: {}",
            place_,
            shown_pattern(pattern_),
            message_of(error)),
        "use the syntax that Oniguruma and PCRE2 have in common");
  }
  pcre2_jit_compile(
      code_->code,
      PCRE2_JIT_COMPLETE);  // the JIT is optional: matching is slower without it, with the same
                            // result
}

Regex::~Regex() = default;

/// Search in one text.
class Regex::Search {
 public:
  Search(const Regex& regex, std::string_view text)
      : regex_(regex),
        text_(text),
        memory_(MatchMemory::of_thread()) {}

  struct Place {
    size_t begin, end;
  };
  /// Returns the first match that starts at or after `from`.
  std::optional<Place> next(size_t from) {
    while (from <= text_.size()) {
      size_t last = std::min(from + kWindow, text_.size());
      while (last < text_.size() && (static_cast<unsigned char>(text_[last]) & 0xC0) == 0x80) {
        ++last;
      }
      pcre2_set_offset_limit(memory_.context.get(), last);
      const int code = pcre2_match(
          regex_.code_->code,
          reinterpret_cast<PCRE2_SPTR>(text_.data()),
          text_.size(),
          from,
          PCRE2_NO_UTF_CHECK,
          memory_.data.get(),
          memory_.context.get());
      if (code >= 0) {
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(memory_.data.get());
        if (++found_ % 16 == 0) {
          check_time();
        }
        return Place{ends[0], ends[1]};
      }
      if (code != PCRE2_ERROR_NOMATCH) {
        regex_.too_long(message_of(code));
      }
      if (last == text_.size()) {
        return std::nullopt;
      }
      check_time();
      from = last + code_point_length(text_[last]);
    }
    return std::nullopt;
  }

 private:
  /// Throws Error if the CPU time limit is exceeded. Time is measured from the first call, so
  /// searches of short words do not read the clock.
  void check_time() {
    const double now = thread_seconds();
    if (latest_ == 0) {
      latest_ = now + kSecondsAtLeast + kSecondsPerByte * static_cast<double>(text_.size());
    } else if (now > latest_) {
      regex_.too_long("time limit exceeded");
    }
  }

  const Regex& regex_;
  std::string_view text_;
  MatchMemory& memory_;
  double latest_ = 0;  // deadline in seconds; 0 until the first check
  size_t found_ = 0;
};

void Regex::too_long(const std::string& reason) const {
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{}: the pattern {} takes too long on this text: {}",
          place_,
          shown_pattern(pattern_),
          reason),
      "remove the text, or use a tokenizer whose pattern backtracks less");
}

std::vector<Match> Regex::matches(std::string_view text) const {
  Search search(*this, text);
  std::vector<Match> found;
  size_t done = 0;
  size_t from = 0;
  bool any = false;
  while (const std::optional<Search::Place> place = search.next(from)) {
    const auto [begin, end] = *place;
    if (begin == end && any && end == done) {  // skips an empty match directly after a match
      from += from < text.size() ? code_point_length(text[from]) : 1;
      continue;
    }
    if (begin > done) {
      found.push_back({done, begin, false});
    }
    found.push_back({begin, end, true});
    from = done = end;
    any = true;
  }
  if (done < text.size()) {
    found.push_back({done, text.size(), false});
  }
  return found;
}

}  // namespace lockstep::text
