// Scanner for credentials in URLs, parameters, headers and the environment.
#include "base/redact.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <unistd.h>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kHidden = "***";
constexpr std::string_view kUrlEnd = " \t\r\n\"'<>`";  // ends a URL within a text
constexpr std::string_view kValueEnd = " \t\r\n\"'<>`&;,)";
/// Shorter values are not replaced, because they occur in unrelated text.
constexpr size_t kShortestSecret = 8;

/// Parameters of URLs and connection strings with credentials, in lower case.
constexpr std::array<std::string_view, 14> kParameters = {
    "sig",
    "signature",
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-goog-signature",
    "x-goog-credential",
    "awsaccesskeyid",
    "accountkey",
    "sharedaccesskey",
    "access_token",
    "client_secret",
    "api_key",
    "api-key"};

bool is_letter_or_digit(char letter) {
  return is_digit(letter) || (lower_case(letter) >= 'a' && lower_case(letter) <= 'z');
}

bool begins_word(std::string_view text, size_t at) {
  return at == 0 ||
         !(is_letter_or_digit(text[at - 1]) || text[at - 1] == '_' || text[at - 1] == '-');
}

/// Compares ASCII letters regardless of case; `word` is in lower case.
bool has_word(std::string_view text, size_t at, std::string_view word) {
  return text.size() - at >= word.size() && std::equal(
                                                word.begin(),
                                                word.end(),
                                                text.begin() + static_cast<std::ptrdiff_t>(at),
                                                [](char a, char b) { return a == lower_case(b); });
}

std::optional<char> percent_decoded(std::string_view text, size_t at) {
  const auto value = [](char letter) {
    letter = lower_case(letter);
    return is_digit(letter)                 ? letter - '0'
           : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                            : -1;
  };
  if (at + 2 >= text.size() || text[at] != '%') {
    return std::nullopt;
  }
  const int high = value(text[at + 1]), low = value(text[at + 2]);
  return high < 0 || low < 0 ? std::nullopt : std::optional(static_cast<char>(high * 16 + low));
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto letter = percent_decoded(text, i);
    decoded += letter.value_or(text[i]);
    i += letter ? 2 : 0;
  }
  return decoded;
}

/// Returns the length of `secret` at `at`, with any of its bytes percent-encoded; 0 if it is not
/// there.
size_t length_of_secret(std::string_view text, size_t at, std::string_view secret) {
  size_t i = at;
  for (const char letter : secret) {
    if (i < text.size() && text[i] == letter) {
      ++i;
    } else if (percent_decoded(text, i) == letter) {
      i += 3;
    } else {
      return 0;
    }
  }
  return i - at;
}

size_t end_of(std::string_view text, size_t at, std::string_view ends) {
  return std::min(text.find_first_of(ends, at), text.size());
}

/// Reads a text from left to right and copies it without its credentials.
class Redactor {
 public:
  Redactor(std::string_view text, const std::vector<std::string>& secrets)
      : text_(text),
        secrets_(secrets) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (!(hide_secret() || hide_in_url() || hide_parameter() || hide_header() || hide_key_id())) {
        result_ += text_[at_++];
      }
    }
    return std::move(result_);
  }

 private:
  /// Copies the text up to `begin` and replaces the text from there to `end`.
  bool hide(size_t begin, size_t end) {
    result_ += text_.substr(at_, begin - at_);
    result_ += kHidden;
    at_ = end;
    return true;
  }

  bool hide_secret() {
    for (const std::string& secret : secrets_) {
      if (const size_t length = length_of_secret(text_, at_, secret); length > 0) {
        return hide(at_, at_ + length);
      }
    }
    return false;
  }

  bool hide_in_url() {
    if (text_[at_] == '?' && at_ + 1 < query_before_) {
      return hide(at_ + 1, std::exchange(query_before_, 0));
    }
    constexpr std::string_view kMark = "://";
    if (!text_.substr(at_).starts_with(kMark)) {
      return false;
    }
    const std::string_view before = text_.substr(0, at_);
    const bool is_http = before.ends_with("http") || before.ends_with("https");
    query_before_ = is_http ? end_of(text_, at_, kUrlEnd) : 0;
    const size_t begin = at_ + kMark.size(),
                 end = std::min(end_of(text_, begin, "/?#"), end_of(text_, begin, kUrlEnd));
    const size_t user = text_.substr(begin, end - begin).rfind('@');
    return user != std::string_view::npos && hide(begin, begin + user);
  }

  bool hide_parameter() {
    if (!begins_word(text_, at_)) {
      return false;
    }
    for (const std::string_view name : kParameters) {
      const size_t equals = at_ + name.size();
      if (has_word(text_, at_, name) && equals < text_.size() && text_[equals] == '=') {
        return hide(equals + 1, end_of(text_, equals + 1, kValueEnd));
      }
    }
    return false;
  }

  bool hide_header() {
    constexpr std::string_view kHeader = "authorization: ";
    return has_word(text_, at_, kHeader) &&
           hide(at_ + kHeader.size(), end_of(text_, at_ + kHeader.size(), "\r\n\"'"));
  }

  /// AWS access key IDs: AKIA (long-lived) or ASIA (temporary) and 16 capital letters or digits.
  bool hide_key_id() {
    constexpr size_t kLength = 20;
    const std::string_view key = text_.substr(at_, kLength);
    const auto fits = [](char letter) {
      return is_digit(letter) || (letter >= 'A' && letter <= 'Z');
    };
    return begins_word(text_, at_) && key.size() == kLength &&
           (key.starts_with("AKIA") || key.starts_with("ASIA")) && std::ranges::all_of(key, fits) &&
           hide(at_, at_ + kLength);
  }

  const std::string_view text_;
  const std::vector<std::string>& secrets_;
  std::string result_;
  size_t at_ = 0;
  size_t query_before_ = 0;  // end of the http URL at `at_`; its query begins before that
};

}  // namespace

bool is_secret_name(std::string_view name) {
  const std::string lower = lower_case(std::string(name));
  return std::ranges::any_of(
      std::array<std::string_view, 4>{"key", "token", "secret", "password"},
      [&](std::string_view word) {
        return lower.ends_with(word) &&
               (lower.size() == word.size() ||
                std::string_view("_-.").find(lower[lower.size() - word.size() - 1]) !=
                    std::string_view::npos);
      });
}

std::vector<std::string> environment_secrets() {
  std::vector<std::string> secrets;
  const auto add = [&](std::string_view value) {
    for (std::string& form : std::array{std::string(value), percent_decoded(value)}) {
      if (form.size() >= kShortestSecret && std::ranges::find(secrets, form) == secrets.end()) {
        secrets.push_back(std::move(form));
      }
    }
  };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = std::min(text.find('='), text.size());
    const std::string_view name = text.substr(0, equals);
    if (!is_secret_name(name) && name != "AWS_ACCESS_KEY_ID") {
      continue;
    }
    const std::string_view value = text.substr(std::min(equals + 1, text.size()));
    add(value);
    // The signature of an Azure SAS token: the library reorders the token's parameters.
    constexpr std::string_view kSignature = "sig=";
    if (const size_t at = value.find(kSignature); at != value.npos) {
      add(value.substr(at + kSignature.size(), value.find('&', at) - at - kSignature.size()));
    }
  }
  return secrets;
}

std::string redacted(std::string_view text, const std::vector<std::string>& secrets) {
  return Redactor(text, secrets).run();
}

}  // namespace lockstep
