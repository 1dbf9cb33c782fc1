#!/usr/bin/env bash
# check.sh BUILD CXX: installs the tree built in BUILD, moves it, and works with it as an outsider would.
set -euo pipefail
build=$1
compiler=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$build/install_check
rm -rf "$scratch"
mkdir -p "$scratch"

cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
prefix=$scratch/moved
mv "$scratch/first" "$prefix"

cmake -S "$here" -B "$scratch/outsider" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror" >"$scratch/configure.log"
cmake --build "$scratch/outsider"
plugin=$scratch/outsider/outsider.so
"$prefix/bin/sluice" plugins check "$plugin"
"$prefix/bin/sluice" plugins info outsider --plugin-dir "$(dirname "$plugin")" | grep ahead

# The moved tree finds the policies that came with it, and only those.
"$prefix/bin/sluice" plugins list | tee "$scratch/list.txt"
for name in "$build"/strategies/*.so; do
  name=$(basename "$name" .so)
  [[ -f $(find "$prefix" -path "*/sluice/policies/$name.so") ]]
  grep -q "$name" "$scratch/list.txt"
done

# What an installed tree does not offer: the engine.
compile() { "$compiler" -std=c++20 -fsyntax-only -I "$prefix/include" -x c++ - 2>"$scratch/compile.log"; }
echo '#include "sluice/plugin.hpp"' | compile
if echo '#include "core/engine/engine.hpp"' | compile; then
  echo "an outsider could include the engine"
  exit 1
fi
