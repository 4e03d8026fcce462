#!/usr/bin/env python3
"""MB/s of tokenizers on one thread: Lockstep's, tiktoken and Hugging Face's tokenizers, with GPT-2's pattern and with
Llama 3's, on the same documents and the same merges. Checks that the ids are the same; prints a table.

    .deps/tokenizers/bin/python bench/tokenizer_speed.py --program build/release/lockstep [--texts FILE...] [--vocabulary FOLDER]
        [--repeats 5]

Each figure is the median of repeats, the sides taking turns, each in a new process that reads every document once: a cache
has to earn its keep within the text. Without --texts and --vocabulary: those of shared/data/ here or one folder up, else a
sample corpus and a tokenizer trained on it.
"""

import argparse
import json
import os
import pathlib
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
DOCUMENT = 8192  # bytes, about


def shared(*parts):
    for base in (HERE.parent, HERE.parent.parent):
        path = base.joinpath("shared", "data", *parts)
        if path.exists():
            return path
    return None


def alphabet():
    """Of GPT-2: the character that stands for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def write_tokenizer(kind, vocabulary, folder):
    """A tokenizer.json of the kind, with the vocabulary's merges."""
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
    """Whole lines, about DOCUMENT bytes together."""
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
    """In a process of its own: seconds, tokens, and a sum of the ids."""
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--texts", nargs="*", type=pathlib.Path)
    parser.add_argument("--vocabulary", type=pathlib.Path, help="a folder with vocab.json and merges.txt")
    parser.add_argument("--repeats", type=int, default=5)
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
        path = scratch / "documents"
        path.write_bytes(b"".join(document.encode() + b"\0" for document in documents_of(texts)))
        megabytes = path.stat().st_size / 1e6
        print(f"{megabytes:.1f} MB in documents of about {DOCUMENT} bytes, one thread, medians of {arguments.repeats}\n")
        print("| | " + " | ".join(f"{kind}, MB/s | Lockstep is" for kind in PATTERNS) + " |\n|---|" + "---|---|" * len(PATTERNS))
        rows = {side: [] for side in SIDES}
        for kind in PATTERNS:
            write_tokenizer(kind, vocabulary, scratch / kind)
            times, ids = {side: [] for side in SIDES}, {}
            for _ in range(arguments.repeats):
                for side in SIDES:
                    took, ids[side] = measure(side, kind, arguments, scratch / kind, path)
                    times[side].append(took)
            if len(set(ids.values())) != 1:
                sys.exit(f"{kind}: the ids differ: {ids}")
            rate = {side: megabytes / statistics.median(times[side]) for side in SIDES}
            for side in SIDES:
                ratio = "" if side == "lockstep" else f"{rate['lockstep'] / rate[side]:.1f} x"
                rows[side].append(f"{rate[side]:.1f} | {ratio}")
        for side, cells in rows.items():
            print(f"| {SIDES[side]} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
