#!/usr/bin/env bash
# Quality of the encodings, as in docs/results.md: perplexity of SmolLM2-135M natively, in int8 and in int4 over 20000
# tokens of the Debian FAQ, and how far the quantised ones are from the native one. Takes what was built with
#   cmake --preset release && cmake --build --preset release --target sluice
# and a text of one's own in place of the FAQ where one is given:
#   scripts/eval_quality.sh [TEXT]
set -euo pipefail
cd "$(dirname "$0")/.."
sluice=${SLUICE:-build/release/sluice}
device=${DEVICE:-cpu}
tokens=${TOKENS:-20000}
package=debian-faq path=usr/share/doc/debian/FAQ/debian-faq.en.txt.gz

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
model=$(python3 scripts/get_model.py smollm2-135m)

if [ $# -gt 0 ]; then
  text=$1
  echo "text: $text"
else
  (cd "$scratch" && apt-get download -qq "$package" 2>"$scratch/apt.log") || { cat "$scratch/apt.log" >&2; exit 1; }
  dpkg-deb -x "$scratch/$package"_*.deb "$scratch"
  text=$scratch/debian-faq.en.txt
  gunzip -c "$scratch/$path" >"$text"
  echo "text: /$path of $package $(dpkg-deb -f "$scratch/$package"_*.deb Version), unpacked"
fi

for encoding in int8 int4; do
  echo
  "$sluice" eval --model "$model" --device "$device" --text "$text" --max-tokens "$tokens" --reference resident \
    --policy resident --param wire="$encoding" --param resident=bf16
done
