#!/usr/bin/env python3
"""Writes src/text/*_tables.inc: the Unicode data that tokenizers depend on.

The tables come from Hugging Face's library (the wheel tokenizers==0.23.3), probed code point by code point, because ids must equal
its ids. Its Oniguruma and regex crate use Unicode 16, its normalization Unicode 9, and its lower case Unicode 17.
unicodedata2==16.0.0 supplies what cannot be probed (general categories, combining classes of the code points that reorder) and checks
the letters and numbers. The regex package supplies the properties of grapheme clusters, without those that the library's
unicode-segmentation does not support yet. Run the script in an environment with all three:

    pip install tokenizers==0.23.3 unicodedata2==16.0.0 regex==2026.11.15 && python tools/generate_unicode_tables.py
"""

import pathlib
import struct

import regex
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, CODE_POINTS))


def removed_by(pre_tokenizer):
    """Code points that a pre-tokenizer of single characters removes from the text of all code points."""
    left = set(CODE_POINTS)
    for _, (begin, end) in pre_tokenizer.pre_tokenize_str(TEXT):
        left.difference_update(CODE_POINTS[begin:end])
    return left


def matched(pattern):
    return removed_by(pre_tokenizers.Split(Regex(pattern), "removed"))


def word_characters(white_space):
    """\\w of the regex crate, which Whitespace and single-word added tokens use (Oniguruma's differs)."""
    candidates = [c for c in CODE_POINTS if c not in white_space]
    text = " ".join("a" + chr(c) for c in candidates)
    pieces = [piece for piece, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text)]
    return {ord(piece[1]) for piece in pieces if len(piece) == 2 and piece[0] == "a"}


def numeric(white_space):
    """char::is_numeric, which Digits uses."""
    return {ord(piece[0]) for piece, (begin, _) in pre_tokenizers.Digits(True).pre_tokenize_str(
        "a".join(map(chr, CODE_POINTS))) if len(piece) == 1 and begin % 2 == 0} - {ord("a")}


def ranges(points):
    """[first, last + 1, first, last + 1, ...]: the code points where membership changes."""
    changes = []
    for point in sorted(points):
        if changes and changes[-1] == point:
            changes[-1] = point + 1
        else:
            changes += [point, point + 1]
    return changes


def table(name, comment, points):
    lines, line = [], " "
    for number in ranges(points):
        word = f" {number:#x},"
        if len(line) + len(word) > 100:
            lines.append(line)
            line = " "
        line += word
    lines.append(line)
    return f"// {comment}\nconstexpr char32_t {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def removed_by_normalizer(normalizer):
    """Code points that a normalizer removes between two letters."""
    return {c for c in CODE_POINTS if normalizer.normalize_str(f"a{chr(c)}b") == "ab"}


def bert(**options):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **options})


def literal(name, comment, words):
    """C++ string literal of the words, which the program parses at first use."""
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 92:
            lines.append(line)
            line = ""
        line += word
    lines.append(line)
    return f"// {comment}\nconstexpr char {name}[] =\n" + "\n".join(f'    "{line}"' for line in lines) + ";\n"


def decompositions():
    """Full decompositions except Hangul's: canonical ones, and compatibility ones that differ."""
    canonical, compatible = [], []
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    for c in CODE_POINTS:
        if 0xAC00 <= c < 0xD7A4:
            continue
        whole = nfd.normalize_str(chr(c))
        wider = nfkd.normalize_str(chr(c))
        if whole != chr(c):
            canonical.append(f"{c:x}=" + ".".join(f"{ord(x):x}" for x in whole) + ";")
        if wider != whole:
            compatible.append(f"{c:x}=" + ".".join(f"{ord(x):x}" for x in wider) + ";")
    return canonical, compatible


def compositions():
    """Pairs of code points that compose, except Hangul's."""
    words = []
    nfc = normalizers.NFC()
    for c in CODE_POINTS:
        parts = unicodedata2.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (int(part, 16) for part in parts)
            if nfc.normalize_str(chr(first) + chr(second)) == chr(c):
                words.append(f"{first:x}.{second:x}={c:x};")
    return words


