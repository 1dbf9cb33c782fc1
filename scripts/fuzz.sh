#!/usr/bin/env bash
# Builds the libFuzzer targets (needs clang) and runs each on its seeds, one after the other.
#   fuzz.sh [SECONDS [TARGET...]]     default: 300 seconds each, all targets
# New inputs go to build/fuzz/corpus/TARGET, findings to build/fuzz/findings/TARGET-*.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
targets=("${@:2}")

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target sluice_fuzzers -j "$(nproc)"
if ((${#targets[@]} == 0)); then
  mapfile -t targets < <(find build/fuzz/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable -printf '%f\n' | sort)
fi
mkdir -p build/fuzz/findings
status=0
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  echo "== $target, $seconds s"
  if ! "build/fuzz/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$target-" "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" \
    >"build/fuzz/$target.log" 2>&1; then
    tail -n 40 "build/fuzz/$target.log"
    status=1
  fi
  grep -E 'number_of_executed_units|^#.*DONE' "build/fuzz/$target.log" || true
done
exit $status
