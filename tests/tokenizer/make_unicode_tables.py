#!/usr/bin/env python3
"""Prints the tables of models/tokenizer/unicode_tables.cpp.

Needs the reference (pip install tokenizers), a newer Unicode (pip install unicodedata2) than Python's own, and a Python
whose own is Unicode 14 (3.11), the oldest that PCRE2 has on the systems we build on.
"""
import unicodedata

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

# By length in UTF-8 and general category: a code point that is in the category in every version.
STAND_INS = {
    2: {"Ll": 0xDF, "Cn": 0x378},
    3: {"Lu": 0x1E00, "Ll": 0x1E01, "Lm": 0x1D2C, "Lo": 0x1000, "Mn": 0x1AB0, "Mc": 0x1B04, "Nd": 0x1040, "No": 0x2080,
        "Pd": 0x2010, "Po": 0x1360, "Sm": 0x2200, "So": 0x2100, "Sc": 0x20A0, "Cn": 0xFDD0, "Cf": 0x200B},
    4: {"Lu": 0x10400, "Ll": 0x10428, "Lm": 0x16B40, "Lo": 0x10000, "Mn": 0x101FD, "Mc": 0x11000, "Nd": 0x104A0,
        "No": 0x10107, "Pd": 0x10EAD, "Po": 0x10100, "Sm": 0x1D6C1, "So": 0x1D000, "Cn": 0x1FFFE, "Cf": 0x110BD},
}


def reference_categories():
    categories = {}
    for category in CATEGORIES:
        cut = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
        for first in range(0, len(CODE_POINTS), 4096):
            text = "".join(map(chr, CODE_POINTS[first:first + 4096]))
            kept = set("".join(piece for piece, _ in cut.pre_tokenize_str(text)))
            categories.update({ord(c): category for c in text if c not in kept})
    return categories


def stand_ins():
    reference = reference_categories()
    rows = []
    for c in CODE_POINTS:
        category = reference.get(c, "Cn")
        if unicodedata.category(chr(c)) == unicodedata2.category(chr(c)) == category:
            continue
        stand_in = STAND_INS[len(chr(c).encode())][category]
        if rows and rows[-1][2] == stand_in and (rows[-1][1] == c - 1 or (category == "Cn" and all(
                reference.get(between, "Cn") == "Cn" for between in range(rows[-1][1] + 1, c)))):
            rows[-1][1] = c
        else:
            rows.append([c, c, stand_in])
    return rows


def inert_ranges():
    nfc, nfd, nfkd = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()
    inert = set()
    for c in map(chr, CODE_POINTS):
        old = nfd.normalize_str("\u0345" + c), nfd.normalize_str(c + "\u0334"), nfkd.normalize_str(c)
        new = (unicodedata2.normalize("NFD", "\u0345" + c), unicodedata2.normalize("NFD", c + "\u0334"),
               unicodedata2.normalize("NFKD", c))
        if old != new:
            inert.add(ord(c))
    for c in sorted(inert):
        parts = unicodedata2.decomposition(chr(c)).split()
        if parts and not parts[0].startswith("<"):
            if nfc.normalize_str("".join(chr(int(part, 16)) for part in parts)) != chr(c):
                inert.add(int(parts[0], 16))
    rows = []
    for c in sorted(inert):
        if rows and rows[-1][1] == c - 1:
            rows[-1][1] = c
        else:
            rows.append([c, c])
    return rows


def main():
    assert unicodedata.unidata_version == "14.0.0", "needs a Python with Unicode 14"
    for name, rows in (("StandIn kStandIns", stand_ins()), ("Range kInert", inert_ranges())):
        print(f"constexpr {name}[] = {{")
        for row in rows:
            print("    {" + ", ".join(f"0x{number:X}" for number in row) + "},")
        print("};\n")


if __name__ == "__main__":
    main()
