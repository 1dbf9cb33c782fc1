#!/usr/bin/env bash
# Whether Sluice is right on this machine's GPU, in a few minutes: the tests labelled gpu, then small models under
# compute-sanitizer. Prints a JSON line for each; exit code 1 if one failed.
#   gpu_test.sh [--build DIR] [--only tests|sanitizer]      DIR: a build brought along; default: builds in build/cuda
# A build brought along needs no source tree's build files: DIR/sluice, DIR/strategies, DIR/tests/test_gpu_*.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
source scripts/gpu_build.sh
only=""
[[ ${rest[0]:-} == --only ]] && only=${rest[1]:-}
logs=$(mktemp -d)
failed=0

# line NAME PASSED SECONDS TEXT: TEXT has no quotes.
line() {
  printf '{"what": "%s", "name": "%s", "passed": %s, "seconds": %d, "says": "%s"}\n' \
    "$1" "$2" "$3" "$4" "$(tr -d '"\\\n' <<<"$5" | head -c 300)"
  [[ $3 == true ]] || failed=1
}

tests() {
  local name began passed
  for name in test_gpu_device test_gpu_ops test_gpu_models; do
    began=$SECONDS passed=true
    timeout 240 "$build/tests/$name" >"$logs/$name" 2>&1 || passed=false
    grep -q '^SKIPPED: no \|^SKIPPED: device' "$logs/$name" && passed=false
    line test "$name" "$passed" $((SECONDS - began)) "$(grep -v '^$' "$logs/$name" | tail -n 1)"
    [[ $passed == true ]] || head -n 150 "$logs/$name" >&2
  done
}

sanitized() {
  local tool=$1 name=$2 began=$SECONDS passed=true
  shift 2
  timeout 120 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 3 "$build/sluice" generate --device cuda \
    --model "$SLUICE_TEST_DATA/hf/$name" --max-new-tokens 4 --ignore-eos --json \
    --prompt-ids "$(seq -s, 1 70)" "$@" >"$logs/$tool" 2>&1 || passed=false
  line "$tool" "$name $*" "$passed" $((SECONDS - began)) "$(grep SUMMARY "$logs/$tool" | tail -n 1)"
  [[ $passed == true ]] || head -n 60 "$logs/$tool" >&2
}

sanitizer() {
  local tool
  for tool in memcheck racecheck initcheck synccheck; do
    sanitized "$tool" qwen3-tiny --policy ring_prefetch --gpu-layer-budget 2
    sanitized "$tool" qwen2-tiny --policy mapped --temperature 0.8 --top-k 20 --top-p 0.9
    sanitized "$tool" llama-tiny --policy resident --dtype f32
  done
}

[[ $only == sanitizer ]] || tests
[[ $only == tests ]] || sanitizer
exit "$failed"
