#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 to a table of three policies over a real model, on a machine without a GPU:
# installs the packages (as root or with sudo), builds, fetches SmolLM2-135M, sweeps configs/experiments/quickstart.yaml
# on the CPU device with its throttled link, and lets the model speak. Started again, it goes on where it stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/quickstart

echo "== packages"
scripts/install_packages.sh

echo "== build"
mkdir -p "$out"
if ! { cmake --preset release && cmake --build --preset release --target sluice sluice_policies -j "$(nproc)"; } \
  >"$out/build.log" 2>&1; then
  tail -n 40 "$out/build.log"
  echo "quickstart.sh: the build failed; the whole log is $out/build.log" >&2
  exit 1
fi
sluice=build/release/sluice

echo "== model"
if model=$(python3 scripts/get_model.py smollm2-135m 2>"$out/model.log"); then
  results=$out/smollm2-135m
else
  tail -n 3 "$out/model.log"
  model=tests/data/hf/llama-tiny
  results=$out/llama-tiny
  echo "The model could not be fetched (no network?). Going on with $model, a tiny one with random weights:"
  echo "the figures show how the policies differ, the text means nothing."
fi
echo "$model"

echo "== sweep (results in $results/results.jsonl)"
"$sluice" sweep configs/experiments/quickstart.yaml --set "model.path=$model" --out "$results"

echo "== what it says, with 4 of its layers on the device"
"$sluice" generate --model "$model" --device cpu --policy ring_prefetch --gpu-layer-budget 4 --chat \
  --prompt "Why is the sky blue?" --max-new-tokens 96 --greedy
