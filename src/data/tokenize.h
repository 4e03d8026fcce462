// Tokenizes files. One thread reads, several threads encode, and results are written in file order.
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

/// Ids of a document or a part of one.
struct EncodedDocument {
  std::span<const int32_t> ids;
  int64_t prompt_tokens = 0;  // prompt tokens at the start, without loss
  std::span<const uint8_t> hidden =
      {};  // for chats: nonzero if a token has no loss; otherwise empty
  bool begins = true, ends = true;
};

/// Ids of a whole document, and a mask of the ids without loss.
struct EncodedRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> hidden;  // one per id
};

/// Skips `skip` documents and encodes the next `count`. Later files are not read. Documents of
/// plain text are truncated after one part (data/records.h), and text after very long documents is
/// not searched.
std::vector<EncodedRow> encode_first(
    std::span<const InputFile> inputs,
    const DataOptions& options,
    const Encoder& encoder,
    int64_t skip,
    int64_t count);

/// Calls `take` on the calling thread for each document of `inputs` in order, with BOS and EOS
/// added. Empty documents are skipped; returns their number. Memory is bounded by the longest
/// record. Throws the first error in file order, independent of thread timing.
int64_t tokenize_files(
    std::span<const InputFile> inputs,
    const DataOptions& options,
    const TextCutting& cutting,
    const Encoder& encoder,
    const std::function<void(const EncodedDocument&)>& take);

}  // namespace lockstep::data
