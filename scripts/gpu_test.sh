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

# line WHAT NAME PASSED SECONDS TEXT. What was skipped for want of a GPU has not passed here.
line() {
  local passed=$3
  [[ $5 == *"SKIPPED: no NVIDIA GPU"* || $5 == *"SKIPPED: device"* ]] && passed=false
  printf '{"what": "%s", "name": "%s", "passed": %s, "seconds": %d, "says": "%s"}\n' \
    "$1" "$2" "$passed" "$4" "$(tr -d '"\\\n' <<<"$5" | head -c 300)"
  [[ $passed == true ]] || failed=1
}

# Each case in a process of its own, as under ctest: an error of the GPU ends the whole process's use of it.
tests() {
  local program name began passed
  for program in test_gpu_device test_gpu_ops test_cuda_ops test_gpu_models; do
    while IFS= read -r name; do
      began=$SECONDS passed=true
      timeout 120 "$build/tests/$program" "${name//,/\\,}" >"$logs/test" 2>&1 || passed=false
      line test "$program: $name" "$passed" $((SECONDS - began)) "$(grep -v '^$' "$logs/test" | tail -n 1)"
      [[ $passed == true ]] || head -n 30 "$logs/test" >&2
    done < <(names_of "$program")
  done
}

# Version 2 of Catch2 knows the first option, version 3 the others.
names_of() {
  local names
  names=$("$build/tests/$1" --list-test-names-only 2>/dev/null)
  [[ -n $names ]] || names=$("$build/tests/$1" --list-tests --verbosity quiet)
  echo "$names"
}

# sanitized TOOL MODEL PROMPT_TOKENS OPTION...
sanitized() {
  local tool=$1 name=$2 prompt=$3 began=$SECONDS passed=true
  shift 3
  timeout 120 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 3 "$build/sluice" generate --device cuda \
    --model "$SLUICE_TEST_DATA/hf/$name" --max-new-tokens 4 --ignore-eos --json \
    --prompt-ids "$(seq -s, 1 "$prompt")" "$@" >"$logs/$tool" 2>&1 || passed=false
  line "$tool" "$name $*" "$passed" $((SECONDS - began)) "$(grep SUMMARY "$logs/$tool" | tail -n 1)"
  [[ $passed == true ]] || head -n 60 "$logs/$tool" >&2
}

# initcheck does not see the writes of cuBLASLt's kernels that store through the bulk copy engine, and calls every
# reader of them wrong: so long prompts, whose products cuBLASLt takes, are in float32 there.
sanitizer() {
  local tool prompt
  for tool in memcheck racecheck initcheck synccheck; do
    prompt=70
    [[ $tool == initcheck ]] && prompt=16
    sanitized "$tool" qwen3-tiny "$prompt" --policy ring_prefetch --gpu-layer-budget 2
    sanitized "$tool" qwen2-tiny "$prompt" --policy mapped --temperature 0.8 --top-k 20 --top-p 0.9
    sanitized "$tool" llama-tiny 70 --policy resident --dtype f32
  done
}

[[ $only == sanitizer ]] || tests
[[ $only == tests ]] || sanitizer
exit "$failed"
