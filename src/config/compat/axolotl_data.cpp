// Data sets of Axolotl's configuration files.
#include "config/compat/axolotl_data.h"

#include "config/compat/foreign.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

/// Form of rows by `type`.
constexpr ForeignWord kAxolotlRowTypes[] = {
    {"alpaca", "data.prompt=alpaca"},
    {"chat_template", "data.prompt=chat"},
    {"chat_template.default", "data.prompt=chat"},
    {"sharegpt", "data.prompt=chat"},
    {"completion", "data.prompt=none"},
    {"pretrain", "data.prompt=none"},
};

/// Keys of an item that change nothing if they have these values.
constexpr KeyRule kAxolotlItemRules[] = {
    {"path", kRead},
    {"type", kRead},
    {"split", kRead},
    {"name", kRead},
    {"data_files", kRead},
    {"field", kRead},
    {"field_messages", kRead},
    {"ds_type", kIgnored, "*"},
    {"trust_remote_code", kIgnored, "*"},
    {"message_field_role",
     kRefused,
     "from|role",
     "messages have role and content, or from and value"},
    {"message_field_content",
     kRefused,
     "value|content",
     "messages have role and content, or from and value"},
    {"message_property_mappings",
     kRefused,
     "{role: role, content: content}|{role: from, content: value}|{content: content, role: "
     "role}|{content: value, role: from}",
     "messages have role and content, or from and value"},
    {"roles",
     kRefused,
     "{user: [user], assistant: [assistant], system: [system]}|{assistant: [assistant], user: "
     "[user], system: [system]}|{system: [system], user: [user], assistant: [assistant]}",
     "roles are user, assistant, system and tool"},
    {"roles_to_train",
     kRefused,
     "[assistant]|[gpt, assistant]|[assistant, gpt]",
     "set data.chat_loss"},
    {"train_on_eos", kRefused, "turn|last", "the end of an assistant message is learned"},
    {"chat_template", kRefused, "tokenizer_default", "set data.chat_template=FILE"},
    {"field_chosen", kRefused, "chosen", "the field must be chosen"},
    {"field_rejected", kRefused, "rejected", "the field must be rejected"},
    {"field_thinking", kIgnored, "*"},
    {"template_thinking_key", kIgnored, "*"},
    {"drop_system_message", kRefused, "false", "remove the messages from the file"},
    {"shards", kRefused, "", "use split: train[:10%]"},
    {"conversation", kRefused, "", "the chat template is the tokenizer's"},
};

/// Returns the files of an item of `datasets`, with the slice of its split; empty for a Hub name.
std::vector<std::string> files_of_item(const Value& item) {
  const std::string path = text_in(item, {"path"}), split = text_in(item, {"split"});
  const size_t bracket = split.find('[');
  const std::string slice = bracket == std::string::npos ? "" : split.substr(bracket);
  std::vector<std::string> files;
  if (const Value* found = item.find("data_files"); found != nullptr && !found->is_null()) {
    files = words_in(*found);
    if (path.find('/') != std::string::npos && !names_data_file(path)) {
      return {};  // files of a Hub data set
    }
  } else if (names_data_file(path)) {
    files = {path};
  }
  for (std::string& file : files) {
    file += slice;
  }
  return files;
}

void read_item_fields(const RuleTarget& target, const Value& item, const std::string& place) {
  const Value* type = item.find("type");
  const bool answers = text_in(target.settings, {"task", "type"}) != "";
  if (type != nullptr && type->is_map()) {
    target.refuse(
        place + ".type",
        *type,
        "prompts of your own are not supported",
        "convert the rows to messages");
  } else if (type != nullptr && !type->is_null() && !answers) {
    if (type->text.starts_with("bradley_terry")) {
      target.set("task.type", "reward_model", *type);
    } else {
      const std::string before = text_in(target.settings, {"data", "prompt"});
      read_words(kAxolotlRowTypes, target, place + ".type", *type);
      if (!before.empty() && text_in(target.settings, {"data", "prompt"}) != before) {
        target.refuse(
            place + ".type", *type, "all data sets must have rows of one form", "convert them");
      }
    }
  }
  if (const Value* field = item.find("field_messages");
      field != nullptr && !answers && text_in(item, {"field_messages"}) != "conversations") {
    target.copy("data.messages_field", *field);
  }
  if (const Value* field = item.find("field")) {
    target.copy("data.text_field", *field);
  }
  apply_rules(kAxolotlItemRules, item, "", target.below(place));
}

}  // namespace

void read_axolotl_datasets(const RuleTarget& target, const std::string& name, const Value& value) {
  Value items = value;
  if (!value.is_list()) {
    items = Value::list(value.origin);
    items.items.push_back(value.is_map() ? value : Value::map(value.origin));
    if (value.is_scalar()) {
      items.items[0].at_or_add("path") = value;
    }
  }
  std::vector<std::string> all;
  for (const Value& item : items.items) {
    const std::vector<std::string> files = files_of_item(item);
    read_item_fields(target, item, name);
    all.insert(all.end(), files.begin(), files.end());
    if (!files.empty()) {
      continue;
    }
    if (items.items.size() > 1) {
      target.refuse(
          name,
          item,
          "several data sets of the Hub are not supported",
          "download them, and list their files in data.train");
      return;
    }
    target.set("data.dataset_name", text_in(item, {"path"}), item);
    for (const auto& [theirs, ours] :
         {ForeignPair{"split", "data.train_split"}, {"name", "data.dataset_config_name"}}) {
      if (const std::string text = text_in(item, {std::string(theirs)}); !text.empty()) {
        target.set(std::string(ours), text, item);
      }
    }
  }
  if (!all.empty()) {
    set_list(target, "data.train", all, value);
  }
}

void read_axolotl_tests(const RuleTarget& target, const std::string& name, const Value& value) {
  std::vector<std::string> all;
  for (const Value& item : value.items) {
    const std::vector<std::string> files = files_of_item(item);
    if (files.empty()) {
      target.refuse(name, item, "only files are supported", "set data.validation=FILE");
    }
    all.insert(all.end(), files.begin(), files.end());
  }
  set_list(target, "data.validation", all, value);
}

}  // namespace lockstep::config
