#!/usr/bin/env bash
# Runs the computing tests (CTest label `processor`) under other instruction sets and thread counts, which change what libraries
# select and how sums are rounded.
#   tools/test_processors.sh          a few settings without the longest tests: some minutes
#   tools/test_processors.sh --full   all combinations, and runs of the program; for a new kind of CPU
# BUILD=build/release: the build folder. JOBS: concurrent test programs (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
jobs=${JOBS:-$(nproc)}
full=0
case "${1:-}" in
  --full) full=1 ;;
  '') ;;
  *)
    echo "usage: tools/test_processors.sh [--full]" >&2
    exit 2
    ;;
esac
logs=$build/processors
rm -rf "$logs"
mkdir -p "$logs"

# Selected by label: the C++ test programs and the test files of the program.
labelled() {
  ctest --test-dir "$build" -L processor --show-only=json-v1 |
    python3 -c '
import json, sys
for test in json.load(sys.stdin)["tests"]:
    command = test["command"]
    print(command[0] if command[0].endswith("_test") else " ".join(command))' | sort -u
}

has() { grep -qw "$1" /proc/cpuinfo; }

# "ours onednn aten threads": LOCKSTEP_MAX_CPU_ISA, ONEDNN_MAX_CPU_ISA, ATEN_CPU_CAPABILITY,
# OMP_NUM_THREADS. oneDNN and Lockstep ignore instruction sets that the CPU lacks; ATen does not.
aten_sets=(default)
has avx2 && aten_sets+=(avx2)
has avx512f && aten_sets+=(avx512)
best=${aten_sets[-1]}
few_settings() {
  echo "avx2 AVX2 default 2"
  echo "avx512 AVX512_CORE $best 4"
  echo "avx512_bf16 AVX512_CORE_BF16 $best 1"
}
# True if the setting is what `make test` already ran: all instruction sets of this CPU and one
# thread, which ranks of `parallel` always have.
is_known() {
  case $1 in
    avx2*) has avx512f ;;
    'avx512 '*) has 'avx512_bf16\|avx512_fp16\|amx_tile' ;;
    *) has 'avx512_fp16\|amx_tile' ;;
  esac && return 1
  [[ $1 == *' 1' || $2 == */parallel_test ]]
}
all_settings() {
  local ours=(avx2 avx512 avx512_bf16 amx) threads=(1 2 4) n=0 onednn aten
  for onednn in AVX2 AVX512_CORE AVX512_CORE_BF16 DEFAULT; do
    for aten in "${aten_sets[@]}"; do
      echo "${ours[n % 4]} $onednn $aten ${threads[n % 3]}"
      n=$((n + 1))
    done
    n=$((n + 1))
  done
}

# Runs each test program under each setting and prints one line per failure. Waiting threads do not
# spin, because there may be more threads than cores.
run_one() {
  local ours=$1 onednn=$2 aten=$3 threads=$4
  shift 4
  local name=${*: -1}
  name=$(basename "$name" .py)
  local log="$LOGS/$name.$ours.$onednn.$aten.$threads.log"
  local filter=()
  [ "$FULL" -eq 0 ] && filter=(--gtest_filter=-*ZeroTable*:*PlanTable*:*ZeroPlans*:Long/*)
  [[ $name == *_test ]] || filter=()
  if ! LOCKSTEP_MAX_CPU_ISA=$ours ONEDNN_MAX_CPU_ISA=$onednn ATEN_CPU_CAPABILITY=$aten OMP_NUM_THREADS=$threads \
    OMP_WAIT_POLICY=passive TORCH_FR_BUFFER_SIZE=0 LOCKSTEP_PROGRAM=$PROGRAM PYTHONDONTWRITEBYTECODE=1 \
    timeout 1800 "$@" "${filter[@]}" >"$log" 2>&1; then
    echo "FAILED $name with LOCKSTEP_MAX_CPU_ISA=$ours ONEDNN_MAX_CPU_ISA=$onednn ATEN_CPU_CAPABILITY=$aten" \
      "OMP_NUM_THREADS=$threads: $log"
    grep -E '^\[  FAILED  \] .*\(|^(FAIL|ERROR):' "$log" | sed 's/^/  /' | head -10
    return 1
  fi
}
export -f run_one
export LOGS=$logs FULL=$full PROGRAM=$PWD/$build/lockstep

began=$SECONDS
mapfile -t programs < <(labelled)
if [ ${#programs[@]} -eq 0 ]; then
  echo "test_processors: $build has no tests with the label 'processor': make test builds them" >&2
  exit 3
fi
work() {
  local program setting which=few_settings
  [ $full -eq 1 ] && which=all_settings
  for program in "${programs[@]}"; do
    if [[ $program != *.py ]]; then
      $which
    elif [ $full -eq 1 ]; then
      few_settings  # runs of the program take long
    fi | while read -r setting; do
      [ $full -eq 0 ] && is_known "$setting" "$program" || printf '%s %s\n' "$setting" "$program"
    done
  done
}
failed=0
work | xargs -P "$jobs" -L 1 bash -c 'run_one "$@"' _ || failed=1
if [ $failed -ne 0 ]; then
  echo "test_processors: some failed after $((SECONDS - began)) s" >&2
  exit 1
fi
echo "test_processors: all passed in $((SECONDS - began)) s"
