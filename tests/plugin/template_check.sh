#!/usr/bin/env bash
# template_check.sh BUILD CXX LOAD_POLICY TEMPLATE: the plugin template, copied away from the tree, builds against
# the installed package, and what it builds is loaded.
set -euo pipefail
build=$1
compiler=$2
load_policy=$3
template=$4
scratch=$build/template_check
rm -rf "$scratch"
mkdir -p "$scratch"

cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
cp -r "$template" "$scratch/template"
cmake -S "$scratch/template" -B "$scratch/template/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror" >"$scratch/configure.log"
cmake --build "$scratch/template/build"
[[ $("$load_policy" "$scratch/template/build/strategies/my_policy.so") == my_policy ]]
