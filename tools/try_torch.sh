#!/usr/bin/env bash
# Builds Lockstep with another version of libtorch in build/torch-VERSION, runs the tests that depend most on libtorch, and compares
# losses with those of the usual build, digit by digit. Compiler warnings are printed and count as failures.
#   tools/try_torch.sh VERSION     TESTS='ops nn comm parallel': the modules whose tests run; JOBS=n: parallel compilers
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: tools/try_torch.sh VERSION}
read -ra modules <<<"${TESTS-ops nn comm parallel}"
jobs=${JOBS:-$(nproc)}
other=build/torch-$version usual=build/release
export OMP_NUM_THREADS=1 TORCH_FR_BUFFER_SIZE=0
failures=()

TORCH='' make build JOBS="$jobs"
TORCH=$version tools/setup.sh
mkdir -p "$other"
cmake -S . -B "$other" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA=OFF -DLIBTORCH="$PWD/.deps/libtorch-$version/torch" >"$other.log"
python3 tools/build.py "$other" -j "$jobs" lockstep "${modules[@]/%/_test}" 2>&1 | tee -a "$other.log"
if grep -E 'warning: ' "$other.log" | sort -u; then
  failures+=("compiler warnings")
fi

for module in "${modules[@]}"; do
  echo "try_torch: ${module}_test"
  "$other/${module}_test" --gtest_brief=1 || failures+=("${module}_test")
done
echo "try_torch: selftest"
"$other/lockstep" selftest --use-cpu || failures+=(selftest)

# Trains a small model with each build from the same seed, and evaluates both models with each build.
work=$other/runs
rm -rf "$work"
mkdir -p "$work"
"$usual/lockstep" sample --output "$work/sample" --size 0.1 >/dev/null
"$usual/lockstep" tokenizer train --files "$work/sample/train.txt" --vocab-size 400 --output "$work/tokenizer" >/dev/null
settings=(data.train="$work/sample/train.txt" data.validation="$work/sample/validation.txt" data.sequence_length=64 data.cache_dir="$work/cache")
for type in float32 bfloat16; do
  for build in "$usual" "$other"; do
    run=$work/$type-${build#build/}
    "$build/lockstep" train --nproc 2 --use-cpu model.preset=gpt2-tiny tokenizer.path="$work/tokenizer" "${settings[@]}" \
      bf16=$([ $type = bfloat16 ] && echo true || echo false) output_dir="$run" max_steps=10 per_device_train_batch_size=4 \
      learning_rate=1e-3 logging_steps=1 >"$run.log" 2>&1 || { failures+=("training in $type with $build"); tail -n 5 "$run.log"; continue; }
    "$build/lockstep" eval --model "$work/$type-${usual#build/}" "${settings[@]}" --json >"$run.json" || failures+=("eval with $build")
  done
done
python3 - "$work" "${usual#build/}" "${other#build/}" <<'END' || failures+=("losses")
import json, pathlib, sys

work, usual, other = pathlib.Path(sys.argv[1]), *sys.argv[2:]
for kind in ("float32", "bfloat16"):
    curves = []
    for build in (usual, other):
        lines = (work / f"{kind}-{build}" / "metrics.jsonl").read_text().splitlines()
        curves.append([entry["loss"] for entry in map(json.loads, lines) if "loss" in entry])
    evaluated = [json.loads((work / f"{kind}-{build}.json").read_text())["eval_loss"] for build in (usual, other)]
    apart = max(abs(a - b) for a, b in zip(*curves, strict=True))
    print(f"try_torch: {kind}: largest difference of {len(curves[0])} losses in training {apart:.3g}, of the evaluated loss "
          f"{abs(evaluated[0] - evaluated[1]):.3g}")
    # Versions may choose other kernels, whose sums differ in the last bits.
    if apart > (1e-5 if kind == "float32" else 2e-2):
        sys.exit(1)
END
if [ ${#failures[@]} -gt 0 ]; then
  printf 'try_torch: failed with torch %s: %s\n' "$version" "${failures[@]}"
  exit 1
fi
echo "try_torch: everything passed with torch $version"
