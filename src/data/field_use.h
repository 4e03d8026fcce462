// Report of the fields of records that affect the result, and of those that do not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/documents.h"
#include "data/inputs.h"
#include "data/options.h"

namespace lockstep::data {

/// Fields of the first records of a data set, in the order of their appearance. A field is used if
/// a record without it gives another result or is invalid.
class FieldUse {
 public:
  /// Number of records that are observed.
  static constexpr int kRecords = 20;

  /// Returns true if `without` gives the same result as the observed record; may throw Error.
  using IsSame = std::function<bool(const nlohmann::ordered_json& without)>;
  /// Observes a record, unless kRecords have been observed. Fields that are null or empty are not
  /// judged.
  void observe(const nlohmann::ordered_json& record, const IsSame& is_same);
  /// Returns "messages used; id, source unused"; empty if all fields are used.
  std::string unused() const;

 private:
  struct Field {
    std::string name;
    bool is_used = false;
  };
  std::vector<Field> fields_;
  int records_ = 0;
};

/// Observes the first records of a file. Plain text has no fields.
FieldUse field_use(const InputFile& input, const DataOptions& options);

}  // namespace lockstep::data
