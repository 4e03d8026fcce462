#!/usr/bin/env python3
"""Measures MB/s of tokenizers on one thread: Lockstep, tiktoken and Hugging Face's tokenizers, with GPT-2's and Llama 3's patterns, on the same
documents and merges: English, source code, and words of eight scripts. Checks that the ids are equal and prints a table. Then measures how fast a
file is tokenized for training, with one thread and with one thread per core.

    .deps/tokenizers/bin/python bench/tokenizer_speed.py --program build/release/lockstep [--texts FILE...] [--vocabulary FOLDER]
        [--repeats 5] [--kinds english,code,scripts]

quicktok (PyPI, 0.2.0) is not compared: its patterns do not split text into words, so its ids differ.

The sides alternate; figures are medians of the repeats. Each repeat is a new process that reads every document once, so that a cache must pay off
within the text. Without --texts and --vocabulary the inputs are those of shared/data/ in this folder or its parent, or else a sample corpus and a
tokenizer trained on it.
"""

import argparse
import json
import itertools
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
}
SIDES = {"lockstep": "Lockstep", "tiktoken": "tiktoken", "tokenizers": "Hugging Face tokenizers"}
DOCUMENT = 8192  # approximate bytes


KINDS = ("english", "code", "scripts")
SIZE = 6_000_000  # bytes of code, and of the scripts' words
CORES = 0.8  # target fraction of that many single threads, for tokenizing a file
SCRIPTS = ((0x430, 0x450), (0x3B1, 0x3CA), (0x627, 0x64B), (0x905, 0x93A), (0xE01, 0xE2F), (0x4E00, 0x5600), (0x3041, 0x3097), (0xAC00, 0xB400))


def code():
    """Source code of this project and of Python's standard library."""
    files = sorted((HERE.parent / "src").rglob("*.cpp")) + sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    text = ""
    for file in files:
        text += file.read_text(errors="replace")
        if len(text) >= SIZE:
            break
    return text


def scripts():
    """Words of two to nine letters of each script; the n-th word is drawn with frequency 1 / n. Languages without spaces have none."""
    draw = random.Random(1)
    parts, size = [], 0
    words = [["".join(chr(draw.randrange(*letters)) for _ in range(draw.randint(2, 9))) for _ in range(4000)] for letters in SCRIPTS]
    weights = list(itertools.accumulate(1 / (n + 1) for n in range(4000)))
    while size < SIZE:
        for i, script in enumerate(words):
            joint = "" if i in (4, 5, 6) else " "
            line = joint.join(draw.choices(script, cum_weights=weights, k=60)) + ("\u3002" if i in (5, 6) else ".") + "\n"
            parts.append(line)
            size += len(line.encode())
    return "".join(parts)


def shared(*parts):
    for base in (HERE.parent, HERE.parent.parent):
        path = base.joinpath("shared", "data", *parts)
        if path.exists():
            return path
    return None


def alphabet():
    """GPT-2's alphabet: the character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def write_tokenizer(kind, vocabulary, folder):
    """Writes a tokenizer.json of the kind with the vocabulary's merges."""
    merges = (vocabulary / "merges.txt").read_text().splitlines()
    merges = [line.split(" ") for line in merges if line and not line.startswith("#version")]
    splitting = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": kind == "gpt2"}
    if kind != "gpt2":
        split = {"type": "Split", "pattern": {"Regex": PATTERNS[kind]}, "behavior": "Isolated", "invert": False}
        splitting = {"type": "Sequence", "pretokenizers": [split, splitting]}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": splitting, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": json.loads((vocabulary / "vocab.json").read_text()), "merges": merges,
                  "ignore_merges": kind == "llama3"}}))


def documents_of(texts):
    """Splits texts into documents of whole lines of about DOCUMENT bytes."""
    documents, lines, size = [], [], 0
    for text in texts:
        for line in pathlib.Path(text).read_text(errors="replace").replace("\0", "").splitlines(keepends=True):
            lines.append(line)
            size += len(line.encode())
            if size >= DOCUMENT:
                documents.append("".join(lines))
                lines, size = [], 0
    return documents + (["".join(lines)] if lines else [])


def encoder_of(side, kind, folder):
    if side == "tokenizers":
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: tokenizer.encode(text).ids
    import tiktoken

    byte_of = {character: byte for byte, character in alphabet().items()}
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    ranks = {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items()
             if all(c in byte_of for c in token) and token != "<|endoftext|>"}
    return tiktoken.Encoding(kind, pat_str=PATTERNS[kind], mergeable_ranks=ranks, special_tokens={}).encode_ordinary


def run_side(side, kind, folder, path):
    """Runs a side in a separate process: seconds, tokens, and a checksum of the ids."""
    documents = path.read_bytes().decode().split("\0")[:-1]
    encode = encoder_of(side, kind, folder)
    begin = time.perf_counter()
    ids = [encode(document) for document in documents]
    took = time.perf_counter() - begin
    total = 0
    for document in ids:
        for token in document:
            total = (total * 31 + token) % 1_000_000_007
    print(took, sum(map(len, ids)), total)


