#!/usr/bin/env python3
"""Tests of what in scripts/ decides whether a result can be trusted.

  scripts_test.py Counting GetModel    need nothing
  scripts_test.py Conversion           needs numpy: of this Python, or of the environment that get_model.py made
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))
import get_model  # noqa: E402

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


if __name__ == "__main__":
    if numpy is None and "Conversion" in sys.argv:
        environment = get_model.CACHE / "venv" / "bin" / "python"
        if not get_model.has_packages(environment):
            print("SKIPPED: numpy is not installed")
            sys.exit(0)
        os.execv(environment, [str(environment), *sys.argv])
    unittest.main()
