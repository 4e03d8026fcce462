// Splits plain text into documents.
#include <algorithm>
#include <deque>
#include <utility>

#include "data/line_reader.h"
#include "data/records.h"
#include "data/text_cut.h"

namespace lockstep::data {
namespace {

class TextReader final : public RecordReader {
 public:
  TextReader(const std::filesystem::path& path, TextCutting cutting)
      : lines_(open_bytes(path)),
        cutting_(cutting) {}

  bool next(Record& record) override {
    while (ready_.empty() && !finished_) {
      take_line();
    }
    if (ready_.empty()) {
      return false;
    }
    record = std::move(ready_.front());
    ready_.pop_front();
    return true;
  }

 private:
  void take_line() {
    LineEnd end{};
    const bool continues = std::exchange(continues_, false);
    if (!lines_.next(line_, end, kTextPart)) {
      finished_ = true;
      if (cutting_.documents == TextDocuments::kFile) {
        flush_newline();
      }
      end_document();
      return;
    }
    continues_ = end == LineEnd::kMore;
    const bool whole = !continues && !continues_;
    if (whole && line_ == kDocumentSeparator) {
      end_document();
      return;
    }
    const bool blank = whole && is_blank(line_);
    if ((cutting_.documents == TextDocuments::kLine && !continues) ||
        (cutting_.documents == TextDocuments::kParagraph && blank)) {
      end_document();
    }
    if (!blank || cutting_.documents == TextDocuments::kFile) {
      append(end);
    }
    if (cutting_.section_bytes > 0 && cutting_.documents == TextDocuments::kFile) {
      cut_sections(blank);
    }
    while (cutting_.parts && text_.size() >= kTextPart) {
      emit(find_cut(text_), false);
    }
  }

  void append(LineEnd end) {
    if (text_.empty() && !newline_ && !open_) {
      start_line_ = lines_.number();
    }
    flush_newline();
    text_ += line_;
    newline_ = end == LineEnd::kNewline;
  }

  void flush_newline() {
    if (std::exchange(newline_, false)) {
      text_ += '\n';
    }
  }

  void cut_sections(bool blank) {
    if (text_.size() >= cutting_.section_bytes && blank) {
      flush_newline();
      end_document();
    }
    while (text_.size() >= 2 * cutting_.section_bytes) {
      if (newline_ && text_.size() < 3 * cutting_.section_bytes) {
        flush_newline();
        end_document();
      } else {
        emit(find_cut(std::string_view(text_).substr(0, 2 * cutting_.section_bytes)), true);
      }
    }
  }

  void end_document() {
    newline_ = false;
    if (open_ || !text_.empty()) {
      emit(text_.size(), true);
    }
  }

  void emit(size_t size, bool ends) {
    Record record;
    record.text = text_.substr(0, size);
    record.line = start_line_;
    record.begins = !open_;
    record.ends = ends;
    text_.erase(0, size);
    start_line_ += std::count(record.text.begin(), record.text.end(), '\n');
    open_ = !ends;
    ready_.push_back(std::move(record));
  }

  LineReader lines_;
  TextCutting cutting_;
  std::string line_, text_;
  std::deque<Record> ready_;
  int64_t start_line_ = 1;  // line at which text_ starts
  bool newline_ = false;    // a newline follows text_, unless the document ends there
  bool open_ = false;       // a part of this document has been returned
  bool continues_ = false;  // the next line is a part of the same line
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> open_text(const std::filesystem::path& path, TextCutting cutting) {
  return std::make_unique<TextReader>(path, cutting);
}

}  // namespace lockstep::data
