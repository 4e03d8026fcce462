// Tokenizes files in parallel.
#include "data/tokenize.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/cores.h"
#include "base/log.h"
#include "data/ordered_tasks.h"

namespace lockstep::data {
namespace {

constexpr size_t kJobBytes = size_t{1} << 18;
constexpr size_t kJobRecords = 4096;

using Parser = std::function<void(Record, std::vector<Document>&)>;

/// Records that one thread encodes.
struct Job {
  Parser parse;
  std::vector<Record> records;
  size_t bytes = 0;
};

struct Encoded {
  struct Part {
    size_t count;
    int64_t prompt_tokens;
    bool begins, ends;
    bool is_chat = false;
  };
  std::vector<int32_t> ids;
  std::vector<uint8_t> hidden;  // in order; only for chats
  std::vector<Part> parts;
  int64_t empty = 0;  // documents without text
};

/// Returns how many tokens of `ids` are before the position `end` of the encoded text, and whether
/// a token ends at this position. Encodes the prefix again, which gives the same tokens except for
/// one that extends beyond it.
std::pair<size_t, bool> tokens_before(
    const std::string& text, size_t end, std::span<const int32_t> ids, const Encoder& encoder) {
  if (end == text.size()) {
    return {ids.size(), true};
  }
  const std::vector<int32_t> before =
      end == 0 ? std::vector<int32_t>() : encoder.encode(std::string_view(text).substr(0, end));
  const auto [at, other] = std::mismatch(before.begin(), before.end(), ids.begin(), ids.end());
  return {static_cast<size_t>(at - before.begin()), at == before.end()};
}

/// Encodes a chat whose text was rendered by the template. A token has a loss if at least a part of
/// it is in a span with a loss.
void encode_chat(const Document& document, const Encoder& encoder, Encoded& result) {
  const std::vector<int32_t> ids = encoder.encode(document.text);
  std::vector<uint8_t> hidden(ids.size(), 1);
  for (const jinja::TextSpan& span : *document.learned) {
    const size_t begin = tokens_before(document.text, span.begin, ids, encoder).first;
    const auto [end, is_edge] = tokens_before(document.text, span.end, ids, encoder);
    const size_t last = std::min(end + (is_edge ? 0 : 1), ids.size());
    std::fill(
        hidden.begin() + static_cast<std::ptrdiff_t>(std::min(begin, last)),
        hidden.begin() + static_cast<std::ptrdiff_t>(last),
        0);
  }
  result.ids.insert(result.ids.end(), ids.begin(), ids.end());
  result.hidden.insert(result.hidden.end(), hidden.begin(), hidden.end());
  result.parts.push_back({ids.size(), 0, true, true, true});
}

void encode_document(const Document& document, const Encoder& encoder, Encoded& result) {
  if (document.learned) {
    encode_chat(document, encoder, result);
    return;
  }
  if (document.begins && document.ends && document.text.empty() && document.prompt.empty()) {
    ++result.empty;
    return;
  }
  std::vector<int32_t>& ids = result.ids;
  const size_t start = ids.size();
  const auto put = [&](std::string_view text) {
    if (!text.empty()) {
      const std::vector<int32_t> encoded = encoder.encode(text);
      ids.insert(ids.end(), encoded.begin(), encoded.end());
    }
  };
  if (document.begins && encoder.begin) {
    ids.push_back(*encoder.begin);
  }
  const size_t text_start = ids.size();
  put(document.prompt);
  const bool ends_prompt = encoder.ends_prompts && document.begins;
  if (ends_prompt && encoder.end) {
    ids.push_back(*encoder.end);
  }
  const bool has_prompt = ends_prompt || !document.prompt.empty();
  const auto prompt_tokens = static_cast<int64_t>(has_prompt ? ids.size() - start : 0);
  put(document.text);
  if (ids.size() == text_start && document.begins && document.ends) {
    ids.resize(start);
    ++result.empty;
    return;
  }
  if (document.ends && encoder.end) {
    ids.push_back(*encoder.end);
  }
  result.parts.push_back({ids.size() - start, prompt_tokens, document.begins, document.ends});
}

Encoded encode_job(Job job, const Encoder& encoder) {
  Encoded result;
  std::vector<Document> documents;
  for (Record& record : job.records) {
    documents.clear();
    job.parse(std::move(record), documents);
    for (const Document& document : documents) {
      encode_document(document, encoder, result);
    }
  }
  return result;
}

class Pipeline {
 public:
  Pipeline(
      int threads, const Encoder& encoder, const std::function<void(const EncodedDocument&)>& take)
      : take_(take),
        most_in_flight_(static_cast<size_t>(threads) * 2 + 1),
        tasks_(threads, [&encoder](Job job) { return encode_job(std::move(job), encoder); }) {}

