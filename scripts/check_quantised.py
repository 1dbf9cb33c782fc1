#!/usr/bin/env python3
"""Quantises a checkpoint's matrices with numpy and compares codes, scales and checksums with the copies beside it
that `sluice quantize` wrote. Every bit must be the same. Of a copy that was calibrated with a text only the checksums
are compared.

    check_quantised.py MODEL        the directory, with sluice-int8.safetensors or sluice-int4.safetensors or both

Needs numpy (scripts/requirements.txt). Exit codes: 0 all equal, 1 something differs, 2 the input is wrong.
"""
import json
import sys
from pathlib import Path

import numpy as np

GROUP = 128
NIBBLE_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
ROW_ALIGNMENT = 16
CHECKSUM_ROWS = 16
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1", "U64": "<u8"}


class Refused(Exception):
    pass


class Safetensors:
    """One file; tensors are read when asked for."""

    def __init__(self, path):
        self.path = path
        self.data = np.memmap(path, dtype=np.uint8, mode="r")
        length = int(self.data[:8].view("<u8")[0])
        self.header = json.loads(bytes(self.data[8:8 + length]))
        self.metadata = self.header.pop("__metadata__", {})
        self.begin = 8 + length

    def stored(self, name):
        entry = self.header[name]
        first, last = entry["data_offsets"]
        raw = np.array(self.data[self.begin + first:self.begin + last])
        return raw.view(TYPES[entry["dtype"]]).reshape(entry["shape"]), entry["dtype"]

    def values(self, name):
        stored, dtype = self.stored(name)
        if dtype == "BF16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(np.float32)


def checkpoint_files(model):
    single = model / "model.safetensors"
    if single.exists():
        return [single]
    index = model / "model.safetensors.index.json"
    if not index.exists():
        raise Refused(f"{model}: has neither {single.name} nor {index.name}")
    return sorted({model / shard for shard in json.loads(index.read_text())["weight_map"].values()})


def padded(codes):
    """Bytes of each row, with zeros up to a multiple of ROW_ALIGNMENT."""
    return np.pad(codes, ((0, 0), (0, -codes.shape[1] % ROW_ALIGNMENT)))


def int8(values):
    scales = np.abs(values).max(axis=1) / np.float32(127)
    divisors = np.where(scales == 0, np.float32(1), scales)
    codes = np.clip(np.rint(values / divisors[:, None]), -127, 127).astype(np.int8)
    return padded(codes.view(np.uint8)), scales


def quantise_group(group):
    """Codes, scales and zero points of a group of each row."""
    zero = np.float32(0)
    low, high = np.minimum(group.min(axis=1), zero), np.maximum(group.max(axis=1), zero)
    scale = ((high - low) / np.float32(15)).astype(np.float16).astype(np.float32)
    scale = np.where(scale > 0, scale, np.float32(1))
    zeros = np.clip(np.rint(-low / scale), 0, 15)
    codes = np.clip(np.rint(group / scale[:, None]) + zeros[:, None], 0, 15)
    return codes.astype(np.uint8), scale, zeros


def int4(values):
    rows, k = values.shape
    codes = np.zeros((rows, (k + 7) // 8 * 8), np.uint8)
    scales = np.empty((rows, (k + GROUP - 1) // GROUP, 2), np.float16)
    for g, first in enumerate(range(0, k, GROUP)):
        last = min(first + GROUP, k)
        codes[:, first:last], scales[:, g, 0], scales[:, g, 1] = quantise_group(values[:, first:last])
    nibbles = codes.reshape(rows, -1, 8)[:, :, NIBBLE_ORDER]
    packed = nibbles[:, :, 0::2] | nibbles[:, :, 1::2] << 4
    return padded(packed.reshape(rows, -1)), scales


def mix(x):
    """The finaliser of SplitMix64."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def hash_bytes(data, start):
    """Of each row of bytes, eight at a time."""
    hashes = mix(start + GOLDEN + np.uint64(data.shape[1]))
    words = np.ascontiguousarray(np.pad(data, ((0, 0), (0, -data.shape[1] % 8)))).view("<u8")
    for i in range(words.shape[1]):
        hashes = mix(hashes ^ words[:, i]) + GOLDEN
    return hashes


def hash_bulk(data, start):
    """Of each row of bytes, four words at a time."""
    whole = data.shape[1] // 32 * 32
    words = np.ascontiguousarray(data[:, :whole]).view("<u8").reshape(len(data), -1, 4)
    chains = np.zeros((len(data), 4), np.uint64)
    for i in range(words.shape[1]):
        chains = mix(chains ^ words[:, i]) + GOLDEN
    return hash_bytes(data[:, whole:], hash_bytes(chains.view(np.uint8), start))


def checksums(codes, scales):
    """Of each CHECKSUM_ROWS rows of codes and then their scales."""
    scales = np.ascontiguousarray(scales).view(np.uint8).reshape(len(codes), -1)
    whole = len(codes) // CHECKSUM_ROWS * CHECKSUM_ROWS
    out = []
    for first, last, rows in ((0, whole, CHECKSUM_ROWS), (whole, len(codes), len(codes) - whole)):
        if last == first:
            continue
        blocks = (last - first) // rows
        start = hash_bulk(codes[first:last].reshape(blocks, -1), np.zeros(blocks, np.uint64))
        out.append(hash_bulk(scales[first:last].reshape(blocks, -1), start))
    return np.concatenate(out)


QUANTISERS = {"int8": int8, "int4": int4}


def same(ours, theirs):
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


def is_calibrated(copy):
    return "sluice_calibration" in copy.metadata


def check(copy, sources):
    """Returns the names of the tensors that differ, and how many matrices there are."""
    encoding = copy.metadata["sluice_encoding"]
    matrices = [name[:-len(".codes")] for name in copy.header if name.endswith(".codes")]
    wrong = []
    for matrix in matrices:
        source = next((file for file in sources if matrix in file.header), None)
        if source is None:
            raise Refused(f"{copy.path}: has {matrix}, which the checkpoint has not")
        if is_calibrated(copy):
            codes, scales = copy.stored(matrix + ".codes")[0], copy.stored(matrix + ".scales")[0]
        else:
            codes, scales = QUANTISERS[encoding](source.values(matrix))
        for ours, part in ((codes, ".codes"), (scales, ".scales"), (checksums(codes, scales), ".checksums")):
            if not same(ours, copy.stored(matrix + part)[0]):
                wrong.append(matrix + part)
    return wrong, len(matrices)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    model = Path(sys.argv[1])
    try:
        sources = [Safetensors(path) for path in checkpoint_files(model)]
        copies = [path for path in (model / f"sluice-{name}.safetensors" for name in QUANTISERS) if path.exists()]
        if not copies:
            raise Refused(f"{model}: has no quantised copy; `sluice quantize {model} --to int8` writes one")
        failed = False
        for path in copies:
            copy = Safetensors(path)
            wrong, matrices = check(copy, sources)
            failed |= bool(wrong) or matrices == 0
            equal = "calibrated, all checksums equal" if is_calibrated(copy) else "all equal"
            print(f"{path.name}: {matrices} matrices, " +
                  (f"{len(wrong)} tensors differ: {', '.join(wrong[:3])}" if wrong else equal))
        return 1 if failed else 0
    except (Refused, OSError) as error:
        print(f"check_quantised.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
