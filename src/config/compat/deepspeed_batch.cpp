// Completes and checks DeepSpeed's batch triple.
#include "config/compat/deepspeed_batch.h"

#include <algorithm>

#include "base/format.h"
#include "config/core/scalar.h"
#include "config/core/settings.h"

namespace lockstep::config {
namespace {

constexpr const char* kMicro = "training.per_device_train_batch_size";
constexpr const char* kAccumulation = "training.gradient_accumulation_steps";

class Batch {
 public:
  Batch(const Value& file, const DeepspeedContext& context, Value& settings)
      : file_(file),
        context_(context),
        settings_(settings) {}

  void add() {
    micro_ = number("train_micro_batch_size_per_gpu", kMicro);
    accumulation_ = number("gradient_accumulation_steps", kAccumulation);
    train_ = number("train_batch_size", nullptr);
    if (bad_ || (!micro_ && !accumulation_ && !train_)) {
      return;
    }
    if (train_ && !data_ranks()) {
      return;
    }
    complete();
    if (bad_) {
      return;
    }
    const int64_t ranks = train_ ? *data_ranks() : 1;
    if (train_ && *train_ != *micro_ * *accumulation_ * ranks) {
      fail(
          "train_batch_size",
          fmt::format(
              "train_batch_size {} is not train_micro_batch_size_per_gpu {} x "
              "gradient_accumulation_steps {} x {} data-parallel ranks = {}",
              *train_,
              *micro_,
              *accumulation_,
              ranks,
              *micro_ * *accumulation_ * ranks));
      return;
    }
    set_key(settings_, kMicro, std::to_string(*micro_), origin("train_micro_batch_size_per_gpu"));
    set_key(
        settings_,
        kAccumulation,
        std::to_string(*accumulation_),
        origin("gradient_accumulation_steps"));
  }

 private:
  void fail(const std::string& name, const std::string& what, const std::string& remedy = "") {
    bad_ = true;
    context_.problems.add("DeepSpeed's " + name, origin(name), what, remedy);
  }

  /// Returns the origin of the key or, if it is not set, of another key of the triple.
  Origin origin(const std::string& name) const {
    for (const std::string& key :
         {name,
          std::string("train_batch_size"),
          std::string("train_micro_batch_size_per_gpu"),
          std::string("gradient_accumulation_steps")}) {
      if (const Value* value = file_.find(key)) {
        return value->origin;
      }
    }
    return file_.origin;
  }

  /// Returns the number in the file. If it is "auto" or missing, returns the value in `training`,
  /// if set.
  std::optional<int64_t> number(const std::string& name, const char* key) {
    const Value* value = file_.find(name);
    const Value* ours = key == nullptr ? nullptr : context_.tree.find(split_path(key));
    const bool is_auto = value != nullptr && value->is_scalar() && value->text == "auto";
    if (value == nullptr || value->is_null() || is_auto) {
      const bool given = ours != nullptr && ours->origin.source != Origin::Source::kDefault;
      return ours != nullptr && (is_auto || given) ? to_integer(ours->text) : std::nullopt;
    }
    const auto read = value->is_scalar() ? to_integer(value->text) : std::nullopt;
    if (!read || *read < 1 || *read > int64_t{1} << 40) {
      fail(name, fmt::format("{} is not a positive integer", short_text(*value)));
      return std::nullopt;
    }
    return read;
  }

  std::optional<int64_t> data_ranks() {
    if (!context_.ranks) {
      fail(
          "train_batch_size",
          "the number of ranks is required, but unknown",
          "give --nproc, or train_micro_batch_size_per_gpu instead");
      return std::nullopt;
    }
    int64_t shared = 1;
    for (const char* key : {"parallel.tensor", "parallel.pipeline", "parallel.context"}) {
      const Value* size = settings_.find(split_path(key));
      if (size == nullptr) {
        size = context_.tree.find(split_path(key));
      }
      const int64_t ranks = size == nullptr ? 1 : to_integer(size->text).value_or(1);
      shared *= std::clamp<int64_t>(ranks, 1, 1 << 20);
    }
    return std::max<int64_t>(1, *context_.ranks / shared);
  }

  /// Returns train_batch_size / divisor. Reports a problem if the division leaves a remainder.
  std::optional<int64_t> quotient(int64_t divisor, const char* missing) {
    if (*train_ % divisor != 0 || *train_ < divisor) {
      fail(
          "train_batch_size",
          fmt::format(
              "{} is not divisible by {} (the given value times {} data-parallel ranks), so {} "
              "cannot be computed",
              *train_,
              divisor,
              *data_ranks(),
              missing));
      return std::nullopt;
    }
    return *train_ / divisor;
  }

  void complete() {
    if (!train_) {
      if (!micro_) {
        fail(
            "gradient_accumulation_steps",
            "it does not determine the batch alone",
            "also give train_batch_size or train_micro_batch_size_per_gpu");
        return;
      }
      accumulation_ = accumulation_.value_or(1);
      return;
    }
    const int64_t ranks = *data_ranks();
    if (!micro_ && !accumulation_) {
      accumulation_ = 1;
    }
    if (!micro_) {
      micro_ = quotient(*accumulation_ * ranks, "train_micro_batch_size_per_gpu");
    } else if (!accumulation_) {
      accumulation_ = quotient(*micro_ * ranks, "gradient_accumulation_steps");
    }
  }

  const Value& file_;
  const DeepspeedContext& context_;
  Value& settings_;
  std::optional<int64_t> micro_, accumulation_, train_;
  bool bad_ = false;
};

}  // namespace

void add_deepspeed_batch(const Value& file, const DeepspeedContext& context, Value& settings) {
  Batch(file, context, settings).add();
}

}  // namespace lockstep::config
