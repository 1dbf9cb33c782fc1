#!/usr/bin/env python3
"""Tests of what in scripts/ decides whether a result can be trusted.

  scripts_test.py Counting GetModel Reference    need nothing
  scripts_test.py Conversion           needs numpy: of this Python, or of the environment that get_model.py made
  scripts_test.py Quantised            the same, and the executable, in the environment's SLUICE
"""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))
import get_model  # noqa: E402
import hf_reference  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

PASSED = '<testcase name="a" status="run"/>'
FAILED = '<testcase name="b" status="fail"><failure message=""/></testcase>'
SKIPPED = ('<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
           "<system-out>Filters: c\nSKIPPED: no model\n</system-out></testcase>")
NOT_BUILT = '<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>'


class Counting(unittest.TestCase):
    def count(self, *suites, failed=0):
        """Returns the lines printed and the exit code for one JUnit file per suite."""
        with tempfile.TemporaryDirectory() as scratch:
            files = []
            for i, cases in enumerate(suites):
                files.append(pathlib.Path(scratch) / f"{i}.xml")
                files[-1].write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            done = subprocess.run([sys.executable, SCRIPTS / "count_tests.py", "--failed", str(failed), *files],
                                  stdout=subprocess.PIPE, text=True)
            return done.stdout.splitlines(), done.returncode

    def test_sums_over_files(self):
        lines, code = self.count([PASSED, PASSED, SKIPPED], [PASSED])
        self.assertEqual(lines, ["not run: c: no model", "3 passed, 0 failed, 1 skipped"])
        self.assertEqual(code, 0)

    def test_a_failure_fails(self):
        lines, code = self.count([PASSED, FAILED])
        self.assertEqual((lines[-1], code), ("1 passed, 1 failed, 0 skipped", 1))

    def test_what_was_not_built_has_failed(self):
        lines, code = self.count([PASSED, NOT_BUILT])
        self.assertEqual((lines[-1], code), ("1 passed, 1 failed, 0 skipped", 1))

    def test_a_broken_build_fails(self):
        lines, code = self.count([PASSED], failed=1)
        self.assertEqual((lines[-1], code), ("1 passed, 1 failed, 0 skipped", 1))

    def test_nothing_run_fails(self):
        self.assertEqual(self.count(), (["0 passed, 0 failed, 0 skipped"], 1))
        self.assertEqual(self.count([SKIPPED])[1], 1)


