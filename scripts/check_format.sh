#!/usr/bin/env bash
# Checks the formatting of every C++ file that is tracked or about to be. `--fix` formats them instead.
# One version of clang-format, 14, as others disagree in details; Debian 12 and Ubuntu 24.04 both package it.
set -euo pipefail
cd "$(dirname "$0")/.."

for candidate in clang-format-14 clang-format; do
  if "$candidate" --version 2>/dev/null | grep -q 'version 14\.'; then
    formatter=$candidate
    break
  fi
done
if [[ -z ${formatter:-} ]]; then
  echo "SKIPPED: clang-format 14 is not installed"
  exit 0
fi

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  list() { git ls-files --cached --others --exclude-standard; }
else
  list() { find core models harness strategies tests -type f; }
fi
mapfile -t files < <(list | grep -E '\.(cpp|hpp|cu|cuh)$' | while read -r file; do [[ -f $file ]] && echo "$file"; done)

if [[ ${1:-} == --fix ]]; then
  exec "$formatter" -i --style=file "${files[@]}"
fi
bad=0
for file in "${files[@]}"; do
  if ! "$formatter" --dry-run --Werror --style=file "$file" >/dev/null 2>&1; then
    echo "not formatted: $file"
    bad=$((bad + 1))
  fi
done
if ((bad > 0)); then
  echo "$bad of ${#files[@]} files; scripts/check_format.sh --fix formats them"
  exit 1
fi
echo "${#files[@]} files are formatted"
