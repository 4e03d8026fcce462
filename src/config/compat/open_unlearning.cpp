// Converts open-unlearning's configuration tree to configuration keys.
#include "config/compat/open_unlearning.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/format.h"
#include "base/hugging_face_cache.h"
#include "base/nearest.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/core/trainer_keys.h"
#include "config/core/unlearning.h"
#include "config/hydra/compose.h"
#include "config/hydra/layers.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

/// Name of a method argument in open-unlearning and its configuration key.
struct Argument {
  std::string_view theirs, ours;
};
constexpr Argument kArguments[] = {
    {"gamma", "gamma"},
    {"alpha", "alpha"},
    {"beta", "beta"},
    {"beta1", "beta1"},
    {"beta2", "beta2"},
    {"delta", "delta"},
    {"retain_loss_type", "retain_loss"},
    {"ignore_first_n_answer_tokens", "ignore_first_n_answer_tokens"},
    {"module_regex", "module_regex"},
    {"steering_coeff", "steering_coeff"},
    {"trainable_params_regex", "trainable_params_regex"},
    {"retain_loss_eps", "retain_loss_eps"},
    {"primal_dual", "primal_dual"},
    {"dual_step_size", "dual_step_size"},
    {"dual_update_upon", "dual_update_upon"},
    {"dual_warmup_epochs", "dual_warmup_epochs"},
};

/// open-unlearning handlers that Lockstep does not support, with the hint for each.
constexpr Argument kNotBuilt[] = {
    {"LMEvalEvaluator", "run lm-evaluation-harness on the saved folder"},
};

std::string_view why_not_built(std::string_view handler) {
  const auto* found = std::ranges::find(kNotBuilt, handler, &Argument::theirs);
  return found == std::end(kNotBuilt) ? "" : found->ours;
}

std::string text_at(const Value& tree, const Path& path) {
  const Value* found = tree.find(path);
  return found != nullptr && found->is_scalar() ? found->text : "";
}

bool is_true_at(const Value& tree, const Path& path) {
  const std::string text = text_at(tree, path);
  return text == "true" || text == "True";
}

/// Finds the files of a dataset in the Hub cache or in a folder.
class DatasetFinder {
 public:
  explicit DatasetFinder(std::string data_dir) : data_dir_(std::move(data_dir)) {}

  /// Returns the file or its shards; empty if not found. Adds the searched locations to `looked`.
  std::vector<fs::path> find(
      const std::string& path, const std::string& name, std::vector<std::string>& looked) const {
    for (const fs::path& folder : folders_of(path)) {
      if (auto files = files_of_rows(folder / name); !files.empty()) {
        return files;
      }
      looked.push_back(folder.string());
    }
    return {};
  }

 private:
  std::vector<fs::path> folders_of(const std::string& path) const {
    std::vector<fs::path> folders;
    if (!data_dir_.empty()) {
      folders.emplace_back(data_dir_);
    }
    folders.emplace_back(path);
    std::string cached = "datasets--" + path;
    for (size_t at = cached.find('/'); at != std::string::npos; at = cached.find('/', at)) {
      cached.replace(at, 1, "--");
    }
    const fs::path snapshots = hub_cache_folder() / cached / "snapshots";
    std::error_code ignored;
    for (const fs::directory_entry& each : fs::directory_iterator(snapshots, ignored)) {
      folders.push_back(each.path());
    }
    return folders;
  }

  std::string data_dir_;
};

class Translation {
 public:
  Translation(
      const Value& tree,
      std::string data_dir,
      Problems& problems,
      std::vector<std::string>& warnings)
      : tree_(tree),
        finder_(std::move(data_dir)),
        problems_(problems),
        warnings_(warnings) {}

  Value run() {
    take_model();
    take_template();
    const std::string mode = text_at(tree_, {"mode"});
    if (tree_.find(Path{"trainer", "handler"}) != nullptr) {
      take_training();
      take_method();
      take_rows();
      take_measures();
    }
    if (mode == "eval") {
      take_evaluation();
    }
    return std::move(ours_);
  }

