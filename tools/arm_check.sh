#!/usr/bin/env bash
# Cross-compiles for 64-bit Arm and runs unit tests under qemu's user mode: those of the modules without libtorch that start no program.
#   tools/arm_check.sh [MODULE]...     other modules, such as ops; JOBS=n: parallel compilers
#   ARM_BUILD=dir     build folder; LOCKSTEP_ARM=dir: the libraries for Arm (cmake/aarch64.cmake)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ARM_BUILD:-build/aarch64}
modules=("$@")
[ ${#modules[@]} -gt 0 ] || modules=(base mesh config schedule text jinja objects model plan data monitor watch metrics)

if [ -z "${LOCKSTEP_ARM:-}" ]; then
  tools/setup.sh arm
  LOCKSTEP_ARM=$PWD/.deps/arm
fi
mkdir -p "$build"
cmake --preset aarch64 -B "$build" -DLOCKSTEP_ARM="$LOCKSTEP_ARM" >"$build.log"
python3 tools/build.py "$build" -j "${JOBS:-$(nproc)}" "${modules[@]/%/_test}"

export OMP_NUM_THREADS=1 QEMU_LD_PREFIX=$LOCKSTEP_ARM/sysroot
failed=()
for module in "${modules[@]}"; do
  began=$SECONDS
  echo "arm_check: ${module}_test"
  qemu-aarch64-static "$build/${module}_test" --gtest_brief=1 || failed+=("${module}_test")
  echo "arm_check: ${module}_test ended after $((SECONDS - began)) s"
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "arm_check: failed: ${failed[*]}"
  exit 1
fi
