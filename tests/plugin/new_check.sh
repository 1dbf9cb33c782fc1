#!/usr/bin/env bash
# new_check.sh BUILD CXX: what `sluice plugins new` writes builds as it is, with two commands, against an installation
# (whose path holds the template's own names) and against a build directory, is under 60 lines, passes `plugins check`,
# and is found where it is installed.
set -euo pipefail
build=$1
export CXX=$2 CXXFLAGS="-Wall -Wextra -Wpedantic -Werror"
scratch=$build/new_check
rm -rf "$scratch"
mkdir -p "$scratch"
prefix="$scratch/my_policy of MyPolicy"
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"

for sluice in "$prefix/bin/sluice" "$build/sluice"; do
  parent=$(mktemp -d "$scratch/XXXXXX")
  "$sluice" plugins new keep_some --to "$parent"
  cd "$parent/keep_some"
  (($(wc -l <keep_some.cpp) < 60))
  cmake -B build >"$scratch/configure.log" && cmake --build build
  "$sluice" plugins check build/keep_some.so
  "$sluice" plugins info keep_some --plugin-dir build | grep ahead
  "$sluice" generate --model synthetic:tiny-dense --prompt-ids 1,2,3 --max-new-tokens 4 --greedy \
    --gpu-layer-budget 2 --plugin-dir build --policy keep_some --param ahead=1
  cmake --install build --prefix "$parent/elsewhere" >"$scratch/install.log"
  installed=$(find "$parent/elsewhere" -path "*/sluice/policies/keep_some.so")
  "$sluice" plugins info keep_some --plugin-dir "$(dirname "$installed")" | grep -F "$installed"
  # Neither over a directory that is there, nor beside a policy of that name.
  if "$sluice" plugins new keep_some --to "$parent"; then exit 1; fi
  if "$sluice" plugins new keep_some --to "$parent/other" --plugin-dir build; then exit 1; fi
  [[ ! -e $parent/other ]]
done

# Installed where Sluice is, by its name alone.
if "$prefix/bin/sluice" plugins info keep_some; then exit 1; fi
cmake --install "$parent/keep_some/build" --prefix "$prefix" >"$scratch/install.log"
"$prefix/bin/sluice" plugins info keep_some | grep -F "$prefix/"

# CMake reads the path of the package as it is, whatever is in it.
odd=$scratch/'odd "${HOME}\x'
mkdir "$odd"
cp "$build/sluice" "$odd"
"$odd/sluice" plugins new keep_none --to "$scratch"
sed -n 's/^find_package(Sluice REQUIRED HINTS \(.*\))$/message(STATUS \1)/p' "$scratch/keep_none/CMakeLists.txt" \
  >"$scratch/hints.cmake"
cmake -P "$scratch/hints.cmake" | grep -F -- "-- $odd/package"