 private:
  void set(const Path& key, Value value) { merge_at(ours_, key, std::move(value)); }
  void set_text(const Path& key, const std::string& text, const Origin& origin) {
    set(key, Value::scalar(text, false, origin));
  }
  void copy(const Path& from, const Path& to) {
    if (const Value* found = tree_.find(from); found != nullptr && !found->is_null()) {
      set(to, *found);
    }
  }
  void fail(const Path& key, const std::string& what, const std::string& remedy) {
    const Value* found = tree_.find(key);
    problems_.add(join(key), found == nullptr ? Origin{} : found->origin, what, remedy);
  }

  void take_model() {
    copy({"model", "model_args", "pretrained_model_name_or_path"}, {"model", "path"});
    const Path key{"model", "tokenizer_args", "pretrained_model_name_or_path"};
    const std::string tokenizer = text_at(tree_, key);
    std::error_code ignored;
    if (!tokenizer.empty() && fs::exists(tokenizer, ignored)) {
      copy(key, {"tokenizer", "path"});
    } else if (!tokenizer.empty()) {
      warnings_.push_back(fmt::format(
          "{}: {} is not a folder; using the tokenizer in the model's folder",
          join(key),
          tokenizer));
    }
    if (const std::string handler = text_at(tree_, {"model", "model_handler"});
        !handler.empty() && handler != "AutoModelForCausalLM") {
      fail({"model", "model_handler"}, handler + " is not supported", "remove it");
    }
  }

  void take_template() {
    const Path base{"model", "template_args"};
    const auto at = [&](const char* name) {
      Path path = base;
      path.emplace_back(name);
      return path;
    };
    if (tree_.find(base) == nullptr) {
      return;
    }
    copy(at("apply_chat_template"), {"unlearning", "chat_template"});
    copy(at("date_string"), {"unlearning", "date_string"});
    if (is_true_at(tree_, at("apply_chat_template"))) {
      copy(at("system_prompt"), {"unlearning", "system_prompt"});
      return;
    }
    // Without a chat template, the system prompt with its special tokens precedes the question.
    const std::string system = text_at(tree_, at("system_prompt_with_special_tokens"));
    const Value* start = tree_.find(at("user_start_tag"));
    if (start != nullptr) {
      set({"unlearning", "user_start"}, Value::scalar(system + start->text, true, start->origin));
    }
    copy(at("user_end_tag"), {"unlearning", "user_end"});
    copy(at("asst_start_tag"), {"unlearning", "answer_start"});
    copy(at("asst_end_tag"), {"unlearning", "answer_end"});
  }

  /// Copies trainer.args, which are TrainingArguments with a few exceptions.
  void take_training() {
    const Value* found = tree_.find(Path{"trainer", "args"});
    Value arguments = found == nullptr ? Value::map() : *found;
    arguments.erase("do_eval");  // implied by eval_strategy
    if (const std::string why = why_not_measured(); !why.empty()) {
      for (const char* name : {"eval_on_start", "eval_strategy", "eval_steps"}) {
        arguments.erase(name);
      }
      if (is_true_at(tree_, {"trainer", "args", "do_eval"})) {
        warnings_.push_back(fmt::format("trainer.args.eval_strategy has no effect: {}", why));
      }
    }
    if (Value* unused = arguments.find("ddp_find_unused_parameters");
        unused != nullptr && unused->text == "None") {
      arguments.erase("ddp_find_unused_parameters");
    }
    if (Value* optimizer = arguments.find("optim");
        optimizer != nullptr &&
        (optimizer->text == "paged_adamw_32bit" || optimizer->text == "paged_adamw")) {
      optimizer->text = "adamw_torch";  // same float32 moments, without paging
    }
    set({"training"}, std::move(arguments));
  }

