#!/usr/bin/env bash
# Runs the quick start with the commands that a user would type: corpus, tokenizer, training on two ranks (or all GPUs), evaluation,
# generation. Fails unless the model beats a bigram model of the same text.
#   tools/quickstart.sh PROGRAM [FILE]
set -euo pipefail
program=$(realpath "$1")
data=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
work=quickstart
# In a run of one minute each token must occur often, so a small text gets a small vocabulary.
vocabulary=900
if [ -n "$data" ]; then
  vocabulary=$(($(stat -Lc %s "$data") / 2000))
  vocabulary=$((vocabulary < 320 ? 320 : vocabulary > 1024 ? 1024 : vocabulary))
fi
# Real text needs more steps than the generated sample.
steps=${QUICKSTART_STEPS:-$([ -n "$data" ] && echo 1200 || echo 450)}
if ! { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }; then
  ranks="--nproc 2"
fi

run() {
  printf '\n$ %s\n' "$*" >&2
  "$@"
}
lockstep() { run "$program" "$@"; }

rm -rf "$work/run"
mkdir -p "$work"
if [ -n "$data" ]; then
  train=(data.train="$data" data.text_documents=paragraph data.validation_fraction=0.05)
  text=$data
else
  lockstep sample --output $work/sample
  train=(data.train=$work/sample/train.txt data.validation=$work/sample/validation.txt)
  text=$work/sample/train.txt
fi
lockstep tokenizer train --files "$text" --vocab-size "$vocabulary" --output $work/tokenizer

lockstep train ${ranks:-} \
  model.preset=gpt2-tiny tokenizer.path=$work/tokenizer \
  "${train[@]}" data.sequence_length=128 data.cache_dir=$work/cache \
  output_dir=$work/run max_steps="$steps" per_device_train_batch_size=4 \
  learning_rate=1.5e-3 warmup_steps=20 lr_scheduler_type=cosine adam_beta2=0.99 \
  logging_steps=20 save_steps="$steps" bf16=true

lockstep eval --model $work/run --bigram "${train[@]}" data.sequence_length=128 data.cache_dir=$work/cache

prompt="Once upon a time"
[ -n "$data" ] && prompt=$(head -c 40 "$data" | tr '\n' ' ')
lockstep generate --model $work/run --prompt "$prompt" --max-new-tokens 80 --temperature 0.8 --top-k 50

cat <<END

Written:
  $work/tokenizer    the tokenizer
  $work/run          the model (transformers opens this folder), metrics.jsonl, checkpoints

Try next:
  build/release/lockstep generate --model $work/run --prompt "The old king" --max-new-tokens 100 --temperature 0.8
  build/release/lockstep train model.path=$work/run ${train[*]} output_dir=$work/more max_steps=100 learning_rate=3e-4
  python -c "from transformers import AutoModelForCausalLM as M; print(M.from_pretrained('$work/run'))"
END
