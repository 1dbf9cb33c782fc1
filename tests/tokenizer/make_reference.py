#!/usr/bin/env python3
"""Makes the answers in tests/data/tokenizer with the reference: `tokenizers` and `jinja2` (pip install them).

  make_reference.py DATA    where DATA is tests/data/tokenizer

Writes, each from a fixed seed:
  qwen3_more.json   texts (as hex), ids and decodings of the Qwen3 tokenizer
  variants.json     a small tokenizer, what other families have in its place, and the answers of each
  unicode.json      digests over all code points of what the classes and normal forms of the reference are
  chats.json        chat templates, conversations and what they render to (null where the template fails)
  calls.json        calls of filters and methods with every argument they take, and one more (null where they fail)
"""
import copy
import json
import pathlib
import random
import sys
import tarfile
import tempfile

import jinja2
import jinja2.ext
import jinja2.sandbox
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
MARKS = [0x300, 0x301, 0x316, 0x327, 0x345, 0x334, 0x5B0, 0x94D, 0x3099, 0xFE0F, 0x200D, 0x1161, 0x11A8, 0x1100, 0xAC00,
         0x1AB0, 0x897, 0x113C9, 0x11930, 0x11935, 0x1611E, 0x16121, 0x1D165, 0xF71, 0xF72, 0x9C7, 0x9BE, 0x11127]
WORDS = ("the of and to in a is that The I'm you're WE'LL don't it'S '\u017f 'lL na\u00efve caf\u00e9 Z\u00fcrich "
         "\u041c\u043e\u0441\u043a\u0432\u0430 \u4f60\u597d \u4e16\u754c \u65e5\u672c\u8a9e \u30c6\u30ad\u30b9\u30c8 "
         "\ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea "
         "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \U0001f642 \U0001f469\u200d\U0001f469\u200d\U0001f467 "
         "\U0001f1e9\U0001f1ea e\u0301 A\u030a \ufb01 \u2460 \u00bd \u2167 def if(x): x+=1; /* */ <|im_start|> <|im_end|> "
         "<think> </think> <tool_call> <| <|im_ <L> <R> <LR> wrd xwrd \u00c5B \uff21\uff22 https://example.com/a?b=c "
         "3.14159 1,000,000 0x1F __init__ camelCase SHOUT").split(" ")
SPACES = [" ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n", "\u00a0", "\u3000", "\u0085", "\u180e", "\u200b",
          "\u2028", "\x0b", "\x1c", "", ""]


def code_point(rnd):
    kind = rnd.random()
    if kind < 0.15:
        return rnd.randrange(0x80)
    if kind < 0.25:
        return rnd.randrange(0x80, 0x800)
    if kind < 0.35:
        return rnd.choice(MARKS)
    if kind < 0.6:
        c = rnd.randrange(0x800, 0x10000)
    elif kind < 0.9:
        c = rnd.randrange(0x10000, 0x20000)
    else:
        c = rnd.randrange(0x20000, 0x110000)
    return 0x41 if 0xD800 <= c <= 0xDFFF else c


def random_bytes(rnd):
    kind, n = rnd.random(), rnd.choice([1, 2, 3, 5, 10, 20])
    if kind < 0.45:
        return "".join(rnd.choice(WORDS) + rnd.choice(SPACES) for _ in range(n)).encode()
    if kind < 0.65:
        return "".join(chr(code_point(rnd)) for _ in range(n)).encode()
    if kind < 0.8:
        parts = [lambda: rnd.choice(WORDS), lambda: rnd.choice(SPACES), lambda: chr(code_point(rnd))]
        return "".join(rnd.choice(parts)() for _ in range(n)).encode()
    if kind < 0.88:
        return bytes(rnd.randrange(256) for _ in range(n))
    broken = bytearray("".join(rnd.choice(WORDS) + rnd.choice(SPACES) for _ in range(n)).encode() + b" ")
    for _ in range(3):
        broken[rnd.randrange(len(broken))] = rnd.randrange(256)
    return bytes(broken)


