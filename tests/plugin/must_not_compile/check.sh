#!/usr/bin/env bash
# check.sh CXX SDK: the plugin of case 0 compiles, those of the other cases do not, each for its own reason.
set -euo pipefail
compiler=$1
sdk=$2
cases=$(dirname "$0")/cases.cpp
compile() { "$compiler" -std=c++20 -fsyntax-only -I "$sdk" -DCASE="$1" "$cases" 2>&1; }

compile 0
reasons=('' 'Params' 'override' 'victim' 'override' 'is_here' 'NoPolicy' 'too long' 'redefinition')
for i in "${!reasons[@]}"; do
  [[ $i == 0 ]] && continue
  if said=$(compile "$i"); then
    echo "case $i compiles"
    exit 1
  fi
  if ! grep -q -- "${reasons[$i]}" <<<"$said"; then
    printf 'case %s fails for another reason than "%s":\n%s\n' "$i" "${reasons[$i]}" "$said"
    exit 1
  fi
done
