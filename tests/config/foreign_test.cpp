// Tests of configuration files of TRL, Axolotl, LLaMA-Factory and torchtune.
#include "config/compat/foreign.h"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>

#include "base/format.h"
#include "config/harness.h"

namespace lockstep::config {
namespace foreign_test {

using testing::HasSubstr;
using testing::Not;

/// Harness with a data file that exists.
class Foreign : public testing::Test {
 protected:
  void SetUp() override { harness_.options.required = {"training.output_dir"}; }

  Resolution read(const std::string& text, std::vector<std::string> more = {}) {
    harness_.write("theirs.yaml", text);
    more.insert(more.begin(), {"-c", "@/theirs.yaml"});
    return harness_.run(more);
  }
  std::string error(const std::string& text, std::vector<std::string> more = {}) {
    harness_.write("theirs.yaml", text);
    more.insert(more.begin(), {"-c", "@/theirs.yaml"});
    return harness_.error(more);
  }

  Harness harness_;
};

constexpr const char* kAxolotlFile = R"(base_model: some/model
model_type: AutoModelForCausalLM
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_target_linear: true
datasets:
  - path: rows/chats.jsonl
    type: chat_template
    split: train[:10%]
val_set_size: 0.05
sequence_len: 2048
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
optimizer: adamw_bnb_8bit
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
warmup_ratio: 0.1
evals_per_epoch: 4
saves_per_epoch: 1
liger_rope: true
plugins:
  - axolotl.integrations.liger.LigerPlugin
special_tokens:
  pad_token: "<pad>"
wandb_project:
output_dir: ./outputs/out
)";

TEST_F(Foreign, AxolotlsFileIsTranslated) {
  const Resolution read_file = read(kAxolotlFile);
  const Config& config = read_file.config;
  EXPECT_EQ(config.model.path, "some/model");
  EXPECT_EQ(config.quantization.bits, 4);
  EXPECT_EQ(config.quantization.type, "nf4");
  EXPECT_EQ(config.lora.r, 32);
  EXPECT_EQ(config.lora.target_modules, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(config.data.train, std::vector<std::string>{"rows/chats.jsonl[:10%]"});
  EXPECT_EQ(config.data.prompt, "chat");
  EXPECT_EQ(config.data.packing, "documents");
  EXPECT_EQ(config.data.sequence_length, 2048);
  EXPECT_EQ(config.data.validation_fraction, 0.05);
  EXPECT_EQ(config.training.per_device_train_batch_size, 2);
  EXPECT_EQ(config.training.per_device_eval_batch_size, 2);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(config.training.num_train_epochs, 3);
  EXPECT_EQ(config.training.optim, "adamw_bnb_8bit");
  EXPECT_EQ(config.training.lr_scheduler_type, "cosine");
  EXPECT_TRUE(config.training.bf16);
  EXPECT_EQ(config.training.warmup_steps, 0.1);
  EXPECT_EQ(config.training.save_strategy, "epoch");
  EXPECT_EQ(config.training.eval_strategy, "steps");
  EXPECT_NEAR(config.training.eval_steps.value_or(0), 1.0 / 12, 1e-9);
  EXPECT_EQ(harness_.origin(read_file, "lora.r"), "@/theirs.yaml:5");
  EXPECT_TRUE(any_holds(read_file.warnings, "theirs.yaml: read as a file of Axolotl: "));
  EXPECT_TRUE(any_holds(read_file.warnings, "liger_rope: Lockstep uses its own fused kernels"));
  EXPECT_TRUE(
      any_holds(read_file.warnings, "Axolotl's defaults: training.lr_scheduler_type=cosine"));
}

TEST_F(Foreign, CommandLineChangesTheirKeysAndOurs) {
  const Resolution changed = read(
      kAxolotlFile,
      {"lora_r=8", "--learning_rate", "1e-3", "data.train=own.jsonl", "data.packing=none"});
  EXPECT_EQ(changed.config.lora.r, 8);
  EXPECT_EQ(changed.config.training.learning_rate, 1e-3);
  EXPECT_EQ(changed.config.data.train, std::vector<std::string>{"own.jsonl"});
  EXPECT_EQ(changed.config.data.prompt, "auto");
  EXPECT_EQ(changed.config.data.packing, "none");
  EXPECT_TRUE(any_holds(changed.warnings, "datasets: data.train is given"));
}

TEST_F(Foreign, KeysWithoutEquivalentAreRefusedOnceEach) {
  const std::string text = error(
      "base_model: m\noutput_dir: o\nactivation_offloading: true\nrelora_steps: 3\n"
      "special_tokens:\n  eos_token: x\n  bos_token: y\nno_such_key: 1\nrl: grpo\n");
  EXPECT_THAT(
      text,
      HasSubstr("activation_offloading: true (@/theirs.yaml:3): activations are not offloaded"));
  EXPECT_THAT(text, HasSubstr("relora_steps: 3 (@/theirs.yaml:4): this method is not supported"));
  EXPECT_THAT(
      text,
      HasSubstr("special_tokens.eos_token: x, special_tokens.bos_token: y (@/theirs.yaml:6)"));
  EXPECT_THAT(text, HasSubstr("no_such_key (@/theirs.yaml:8): unknown key of Axolotl"));
  EXPECT_THAT(text, HasSubstr("rl (@/theirs.yaml:9): grpo: not supported; supported: dpo"));
  EXPECT_THAT(text, HasSubstr("5 problems"));
  EXPECT_EQ(
      error(
          "base_model: m\noutput_dir: o\nactivation_offloading: false\nno_such_key: 1\n",
          {"--allow-unknown-config"}),
      "");
}

TEST_F(Foreign, AxolotlWithoutAdapterOrValidation) {
  const Config config = read(
                            "base_model: m\noutput_dir: o\nlora_r: 8\nevals_per_epoch: "
                            "4\nval_set_size: 0\nrl: kto\nsaves_per_epoch: 2\nnum_epochs: 2\n")
                            .config;
  EXPECT_EQ(config.lora.r, std::nullopt);
  EXPECT_EQ(config.training.eval_strategy, "no");
  EXPECT_EQ(config.training.save_strategy, "steps");
  EXPECT_EQ(config.training.save_steps, 0.25);
  EXPECT_EQ(config.task.type, "preference");
  EXPECT_EQ(config.preference.objective, "kto");
  EXPECT_EQ(config.data.packing, "none");
}

TEST_F(Foreign, LlamaFactorysFileIsTranslated) {
  harness_.write("sets/dataset_info.json", R"({
    "identity": {"file_name": "identity.json"},
    "talks": {"file_name": "talks.jsonl", "formatting": "sharegpt"},
    "far": {"hf_hub_url": "some/far"}})");
  const std::string file =
      "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 4\n"
      "lora_target: all\ndataset_dir: " +
      harness_.path("sets") +
      "\ntemplate: qwen\ncutoff_len: 512\n"
      "max_samples: 100\noutput_dir: o\nplot_loss: true\nlearning_rate: 1.0e-4\nflash_attn: fa2\n";
  const Resolution found = read(file + "dataset: talks, talks\n");
  const Config& config = found.config;
  EXPECT_EQ(config.model.path, "m");
  EXPECT_EQ(config.lora.r, 4);
  EXPECT_EQ(config.lora.lora_alpha, 8);
  EXPECT_EQ(config.lora.target_modules, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(config.data.sequence_length, 512);
  EXPECT_EQ(config.data.train.front(), harness_.path("sets/talks.jsonl") + "[:100]");
  EXPECT_EQ(config.data.prompt, "chat");
  EXPECT_TRUE(config.training.gradient_checkpointing);
  EXPECT_TRUE(any_holds(found.warnings, "read as a file of LLaMA-Factory: "));
  EXPECT_EQ(read(file + "dataset: identity\n").config.data.prompt, "auto");
  const std::string text = error(file + "dataset: far,none\n");
  EXPECT_THAT(text, HasSubstr("'far': is some/far on the Hub, and not a file"));
  EXPECT_THAT(text, HasSubstr("'none': not listed in @/sets/dataset_info.json"));
  EXPECT_EQ(
      read(file + "dataset: far\n", {"data.train=x.jsonl"}).config.data.train.front(), "x.jsonl");
}

constexpr const char* kTorchtuneFile = R"(output_dir: /tmp/out
model:
  _component_: torchtune.models.llama3_2.lora_llama3_2_1b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
  lora_alpha: 16
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/m/original/tokenizer.model
  max_seq_len: 256
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /tmp/m
  checkpoint_files: [model.safetensors]
  output_dir: ${output_dir}
  model_type: LLAMA3_2
dataset:
  _component_: torchtune.datasets.chat_dataset
  source: json
  data_files: rows/chats.jsonl
  packed: False
seed: null
shuffle: True
batch_size: 4
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 3e-4
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
epochs: 2
max_steps_per_epoch: 50
gradient_accumulation_steps: 8
clip_grad_norm: null
compile: False
metric_logger:
  _component_: torchtune.training.metric_logging.DiskLogger
  log_dir: ${output_dir}/logs
log_every_n_steps: 1
device: cuda
dtype: bf16
enable_activation_checkpointing: False
profiler:
  _component_: torchtune.training.setup_torch_profiler
  enabled: False
)";

TEST_F(Foreign, TorchtunesFileIsTranslated) {
  const Resolution found = read(kTorchtuneFile);
  const Config& config = found.config;
  EXPECT_EQ(config.model.path, "/tmp/m");
  EXPECT_EQ(config.tokenizer.path, "");
  EXPECT_EQ(config.training.output_dir, "/tmp/out");
  EXPECT_EQ(
      config.lora.target_modules,
      (std::vector<std::string>{
          "q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(config.data.train, std::vector<std::string>{"rows/chats.jsonl"});
  EXPECT_EQ(config.data.dataset_name, "");
  EXPECT_EQ(config.data.prompt, "chat");
  EXPECT_EQ(config.data.packing, "none");
  EXPECT_EQ(config.data.sequence_length, 256);
  EXPECT_EQ(config.training.max_steps, 100);
  EXPECT_EQ(config.training.max_grad_norm, 0);
  EXPECT_EQ(config.training.weight_decay, 0.01);
  EXPECT_EQ(config.training.lr_scheduler_type, "constant");
  EXPECT_EQ(config.training.learning_rate, 3e-4);
  EXPECT_TRUE(config.training.bf16);
  EXPECT_TRUE(any_holds(found.warnings, "read as a file of torchtune: "));
  EXPECT_EQ(read(kTorchtuneFile, {"tokenizer.path=own"}).config.tokenizer.path, "own");
  EXPECT_THAT(
      error("model: {_component_: torchtune.models.llama3.llama3_8b}\nkd_ratio: 0.5\noutput_dir: "
            "o\n"),
      HasSubstr("kd_ratio: 0.5 (@/theirs.yaml:2): this recipe is not supported"));
}

TEST_F(Foreign, TrlsFileHasItsDefaults) {
  const Resolution sft = read(
      "model_name_or_path: m\ndataset_name: null\ntrain_file: rows.jsonl\noutput_dir: "
      "o\nmax_length: 128\npacking: true\nuse_peft: true\n"
      "dataset_num_proc: 4\nactivation_offloading: false\nassistant_only_loss: true\n");
  EXPECT_EQ(sft.config.data.sequence_length, 128);
  EXPECT_EQ(sft.config.data.packing, "documents");
  EXPECT_EQ(sft.config.data.chat_loss, "assistant");
  EXPECT_EQ(sft.config.lora.r, 16);
  EXPECT_EQ(sft.config.lora.lora_alpha, 32);
  EXPECT_EQ(sft.config.training.learning_rate, 2e-5);
  EXPECT_TRUE(sft.config.training.gradient_checkpointing);
  EXPECT_TRUE(sft.config.training.bf16);
  EXPECT_TRUE(any_holds(sft.warnings, "read as a file of TRL: "));
  const Config dpo = read(
                         "model_name_or_path: m\noutput_dir: o\nbeta: 0.2\nloss_type: "
                         "[ipo]\nlora_r: 8\nuse_peft: false\nfp16: true\n")
                         .config;
  EXPECT_EQ(dpo.task.type, "preference");
  EXPECT_EQ(dpo.preference.beta, 0.2);
  EXPECT_EQ(dpo.preference.loss_type, "ipo");
  EXPECT_EQ(dpo.training.learning_rate, 1e-6);
  EXPECT_EQ(dpo.lora.r, std::nullopt);
  EXPECT_FALSE(dpo.training.bf16);
  EXPECT_EQ(read("output_dir: o\ndesirable_weight: 2\n").config.preference.objective, "kto");
  EXPECT_EQ(
      read("output_dir: o\ncenter_rewards_coefficient: 0.1\n").config.task.type, "reward_model");
  EXPECT_THAT(
      error("output_dir: o\nmax_length: 8\ndataset_streaming: true\n"),
      HasSubstr("data sets are files on this machine"));
}

TEST_F(Foreign, TrlsNamesAreFlags) {
  const Config config = harness_
                            .run(
                                {"--max_length",
                                 "64",
                                 "--packing",
                                 "--lora_r",
                                 "4",
                                 "--lora_target_modules",
                                 "q_proj",
                                 "v_proj",
                                 "--load_in_4bit",
                                 "--dataset_text_field",
                                 "body",
                                 "--dtype",
                                 "bfloat16",
                                 "--output_dir",
                                 "o",
                                 "--loss_type",
                                 "nll"})
                            .config;
  EXPECT_EQ(config.data.sequence_length, 64);
  EXPECT_EQ(config.data.packing, "documents");
  EXPECT_EQ(config.lora.r, 4);
  EXPECT_EQ(config.lora.target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(config.quantization.bits, 4);
  EXPECT_EQ(config.data.text_field, "body");
  EXPECT_TRUE(config.training.bf16);
  EXPECT_EQ(config.training.learning_rate, 5e-5);  // TRL's defaults are those of its files
  harness_.write("own.yaml", "data:\n  train: [a.txt]\nmax_length: 32\noutput_dir: o\n");
  const Resolution own = harness_.run({"-c", "@/own.yaml"});
  EXPECT_EQ(own.config.data.sequence_length, 32);
  EXPECT_EQ(own.config.training.learning_rate, 5e-5);
  EXPECT_EQ(
      harness_.run({"-c", "@/own.yaml", "data.sequence_length=16"}).config.data.sequence_length,
      16);
  harness_.write("packed.yaml", "output_dir: o\npacking: true\n");
  const Resolution packed = harness_.run({"-c", "@/packed.yaml"});
  EXPECT_EQ(packed.config.data.packing, "documents");
  EXPECT_EQ(packed.config.data.chat_loss, "all");
  EXPECT_EQ(
      harness_.run({"-c", "@/packed.yaml", "data.packing=concatenate"}).config.data.packing,
      "concatenate");
  EXPECT_THAT(harness_.error({"--output_dir", "o", "--loss_type", "dft"}), HasSubstr("use nll"));
}

TEST_F(Foreign, OtherFilesAreNamed) {
  for (const auto& [text, kind, hint] : std::initializer_list<std::array<const char*, 3>>{
           {R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "model_type": "llama"})",
            "a model's config.json",
            "model.path=FOLDER"},
           {R"({"peft_type": "LORA", "r": 8})", "PEFT's adapter_config.json", "lora.config=FILE"},
           {R"({"tokenizer_class": "GPT2Tokenizer"})",
            "a tokenizer's tokenizer_config.json",
            "tokenizer.path=FOLDER"},
           {R"({"global_step": 3, "log_history": []})",
            "a Trainer's trainer_state.json",
            "resume_from_checkpoint"},
           {R"([{"messages": []}])", "a JSON list, which is data", "data.train=FILE"}}) {
    harness_.write("other.json", text);
    const std::string found = harness_.error({"-c", "@/other.json"});
    EXPECT_THAT(found, HasSubstr(kind)) << text;
    EXPECT_THAT(found, HasSubstr(hint)) << text;
    EXPECT_THAT(found, Not(HasSubstr("problems"))) << text;
  }
  EXPECT_THAT(
      harness_.error({"rows.jsonl"}), HasSubstr("rows.jsonl: a data file, not a configuration"));
  EXPECT_THAT(harness_.error({"-c", "train.toml"}), HasSubstr("train.toml is a TOML file"));
}

/// Returns the tables of the page, which starts with them after this comment.
TEST_F(Foreign, ThePageHasTheTables) {
  std::string tables;
  for (const ForeignProgram* program : foreign_programs()) {
    tables += fmt::format("\n## {}\n\n{}", program->name, table_of(*program));
  }
  const std::filesystem::path page =
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs" /
      "foreign-configs.md";
  std::string text = read_file(page);
  const std::string mark =
      "<!-- generated: LOCKSTEP_UPDATE_DOCS=1 config_test --gtest_filter=Foreign.* -->\n";
  const size_t at = text.find(mark);
  ASSERT_NE(at, std::string::npos);
  if (std::getenv("LOCKSTEP_UPDATE_DOCS") != nullptr) {
    std::ofstream(page) << text.substr(0, at + mark.size()) << tables;
    text = read_file(page);
  }
  EXPECT_EQ(text.substr(at + mark.size()), tables) << "run with LOCKSTEP_UPDATE_DOCS=1";
}

}  // namespace foreign_test
}  // namespace lockstep::config