def combining_classes():
    """Runs of equal canonical combining class, for the code points that the library reorders."""
    nfd = normalizers.NFD()
    runs = []
    for c in CODE_POINTS:
        combining = unicodedata2.combining(chr(c))
        if combining == 0:
            continue
        # U+0334 has combining class 1 and U+0301 class 230, so one of them is reordered next to a
        # known code point.
        text, sorted_text = ((f"a\u0301{chr(c)}", f"a{chr(c)}\u0301") if combining < 230 else
                             (f"a{chr(c)}\u0334", f"a\u0334{chr(c)}"))
        whole = nfd.normalize_str(chr(c))
        if whole == chr(c) and nfd.normalize_str(text) != sorted_text:
            continue
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == combining:
            runs[-1][1] = c
        else:
            runs.append([c, c, combining])
    return [f"{first:x}-{last:x}={combining};" for first, last, combining in runs]


def lower_case():
    """Runs first-last/step=lowercase of the first; U+0130 is the only one that becomes two code points."""
    lowercase = normalizers.Lowercase()
    runs = []
    for c in CODE_POINTS:
        lower = lowercase.normalize_str(chr(c))
        if lower == chr(c) or len(lower) > 1:
            assert len(lower) == 1 or c == 0x130
            continue
        shift = ord(lower) - c
        if runs and runs[-1]["shift"] == shift and c - runs[-1]["last"] in (
                (1, 2) if runs[-1]["step"] == 0 else (runs[-1]["step"],)):
            runs[-1]["step"] = c - runs[-1]["last"]
            runs[-1]["last"] = c
        else:
            runs.append({"first": c, "last": c, "step": 0, "shift": shift})
    return [f"{r['first']:x}-{r['last']:x}/{max(r['step'], 1)}={r['first'] + r['shift']:x};" for r in runs]


def categories():
    """Code points where the general category changes, with the new category."""
    words, last = [], None
    for c in range(0x110000):
        category = unicodedata2.category(chr(c))
        if category != last:
            words.append(f"{c:x}{category}")
            last = category
    for category in ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
                     "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf"):
        assert matched(f"\\p{{{category}}}") == {c for c in CODE_POINTS if unicodedata2.category(chr(c)) == category}
    return words


SCRIPTS = """Arabic Armenian Bengali Bopomofo Braille Cherokee Common Coptic Cyrillic Devanagari Ethiopic Georgian Greek
    Gujarati Gurmukhi Han Hangul Hebrew Hiragana Inherited Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar
    Oriya Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Yi""".split()


def properties():
    """Name:first-last,first-last,...; for properties other than general categories, as in Oniguruma."""
    words = []
    for name, pattern in [("Word", r"\w"), ("Alphabetic", r"\p{Alphabetic}")] + [
            (script, rf"\p{{{script}}}") for script in SCRIPTS]:
        changes = ranges(matched(pattern))
        words.append(f"{name}:")
        words += [f"{changes[i]:x}-{changes[i + 1] - 1:x}," for i in range(0, len(changes), 2)]
        words[-1] = words[-1][:-1] + ";"
    return words


def one_letter_charsmap():
    """SentencePiece charsmap (a double array with one key) that replaces the grapheme cluster of "a" by X."""
    units = [0] * 0x400
    units[0] = 0x100 << 10
    units[0x100 ^ ord("a")] = ord("a") | 1 << 8 | 0x200 << 10
    units[0x100 ^ ord("a") ^ 0x200] = 1 << 31
    data = b"".join(struct.pack("<I", unit) for unit in units)
    return struct.pack("<I", len(data)) + data + b"X\0"


