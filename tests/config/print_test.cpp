// Tests printing of configurations, the help and the JSON schema.
#include "config/print.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "config/core/schema.h"
#include "config/harness.h"

namespace lockstep::config {
namespace print_test {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Print, TheYamlReadsBackToTheSameConfiguration) {
  const Harness harness;
  Config config;
  config.model.path = "C:\\models\\it's \"big\": #1";
  config.tokenizer.path = "true";
  config.data.train = {
      "a b.txt", "- x", "null", "1e5", "${not.a.key}", "\\${x}", "\n\t", "d\xc3\xa9j\xc3\xa0"};
  config.data.validation = {"no"};
  config.training.output_dir = "???";
  config.training.learning_rate = 0.1 + 0.2;
  config.training.seed = -9223372036854775807;
  config.training.data_seed = 7;
  config.training.run_name = "~";
  config.training.tf32 = false;
  config.training.eval_steps = 1.0 / 3;
  config.training.adam_epsilon = 1e-300;
  config.training.report_to = {};
  config.training.lr_scheduler_type = "cosine";
  config.training.lr_scheduler_kwargs.num_cycles = 0.5;
  const std::string text = to_yaml(config);
  harness.write("config.yaml", text);
  EXPECT_EQ(to_yaml(harness.run({"-c", "@/config.yaml"}).config), text);
  EXPECT_EQ(harness.run({"-c", "@/config.yaml"}).config.data.train, config.data.train);
  harness.write("default.yaml", to_yaml(Config{}));
  EXPECT_EQ(to_yaml(harness.run({"-c", "@/default.yaml"}).config), to_yaml(Config{}));
}

TEST(Print, TellsWhereEachValueCameFrom) {
  Harness harness;
  harness.environment["RATE"] = "0.01";
  harness.write(
      "a.yaml",
      "training:\n  seed: 5\n  learning_rate: ${oc.env:RATE}\n  gradient_accumulation_steps: 2\n");
  const Resolution result = harness.run({"-c", "@/a.yaml", "--bf16", "max_steps=3"});
  EXPECT_EQ(harness.origin(result, "training.seed"), "@/a.yaml:2");
  EXPECT_EQ(harness.origin(result, "training.bf16"), "command line: --bf16");
  EXPECT_THAT(harness.origin(result, "training.learning_rate"), HasSubstr("environment: RATE"));
  const std::string text = print_config(result);
  EXPECT_THAT(text, HasSubstr("  seed: 5 "));
  EXPECT_THAT(text, testing::ContainsRegex("max_steps: 3 +# command line: max_steps=3"));
  EXPECT_THAT(text, testing::ContainsRegex("weight_decay: 0.0 +# default"));
}

TEST(Print, SecretsAreRedacted) {
  Harness harness;
  harness.environment["HF_TOKEN"] = "hf_12345";
  const Resolution result =
      harness.run({"run_name=run-${oc.env:HF_TOKEN}", "output_dir=${oc.env:HF_TOKEN}"});
  EXPECT_EQ(result.config.training.run_name, "run-hf_12345");
  EXPECT_THAT(print_config(result), Not(HasSubstr("hf_12345")));
  EXPECT_THAT(to_yaml(result.config, result.origins), Not(HasSubstr("hf_12345")));
  EXPECT_THAT(harness.error({"seed=${oc.env:HF_TOKEN}"}), Not(HasSubstr("hf_12345")));
}

TEST(Print, CredentialsInAnAddressAreRedacted) {
  const Resolution result = Harness().run({"monitor.otlp=http://me:canary%2Fword@collector:4318"});
  for (const std::string& text : {print_config(result), to_yaml(result.config, result.origins)}) {
    EXPECT_THAT(text, HasSubstr("http://***@collector:4318"));
    EXPECT_THAT(text, Not(HasSubstr("canary")));
  }
  EXPECT_THAT(
      Harness().error({"monitor.otlp=http://***@collector:4318"}),
      HasSubstr("an address with its credentials"));
}

TEST(Print, TheNameOfAFieldIsNoSecret) {
  const Resolution result = Harness().run({"unlearning.question_key=frage"});
  EXPECT_THAT(to_yaml(result.config, result.origins), HasSubstr("question_key: frage"));
}

TEST(Print, HelpOfASectionOrAKeyIsItsPart) {
  const ResolveOptions options = Harness().options;
  EXPECT_THAT(help(options), Not(HasSubstr("lora.use_dora")));
  const std::string lora = help(options, "lora");
  EXPECT_THAT(lora, StartsWith("lora: "));
  EXPECT_THAT(lora, HasSubstr("  lora.use_dora"));
  EXPECT_THAT(lora, Not(HasSubstr("quantization.")));
  EXPECT_THAT(help(options, "parallel"), HasSubstr("parallel.offload_param.path"));
  EXPECT_THAT(help(options, "seed"), StartsWith("  training.seed"));
  try {
    (void)help(options, "lorra");
    FAIL() << "an unknown section was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("unknown section 'lorra'. Did you mean 'lora'?"));
    EXPECT_THAT(error.what(), HasSubstr("monitor, all"));
  }
}

TEST(Print, SuggestionsAreNearAndOfTheSection) {
  EXPECT_EQ(nearest_key("lora.lora_alhpa"), "lora.lora_alpha");
  EXPECT_EQ(nearest_key("modle.path"), "model.path");
  EXPECT_EQ(nearest_key("learning_rte"), "learning_rate");
  EXPECT_EQ(nearest_key("tensor"), "parallel.tensor");
  EXPECT_EQ(nearest_key("lora_r"), "lora.r");
  for (const char* far : {"dtype", "val_set_size"}) {
    EXPECT_EQ(nearest_key(far), std::nullopt) << far;
  }
}

TEST(Print, HelpNamesEveryKey) {
  const std::string text = help(Harness().options, "all");
  for (const std::string& name : key_names()) {
    EXPECT_THAT(text, HasSubstr(name));
  }
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    EXPECT_LE(end - begin, 100U) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(Print, TheSchemaDescribesEveryKey) {
  const auto schema = nlohmann::json::parse(json_schema());
  for (const std::string& name : key_names()) {
    const nlohmann::json* at = &schema;
    for (const std::string& part : split_path(name)) {
      at = &(*at)["properties"][part];
    }
    EXPECT_TRUE(at->contains("type") && at->contains("description")) << name;
  }
  const auto& training = schema["properties"]["training"]["properties"];
  EXPECT_EQ(training["seed"]["default"], 42);
  EXPECT_EQ(training["learning_rate"]["default"], 5e-5);
  EXPECT_EQ(training["eval_strategy"]["enum"].size(), 3U);
  EXPECT_EQ(training["tf32"]["type"], nlohmann::json({"boolean", "null"}));
}

}  // namespace print_test
}  // namespace lockstep::config
