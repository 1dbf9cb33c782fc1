#!/usr/bin/env python3
"""The reference: what Hugging Face transformers makes of a model, and whether Sluice agrees.

  hf_reference.py make MODEL --prompts FILE [--to golden.json] [--device cuda] [--max-new-tokens 24]
  hf_reference.py check MODEL golden.json --sluice build/release/sluice [-- OPTIONS OF sluice generate]
  hf_reference.py time MODEL [--prompt-tokens 512] [--max-new-tokens 16] [--offload] [--empty-weights]

`make` runs every prompt greedily in float32 and in the model's own type and writes tokens, the margins between the
two best logits, and the first logits, in the form of tests/data/hf/*/golden.json. FILE is such a golden.json, whose
prompts are taken, or a YAML or JSON list of texts, {text: ..} and {ids: [..]}, as an experiment's prompts are.

`check` generates the same with Sluice. In float32 all tokens must be the reference's, and the first logits within
1e-4 of the largest; in the model's own type, with the reference's tokens fed, each choice must be the reference's
where its margin is at least 2 % of the largest first logit. The last line is one JSON object; exit code 1: no.

`time` prints one JSON object: prefill and decode of one random prompt, everything on the device or, with --offload,
through accelerate's cpu_offload over pinned memory. --empty-weights reads config.json alone: random bits, for speed only.

Needs torch and transformers, accelerate for --offload, PyYAML for YAML; `check` needs none of them.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time


def read_prompts(path):
    """A list of {"ids": [..]} and {"text": ..}."""
    text = pathlib.Path(path).read_text()
    if str(path).endswith(".json"):
        data = json.loads(text)
    else:
        import yaml
        data = yaml.safe_load(text)
    if isinstance(data, dict) and "cases" in data:
        return [{"ids": case["prompt"]} for case in data["cases"]]
    if isinstance(data, dict):
        data = data["prompts"]
    prompts = [{"text": one} if isinstance(one, str) else one for one in data]
    for i, prompt in enumerate(prompts):
        if not isinstance(prompt, dict) or not ("ids" in prompt or "text" in prompt):
            raise SystemExit(f"{path}: prompt {i + 1} is neither a text nor {{ids: [..]}}: {prompt}")
    return prompts


def golden_of(name, dtype, versions, prompts, exact, native):
    """The file's content. `exact` and `native` have (tokens, margins, first logits) of each prompt."""
    cases = []
    for ids, (tokens, margins, first), (native_tokens, native_margins, _) in zip(prompts, exact, native):
        cases.append(dict(prompt=ids, greedy_fp32=tokens, margin_fp32=margins, greedy_native=native_tokens,
                          margin_native=native_margins, first_logits_fp32=first))
    return dict(model=name, dtype=dtype, **versions, cases=cases)


class Reference:
    """A model in one type on one device."""

    def __init__(self, directory, dtype, device, offload=False, empty_weights=False):
        import torch
        import transformers
        self.torch = torch
        torch.backends.cuda.matmul.allow_tf32 = False
        self.device = torch.device(device)
        if empty_weights:
            config = transformers.AutoConfig.from_pretrained(directory)
            dtype = config.dtype if dtype == "auto" else dtype
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
            model = model.to_empty(device="cpu" if offload else self.device)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(0.01)
            # Tables that are computed, not loaded.
            model.model.rotary_emb = type(model.model.rotary_emb)(config).to("cpu" if offload else self.device)
            model.tie_weights()
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
            model = model if offload else model.to(self.device)
        self.model = model.eval()
        if offload:
            import accelerate
            for parameter in self.model.parameters():
                parameter.data = parameter.data.pin_memory()
            accelerate.cpu_offload(self.model, execution_device=self.device)

    def forward(self, ids, cache):
        torch = self.torch
        with torch.no_grad():
            out = self.model(torch.tensor([ids], device=self.device), past_key_values=cache, use_cache=True,
                             logits_to_keep=1)
        return out.logits[0, -1], out.past_key_values

    def greedy(self, prompt, count):
        tokens, margins, first = [], [], None
        logits, cache = self.forward(prompt, None)
        while True:
            logits = logits.float()
            first = [round(x, 6) for x in logits.tolist()] if first is None else first
            best = logits.topk(2).values
            margins.append(round((best[0] - best[1]).item(), 5))
            tokens.append(int(logits.argmax()))  # ties to the lower id
            if len(tokens) == count:
                return tokens, margins, first
            logits, cache = self.forward(tokens[-1:], cache)

    def time(self, prompt, count):
        """Seconds of the prefill and of each further token."""
        def passed(since):
            if self.device.type == "cuda":
                self.torch.cuda.synchronize()
            return time.perf_counter() - since
        passed(0)
        start = time.perf_counter()
        logits, cache = self.forward(prompt, None)
        token = int(logits.argmax())
        prefill = passed(start)
        start = time.perf_counter()
        for _ in range(count):
            logits, cache = self.forward([token], cache)
            token = int(logits.argmax())
        return prefill, passed(start) / count


