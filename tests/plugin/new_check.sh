#!/usr/bin/env bash
# new_check.sh BUILD CXX: what `sluice plugins new` writes builds as it is, with two commands, against an installation
# and against a build directory, is under 60 lines, and passes `plugins check`.
set -euo pipefail
build=$1
export CXX=$2 CXXFLAGS="-Wall -Wextra -Wpedantic -Werror"
scratch=$build/new_check
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"

for sluice in "$scratch/prefix/bin/sluice" "$build/sluice"; do
  parent=$(mktemp -d "$scratch/XXXXXX")
  "$sluice" plugins new keep_some --to "$parent"
  cd "$parent/keep_some"
  (($(wc -l <keep_some.cpp) < 60))
  cmake -B build >"$scratch/configure.log" && cmake --build build
  "$sluice" plugins check build/keep_some.so
  "$sluice" plugins info keep_some --plugin-dir build | grep ahead
  "$sluice" generate --model synthetic:tiny-dense --prompt-ids 1,2,3 --max-new-tokens 4 --greedy \
    --gpu-layer-budget 2 --plugin-dir build --policy keep_some --param ahead=1
  # Neither over a directory that is there, nor beside a policy of that name.
  if "$sluice" plugins new keep_some --to "$parent"; then exit 1; fi
  if "$sluice" plugins new keep_some --to "$parent/other" --plugin-dir build; then exit 1; fi
  [[ ! -e $parent/other ]]
done
