#!/usr/bin/env python3
"""Sums JUnit files written by ctest and prints "N passed, N failed, N skipped" as the last line.

  count_tests.py [--failed N] FILE...     N: failures that left no file, such as a build that broke

Exit code 1 if a test failed or none passed. A test whose executable is not there has failed, whatever ctest calls it.
"""

import argparse
import sys
import xml.etree.ElementTree


def outcome(case):
    if case.get("status") == "run":
        return "passed"
    if case.get("status") == "notrun":
        message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
        if message.startswith(("SKIP_REGULAR_EXPRESSION", "SKIP_RETURN_CODE")):
            return "skipped"
    return "failed"


def reason(case):
    """The first line in which a skipped test says why."""
    output = case.findtext("system-out") or ""
    lines = [line for line in output.splitlines() if line.startswith("SKIPPED: ")]
    return lines[0].removeprefix("SKIPPED: ") if lines else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failed", type=int, default=0)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    count = {"passed": 0, "failed": arguments.failed, "skipped": 0}
    for file in arguments.files:
        for case in xml.etree.ElementTree.parse(file).getroot().iter("testcase"):
            kind = outcome(case)
            count[kind] += 1
            if kind == "failed":
                print(f"failed: {case.get('name')} ({file})")
            elif kind == "skipped":
                print(f"not run: {case.get('name')}: {reason(case)}")
    print(", ".join(f"{number} {kind}" for kind, number in count.items()))
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
