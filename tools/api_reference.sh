#!/usr/bin/env bash
# Writes the API reference of the public headers (cmake/public_headers.txt) to FOLDER/html. Fails on
# any Doxygen warning.
set -euo pipefail
folder=$(realpath -m "${1:?usage: tools/api_reference.sh FOLDER}")
cd "$(dirname "$0")/.."
mkdir -p "$folder"
doxygen - >"$folder/doxygen.log" 2>&1 <<SETTINGS || { grep -v '^$' "$folder/doxygen.log" | grep -i 'warning\|error' >&2; exit 1; }
PROJECT_NAME = Lockstep
PROJECT_BRIEF = "The library's headers, included as <lockstep/...>"
OUTPUT_DIRECTORY = "$folder"
INPUT = docs/library.md $(python3 tools/public_headers.py --list | tr '\n' ' ')
USE_MDFILE_AS_MAINPAGE = docs/library.md
FILTER_PATTERNS = *.h="sed -f tools/api_reference.sed"
STRIP_FROM_PATH = src
EXTRACT_ALL = YES
JAVADOC_AUTOBRIEF = YES
HIDE_UNDOC_RELATIONS = NO
SHOW_INCLUDE_FILES = NO
SORT_MEMBER_DOCS = NO
MACRO_EXPANSION = NO
AUTOLINK_SUPPORT = YES
GENERATE_LATEX = NO
HAVE_DOT = NO
QUIET = YES
WARN_AS_ERROR = FAIL_ON_WARNINGS
SETTINGS
echo "reference: $folder/html/index.html"