class Conversion(unittest.TestCase):
    def test_halves_apart_undoes_the_interleaving(self):
        heads, head_dim, hidden = 3, 8, 5
        rows = numpy.arange(heads * head_dim * hidden, dtype=numpy.float32).reshape(heads * head_dim, hidden)
        interleaved = numpy.empty_like(rows)
        for head in range(heads):
            for i in range(head_dim // 2):
                interleaved[head * head_dim + 2 * i] = rows[head * head_dim + i]
                interleaved[head * head_dim + 2 * i + 1] = rows[head * head_dim + head_dim // 2 + i]
        numpy.testing.assert_array_equal(get_model.halves_apart(interleaved, heads), rows)

    def test_bf16_rounds_to_nearest_even(self):
        cases = {0x3F800000: 0x3F80, 0x3F808000: 0x3F80, 0x3F818000: 0x3F82, 0x3F808001: 0x3F81, 0xBF807FFF: 0xBF80,
                 0x80000000: 0x8000, 0x007FFFFF: 0x0080}
        values = numpy.array(list(cases), dtype=numpy.uint32).view(numpy.float32)
        written = numpy.frombuffer(get_model.bf16_bytes(values), dtype="<u2")
        self.assertEqual([hex(n) for n in written], [hex(n) for n in cases.values()])


class GetModel(unittest.TestCase):
    def test_names(self):
        self.assertEqual(get_model.hf_name("blk.3.attn_q.weight"), "model.layers.3.self_attn.q_proj.weight")
        self.assertEqual(get_model.hf_name("token_embd.weight"), "model.embed_tokens.weight")
        with self.assertRaisesRegex(get_model.Failed, "rope_freqs"):
            get_model.hf_name("rope_freqs.weight")

    def test_a_hub_name_is_explained_and_nothing_written(self):
        done = subprocess.run([sys.executable, SCRIPTS / "get_model.py", "Qwen/Qwen3-8B"], stdout=subprocess.PIPE,
                              text=True)
        self.assertEqual(done.returncode, 0)
        self.assertIn("hf download Qwen/Qwen3-8B", done.stdout)
        self.assertIn("no model was written", done.stdout.splitlines()[-1])

    def test_an_unknown_name_is_the_users_error(self):
        done = subprocess.run([sys.executable, SCRIPTS / "get_model.py", "smollm3"], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("smollm2-135m", done.stderr)


# Answers as `sluice generate --json` does, out of a golden.json, but for what SPOIL names.
STUB = """#!{python}
import json, os, sys
cases = json.load(open(os.environ["GOLDEN"]))["cases"]
option = lambda name: sys.argv[sys.argv.index(name) + 1]
ids = [int(x) for x in option("--prompt-ids").split(",")]
case = next(case for case in cases if case["prompt"] == ids)
exact = "--dtype" in sys.argv
tokens = list(case["greedy_fp32" if exact else "greedy_native"])
kind, _, at = os.environ.get("SPOIL", "").partition(" ")
if kind == ("exact" if exact else "native"):
    tokens[int(at)] += 1
logits = [x + (0.01 if kind == "logits" else 0) for x in case["first_logits_fp32"]]
print(json.dumps(dict(tokens=tokens, first_logits=logits)))
"""


class Reference(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        here = pathlib.Path(self.scratch.name)
        # Two prompts whose native tokens are clear at the first place and not at the second.
        answers = [([5, 6], [1.0, 2.0], [0.5, -9.0, 3.0]), ([7, 8], [1.0, 2.0], [9.0, 1.0, 2.0])]
        native = [([5, 6], [1.0, 0.01], []), ([7, 8], [1.0, 0.01], [])]
        self.golden = hf_reference.golden_of("toy", "torch.bfloat16", dict(transformers="5", torch="2"),
                                             [[1, 2], [3]], answers, native)
        self.file = here / "golden.json"
        self.file.write_text(json.dumps(self.golden))
        self.stub = here / "sluice"
        self.stub.write_text(STUB.replace("{python}", sys.executable))
        self.stub.chmod(0o755)

    def check(self, spoil=""):
        environment = dict(os.environ, GOLDEN=str(self.file), SPOIL=spoil)
        done = subprocess.run([sys.executable, SCRIPTS / "hf_reference.py", "check", "toy", self.file, "--sluice",
                               self.stub, "--", "--policy", "mapped"],
                              stdout=subprocess.PIPE, text=True, env=environment)
        return done.stdout, done.returncode

    def test_the_file_has_the_form_of_the_fixtures(self):
        fixture = json.loads((SCRIPTS.parent / "tests/data/hf/qwen3-tiny/golden.json").read_text())
        self.assertLessEqual(set(fixture["cases"][0]), set(self.golden["cases"][0]))
        self.assertEqual(hf_reference.read_prompts(self.file), [{"ids": [1, 2]}, {"ids": [3]}])

    def test_equal_answers_pass(self):
        out, code = self.check()
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out.splitlines()[-1])["native_positions_compared"], 2)

    def test_a_token_in_float32_counts_always(self):
        out, code = self.check("exact 1")
        self.assertEqual(code, 1)
        self.assertIn("float32: token 1 differs, where the margin is 2.0", out)

    def test_a_native_token_counts_where_it_is_clear(self):
        self.assertEqual(self.check("native 0")[1], 1)
        self.assertEqual(self.check("native 1")[1], 0)

    def test_first_logits_count(self):
        out, code = self.check("logits")
        self.assertEqual(code, 1)
        self.assertIn("first logits differ by 1.1e-03", out)

    def test_prompts_are_texts_and_ids(self):
        self.file.write_text('["hello", {"ids": [4]}, {"text": "you"}]')
        self.assertEqual(hf_reference.read_prompts(self.file), [{"text": "hello"}, {"ids": [4]}, {"text": "you"}])
        self.file.write_text('[{"random": 5}]')
        with self.assertRaisesRegex(SystemExit, "prompt 1"):
            hf_reference.read_prompts(self.file)

    def test_options_for_sluice_belong_to_check(self):
        self.assertEqual(hf_reference.parse(["check", "m", "g", "--sluice", "s", "--", "--policy", "x"]).options,
                         ["--policy", "x"])
        self.addCleanup(setattr, sys, "stderr", sys.stderr)
        sys.stderr = io.StringIO()
        with self.assertRaises(SystemExit):
            hf_reference.parse(["time", "m", "--", "--policy", "x"])


class Quantised(unittest.TestCase):
    """What `sluice quantize` writes against numpy."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.model = pathlib.Path(scratch.name) / "model"

    def copy(self, name):
        shutil.copytree(SCRIPTS.parent / "tests" / "data" / "hf" / name, self.model, dirs_exist_ok=True)
        for encoding in ("int8", "int4"):
            subprocess.run([os.environ["SLUICE"], "quantize", self.model, "--to", encoding], check=True,
                           stderr=subprocess.DEVNULL)

    def check(self):
        done = subprocess.run([sys.executable, SCRIPTS / "check_quantised.py", self.model], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        return done.stdout.splitlines(), done.stderr, done.returncode

    def test_numpy_has_the_same_codes_and_scales(self):
        for name in ("qwen2-tiny", "qwen3-tiny-f32", "qwen3-tiny-f16", "qwen3-tiny-tied-sharded", "qwen3moe-tiny"):
            with self.subTest(name):
                shutil.rmtree(self.model, ignore_errors=True)
                self.copy(name)
                lines, _, code = self.check()
                self.assertEqual(code, 0)
                self.assertEqual(len(lines), 2)
                for line in lines:
                    self.assertRegex(line, r"^sluice-int[48]\.safetensors: [1-9][0-9]* matrices, all equal$")

    def test_of_a_calibrated_copy_the_checksums_are_compared(self):
        self.copy("llama-tiny")
        text = self.model / "text.txt"
        text.write_text("".join(f"The {i} of {i * i} men had an owl. " for i in range(1000)))
        subprocess.run([os.environ["SLUICE"], "quantize", self.model, "--to", "int4", "--calibrate", text], check=True,
                       stderr=subprocess.DEVNULL)
        lines, _, code = self.check()
        self.assertEqual(code, 0)
        self.assertRegex(lines[1], r"^sluice-int4\.safetensors: [1-9][0-9]* matrices, calibrated, all checksums equal$")
        file = self.model / "sluice-int4.safetensors"
        content = bytearray(file.read_bytes())
        content[8 + int.from_bytes(content[:8], "little")] ^= 1
        file.write_bytes(content)
        lines, _, code = self.check()
        self.assertEqual(code, 1)
        self.assertIn("1 tensors differ", lines[1])

    def test_other_codes_or_scales_are_seen(self):
        self.copy("qwen2-tiny")
        file = self.model / "sluice-int4.safetensors"
        for at, part in ((-1, "scales"), (None, "codes")):
            content = bytearray(file.read_bytes())
            at = 8 + int.from_bytes(content[:8], "little") if at is None else at
            content[at] ^= 1
            file.write_bytes(content)
            lines, _, code = self.check()
            self.assertEqual(code, 1)
            self.assertIn("all equal", lines[0])
            self.assertRegex(lines[1], f"tensors differ: .*{part}")

    def test_a_model_without_copies_is_refused(self):
        shutil.copytree(SCRIPTS.parent / "tests" / "data" / "hf" / "qwen2-tiny", self.model)
        _, errors, code = self.check()
        self.assertEqual(code, 2)
        self.assertIn("has no quantised copy", errors)


if __name__ == "__main__":
    if numpy is None and {"Conversion", "Quantised"} & set(sys.argv):
        environment = get_model.CACHE / "venv" / "bin" / "python"
        if not get_model.has_packages(environment):
            print("SKIPPED: numpy is not installed")
            sys.exit(0)
        os.execv(environment, [str(environment), *sys.argv])
    unittest.main()
