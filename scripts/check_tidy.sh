#!/usr/bin/env bash
# Runs clang-tidy over the sources (not the tests), or over the files named. Takes minutes, so no test does it.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard core models harness strategies | grep '\.cpp$')
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/release --quiet
