// Files into token streams: read by one thread, encoded by many, written in the files' order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/documents.h"
#include "data/encoder.h"
#include "data/inputs.h"
#include "data/options.h"

namespace lockstep::data {

/// A document's ids, or those of a part of one.
struct EncodedDocument {
  std::span<const int32_t> ids;
  int64_t prompt_tokens = 0;             // at the start, without loss
  std::span<const uint8_t> hidden = {};  // of chats: not 0 where a token has no loss; else empty
  bool begins = true, ends = true;
};

/// A whole document's ids, and which of them have no loss.
struct EncodedRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> hidden;  // one for each
};

/// The first `count` documents behind `skip` of them, and nothing of the files behind these.
/// Documents of plain text are cut off after a part (data/records.h), and what is behind one of
/// many megabytes is not looked for. What is skipped is not encoded.
std::vector<EncodedRow> encode_first(
    std::span<const InputFile> inputs,
    const DataOptions& options,
    const Encoder& encoder,
    int64_t skip,
    int64_t count);

/// Calls `take` on the calling thread for each document of `inputs` in their order, with the
/// tokenizer's begin and end put around it; documents without text are left out. Memory is bounded
/// by the longest record. The first error in the order of the files is thrown, whatever the threads
/// do.
void tokenize_files(
    std::span<const InputFile> inputs,
    const DataOptions& options,
    const TextCutting& cutting,
    const Encoder& encoder,
    const std::function<void(const EncodedDocument&)>& take);

}  // namespace lockstep::data
