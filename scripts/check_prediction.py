#!/usr/bin/env python3
"""Holds predictions against measurements: for each rate of the CPU device's link, measures the machine
with `sluice probe`, runs an experiment's sweep, predicts it with `sluice predict`, and prints both times
per decoded token and their ratio.

Neither a probe nor a run is slower than it must be for any reason but the machine being disturbed, so of
several passes the shortest time counts, on both sides. Exits with 1 when a ratio is off by more than
--within percent."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default=ROOT / "configs/experiments/prediction.yaml")
    parser.add_argument("--sluice", default=ROOT / "build/release/sluice", help="the executable")
    parser.add_argument("--link-gbps", type=float, nargs="+", default=[2, 3, 4], metavar="RATE",
                        help="less than a core copies, or it is not the link that is slow (default: 2 3 4)")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--within", type=float, default=10, metavar="PERCENT")
    parser.add_argument("--before", default="", help="a command to put before measuring ones, like 'chrt -f 1'")
    parser.add_argument("--json", action="store_true", help="one JSON object a line in place of the table")
    return parser.parse_args()


def records_of(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout) if "--json" in command else None


def label_of(record):
    policy, budget = record["inputs"]["policy"], record["inputs"]["budget"]
    depth = policy["params"].get("depth")
    name = policy["plugin"] + (f" depth={depth}" if depth else "")
    return name, "all" if name == "resident" else budget["gpu_layer_budget"]  # resident has no budget


def token_ms(rate):
    return 1e3 / rate


def compare(options, rate, scratch):
    """The cells of one link rate: [label, budget, measured ms, predicted ms]."""
    before = options.before.split()
    machine, cells = scratch / "probed.yaml", {}
    for _ in range(options.passes):
        records_of([*before, options.sluice, "probe", "--link-gbps", rate, "--to", machine])
        measured = records_of([*before, options.sluice, "sweep", options.experiment, "--set",
                               f"device.link_gbps={rate}", "--json", "--out", tempfile.mkdtemp(dir=scratch)])
        predicted = records_of([options.sluice, "predict", options.experiment, "--machine", machine, "--json"])
        for one, other in zip(measured, predicted):
            if not (one["valid"] and other["valid"]):
                sys.exit(f"{label_of(one)}: not valid: {one['reasons'] + other['reasons']}")
            best = one["figures"]["spread"]["decode_tokens_per_second"][1]
            cell = cells.setdefault(label_of(one), [float("inf"), float("inf")])
            cell[0] = min(cell[0], token_ms(best))
            cell[1] = min(cell[1], token_ms(other["figures"]["decode_tokens_per_second"]))
    return cells


def main():
    options = arguments()
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for rate in options.link_gbps:
            for (policy, budget), (measured, predicted) in compare(options, rate, pathlib.Path(scratch)).items():
                off = abs(predicted / measured - 1) * 100
                worst = max(worst, off)
                if options.json:
                    print(json.dumps({"link_gbps": rate, "policy": policy, "budget": budget,
                                      "measured_ms": measured, "predicted_ms": predicted}), flush=True)
                else:
                    print(f"{rate:5g} GB/s  {policy:24} budget {budget:>3}  measured {measured:8.2f} ms/token  "
                          f"predicted {predicted:8.2f}  ratio {predicted / measured:.3f}"
                          f"{'  <- off' if off > options.within else ''}", flush=True)
    print(f"the largest difference is {worst:.1f} %", file=sys.stderr)
    return 0 if worst <= options.within else 1


if __name__ == "__main__":
    sys.exit(main())