  void take_method() {
    const Path key{"trainer", "handler"};
    const std::string handler = text_at(tree_, key);
    const Origin origin = tree_.find(key)->origin;
    set_text({"task", "type"}, "unlearning", origin);
    set_text({"unlearning", "compatibility"}, "upstream", origin);
    const bool is_plain = handler == "FinetuneTrainer" || handler == "Trainer";
    const std::string name = is_plain ? "Finetune" : handler;
    const auto methods = unlearning_methods();
    const auto method = std::ranges::find(methods, name, &UnlearningMethod::name);
    if (method == methods.end()) {
      std::vector<std::string> names;
      for (const UnlearningMethod& each : methods) {
        names.emplace_back(each.name);
      }
      const std::string_view why = why_not_built(handler);
      fail(
          key,
          why.empty() ? fmt::format("unknown trainer {}.{}", handler, did_you_mean(handler, names))
                      : fmt::format("{} is not supported", handler),
          why.empty() ? fmt::format("there are {}", fmt::join(names, ", ")) : std::string(why));
      set_text(
          {"unlearning", "method"},
          "GradDiff",
          origin);  // placeholder; avoids follow-up errors about the method
      return;
    }
    set_text({"unlearning", "method"}, name, origin);
    const Value* arguments = tree_.find(Path{"trainer", "method_args"});
    if (arguments == nullptr) {
      return;
    }
    for (const Entry& entry : arguments->entries) {
      const auto* known = std::ranges::find(kArguments, entry.name, &Argument::theirs);
      if (method->levels && entry.name == "loss_names") {
        continue;  // only selects what is logged; metrics keep their names
      }
      if (known == std::end(kArguments) ||
          std::ranges::find(method->keys, known->ours) == method->keys.end()) {
        fail(
            {"trainer", "method_args", entry.name},
            fmt::format("{} does not use it", handler),
            fmt::format("remove it with ~trainer.method_args.{}", entry.name));
        continue;
      }
      copy({"trainer", "method_args", entry.name}, {"unlearning", std::string(known->ours)});
    }
  }

  /// Reads data.forget and data.retain, or data.train.
  void take_rows() {
    const bool trains = tree_.find(Path{"data", "train"}) != nullptr;
    if (trains) {
      take_set({"data", "train"}, "retain");
      return;
    }
    take_set({"data", "forget"}, "forget");
    take_set({"data", "retain"}, "retain");
    copy({"data", "anchor"}, {"unlearning", "anchor"});
  }

  void take_set(const Path& key, const std::string& name) {
    const Value* sets = tree_.find(key);
    if (sets == nullptr || sets->entries.empty()) {
      return;
    }
    if (sets->entries.size() > 1) {
      std::vector<std::string> names;
      for (const Entry& entry : sets->entries) {
        names.push_back(entry.name);
      }
      fail(
          key,
          fmt::format("{} datasets instead of one: {}", names.size(), fmt::join(names, ", ")),
          fmt::format("remove one with ~{}.{}", join(key), names.front()));
      return;
    }
    Path path = key;
    path.push_back(sets->entries.front().name);
    const Value& set = sets->entries.front().value;
    const std::string handler = text_at(set, {"handler"});
    if (handler != "QADataset" && handler != "QAwithIdkDataset" &&
        handler != "QAwithAlternateDataset" && handler != "PretrainingDataset" &&
        handler != "CompletionDataset") {
      const std::string_view why = why_not_built(handler);
      fail(
          path,
          handler.empty() ? "a handler is required" : fmt::format("{} is not supported", handler),
          why.empty() ? "use a dataset of questions and answers, or of texts" : std::string(why));
      return;
    }
    const std::string kind = handler.starts_with("QA") ? "QADataset" : handler;
    if (kind_.value_or(kind) != kind) {
      fail(
          path,
          fmt::format("is a {}, but data.forget is a {}", kind, *kind_),
          "use datasets of the same kind");
    }
    kind_ = kind;
    take_file(path, set, name);
    for (const char* field : {"question_key", "answer_key", "text_key", "prefix_key"}) {
      const std::string theirs = text_at(set, {"args", field}),
                        other = text_at(ours_, {"unlearning", field});
      if (!theirs.empty() && !other.empty() && theirs != other) {
        fail(path, fmt::format("{} differs from that of data.forget", field), "rename it");
      }
    }
    constexpr Argument kOfSets[] = {
        {"question_key", "unlearning.question_key"},
        {"answer_key", "unlearning.answer_key"},
        {"text_key", "unlearning.text_key"},
        {"prefix_key", "unlearning.prefix_key"},
        {"insert_space", "unlearning.insert_space"},
        {"idk_path", "unlearning.refusals"},
        {"alternate_key", "unlearning.alternate_key"}};
    for (const auto& [theirs, ours] : kOfSets) {
      Path argument = path;
      argument.insert(argument.end(), {"args", std::string(theirs)});
      copy(argument, split_path(ours));
    }
    // open-unlearning's defaults.
    if (handler == "CompletionDataset" && text_at(ours_, {"unlearning", "prefix_key"}).empty()) {
      set_text({"unlearning", "prefix_key"}, "prompt", set.origin);
    }
    if (kind != "QADataset" && text_at(ours_, {"unlearning", "text_key"}).empty()) {
      set_text({"unlearning", "text_key"}, "text", set.origin);
    }
    // open-unlearning truncates rows before it appends the EOS token.
    const Value* length = set.find(Path{"args", "max_length"});
    const auto most = length == nullptr ? std::nullopt : to_integer(length->text);
    if (most) {
      set_text({"data", "sequence_length"}, std::to_string(*most + 1), length->origin);
    }
  }

