#!/usr/bin/env bash
# docs/adapters.svg: the loss of a small model that learned stories and now learns instructions, trained whole, by LoRA, and by LoRA beside weights
# in NF4, each from the same folder with the same rows.
#   tools/adapters_picture.sh PROGRAM OUTPUT.svg [RANKS]
set -euo pipefail
program=$(realpath "$1")
output=$(realpath "$2")
ranks=${3:-2}
cd "$(dirname "$0")/.."
work=build/adapters_picture
rm -rf "$work"
mkdir -p "$work"
"$program" sample --output "$work/sample" --size 3
"$program" tokenizer train --files "$work/sample/train.txt" --vocab-size 900 --output "$work/tokenizer"
train() { "$program" train --nproc "$ranks" per_device_train_batch_size=8 data.cache_dir="$work/cache" bf16=true save_strategy=no logging_steps=5 "$@"; }
train model.preset=gpt2-tiny tokenizer.path="$work/tokenizer" data.train="$work/sample/train.txt" data.sequence_length=128 output_dir="$work/base" \
  max_steps=300 learning_rate=1.5e-3 warmup_steps=20 lr_scheduler_type=cosine
instructions=(model.path="$work/base" data.train="$work/sample/instructions.jsonl" data.prompt=alpaca data.sequence_length=128 max_steps=150 seed=1)
lora=(lora.r=16 lora.lora_alpha=32 lora.target_modules=all-linear learning_rate=3e-3)
train "${instructions[@]}" output_dir="$work/all weights" learning_rate=5e-4
train "${instructions[@]}" output_dir="$work/LoRA" "${lora[@]}"
train "${instructions[@]}" output_dir="$work/LoRA on NF4" "${lora[@]}" quantization.bits=4 quantization.double_quant=true
python3 tools/draw_run.py "$work/all weights" "$work/LoRA" "$work/LoRA on NF4" "$output" \
  --title "from stories to instructions: loss by step, GPT-2 of 3 million parameters"
