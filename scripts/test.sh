#!/usr/bin/env bash
# Builds everything and runs every test; then, of those that are fast, the ones with several threads under
# ThreadSanitizer, and all under AddressSanitizer with UndefinedBehaviorSanitizer (cmake/SluiceTest.cmake tells which
# these are). The last line is "N passed, N failed, N skipped", summed over the runs.
#   test.sh [PRESET...]     default: release tsan asan (as root or with sudo where packages are missing)
# Logs: build/PRESET/{configure,build,test}.log. Tests that need a real model look at $SLUICE_REAL_MODEL.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

presets=("$@")
((${#presets[@]} > 0)) || presets=(release tsan asan)
jobs=$(nproc)
broken=0
results=()

scripts/install_packages.sh || exit 1

# step LOG COMMAND...: quiet unless it fails, then the end of the log.
step() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    echo "failed: $*; the end of $log:"
    tail -n 40 "$log"
    return 1
  fi
}

run_preset() {
  local preset=$1 directory=build/$1 launcher=()
  mkdir -p "$directory"
  rm -f "$directory/junit.xml"
  # ThreadSanitizer's fixed address ranges collide with the widest address randomisation of some kernels.
  if [[ $preset == tsan ]] && setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
  step "$directory/configure.log" cmake --preset "$preset" || return 1
  grep -- '-- CUDA: ' "$directory/configure.log" | head -n 1
  step "$directory/build.log" "${launcher[@]}" cmake --build --preset "$preset" -j "$jobs" || return 1
  if ! "${launcher[@]}" ctest --preset "$preset" -j "$jobs" --output-junit junit.xml >"$directory/test.log" 2>&1; then
    sed -n '/\*\*\*\(Failed\|Timeout\|Exception\|Not Run\)/,/^ *Start\|^[0-9]*% tests/{/^ *Start\|^[0-9]*% tests/!p}' \
      "$directory/test.log" | head -n 200
  fi
  if [[ ! -s $directory/junit.xml ]]; then
    echo "failed: ctest wrote no results; see $directory/test.log"
    return 1
  fi
  results+=("$directory/junit.xml")
}

for preset in "${presets[@]}"; do
  began=$SECONDS
  echo "== $preset"
  run_preset "$preset" || broken=$((broken + 1))
  grep -E '^[0-9]+% tests passed' "build/$preset/test.log" 2>/dev/null
  echo "   $((SECONDS - began)) s"
done

python3 scripts/count_tests.py --failed "$broken" "${results[@]}"