  void take_file(const Path& path, const Value& set, const std::string& name) {
    const std::string source = text_at(set, {"args", "hf_args", "path"});
    const Value* files = set.find(Path{"args", "hf_args", "data_files"});
    if (files != nullptr) {
      Value list = Value::list(files->origin);
      list.items = files->is_list() ? files->items : std::vector{*files};
      set_list({"unlearning", name}, std::move(list));
      return;
    }
    // TOFU has one file per set. Other datasets have one file per split, or a single file.
    const std::string set_name = text_at(set, {"args", "hf_args", "name"});
    const std::string split = text_at(set, {"args", "hf_args", "split"});
    const std::vector<std::string> names = set_name.empty()
                                               ? std::vector{split, "data/" + split}
                                               : std::vector{set_name, set_name + "/" + split};
    std::vector<std::string> looked, again;
    auto files_found = finder_.find(source, names.front(), looked);
    if (files_found.empty()) {
      files_found = finder_.find(source, names.back(), again);
    }
    if (files_found.empty()) {
      fail(
          path,
          fmt::format(
              "rows {} of {} not found; looked in {}",
              names.front(),
              source,
              fmt::join(looked, ", ")),
          "Lockstep does not download data: set unlearning.data_dir=FOLDER to the folder with its "
          "files");
      return;
    }
    Value list = Value::list(set.origin);
    for (const fs::path& file : files_found) {
      list.items.push_back(Value::scalar(file.string(), true, set.origin));
    }
    set_list({"unlearning", name}, std::move(list));
  }
  void set_list(const Path& key, Value list) { set(key, std::move(list)); }

  /// Returns the reason why evaluation during training is disabled; empty if it is enabled.
  std::string why_not_measured() const {
    if (tree_.find(Path{"eval", "tofu"}) == nullptr) {
      return "eval.tofu is missing; evaluate saved models with lockstep eval";
    }
    std::vector<std::string> looked;
    const std::string file = text_at(tree_, {"eval", "tofu", "forget_split"}) + "_perturbed";
    if (finder_.find("locuslab/TOFU", file, looked).empty()) {
      return fmt::format(
          "{} of locuslab/TOFU not found; set unlearning.data_dir=FOLDER to the folder with its "
          "files",
          file);
    }
    return "";
  }

  /// Sets the output folder and the task of a standalone evaluation.
  void take_suite(const Value& suite, const std::string& name) {
    set_text({"task", "type"}, "unlearning", suite.origin);
    set_text({"unlearning", "compatibility"}, "upstream", suite.origin);
    copy({"eval", name, "output_dir"}, {"training", "output_dir"});
    if (text_at(tree_, {"model", "model_args", "torch_dtype"}) == "bfloat16") {
      set_text({"training", "bf16"}, "true", suite.origin);
    }
  }

  void take_metrics(const Value& suite) {
    Value metrics = Value::list(suite.origin);
    if (const Value* all = suite.find("metrics")) {
      for (const Entry& entry : all->entries) {
        metrics.items.push_back(Value::scalar(entry.name, true, entry.value.origin));
        if (const Value* path = entry.value.find(Path{"reference_model_path"})) {
          set({"unlearning", "mia_reference_path"}, *path);
        }
      }
    }
    set({"unlearning", "metrics"}, std::move(metrics));
  }

  void take_muse(const Value& muse) {
    set_text({"unlearning", "benchmark"}, "muse", muse.origin);
    for (const char* name : {"overwrite", "retain_logs_path"}) {
      copy({"eval", "muse", name}, {"unlearning", name});
    }
    std::vector<std::string> looked;
    const std::string source = "muse-bench/MUSE-" + text_at(tree_, {"eval", "muse", "data_split"});
    if (const auto files = finder_.find(source, "verbmem/forget", looked); !files.empty()) {
      const fs::path folder = files.front().parent_path().parent_path();
      set_text({"unlearning", "data_dir"}, folder.string(), muse.origin);
    }
    take_metrics(muse);
  }

