#!/usr/bin/env bash
# Compares LoRA and QLoRA with full fine-tuning on the sample task. A small model is pretrained on the texts of `lockstep sample`, then
# fine-tuned on Alpaca-style instructions three times from the same weights. Draws the three losses (docs/adapters.md).
#   tools/adapters_demo.sh PROGRAM OUTPUT.svg
set -euo pipefail
program=$(realpath "$1")
picture=$(realpath "$2")
cd "$(dirname "$0")/.."
work=adapters-demo
ranks=${DEMO_RANKS:-2}
lockstep() {
  printf '\n$ lockstep %s\n' "$*" >&2
  "$program" "$@"
}

rm -rf "$work"
mkdir -p "$work"
lockstep sample --output $work/sample
python3 - $work/sample >> $work/text.txt <<'END'
import json, pathlib, sys
sample = pathlib.Path(sys.argv[1])
print(sample.joinpath("train.txt").read_text())
for line in sample.joinpath("instructions.jsonl").read_text().splitlines():
    record = json.loads(line)
    print(" ".join(record[key] for key in ("instruction", "input", "output") if record.get(key)) + "\n")
END
lockstep tokenizer train --files $work/text.txt --vocab-size 900 --output $work/tokenizer
lockstep train --nproc "$ranks" model.preset=gpt2-tiny tokenizer.path=$work/tokenizer data.train=$work/text.txt data.sequence_length=128 \
  output_dir=$work/base max_steps="${DEMO_BASE_STEPS:-500}" per_device_train_batch_size=8 learning_rate=1.5e-3 warmup_steps=20 \
  lr_scheduler_type=cosine logging_steps=50 save_strategy=no bf16=true overwrite_output_dir=true

# Low-rank factors need about ten times the learning rate of full fine-tuning.
tune() { # NAME RATE KEYS...
  local name=$1 rate=$2
  shift 2
  lockstep train --nproc "$ranks" model.path=$work/base data.train=$work/sample/instructions.jsonl data.prompt=alpaca data.sequence_length=128 data.long_documents=split \
    data.validation=$work/sample/instructions_validation.jsonl output_dir="$work/$name" max_steps="${DEMO_STEPS:-300}" \
    per_device_train_batch_size=8 learning_rate="$rate" warmup_steps=10 lr_scheduler_type=cosine logging_steps=10 \
    eval_strategy=steps eval_steps=100 save_strategy=no bf16=true overwrite_output_dir=true "$@"
}
lora="lora.r=16 lora.lora_alpha=32 lora.target_modules=all-linear"
tune all-weights 5e-4
tune lora 3e-3 $lora
tune qlora-nf4 3e-3 $lora quantization.bits=4 quantization.type=nf4 quantization.double_quant=true

python3 tools/draw_run.py $work/all-weights $work/lora $work/qlora-nf4 "$picture" \
  --title "answers to the sample's instructions: all weights, rank 16 on all linears, the same beside 4 bits"
