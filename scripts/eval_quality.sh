#!/usr/bin/env bash
# Quality of the encodings, as in docs/results.md: perplexity of SmolLM2-135M natively, in int8, in int4 and in int4
# calibrated with the Debian Reference, over 20000 tokens of the Debian FAQ, and how far the quantised ones are from the
# native one. Takes what was built with
#   cmake --preset release && cmake --build --preset release --target sluice
# and texts of one's own in place of the FAQ, and of the Reference, where they are given:
#   scripts/eval_quality.sh [TEXT [CALIBRATION_TEXT]]
set -euo pipefail
cd "$(dirname "$0")/.."
sluice=${SLUICE:-build/release/sluice}
device=${DEVICE:-cpu}
tokens=${TOKENS:-20000}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
model=$(python3 scripts/get_model.py smollm2-135m)

# Unpacks the text /$2 of Debian's package $1 to $3.
fetch() {
  local package=$1 path=$2 to=$3
  (cd "$scratch" && apt-get download -qq "$package" 2>"$scratch/apt.log") || { cat "$scratch/apt.log" >&2; exit 1; }
  dpkg-deb -x "$scratch/$package"_*.deb "$scratch"
  gunzip -c "$scratch/$path" >"$to"
  echo "$to: /$path of $package $(dpkg-deb -f "$scratch/$package"_*.deb Version), unpacked"
}

text=${1:-$scratch/debian-faq.en.txt}
calibration=${2:-$scratch/debian-reference.en.txt}
if [ $# -lt 1 ]; then fetch debian-faq usr/share/doc/debian/FAQ/debian-faq.en.txt.gz "$text"; fi
if [ $# -lt 2 ]; then fetch debian-reference-en usr/share/debian-reference/debian-reference.en.txt.gz "$calibration"; fi

# The model in a directory of its own, which other copies of the model's are not in.
mkdir "$scratch/model"
for file in "$model"/*; do
  case $file in */sluice-*.safetensors) ;; *) ln -s "$(realpath "$file")" "$scratch/model/" ;; esac
done

measure() {
  echo
  echo "$1:"
  "$sluice" eval --model "$scratch/model" --device "$device" --text "$text" --max-tokens "$tokens" --reference resident \
    --policy resident --param wire="$2" --param resident=bf16
}
measure "int8" int8
measure "int4" int4
"$sluice" quantize "$scratch/model" --to int4 --calibrate "$calibration"
measure "int4, calibrated" int4
