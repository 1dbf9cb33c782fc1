#!/usr/bin/env python3
"""Makes the small models of tests/data/hf_extra and the RoPE tables beside them, with the right answers of
Hugging Face transformers. Needs what no other script here does:

    pip install torch transformers        (made with torch 2.15, transformers 5.24)
    scripts/make_fixtures.py [--to tests/data/hf_extra]

Each model directory holds a checkpoint and golden.json: per prompt 24 greedy tokens in float32 and in the model's
own type, the margin between the two best logits at each, and the first logits in float32; of a model with experts
also those that each of its routers chose in the model's own type, of the prompt and all tokens but the last.

    scripts/make_fixtures.py --routing tests/data/hf/qwen3moe-tiny ...   (made with torch 2.15, transformers 5.17)

writes what the routers chose beside a golden.json that has only tokens: routing_native.json, a list like that of
its cases. Tokens are fed, and each clear choice must be that of golden.json.
"""
import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # noqa: E402

NEW_TOKENS = 24
PROMPT_LENGTHS = (1, 5, 63, 64, 65, 300)

# Shapes that the checkpoints of tests/data/hf do not have.
MODELS = {
    # As many key heads as query heads, biases everywhere, an odd vocabulary.
    "llama-mha-biases": (LlamaConfig, torch.bfloat16, dict(
        hidden_size=48, intermediate_size=90, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3,
        head_dim=16, vocab_size=257, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        rms_norm_eps=1e-5, max_position_embeddings=512,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    # One key head, heads wider than hidden / heads, positions stretched linearly.
    "llama-mqa-linear": (LlamaConfig, torch.bfloat16, dict(
        hidden_size=42, intermediate_size=72, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1,
        head_dim=24, vocab_size=301, attention_bias=False, mlp_bias=False, tie_word_embeddings=True,
        rms_norm_eps=1e-6, max_position_embeddings=512,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    # float16, untied, YaRN with everything that it can say.
    "qwen2-f16-yarn": (Qwen2Config, torch.float16, dict(
        hidden_size=72, intermediate_size=56, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        vocab_size=199, tie_word_embeddings=False, rms_norm_eps=1e-6, max_position_embeddings=512,
        rope_parameters=dict(rope_type="yarn", rope_theta=1000000.0, factor=8.0, beta_fast=24.0, beta_slow=2.0,
                             truncate=False, attention_factor=1.1, original_max_position_embeddings=64))),
    # One layer, tied, biases in the attention, many heads of few elements.
    "qwen3-one-layer": (Qwen3Config, torch.bfloat16, dict(
        hidden_size=60, intermediate_size=120, num_hidden_layers=1, num_attention_heads=10, num_key_value_heads=5,
        head_dim=8, vocab_size=211, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-6,
        max_position_embeddings=512, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    # Experts in every layer, an odd number of them, one chosen; float16, tied.
    "qwen3moe-f16-top1": (Qwen3MoeConfig, torch.float16, dict(
        hidden_size=48, intermediate_size=64, moe_intermediate_size=40, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, head_dim=16, vocab_size=233, num_experts=7, num_experts_per_tok=1,
        norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=True, rms_norm_eps=1e-6,
        max_position_embeddings=512, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    # A layer's experts in two tensors; experts in every other layer but one, most of them chosen.
    "qwen3moe-fused": (Qwen3MoeConfig, torch.bfloat16, dict(
        hidden_size=56, intermediate_size=72, moe_intermediate_size=24, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, vocab_size=251, num_experts=6, num_experts_per_tok=5,
        norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[1], tie_word_embeddings=False,
        rms_norm_eps=1e-5, max_position_embeddings=512,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
}
# Their experts are rounded at each sum, as config.json's model class has it; the others' kernels round less.
EXPERTS = dict(experts_implementation="eager")
FUSED = {"qwen3moe-fused"}

ROPES = {
    "default": dict(rope_type="default", rope_theta=1000000.0),
    "linear": dict(rope_type="linear", rope_theta=10000.0, factor=3.0),
    "yarn": dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768),
    "yarn-all": dict(rope_type="yarn", rope_theta=10000.0, factor=2.5, original_max_position_embeddings=1000,
                     beta_fast=20.0, beta_slow=1.5, truncate=False, attention_factor=1.25),
    "llama3": dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=8192),
}
ROPE_HEAD_DIM = 64
ROPE_POSITIONS = (0, 1, 2, 63, 1000, 8191, 40959)


def randomise(model, generator):
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.data = (1 + 0.1 * noise).to(parameter.dtype)
        elif parameter.dim() == 1:
            parameter.data = (0.2 * noise).to(parameter.dtype)
        else:
            parameter.data = (1.2 * noise / parameter.shape[-1] ** 0.5).to(parameter.dtype)


@torch.no_grad()
def greedy(model, prompt):
    """Tokens, margins between the two best logits, and the first logits."""
    tokens, margins, first = [], [], None
    cache, ids = None, torch.tensor([prompt])
    for _ in range(NEW_TOKENS):
        out = model(ids, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits = out.logits[0, -1].float()
        first = logits if first is None else first
        best = logits.topk(2).values
        margins.append(round((best[0] - best[1]).item(), 5))
        tokens.append(int(logits.argmax()))  # ties to the lower id
        ids = torch.tensor([[tokens[-1]]])
    return tokens, margins, [round(x, 6) for x in first.tolist()]


class Routing:
    """What each router of a model chooses, token by token, ids ascending."""

    def __init__(self, model):
        routers = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
        self.chosen = [[] for _ in routers]
        for layer, router in enumerate(routers):
            router.register_forward_hook(lambda module, given, out, layer=layer: self.add(layer, out[2]))

    def add(self, layer, ids):
        self.chosen[layer].extend(ids.sort(-1).values.flatten().tolist())

    def take(self):
        taken, self.chosen = self.chosen, [[] for _ in self.chosen]
        return taken


def make_model(name, directory):
    config_class, dtype, keys = MODELS[name]
    generator = torch.Generator().manual_seed(sum(name.encode()))
    config = config_class(**keys, dtype=dtype, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model_class = getattr(transformers, config_class.__name__.replace("Config", "ForCausalLM"))
    model = model_class(config).to(dtype).eval()
    randomise(model, generator)
    model.save_pretrained(directory)
    if name in FUSED:
        save_file({key: value.contiguous() for key, value in model.state_dict().items()},
                  directory / "model.safetensors", metadata={"format": "pt"})
    how = EXPERTS if config_class is Qwen3MoeConfig else {}
    exact = model_class.from_pretrained(directory, dtype=torch.float32, **how).eval()
    native = model_class.from_pretrained(directory, dtype=dtype, **how).eval()
    routing = Routing(native)
    cases = []
    for length in PROMPT_LENGTHS:
        prompt = torch.randint(0, config.vocab_size, (length,), generator=generator).tolist()
        tokens, margins, first = greedy(exact, prompt)
        native_tokens, native_margins, _ = greedy(native, prompt)
        cases.append(dict(prompt=prompt, greedy_fp32=tokens, margin_fp32=margins, greedy_native=native_tokens,
                          margin_native=native_margins, first_logits_fp32=first))
        if routing.chosen:
            cases[-1]["routing_native"] = routing.take()
    golden = dict(model=name, dtype=str(dtype), transformers=transformers.__version__, cases=cases)
    (directory / "golden.json").write_text(json.dumps(golden) + "\n")


@torch.no_grad()
def route_golden(directory):
    golden = json.loads((directory / "golden.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, golden["dtype"].split(".")[1])).eval()
    routing, out = Routing(model), []
    for case in golden["cases"]:
        clear = 0.02 * max(map(abs, case["first_logits_fp32"]))
        cache, ids = None, case["prompt"]
        for token, margin in zip(case["greedy_native"], case["margin_native"]):
            done = model(torch.tensor([ids]), past_key_values=cache, use_cache=True)
            cache, ids = done.past_key_values, [token]
            if margin >= clear and int(done.logits[0, -1].argmax()) != token:
                raise SystemExit(f"{directory}: this is not the reference of its golden.json")
        out.append(routing.take())
    (directory / "routing_native.json").write_text(json.dumps(out) + "\n")


def make_ropes(file):
    out = []
    for name, parameters in ROPES.items():
        config = LlamaConfig(hidden_size=ROPE_HEAD_DIM, num_attention_heads=1, head_dim=ROPE_HEAD_DIM,
                             max_position_embeddings=40960, rope_parameters=dict(parameters))
        rope = LlamaRotaryEmbedding(config)
        cos, sin = rope(torch.zeros(1), torch.tensor([ROPE_POSITIONS]))
        half = ROPE_HEAD_DIM // 2
        out.append(dict(name=name, parameters=parameters, head_dim=ROPE_HEAD_DIM,
                        attention_factor=float(rope.attention_scaling), inv_freq=rope.inv_freq.tolist(),
                        positions=ROPE_POSITIONS, cos=cos[0, :, :half].tolist(), sin=sin[0, :, :half].tolist()))
    file.write_text(json.dumps(dict(transformers=transformers.__version__, ropes=out)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--to", type=Path, default=here / "tests" / "data" / "hf_extra")
    parser.add_argument("--only", nargs="*", choices=sorted(MODELS), help="these models, and no tables")
    parser.add_argument("--routing", nargs="+", type=Path, metavar="DIR", help="of these checkpoints, and nothing else")
    arguments = parser.parse_args()
    if arguments.routing:
        for directory in arguments.routing:
            route_golden(directory)
        return
    to = arguments.to
    torch.manual_seed(0)
    for name in arguments.only or MODELS:
        (to / name).mkdir(parents=True, exist_ok=True)
        make_model(name, to / name)
    if not arguments.only:
        make_ropes(to / "rope.json")


if __name__ == "__main__":
    main()