def random_tokens(rnd):
    parts = ["<L>", "<R>", "<LR>", "wrd", "\u00e9", "e\u0301", "\uff21\uff22", "AB", "  ", " ", "\n", "\u00a0", "\u3000", "\u200b",
             "\u00f1", "<", "<|im_start|>", "a", "1", "_", "-", "\u0301", "\u200d", "\u24b6"]
    return "".join(rnd.choice(parts) for _ in range(rnd.randrange(1, 8))).encode()


def answers(tokenizer, rnd, count, make_bytes=random_bytes):
    cases = []
    for _ in range(count):
        data = make_bytes(rnd)
        special = rnd.random() < 0.5
        ids = tokenizer.encode(data.decode(errors="replace"), add_special_tokens=special).ids
        cases.append({"hex": data.hex(), "special": special, "ids": ids,
                      "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                      "without_special": tokenizer.decode(ids, skip_special_tokens=True)})
    return cases


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def added(id_, content, **flags):
    return {"id": id_, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + r"?|\p{N}{1,3}" + TAIL)
PUNCTUATION = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
               r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")


def small_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rnd = random.Random(7)
    text = ["".join(rnd.choice(WORDS) + rnd.choice(SPACES) for _ in range(50)) for _ in range(200)]
    trainer = trainers.BpeTrainer(vocab_size=560, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    file = json.loads(tokenizer.to_str())
    file["pre_tokenizer"], file["decoder"] = byte_level(), byte_level()
    return file


def variants(base):
    vocab = base["model"]["vocab"]
    n = len(vocab)
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [n], "tokens": ["<s>"]},
                                   "</s>": {"id": "</s>", "ids": [n + 1], "tokens": ["</s>"]}}}
    ends = [added(n, "<s>", special=True), added(n + 1, "</s>", special=True)]
    kinds = [("<L>", {"lstrip": True}), ("<R>", {"rstrip": True}), ("<LR>", {"lstrip": True, "rstrip": True, "special": True}),
             ("wrd", {"single_word": True}), ("\u00e9", {"normalized": True}), ("\uff21\uff22", {"normalized": True}),
             ("  ", {}), ("<L><R>", {"normalized": True}), ("\u0301", {"normalized": True}), ("\u00f1", {"special": True}),
             ("<", {"single_word": True, "normalized": True}), ("<|im_start|>", {"special": True})]
    tokens, free = [], n
    for content, flags in kinds:
        known = vocab.get(content)
        tokens.append(added(free if known is None else known, content, **flags))
        free += known is None
    missing = {c: i for i, c in enumerate(t for t in vocab if t not in ("\u0120", "\u00c3", "a", "1"))}
    merges = [m for m in base["model"]["merges"] if all(t in missing for t in (*m, "".join(m)))]
    yield "gpt2", {}
    yield "prefix_space", {"pre_tokenizer": byte_level(True)}
    yield "smollm2", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level())}
    yield "digits", {"normalizer": {"type": "NFKC"},
                     "pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, byte_level(True))}
    yield "llama3", {"pre_tokenizer": sequence(split(LLAMA3), byte_level(False, False)), "added_tokens": ends,
                     "post_processor": {"type": "Sequence", "processors": [byte_level(), template]},
                     "model": {"ignore_merges": True}}
    yield "cased", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]},
                    "pre_tokenizer": sequence(split(CASED), byte_level(False, False))}
    yield "punctuation", {"normalizer": {"type": "NFKD"},
                          "pre_tokenizer": sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                                                    split(PUNCTUATION), byte_level(False, False))}
    yield "added_tokens", {"normalizer": {"type": "NFKC"}, "added_tokens": tokens}
    yield "merges_as_strings", {"model": {"merges": [" ".join(m) for m in base["model"]["merges"]]}}
    lacking = {"vocab": missing, "merges": merges}
    yield "no_unknown", {"model": lacking}
    yield "unknown", {"model": {**lacking, "unk_token": "b"}}
    yield "fused_unknown", {"model": {**lacking, "unk_token": "b", "fuse_unk": True}}
    for behavior, invert, pattern in (("Removed", False, r"\s+"), ("Isolated", True, r"\p{L}+"), ("MergedWithPrevious", False, r"\s"),
                                      ("MergedWithNext", False, " "), ("Contiguous", False, r"\p{P}"),
                                      ("MergedWithNext", True, r"[^a-e\s]+"), ("MergedWithPrevious", True, r"\d"),
                                      ("Isolated", False, "x*"), ("Removed", True, "^.+$")):
        yield f"{behavior} {pattern} {invert}", {"pre_tokenizer": sequence(split(pattern, behavior, invert), byte_level())}
    yield "string pattern", {"pre_tokenizer": sequence(split("a.", "Isolated", False, "String"), byte_level(False, False))}


