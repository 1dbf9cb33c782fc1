#!/usr/bin/env python3
"""Checks which folder includes which, and which file may see which library.

  check_arrows.py [ROOT]        prints each include that goes against an arrow; exit code 1 if there is one
  check_arrows.py --self-test   plants includes of every forbidden kind in a scratch tree and sees each one caught
"""

import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".hpp", ".cpp", ".h", ".cu", ".cuh"}
FOLDERS = ("core", "models", "harness", "strategies", "tests")

# What the files of a part may include of the project: the first part that a path begins with is the one it is in.
# "sluice/" stands for the SDK, whose include root is core/sdk.
ARROWS = {
    "core/sdk/": ("sluice/",),
    "core/device/": ("core/device/", "sluice/", "core/*"),
    "core/": ("core/", "sluice/"),
    "strategies/": ("sluice/",),
    "models/": ("models/", "core/", "sluice/"),
    "harness/": ("harness/", "models/", "core/", "sluice/"),
    "tests/": ("tests/", "harness/", "models/", "core/", "sluice/"),
}
PLAIN_ONLY = ("core/sdk/", "strategies/")  # of what lies outside the project, only the standard library

CUDA = re.compile(r"^(cuda|cublas|cub/|thrust/|nv|cooperative_groups|device_launch_parameters|driver_types|vector_types)")


def may_see_cuda(path):
    return path.endswith((".cu", ".cuh")) or pathlib.PurePosixPath(path).name.startswith("cuda_")


LIBRARIES = (
    (CUDA, may_see_cuda, "CUDA headers belong in *.cu and cuda_* files"),
    (re.compile(r"^boost/dll"), lambda path: path == "core/plugin/loader.cpp",
     "Boost.DLL belongs in core/plugin/loader.cpp"),
    (re.compile(r"^yaml-cpp/"), lambda path: path.startswith("harness/"), "yaml-cpp belongs in harness/"),
)


def allows(pattern, target):
    if pattern.endswith("/*"):
        return target.startswith(pattern[:-1]) and "/" not in target[len(pattern) - 1:]
    return target.startswith(pattern)


def complaint(root, path, quote, target):
    """Why `path` may not include `target`; None if it may."""
    for library, allowed, reason in LIBRARIES:
        if library.match(target) and not allowed(path):
            return reason
    part = next(part for part in ARROWS if path.startswith(part))
    if quote == "<":
        if (root / target).is_file() or (root / "core/sdk" / target).is_file():
            return "a header of the project is included in quotes"
        if part in PLAIN_ONLY and not re.fullmatch(r"[a-z_0-9]+", target):
            return f"{part} sees only the SDK and the standard library"
        return None
    if not any(allows(pattern, target) for pattern in ARROWS[part]):
        return f"{part} may include only {', '.join(ARROWS[part])}"
    place = root / "core/sdk" / target if target.startswith("sluice/") else root / target
    if not place.is_file():
        return "no such file (includes are written from the root of the repository)"
    return None


def check(root):
    problems = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                found = INCLUDE.match(line)
                if found and (reason := complaint(root, path, *found.groups())):
                    problems.append(f"{path}:{number}: {line.strip()}: {reason}")
    return problems


FORBIDDEN = (
    ("core/sdk/sluice/a.hpp", '"core/error.hpp"'),
    ("core/sdk/sluice/a.hpp", "<fmt/format.h>"),
    ("core/device/a.hpp", '"core/engine/x.hpp"'),
    ("core/device/a.cpp", '"core/weights/x.hpp"'),
    ("core/engine/a.cpp", '"models/x.hpp"'),
    ("core/weights/a.cpp", '"harness/x.hpp"'),
    ("core/a.hpp", '"strategies/x.hpp"'),
    ("core/engine/a.cpp", "<cuda_runtime.h>"),
    ("models/ops/a.cpp", "<cublasLt.h>"),
    ("models/a.cpp", '"harness/x.hpp"'),
    ("models/a.cpp", "<yaml-cpp/yaml.h>"),
    ("strategies/a.cpp", '"core/engine/x.hpp"'),
    ("strategies/a.cpp", '"core/error.hpp"'),
    ("strategies/template/a.cpp", "<boost/config.hpp>"),
    ("harness/a.cpp", "<boost/dll/shared_library.hpp>"),
    ("harness/a.cpp", '"tests/x.hpp"'),
    ("harness/a.cpp", "<nvml.h>"),
    ("tests/a.cpp", "<yaml-cpp/yaml.h>"),
    ("tests/a.cpp", '"../core/error.hpp"'),
    ("tests/a.cpp", '"core/missing.hpp"'),
    ("tests/a.cpp", "<core/error.hpp>"),
)
ALLOWED = (
    ("core/sdk/sluice/a.hpp", '"sluice/x.hpp"'),
    ("core/device/cuda_a.hpp", "<cuda_runtime.h>"),
    ("core/device/a.cpp", '"core/error.hpp"'),
    ("core/plugin/loader.cpp", "<boost/dll/shared_library.hpp>"),
    ("models/ops/a.cu", "<cublasLt.h>"),
    ("strategies/a.cpp", "<vector>"),
    ("strategies/a.cpp", '"sluice/x.hpp"'),
    ("harness/a.cpp", "<yaml-cpp/yaml.h>"),
    ("harness/a.cpp", '"models/x.hpp"'),
    ("tests/a.cpp", '"harness/x.hpp"'),
)


def self_test():
    wrong = []
    for path, target, expected in [(*f, 1) for f in FORBIDDEN] + [(*a, 0) for a in ALLOWED]:
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            for name in ("core/error.hpp", "core/engine/x.hpp", "core/weights/x.hpp", "core/sdk/sluice/x.hpp",
                         "models/x.hpp", "harness/x.hpp", "strategies/x.hpp", "tests/x.hpp"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"#include {target}\n")
            if len(check(root)) != expected:
                wrong.append(f"{path} with #include {target}: {'not caught' if expected else 'refused'}")
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        problems, done = self_test(), f"{len(FORBIDDEN)} forbidden includes caught, {len(ALLOWED)} others passed"
    else:
        root = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).resolve().parent.parent
        problems, done = check(root), "all includes follow the arrows"
    print("\n".join(problems) or done)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