def graphemes():
    """Runs of equal grapheme cluster properties: one letter for Grapheme_Cluster_Break and one for Indic_Conjunct_Break."""
    precompiled = normalizers.Precompiled(one_letter_charsmap())
    joined = {c for c in CODE_POINTS if precompiled.normalize_str(f"a{chr(c)}") == "X"}
    breaks = {"Control": "C", "CR": "C", "LF": "C", "Extend": "E", "ZWJ": "Z", "Regional_Indicator": "R", "Prepend": "P",
              "SpacingMark": "S", "L": "L", "V": "V", "T": "T"}
    letters = {}
    for name, letter in breaks.items():
        for found in regex.finditer(rf"\p{{GCB={name}}}", TEXT):
            if letter not in "EZS" or ord(found.group()) in joined:
                letters[ord(found.group())] = letter
    assert joined == {c for c, letter in letters.items() if letter in "EZS"}
    for found in regex.finditer(r"\p{ExtPict}", TEXT):
        letters[ord(found.group())] = "X"
    conjuncts = {}
    for name, letter in (("Consonant", "c"), ("Linker", "l"), ("Extend", "e")):
        for found in regex.finditer(rf"\p{{InCB={name}}}", TEXT):
            if letter == "c" or ord(found.group()) in joined:
                conjuncts[ord(found.group())] = letter
    runs = []
    for c in CODE_POINTS:
        kind = letters.get(c, "-") + conjuncts.get(c, "-")
        if kind == "--":
            continue
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == kind:
            runs[-1][1] = c
        else:
            runs.append([c, c, kind])
    return [f"{first:x}-{last:x}={kind};" for first, last, kind in runs]


def write(name, tables):
    path = pathlib.Path(__file__).resolve().parent.parent / "src" / "text" / name
    path.write_text(
        "// Generated by tools/generate_unicode_tables.py from tokenizers 0.23.3. Do not edit.\n" + "\n".join(tables))
    print(f"{path}: {path.stat().st_size} bytes")


def sets():
    letters, numbers, white_space = matched(r"\p{L}"), matched(r"\p{N}"), matched(r"\s")
    for prefix, found in (("L", letters), ("N", numbers)):
        unicode_16 = {c for c in CODE_POINTS if unicodedata2.category(chr(c))[0] == prefix}
        assert found == unicode_16, f"\\p{{{prefix}}} is not that of Unicode {unicodedata2.unidata_version}"
    assert white_space == removed_by(pre_tokenizers.WhitespaceSplit())
    return [
        "// Each table lists the ascending code points where membership changes, starting with \"in\".",
        table("kLetters", "\\p{L}", letters),
        table("kNumbers", "\\p{N}", numbers),
        table("kWhiteSpace", "\\s, White_Space", white_space),
        table("kWordCharacters", "\\w of the regex crate", word_characters(white_space)),
        table("kNumeric", "char::is_numeric", numeric(white_space)),
        table("kPunctuation", "ASCII punctuation and category P of the unicode_categories crate",
              removed_by(pre_tokenizers.Punctuation("removed"))),
        table("kMarks", "code points removed by StripAccents", removed_by_normalizer(normalizers.StripAccents())),
        table("kNonspacingMarks", "code points removed by BertNormalizer's strip_accents",
              removed_by_normalizer(bert(strip_accents=True))),
        table("kControls", "code points removed by BertNormalizer's clean_text",
              removed_by_normalizer(bert(clean_text=True))),
    ]


def main():
    write("unicode_tables.inc", sets())
    canonical, compatible = decompositions()
    write("normalization_tables.inc", [
        literal("kCanonical", "code point = its full canonical decomposition", canonical),
        literal("kCompatible", "code point = its full compatibility decomposition, if different", compatible),
        literal("kCompositions", "first . second = composed code point", compositions()),
        literal("kCombiningClasses", "first - last = canonical combining class", combining_classes()),
        literal("kLowerCase", "first - last / step = lowercase of the first", lower_case()),
    ])
    write("grapheme_tables.inc", [
        literal("kGraphemes", "first - last = Grapheme_Cluster_Break, Indic_Conjunct_Break", graphemes())])
    write("category_tables.inc", [
        literal("kCategories", "code points where the general category changes (Unicode 16)", categories()),
        literal("kProperties", "name:first-last,...; as in Oniguruma", properties())])


if __name__ == "__main__":
    main()
