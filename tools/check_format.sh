#!/usr/bin/env bash
# Checks that every C++ file is formatted by clang-format.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -z 'src/*.h' 'src/*.cpp' 'src/*.cu' 'tests/*.h' 'tests/*.cpp' 'bench/*.h' 'bench/*.cpp' 'examples/*.cpp' |
  xargs -0 -P "$(nproc)" -n 20 .deps/style/bin/clang-format --dry-run --Werror
echo "format: every file is formatted by clang-format"