  /// Reads the metrics and the files of eval.tofu.
  void take_tofu(const Value& tofu) {
    for (const char* name :
         {"overwrite", "forget_split", "holdout_split", "retain_logs_path", "question_key"}) {
      copy({"eval", "tofu", name}, {"unlearning", name});
    }
    // Without unlearning.data_dir, searches the Hub cache.
    std::vector<std::string> looked;
    const std::string split = text_at(tree_, {"eval", "tofu", "forget_split"});
    if (const auto files = finder_.find("locuslab/TOFU", split + "_perturbed", looked);
        !files.empty()) {
      set_text({"unlearning", "data_dir"}, files.front().parent_path().string(), tofu.origin);
    }
    take_metrics(tofu);
    if (const Value* all = tofu.find("metrics")) {
      for (const Entry& entry : all->entries) {
        const Path tokens{"generation_args", "max_new_tokens"};
        if (const Value* found = entry.value.find(tokens)) {
          set({"unlearning", "max_new_tokens"}, *found);
        }
      }
    }
  }

  void take_measures() {
    if (why_not_measured().empty()) {
      take_tofu(*tree_.find(Path{"eval", "tofu"}));
    }
  }

  void take_evaluation() {
    const Value* evaluators = tree_.find("eval");
    const Value* tofu = evaluators == nullptr ? nullptr : evaluators->find("tofu");
    const Value* muse = evaluators == nullptr ? nullptr : evaluators->find("muse");
    if (tofu == nullptr && muse != nullptr) {
      take_suite(*muse, "muse");
      take_muse(*muse);
      return;
    }
    if (tofu == nullptr) {
      const std::string handler = evaluators == nullptr || evaluators->entries.empty()
                                      ? ""
                                      : text_at(evaluators->entries.front().value, {"handler"});
      fail(
          {"eval"},
          handler.empty() ? "an evaluator is required"
                          : fmt::format("{} is not supported", handler),
          handler.empty() ? "use eval=tofu or eval=muse" : std::string(why_not_built(handler)));
      return;
    }
    take_suite(*tofu, "tofu");
    copy({"eval", "tofu", "batch_size"}, {"training", "per_device_eval_batch_size"});
    take_tofu(*tofu);
  }

  const Value& tree_;
  DatasetFinder finder_;
  Problems& problems_;
  std::vector<std::string>& warnings_;
  Value ours_ = Value::map();
  std::optional<std::string> kind_;  // kind of the sets read so far
};

}  // namespace

bool is_open_unlearning(const Value& tree) {
  return tree.find(Path{"trainer", "handler"}) != nullptr ||
         tree.find(Path{"model", "model_args"}) != nullptr;
}

std::vector<Override> take_overrides(
    Value& tree, std::vector<Override> overrides, Problems& problems) {
  std::vector<Override> ours;
  int64_t order = kCommandLineOrder;
  for (Override& override : overrides) {
    const Path path = split_path(override.key);
    const bool is_there = tree.find(path) != nullptr;
    const Path canonical = canonical_path(path);  // trainer.args.seed is training.seed
    const bool is_key =
        find_key(join(canonical)) != nullptr ||
        (canonical.size() == 2 && canonical[0] == "training" && is_training_name(canonical[1]));
    if (!is_there && (is_key || override.is_flag)) {
      ours.push_back(std::move(override));
    } else if (!is_there && override.kind == Override::Kind::kChange) {
      problems.add(
          override.key,
          {.source = Origin::Source::kCommandLine, .place = override.text},
          "unknown key, both in the tree and in Lockstep",
          fmt::format("add a new key with +{}", override.text));
    } else {
      apply_override_at(tree, path, override, ++order, problems);
    }
  }
  return ours;
}

Value open_unlearning_settings(
    const Value& tree,
    const std::vector<Override>& ours,
    Problems& problems,
    std::vector<std::string>& warnings) {
  std::string data_dir;
  for (const Override& override : ours) {
    if (override.key == "unlearning.data_dir" && override.value) {
      data_dir = override.value->text;
    }
  }
  return Translation(tree, std::move(data_dir), problems, warnings).run();
}

}  // namespace lockstep::config