def measure(side, kind, arguments, folder, path):
    if side == "lockstep":
        command = [arguments.program.parent / "tokenizer_bench", folder, path]
    else:
        command = [sys.executable, __file__, "--side", side, "--kind", kind, "--folder", folder, "--documents", path]
    core = {min(os.sched_getaffinity(0))}
    done = subprocess.run(
        [str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, core))
    took, tokens, total = done.stdout.split()
    return float(took), (int(tokens), int(total))


def inputs(arguments, scratch):
    texts, vocabulary = arguments.texts, arguments.vocabulary
    if not texts:
        texts = [shared("wikitext2", "valid.txt"), shared("wikitext2", "test.txt"), shared("shakespeare", "input.txt")]
    if not all(texts):
        subprocess.run([arguments.program, "sample", "--output", scratch / "sample", "--size", "4"], check=True,
                       stdout=subprocess.DEVNULL)
        texts = [scratch / "sample" / "train.txt"]
    vocabulary = vocabulary or shared("gpt2")
    if not vocabulary:
        vocabulary = scratch / "vocabulary"
        subprocess.run([arguments.program, "tokenizer", "train", "--files", *texts, "--vocab-size", "32000", "--output",
                        vocabulary], check=True, stdout=subprocess.DEVNULL)
        model = json.loads((vocabulary / "tokenizer.json").read_text())["model"]
        (vocabulary / "vocab.json").write_text(json.dumps(model["vocab"]))
        pairs = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        (vocabulary / "merges.txt").write_text("\n".join(pairs))
    return texts, vocabulary


def compare(of, texts, arguments, scratch):
    """Table for one kind of text, on one thread."""
    path = scratch / "documents"
    path.write_bytes(b"".join(document.encode() + b"\0" for document in documents_of(texts)))
    megabytes = path.stat().st_size / 1e6
    print(f"{of}: {megabytes:.1f} MB in documents of about {DOCUMENT} bytes, one thread, medians of {arguments.repeats}\n")
    print("| | " + " | ".join(f"{kind}, MB/s | Lockstep is" for kind in PATTERNS) + " |\n|---|" + "---|---|" * len(PATTERNS))
    rows = {side: [] for side in SIDES}
    for kind in PATTERNS:
        times, ids = {side: [] for side in SIDES}, {}
        for _ in range(arguments.repeats):
            for side in SIDES:
                took, ids[side] = measure(side, kind, arguments, scratch / kind, path)
                times[side].append(took)
        if len(set(ids.values())) != 1:
            sys.exit(f"{of}, {kind}: the ids differ: {ids}")
        rate = {side: megabytes / statistics.median(times[side]) for side in SIDES}
        for side in SIDES:
            ratio = "" if side == "lockstep" else f"{rate['lockstep'] / rate[side]:.1f} x"
            rows[side].append(f"{rate[side]:.1f} | {ratio}")
    for side, cells in rows.items():
        print(f"| {SIDES[side]} | " + " | ".join(cells) + " |", flush=True)


def by_cores(of, texts, arguments, scratch):
    """Reads, tokenizes and writes a file as for training, with one thread on one core and with one thread on each core."""
    path = scratch / f"{of}.txt"
    text = "".join(pathlib.Path(file).read_text(errors="replace") for file in texts).replace("\0", "")
    path.write_text(text * max(1, 40_000_000 // len(text.encode())))
    cores = sorted(os.sched_getaffinity(0))
    times, tokens = {1: [], len(cores): []}, set()
    for _ in range(arguments.repeats):
        for threads in times:
            with tempfile.TemporaryDirectory(dir=scratch) as cache:
                done = subprocess.run(
                    [str(w) for w in (arguments.program.parent / "tokenizer_bench", scratch / "gpt2", path, threads, cache)], check=True,
                    stdout=subprocess.PIPE, text=True, preexec_fn=lambda held=cores[:threads]: os.sched_setaffinity(0, held))
            took, *made = done.stdout.split()[-3:]
            times[threads].append(float(took))
            tokens.add(tuple(made))
    if len(tokens) != 1:
        sys.exit(f"{of}: {len(cores)} threads give different tokens than one: {tokens}")
    megabytes = path.stat().st_size / 1e6
    rate = {threads: megabytes / statistics.median(took) for threads, took in times.items()}
    share = rate[len(cores)] / rate[1] / len(cores)
    print(f"\n{of}, a file of {megabytes:.0f} MB: {rate[1]:.1f} MB/s with one thread, {rate[len(cores)]:.1f} with {len(cores)}: {share:.2f} of {len(cores)} single threads "
          f"({'met' if share >= CORES else 'MISSED'}: minimum {CORES})\n", flush=True)
    return share >= CORES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--texts", nargs="*", type=pathlib.Path)
    parser.add_argument("--vocabulary", type=pathlib.Path, help="folder with vocab.json and merges.txt")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    for name in ("side", "kind"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("folder", "documents"):
        parser.add_argument(f"--{name}", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side, arguments.kind, arguments.folder, arguments.documents)
        return
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        texts, vocabulary = inputs(arguments, scratch)
        for kind in PATTERNS:
            write_tokenizer(kind, vocabulary, scratch / kind)
        made = {"code": code, "scripts": scripts}
        met = True
        for of in arguments.kinds.split(","):
            if of in made:
                (scratch / of).write_text(made[of]())
            given = [scratch / of] if of in made else texts
            compare(of, given, arguments, scratch)
            met = by_cores(of, given, arguments, scratch) and met
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
