#!/usr/bin/env python3
"""Measures Sluice on a GPU and prints JSON lines: see gpu_bench.sh, which finds or makes the build.

Parts:
  budget    Qwen3-8B over budgets of 1 to 32 layers, against the link
  policies  naive_sync, prefetch, ring_prefetch, mapped with prompts of 32 to 8192 tokens
  resident  Qwen3-8B and 1.7B with everything on the device, against a device copy
  auto      Qwen3-14B in 8 GiB with the most layers that fit
  loading   host memory while a Qwen3-8B checkpoint on disk is loaded (writes 16 GB)
Each line says in `reached` whether the figure is what it must be, where there is such a thing.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

EXPERIMENTS = pathlib.Path(__file__).resolve().parent.parent / "configs" / "experiments"
# Qwen3-8B in bf16: bytes of a layer, and of all that a token reads.
LAYER_BYTES = 385_892_864
# Tokens per second over a link of 55 GB/s, by layers of budget.
LEAST_OF_BUDGET = {1: 3.84, 2: 3.95, 4: 4.19, 8: 4.77, 16: 6.58, 32: 27.6}
LEAST_OF_COPY = {"qwen3-8b": 0.85, "qwen3-1.7b": 0.75}
LEAST_PREFILL = 23_500
GIB = 1 << 30


def say(**fields):
    print(json.dumps(fields), flush=True)


def label_of(record):
    policy = record["inputs"]["policy"]
    return " ".join([policy["plugin"], *(f"{name}={value}" for name, value in policy["params"].items())])


class Bench:
    def __init__(self, build, out):
        self.build, self.out = pathlib.Path(build), pathlib.Path(out)
        self.rates = None

    def device(self):
        """Rates of link and memory, measured once."""
        if self.rates is None:
            done = subprocess.run([self.build / "tests" / "bench_device", "cuda"], stdout=subprocess.PIPE, text=True,
                                  check=True)
            self.rates = json.loads(done.stdout)
            say(**self.rates)
        return self.rates

    def sweep(self, name):
        """Records of an experiment, in the order in which its cells ran."""
        start = time.time()
        done = subprocess.run([self.build / "sluice", "sweep", EXPERIMENTS / f"{name}.yaml", "--out",
                               self.out / name, "--json"], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            say(what="failed", experiment=name, exit_code=done.returncode)
            return []
        records = json.loads(done.stdout)
        say(what="experiment", name=name, cells=len(records), seconds=round(time.time() - start, 1))
        for record in records:
            if not record["valid"]:
                say(what="not valid", experiment=name, policy=label_of(record), reasons=record["reasons"])
        return [record for record in records if record["valid"]]

    def budget(self):
        link = self.device()["h2d_gbps"]
        for record in self.sweep("qwen3-8b-budget"):
            figures, layers = record["figures"], record["inputs"]["budget"]["gpu_layer_budget"]
            # A pass moves what is not kept and the one slot that rotates. Over passes, as the first and the last of
            # them share one prefetch with their neighbours.
            passes = record["inputs"]["generation"]["max_new_tokens"]
            expected = passes * (37 - layers) * LAYER_BYTES
            least = LEAST_OF_BUDGET[layers] * link / 55
            say(what="budget", model="qwen3-8b", layers=layers,
                decode_tokens_per_second=figures["decode_tokens_per_second"], least=round(least, 2),
                h2d_bytes=figures["h2d_bytes"], expected_bytes=expected,
                h2d_gbps=figures["h2d_gbps"], link_gbps=link, stall_ms_per_token=figures["stall_ms_per_token"],
                reached=figures["decode_tokens_per_second"] >= least and figures["h2d_bytes"] == expected)

    def policies(self):
        link = self.device()["h2d_gbps"]
        for record in self.sweep("qwen3-8b-policies"):
            figures = record["figures"]
            tokens = record["inputs"]["generation"]["prompts"]
            say(what="policies", model="qwen3-8b", policy=label_of(record), prompts=tokens,
                positions=record["context"]["positions"], ttft_ms=figures["ttft_ms"],
                decode_tokens_per_second=figures["decode_tokens_per_second"],
                stall_ms_per_token=figures["stall_ms_per_token"], prefill_stall_ms=figures["prefill_stall_ms"],
                link_gbps=link)

    def resident(self):
        copy = self.device()["copy_read_and_written_gbps"]
        for model in ("qwen3-8b", "qwen3-1.7b"):
            for record in self.sweep(f"{model}-resident"):
                figures, shape = record["figures"], json.loads((EXPERIMENTS.parent / "models" / f"{model}.json").read_text())
                new, positions = record["inputs"]["generation"]["max_new_tokens"], record["context"]["positions"]
                kv = 4 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * shape["head_dim"]
                bytes_per_token = figures["kept_bytes"] + kv * (positions - new / 2)
                share = figures["decode_tokens_per_second"] * bytes_per_token / 1e9 / copy
                line = dict(what="resident", model=model, prompt=positions - new,
                            decode_tokens_per_second=figures["decode_tokens_per_second"],
                            prefill_tokens_per_second=figures["prefill_tokens_per_second"],
                            share_of_copy=round(share, 4), copy_gbps=copy)
                if positions - new < 100:
                    line.update(least=LEAST_OF_COPY[model], reached=share >= LEAST_OF_COPY[model])
                elif model == "qwen3-8b":
                    line.update(least=LEAST_PREFILL, reached=figures["prefill_tokens_per_second"] >= LEAST_PREFILL)
                say(**line)

    def auto(self):
        for record in self.sweep("qwen3-14b-auto"):
            figures, limit = record["figures"], record["inputs"]["device"]["memory_limit"]
            say(what="auto", model="qwen3-14b", layers=record["context"]["shape"]["gpu_layer_budget"],
                positions=record["context"]["positions"], memory_limit=limit,
                peak_device_bytes=figures["peak_device_bytes"], peak_process_bytes=figures["peak_process_bytes"],
                decode_tokens_per_second=figures["decode_tokens_per_second"], ttft_ms=figures["ttft_ms"],
                reached=figures["peak_process_bytes"] is not None and figures["peak_process_bytes"] <= limit)

    def loading(self):
        with tempfile.TemporaryDirectory() as scratch:
            model = pathlib.Path(scratch) / "qwen3-8b"
            start = time.time()
            subprocess.run([self.build / "sluice", "synthesize", "qwen3-8b", "--to", model], check=True)
            written = time.time() - start
            weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
            start = time.time()
            process = subprocess.Popen([self.build / "sluice", "generate", "--model", model, "--device", "cuda",
                                        "--policy", "ring_prefetch", "--gpu-layer-budget", "1", "--prompt-ids", "1,2,3",
                                        "--max-new-tokens", "2", "--ignore-eos", "--json"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            peak = 0
            while process.poll() is None:
                peak = max(peak, anonymous_bytes(process.pid))
                time.sleep(0.01)
            say(what="loading", model="qwen3-8b", exit_code=process.returncode, seconds=round(time.time() - start, 1),
                writing_seconds=round(written, 1), weights=weights, peak_anonymous_bytes=peak, limit=weights + GIB,
                reached=process.returncode == 0 and 0 < peak <= weights + GIB)


def anonymous_bytes(pid):
    """Memory of a process that no file backs, registered memory among it."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))


def main():
    parts = ("budget", "policies", "resident", "auto", "loading")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", default=None, help="where records go; default: a temporary directory")
    parser.add_argument("--parts", default=",".join(parts))
    arguments = parser.parse_args()
    chosen = arguments.parts.split(",")
    for part in chosen:
        if part not in parts:
            parser.error(f"no part {part}: there are {', '.join(parts)}")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arguments.build, arguments.out or scratch)
        for part in chosen:
            start = time.time()
            getattr(bench, part)()
            say(what="part", name=part, seconds=round(time.time() - start, 1))


if __name__ == "__main__":
    sys.exit(main())