def make(arguments):
    import torch
    import transformers
    prompts = read_prompts(arguments.prompts)
    if any("ids" not in prompt for prompt in prompts):
        tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    ids = [prompt["ids"] if "ids" in prompt else tokenizer(prompt["text"])["input_ids"] for prompt in prompts]
    config = transformers.AutoConfig.from_pretrained(arguments.model)

    def answers(dtype):
        reference = Reference(arguments.model, dtype, arguments.device)
        return [reference.greedy(prompt, arguments.max_new_tokens) for prompt in ids]

    exact = answers(torch.float32)
    native = exact if config.dtype == torch.float32 else answers(config.dtype)
    versions = dict(transformers=transformers.__version__, torch=torch.__version__)
    golden = golden_of(pathlib.Path(arguments.model).name, str(config.dtype), versions, ids, exact, native)
    pathlib.Path(arguments.to).write_text(json.dumps(golden) + "\n")
    print(f"{arguments.to}: {len(ids)} prompts, {arguments.max_new_tokens} tokens each")


def compare(case, exact, native):
    """What is wrong with Sluice's answers to a case, and how many positions were clear enough to compare."""
    problems = []
    largest = max(abs(x) for x in case["first_logits_fp32"])
    if exact["tokens"] != case["greedy_fp32"]:
        at = next(i for i, (a, b) in enumerate(zip(exact["tokens"] + [None], case["greedy_fp32"] + [None])) if a != b)
        problems.append(f"float32: token {at} differs, where the margin is {case['margin_fp32'][at]:.5f}"
                        if at < len(case.get("margin_fp32", [])) else f"float32: token {at} differs")
    worst = max(abs(a - b) for a, b in zip(exact["first_logits"], case["first_logits_fp32"])) / largest
    if len(exact["first_logits"]) != len(case["first_logits_fp32"]) or not worst < 1e-4:
        problems.append(f"float32: first logits differ by {worst:.1e} of the largest")
    compared = 0
    for at, (token, expected) in enumerate(zip(native["tokens"], case["greedy_native"])):
        if case["margin_native"][at] < 0.02 * largest:
            continue
        compared += 1
        if token != expected:
            problems.append(f"native: token {at} is {token}, not {expected}, "
                            f"with a margin of {case['margin_native'][at]:.5f}")
    return problems, compared, worst


def check(arguments):
    golden = json.loads(pathlib.Path(arguments.golden).read_text())
    cases = golden["cases"][:arguments.limit]

    def generate(case, *options):
        count = len(case["greedy_fp32"])
        command = [arguments.sluice, "generate", "--model", arguments.model, "--prompt-ids",
                   ",".join(map(str, case["prompt"])), "--max-new-tokens", str(count), "--greedy", "--ignore-eos",
                   "--json", *options, *arguments.options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"failed: {' '.join(command)}")
        return json.loads(done.stdout)

    failed, compared, worst = 0, 0, 0.0
    for i, case in enumerate(cases):
        exact = generate(case, "--dtype", "f32", "--first-logits")
        native = generate(case, "--force-ids", ",".join(map(str, case["greedy_native"])))
        problems, clear, error = compare(case, exact, native)
        compared += clear
        worst = max(worst, error)
        failed += bool(problems)
        for problem in problems:
            print(f"case {i}: {problem}")
    print(json.dumps(dict(what="reference", model=golden["model"], cases=len(cases), failed=failed,
                          native_positions_compared=compared, worst_first_logit=worst)))
    return 1 if failed else 0


def time_model(arguments):
    import torch
    torch.manual_seed(1)
    reference = Reference(arguments.model, arguments.dtype, arguments.device, arguments.offload,
                          arguments.empty_weights)
    vocab = reference.model.config.vocab_size
    prompt = torch.randint(0, vocab, (arguments.prompt_tokens,)).tolist()
    reference.time(prompt, 1)
    prefill, token = reference.time(prompt, arguments.max_new_tokens)
    peak = torch.cuda.max_memory_allocated() if reference.device.type == "cuda" else None
    print(json.dumps(dict(what="transformers", model=pathlib.Path(arguments.model).name, offload=arguments.offload,
                          prompt_tokens=arguments.prompt_tokens, prefill_ms=prefill * 1e3,
                          decode_tokens_per_second=1 / token, peak_device_bytes=peak)))
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("make")
    one.add_argument("model")
    one.add_argument("--prompts", required=True)
    one.add_argument("--to", default="golden.json")
    one.add_argument("--device", default="cuda")
    one.add_argument("--max-new-tokens", type=int, default=24)
    two = commands.add_parser("check")
    two.add_argument("model")
    two.add_argument("golden")
    two.add_argument("--sluice", required=True)
    two.add_argument("--limit", type=int, help="cases at most")
    three = commands.add_parser("time")
    three.add_argument("model")
    three.add_argument("--device", default="cuda")
    three.add_argument("--dtype", default="auto")
    three.add_argument("--prompt-tokens", type=int, default=512)
    three.add_argument("--max-new-tokens", type=int, default=16)
    three.add_argument("--offload", action="store_true")
    three.add_argument("--empty-weights", action="store_true")
    options = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1:]
    parsed = parser.parse_args(arguments)
    if options and parsed.command != "check":
        parser.error("options behind -- are for check alone")
    parsed.options = options
    return parsed


def main():
    arguments = parse(sys.argv[1:])
    return {"make": make, "check": check, "time": time_model}[arguments.command](arguments)


if __name__ == "__main__":
    sys.exit(main())
