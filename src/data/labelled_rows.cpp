// Reads and encodes labelled rows.
#include "data/labelled_rows.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/documents.h"
#include "data/field_use.h"
#include "data/inputs.h"
#include "data/token_dataset.h"
#include "data/token_file.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kRowsRecipe = "rows of a classifier, 1";

/// Inserts the ids of the texts into the tokenizer's template.
RowIds fill_template(
    const text::RowTemplate& form,
    const std::vector<int32_t>& text,
    const std::vector<int32_t>& pair,
    bool is_pair,
    int64_t limit) {
  const std::vector<int32_t>& before = is_pair ? form.pair_before : form.before;
  const std::vector<int32_t>& after = is_pair ? form.pair_after : form.after;
  const int64_t specials =
      std::ssize(before) + std::ssize(after) + (is_pair ? std::ssize(form.between) : 0);
  if (specials > limit) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "rows of {} tokens are too short for the {} tokens of the tokenizer's template",
            limit,
            specials),
        "increase data.sequence_length");
  }
  const PairLengths kept = cut_pair({std::ssize(text), std::ssize(pair)}, limit - specials);
  RowIds row;
  const auto put = [&](const std::vector<int32_t>& part, int64_t count) {
    row.ids.insert(row.ids.end(), part.begin(), part.begin() + count);
  };
  put(before, std::ssize(before));
  put(text, kept.first);
  if (is_pair) {
    row.first_segment = std::ssize(row.ids) + form.between_of_first;
    put(form.between, std::ssize(form.between));
    put(pair, kept.second);
  }
  put(after, std::ssize(after));
  return row;
}

RowIds encode_row(const LabelledRow& row, const Encoder& encoder, int64_t limit, int32_t pad) {
  const std::vector<int32_t> text = encoder.encode(row.text), pair = encoder.encode(row.pair);
  RowIds encoded;
  std::vector<int32_t>& ids = encoded.ids;
  if (encoder.rows) {
    encoded = fill_template(*encoder.rows, text, pair, !row.pair.empty(), limit);
  } else {
    const int64_t begins = !encoder.begin ? 0 : row.pair.empty() ? 1 : 2;
    const PairLengths kept =
        cut_pair({std::ssize(text), std::ssize(pair)}, std::max<int64_t>(limit - begins, 0));
    const auto put = [&](const std::vector<int32_t>& part, int64_t count) {
      if (encoder.begin) {
        ids.push_back(*encoder.begin);
      }
      ids.insert(ids.end(), part.begin(), part.begin() + count);
    };
    put(text, kept.first);
    if (!row.pair.empty()) {
      put(pair, kept.second);
    }
  }
  if (ids.empty()) {
    ids.push_back(pad);
  }
  return encoded;
}

}  // namespace

std::string LabelledRows::place(const LabelledRow& row) const {
  return fmt::format("{}, line {}", files.at(row.file).string(), row.line);
}

LabelledRows read_labelled(
    std::span<const std::string> words, const DataOptions& options, std::string_view key) {
  LabelledRows result;
  const std::vector<InputFile> inputs = find_inputs(words, options.format, key);
  if (const std::string unused = field_use(inputs.front(), options).unused(); !unused.empty()) {
    log_info("{}: fields {}", key, unused);
  }
  for (const InputFile& input : inputs) {
    const size_t file = result.files.size();
    result.files.push_back(input.path);
    const DocumentSource source = open_documents(input, options, {});
    Record record;
    std::vector<Document> documents;
    while (source.records->next(record)) {
      documents.clear();
      source.parse(std::move(record), documents);
      for (Document& document : documents) {
        result.rows.push_back(
            {std::move(document.text),
             std::move(document.pair),
             std::move(document.label),
             file,
             document.line});
      }
    }
  }
  if (result.rows.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the files contain no rows ({} files)", key, result.files.size()),
        "a table starts with a line of column names, followed by rows");
  }
  return result;
}

PairLengths cut_pair(PairLengths lengths, int64_t limit) {
  auto [shorter, longer] = std::minmax({lengths.first, lengths.second});
  if (shorter + longer > limit) {
    longer = shorter > limit ? shorter : std::max(shorter, limit - shorter);
    if (shorter + longer > limit) {
      shorter = limit / 2;
      longer = shorter + limit % 2;
    }
  }
  return lengths.first <= lengths.second ? PairLengths{shorter, longer}
                                         : PairLengths{longer, shorter};
}

std::vector<RowIds> encode_rows(
    const LabelledRows& rows, const Encoder& encoder, int64_t limit, int32_t pad) {
  constexpr size_t kAtOnce = 256;
  std::vector<RowIds> ids(rows.rows.size());
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (size_t begin = next.fetch_add(kAtOnce); begin < ids.size();
           begin = next.fetch_add(kAtOnce)) {
        for (size_t row = begin; row < std::min(begin + kAtOnce, ids.size()); ++row) {
          ids[row] = encode_row(rows.rows[row], encoder, limit, pad);
        }
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
    }
  };
  const size_t wanted =
      std::min<size_t>(static_cast<size_t>(usable_cpus()), ids.size() / kAtOnce + 1);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < wanted; ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
  return ids;
}

std::filesystem::path write_rows(
    const std::vector<RowIds>& rows,
    const std::filesystem::path& folder,
    const std::string& tokenizer,
    int64_t vocabulary,
    int32_t pad) {
  Hasher hasher;
  hasher.update_field(kRowsRecipe);
  hasher.update_field(tokenizer);
  hasher.update_field(fmt::format("{} {} {}", vocabulary, pad, rows.size()));
  for (const auto& [ids, first_segment] : rows) {
    hasher.update_field({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
    if (first_segment > 0) {
      hasher.update_field(fmt::format("{} of the first", first_segment));
    }
  }
  const std::string key = hasher.hex();
  const std::filesystem::path path = folder / fmt::format("{}-rows.tokens", key);
  if (std::filesystem::exists(path)) {
    try {
      const auto there = TokenDataset::open(path);
      there->verify();
      if (there->key() == key) {
        return path;
      }
    } catch (const Error& error) {
      log_warning("{}; creating it again", error.message());
    }
  }
  create_folders(folder, ErrorKind::kData);
  TokenFileWriter writer(path, key, vocabulary, pad);
  for (const auto& [ids, first_segment] : rows) {
    writer.add(ids);
    writer.end_document(first_segment);
  }
  writer.commit();
  return path;
}

}  // namespace lockstep::data
