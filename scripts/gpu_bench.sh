#!/usr/bin/env bash
# How fast Sluice is on this machine's GPU, each figure beside what bounds it, measured in the same run. Prints JSON
# lines. Needs no model: weights are random, of the exact shapes.
#   gpu_bench.sh [--build DIR] [--out DIR] [--parts A,B]     parts: see gpu_bench.py --help; default: all
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
source scripts/gpu_build.sh
exec python3 scripts/gpu_bench.py --build "$build" "${rest[@]}"
