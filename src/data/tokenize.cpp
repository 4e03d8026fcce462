#include "data/tokenize.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

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
  };
  std::vector<int32_t> ids;
  std::vector<Part> parts;
};

void encode_document(const Document& document, const Encoder& encoder, Encoded& result) {
  if (document.begins && document.ends && document.text.empty() && document.prompt.empty()) {
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
      log_warning("{} holds no text", input.path.string());
    }
  }

  /// Takes what is left, unless taking has failed already.
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
    failed_ = true;  // unless this returns
    const Encoded encoded = tasks_.take();
    size_t at = 0;
    for (const Encoded::Part& part : encoded.parts) {
      take_(
          {std::span(encoded.ids).subspan(at, part.count),
           part.prompt_tokens,
           part.begins,
           part.ends});
      at += part.count;
    }
    failed_ = false;
  }

  const std::function<void(const EncodedDocument&)>& take_;
  size_t most_in_flight_;
  bool failed_ = false;
  OrderedTasks<Job, Encoded> tasks_;
};

}  // namespace

void tokenize_files(
    std::span<const InputFile> inputs,
    const DataOptions& options,
    const TextCutting& cutting,
    const Encoder& encoder,
    const std::function<void(const EncodedDocument&)>& take) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Pipeline pipeline(options.threads > 0 ? options.threads : cores, encoder, take);
  std::exception_ptr reading;
  try {
    for (const InputFile& input : inputs) {
      pipeline.read(input, options, cutting);
    }
  } catch (...) {
    reading = std::current_exception();
  }
  // What was read before an error of reading may hold an earlier error: it goes first.
  pipeline.finish();
  if (reading) {
    std::rethrow_exception(reading);
  }
}

}  // namespace lockstep::data
