// Removal of credentials from messages, records and logs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns true if a name is that of a secret: its last word is KEY, TOKEN, SECRET or PASSWORD.
bool is_secret_name(std::string_view name);

/// Returns the values of this process's environment variables that are credentials.
std::vector<std::string> environment_secrets();

/// Replaces credentials with ***: the user and password of URLs, the query of http URLs, signatures
/// and keys of object stores (sig=, X-Amz-Signature=, AKIA...), Authorization headers, and
/// `secrets` wherever they occur, raw or percent-encoded. Error and the log apply it to every text,
/// because libraries put URLs and headers into their messages.
std::string redacted(
    std::string_view text, const std::vector<std::string>& secrets = environment_secrets());

}  // namespace lockstep