  void read(const InputFile& input, const DataOptions& options, const TextCutting& cutting) {
    const DocumentSource source = open_documents(input, options, cutting);
    Job job{source.parse, {}, 0};
    Record record;
    bool any = false;
    while (source.records->next(record)) {
      any = true;
      job.bytes += record.text.size();
      job.records.push_back(std::move(record));
      if (job.bytes >= kJobBytes || job.records.size() == kJobRecords) {
        submit(std::exchange(job, Job{source.parse, {}, 0}));
      }
    }
    if (!job.records.empty()) {
      submit(std::move(job));
    }
    if (!any) {
      log_warning("{} contains no text", input.path.string());
    }
  }

  /// Number of documents without text in the results so far.
  int64_t empty() const { return empty_; }

  /// Takes the remaining results, unless taking has already failed.
  void finish() {
    while (tasks_.in_flight() > 0 && !failed_) {
      drain_one();
    }
  }

 private:
  void submit(Job job) {
    tasks_.add(std::move(job));
    while (tasks_.in_flight() >= most_in_flight_) {
      drain_one();
    }
  }

  void drain_one() {
    failed_ = true;  // reset below if no exception is thrown
    const Encoded encoded = tasks_.take();
    empty_ += encoded.empty;
    size_t at = 0, hidden_at = 0;
    for (const Encoded::Part& part : encoded.parts) {
      const size_t hidden = part.is_chat ? part.count : 0;
      take_(
          {std::span(encoded.ids).subspan(at, part.count),
           part.prompt_tokens,
           std::span(encoded.hidden).subspan(hidden_at, hidden),
           part.begins,
           part.ends});
      at += part.count;
      hidden_at += hidden;
    }
    failed_ = false;
  }

  const std::function<void(const EncodedDocument&)>& take_;
  size_t most_in_flight_;
  bool failed_ = false;
  int64_t empty_ = 0;
  OrderedTasks<Job, Encoded> tasks_;
};

}  // namespace

int64_t tokenize_files(
    std::span<const InputFile> inputs,
    const DataOptions& options,
    const TextCutting& cutting,
    const Encoder& encoder,
    const std::function<void(const EncodedDocument&)>& take) {
  Pipeline pipeline(options.threads > 0 ? options.threads : usable_cpus(), encoder, take);
  std::exception_ptr reading;
  try {
    for (const InputFile& input : inputs) {
      pipeline.read(input, options, cutting);
    }
  } catch (...) {
    reading = std::current_exception();
  }
  // An earlier record may have an error, which must be thrown first.
  pipeline.finish();
  if (reading) {
    std::rethrow_exception(reading);
  }
  return pipeline.empty();
}

std::vector<EncodedRow> encode_first(
    std::span<const InputFile> inputs,
    const DataOptions& options,
    const Encoder& encoder,
    int64_t skip,
    int64_t count) {
  constexpr size_t kSearched = size_t{1} << 26;  // bytes to search for the end of a document
  std::vector<EncodedRow> rows;
  int64_t passed = 0;
  TextCutting cutting;
  cutting.documents = options.text_documents;
  cutting.parts = encoder.pieces;
  std::vector<Document> documents;
  for (const InputFile& input : inputs) {
    const DocumentSource source = open_documents(input, options, cutting);
    Record record;
    size_t searched = 0;
    while (std::ssize(rows) < count && searched < kSearched && source.records->next(record)) {
      searched = record.begins ? 0 : searched + record.text.size();
      if (!record.begins) {
        continue;
      }
      documents.clear();
      source.parse(std::exchange(record, {}), documents);
      for (const Document& document : documents) {
        const bool is_empty = !document.learned && document.text.empty() && document.prompt.empty();
        if (is_empty || passed++ < skip || std::ssize(rows) == count) {
          continue;
        }
        Encoded encoded;
        encode_document(document, encoder, encoded);
        for (const Encoded::Part& part : encoded.parts) {  // at most one
          rows.push_back({std::move(encoded.ids), std::vector<uint8_t>(part.count, 0)});
          std::fill_n(rows.back().hidden.begin(), part.prompt_tokens, 1);
          if (part.is_chat) {
            rows.back().hidden = std::move(encoded.hidden);
          }
        }
      }
    }
  }
  return rows;
}

}  // namespace lockstep::data