def patched(base, patch):
    file = copy.deepcopy(base)
    for key, value in patch.items():
        if key == "model":
            file["model"].update(value)
        else:
            file[key] = value
    return file


def fnv1a(digest, data):
    for byte in data:
        digest = ((digest ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return digest


def unicode_digests():
    digests = {}
    for name in ("L", "N", "M", "P", "S", "Z", "Lu", "Ll", "Nd"):
        digests["\\p{%s}" % name] = members(r"\p{%s}" % name)
    digests[r"\s"] = members(r"\s")
    digests[r"(?i:s)"] = members(r"(?i:s)")
    for name in ("NFC", "NFD", "NFKC", "NFKD"):
        form = getattr(normalizers, name)()
        digest = 0xCBF29CE484222325
        for first in range(0, len(CODE_POINTS), 64):
            text = "".join(" " + chr(c) + "\u0334\u0316a" + chr(c) for c in CODE_POINTS[first:first + 64])
            digest = fnv1a(digest, form.normalize_str(text).encode())
        digests[name] = f"{digest:016x}"
    return digests


def members(pattern):
    cut = pre_tokenizers.Split(Regex(pattern), "removed")
    ranges = []
    for first in range(0, len(CODE_POINTS), 4096):
        text = "".join(map(chr, CODE_POINTS[first:first + 4096]))
        kept = set("".join(piece for piece, _ in cut.pre_tokenize_str(text)))
        ranges += [ord(c) for c in text if c not in kept]
    digest = 0xCBF29CE484222325
    for c in ranges:
        digest = fnv1a(digest, chr(c).encode())
    return f"{digest:016x}"


def template_environment():
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                               extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


CHAT_WORDS = ["Hello", "<think>", "</think>", "\n", "\n\n", "<tool_response>", "</tool_response>", "a b", "\u4f60\u597d",
              "\U0001f642", "'quote'", '"dq"', "\\", "\t", " ", "<think>\nhm\n</think>\n\n", "\u00e9", "\u2028", "\x7f", "\x01"]


def chat_text(rnd):
    return "".join(rnd.choice(CHAT_WORDS) for _ in range(rnd.randrange(7)))


def chat_value(rnd, depth=0):
    kind = rnd.randrange(9 if depth < 2 else 6)
    return [lambda: rnd.randrange(-10**6, 10**6),
            lambda: rnd.choice([0.1, 1e22, 1e16, 1e-5, 123456789.123, -0.0, 1.0, 5e-324, 1 / 3, 1e15, 0.0001]),
            lambda: chat_text(rnd), lambda: rnd.choice([True, False, None]), lambda: rnd.choice([2**53, -2**63, 2**63 - 1]),
            lambda: "x", lambda: [chat_value(rnd, depth + 1) for _ in range(rnd.randrange(3))],
            lambda: {chat_text(rnd): chat_value(rnd, depth + 1) for _ in range(rnd.randrange(3))},
            lambda: {"z": 1, "a": chat_value(rnd, depth + 1)}][kind]()


def chat_message(rnd, index):
    role = rnd.choice(["user", "assistant", "assistant", "tool", "user", "system" if index == 0 else "tool"])
    message = {"role": role, "content": chat_text(rnd)}
    if role == "user" and rnd.random() < 0.2:
        message["content"] = "<tool_response>" + chat_text(rnd) + "</tool_response>"
    if role == "assistant":
        if rnd.random() < 0.3:
            message["reasoning_content"] = rnd.choice([chat_text(rnd), None, "\n\nr\n", ""])
        if rnd.random() < 0.4:
            message["tool_calls"] = []
            for _ in range(rnd.randrange(3)):
                call = {"name": "f", "arguments": rnd.choice([{"city": chat_text(rnd)}, '{"raw": 1}', chat_value(rnd)])}
                message["tool_calls"].append(rnd.choice([call, {"function": call}]))
            if rnd.random() < 0.2:
                message["content"] = None
    return message


def chats(qwen3_template, templates):
    rnd = random.Random(3)
    result = []
    for name, source in [("qwen3", None), *templates.items()]:
        template = template_environment().from_string(source or qwen3_template)
        cases = []
        for _ in range(60):
            case = {"messages": [chat_message(rnd, i) for i in range(rnd.randrange(1, 6))]}
            if rnd.random() < 0.3:
                case["tools"] = [{"type": "function", "function": {"name": "f", "parameters": chat_value(rnd)}}
                                 for _ in range(rnd.randrange(3))]
            if rnd.random() < 0.3:
                case["enable_thinking"] = rnd.random() < 0.5
            if rnd.random() < 0.3:
                case["add_generation_prompt"] = rnd.random() < 0.5
            variables = {"tools": None, "add_generation_prompt": True, **case, "bos_token": "<s>", "documents": None}
            try:
                case["text"] = template.render(**variables)
            except (jinja2.exceptions.TemplateError, TypeError):
                case["text"] = None
            cases.append(case)
        result.append({"name": name, "template": source, "cases": cases})
    return result


CALL_VARIABLES = {"t": "a-b-a-b", "w": " x  y ", "l": ["b", "a"], "m": {"b": 1, "a": [True, "\u00e9\x7f"]}, "n": 5,
                  "empty": "", "zero": 0}
# With the arguments of each: as many as there are, by place and by name, one too many, and one of no such name.
CALLS = [(kind, name, arguments) for kind, names, all_arguments in (
    ("n|", "string safe length", ["", "(1)", "(nothing=1)"]),
    ("t|", "upper lower list|tojson", ["", "(1)", "(nothing=1)"]),
    ("l|", "length count first last list|tojson", ["", "(5)", "(nothing=1)"]),
    ("m|", "items|list|tojson", ["", "(1)"]),
    ("t|", "trim", ["", "('a')", "(chars='ab')", "(none)", "('a', 'b')", "('a', chars='b')", "(nothing=1)"]),
    ("l|", "join", ["", "('-')", "(d='-')", "('-', d='+')", "('-', none, 1)", "(nothing=1)"]),
    ("t|", "replace", ["('a', 'c')", "('a', 'c', 1)", "(old='a', new='c', count=1)", "('a', 'c', none)", "('a', 'c', 0)",
                       "('a', 'c', -1)", "('a', 'c', true)", "('a', 'c', 'x')", "('a', 'c', 1, 2)", "('a', 'c', old='b')",
                       "('a', 'c', nothing=1)", "('a')"]),
    ("nope|", "default d", ["", "('x')", "(default_value='x')", "('x', true)", "('x', true, 1)", "(nothing=1)"]),
    ("empty|", "default d", ["('x')", "('x', true)", "('x', boolean=true)", "(boolean=true, default_value='x')"]),
    ("zero|", "default", ["('x', true)"]),
    ("m|", "tojson", ["", "(true)", "(ensure_ascii=true)", "(4)", "(false, 2)", "(indent=2)", "(indent=0)", "(indent=-1)",
                      "(indent=true)", "(indent='..')", "(indent=none)", "(separators=[',', ':'])", "(separators=none)",
                      "(indent=1, separators=[';', '='])", "(separators=[','])", "(separators=[1, 2])", "(sort_keys=true)",
                      "(false, none, none, true)", "(false, none, none, true, 1)", "(nothing=1)", "(false, ensure_ascii=true)"]),
    ("t.", "strip lstrip rstrip", ["()", "('a')", "('ab')", "(none)", "(chars='a')", "('a', 'b')", "(nothing=3)"]),
    ("w.", "strip lstrip rstrip split|tojson", ["()"]),
    ("t.", "split|tojson", ["()", "('-')", "('-', 1)", "(sep='-', maxsplit=2)", "('-', maxsplit=0)", "('-', -1)", "(none)",
                            "('-', none)", "('-', 1, 2)", "('-', sep='a')", "(nothing=1)"]),
    ("t.", "startswith endswith", ["('a')", "('b')", "(prefix='a')", "(suffix='b')", "('a', 0, 3, 4)", "()"]),
    ("t.", "upper lower", ["()", "(1)", "(nothing=1)"]),
    ("t.", "replace", ["('a', 'c')", "('a', 'c', 1)", "('a', 'c', -1)", "('a', 'c', 0)", "('a', 'c', true)", "('a', 'c', none)",
                       "(old='a', new='c')", "('a', 'c', 1, 2)", "('a', 'c', nothing=1)", "('a')"]),
    ("'-'.", "join", ["(l)", "(l, 1)", "([1])", "(iterable=l)", "()"]),
    ("t.", "find count", ["('b')", "('x')", "(sub='b')", "('b', 0, 1, 2)", "()"]),
    ("m.", "items|list|tojson keys|list|tojson values|list|tojson", ["()", "(1)", "(nothing=1)"]),
    ("m.", "get", ["('b')", "('x')", "('x', 7)", "(key='b')", "('x', default=7)", "('x', 7, 8)", "()"]),
    ("", "range|list|tojson", ["(3)", "(1, 3)", "(0, 6, 2)", "(3, 0, -1)", "(true)", "(1, 2, 3, 4)", "(stop=3)", "()"]),
) for name in names.split() for arguments in all_arguments]
# What jinja2 takes and the interpreter refuses.
UNSUPPORTED = ["l|join('-', none)", "l|join('-', attribute='x')", "w.split(none, 1)|tojson", "w.split(maxsplit=1)|tojson",
               "t.startswith('b', 2)", "t.startswith('a', 0, 3)", "t.endswith('b', 2)", "t.find('b', 2)", "t.count('a', 1)",
               "t.replace('', '.')", "t|replace('', '.')", "t.count('')"]


def calls():
    def answer(expression):
        try:
            return template_environment().from_string("{{ " + expression + " }}").render(**CALL_VARIABLES)
        except Exception:
            return None

    expressions = []
    for kind, name, arguments in CALLS:
        function, _, behind = name.partition("|")
        expressions.append(kind + function + arguments + ("|" + behind if behind else ""))
    return {"variables": CALL_VARIABLES, "calls": [{"call": e, "text": answer(e)} for e in expressions],
            "unsupported": [{"call": e, "text": answer(e)} for e in UNSUPPORTED]}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def main():
    data = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(data / "qwen3" / "tokenizer.tar.xz") as archive:
            archive.extract("tokenizer.json", scratch)
        qwen3 = Tokenizer.from_file(str(pathlib.Path(scratch) / "tokenizer.json"))
    write(data / "qwen3_more.json", answers(qwen3, random.Random(1), 300))
    base = small_tokenizer()
    tried = []
    for name, patch in variants(base):
        tokenizer = Tokenizer.from_str(json.dumps(patched(base, patch)))
        cases = answers(tokenizer, random.Random(name), 30)
        if name == "added_tokens":
            cases += answers(tokenizer, random.Random(5), 150, random_tokens)
        tried.append({"name": name, "patch": patch, "cases": cases})
    write(data / "variants.json", {"base": base, "variants": tried})
    write(data / "unicode.json", unicode_digests())
    qwen3_template = json.loads((data / "qwen3" / "tokenizer_config.json").read_text())["chat_template"]
    templates = {path.stem: path.read_text(encoding="utf-8") for path in sorted((data / "templates").glob("*.jinja"))}
    write(data / "chats.json", chats(qwen3_template, templates))
    write(data / "calls.json", calls())


if __name__ == "__main__":
    main()
