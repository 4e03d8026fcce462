"""Compares ids and decoded text with Hugging Face's tokenizers: on every code point, and on random, real and hostile text."""

import json
import os
import pathlib
import random
import subprocess
import time

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")
DATA = pathlib.Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
GPT2 = DATA / "gpt2"
needs_gpt2 = pytest.mark.skipif(not GPT2.exists(), reason="../shared/data/gpt2 does not exist next to the checkout")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


def run(arguments, lines):
    """The program's answer to each line, from a single process."""
    result = subprocess.run([PROGRAM, "tokenize", *arguments, "-"], input="".join(json.dumps(line) + "\n" for line in lines),
                            text=True, encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def encode(folder, texts, *options):
    return run(["--model", str(folder), "--json", *options], texts)


def decode(folder, ids, *options):
    return run(["--model", str(folder), "--json", "--decode", *options], ids)


def save(tokenizer, folder):
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def check_ids(tokenizer, folder, texts):
    """Compares the ids of each text and the text of the ids; returns the ids."""
    expected = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
    for text, ours, theirs in zip(texts, encode(folder, texts), expected):
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            around = tokenizer.decode(theirs[max(0, at - 3):at + 5], skip_special_tokens=False)
            raise AssertionError(f"{text[:80]!r}, near {around!r}: {ours[at:at + 8]} is not {theirs[at:at + 8]}")
    assert decode(folder, expected) == [tokenizer.decode(ids, skip_special_tokens=False) for ids in expected]
    return expected


def check(tokenizer, folder, texts):
    """Compares with and without the template, with special tokens kept and skipped."""
    expected = check_ids(tokenizer, folder, texts)
    plain = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    assert encode(folder, texts, "--no-template") == plain
    assert decode(folder, expected, "--skip-specials") == [tokenizer.decode(ids) for ids in expected]


def check_random_ids(tokenizer, folder, seed=0, count=300):
    size = tokenizer.get_vocab_size()
    numbers = random.Random(seed)
    ids = [[numbers.randrange(size) for _ in range(numbers.randrange(1, 30))] for _ in range(count)]
    assert decode(folder, ids) == [tokenizer.decode(each, skip_special_tokens=False) for each in ids]
    assert decode(folder, ids, "--skip-specials") == [tokenizer.decode(each) for each in ids]


def every_code_point(form="a{0} {0}7{0}'{0}s"):
    """Each code point between the letters, digits and signs of `form`: all of the planes that have characters, and every 61st of unassigned
    and private-use code points."""
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF and (c < 0x40000 or 0xE0000 <= c < 0xE1000 or c % 61 == 0)]
    for begin in range(0, len(points), 512):
        yield "".join(form.format(chr(c)) for c in points[begin:begin + 512])


ALPHABETS = [
    "ab'sStTrevElL dDmM\u017f ",
    " \t\n\r\u00a0\u3000\u2028\x85\x1c\u180e\u200b",
    "0123456789\u0663\u00b2\u2167\u4e00",
    "aZ\u00e9\u0301\u4e2d\u6587\u0939\u093f\u1100\u1161\uac00\u05d0\u0660\U0001f600\U0001f468\u200d\U0001f469\ufe0f\U000e0041",
    "!?.,-_()[]{}<>|@#$%^&*+=~`\"\\/",
    "the quick brown fox \u2581<s></s>[MASK]<|endoftext|>##",
]


def random_texts(seed, count=1500):
    numbers = random.Random(seed)
    for _ in range(count):
        kind = numbers.random()
        length = numbers.randrange(0, 60)
        if kind < 0.75:
            letters = "".join(numbers.sample(ALPHABETS, numbers.randrange(1, 4)))
            yield "".join(numbers.choice(letters) for _ in range(length))
        else:
            top = numbers.choice([0x80, 0x800, 0x3000, 0x10000, 0x110000])
            points = (numbers.randrange(top) for _ in range(length))
            yield "".join(chr(c) for c in points if not 0xD800 <= c <= 0xDFFF)


def real_texts():
    for name in ("shakespeare/input.txt", "wikitext2/test.txt", "sst2/dev.tsv", "alpaca/seed_tasks.jsonl"):
        path = DATA / name
        if path.exists():
            yield path.read_bytes()[:400_000].decode("utf-8", "replace")


SAMPLE = ("The quick brown fox jumps over the lazy dog. It's 1,234,567 o'clock; we've said they'll re-do it!\n"
          "H\u00e9l\u00e8ne \u00e0 \u00c5ngstr\u00f6m: na\u00efve caf\u00e9s \u4f60\u597d\u4e16\u754c "
          "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0645\u0631\u062d\u0628\u0627 \U0001f600\U0001f680\n\n\tdef f(x):\n\t    return x ** 2\n") * 3


def hostile_texts():
    numbers = random.Random(5)
    size = 1_000_000
    yield "a" * size
    yield " " * size + "x"
    yield "\n " * (size // 2)
    yield "ab" * (size // 2)
    yield "".join(numbers.choice("abcdefgh") for _ in range(size))
    yield "\u4e2d\u6587" * (size // 6)
    yield "'" * size
    yield "9" * size
    yield "\U0001f600" * (size // 4)


def gpt2():
    tokenizer = tokenizers.Tokenizer(models.BPE.from_file(str(GPT2 / "vocab.json"), str(GPT2 / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


@needs_gpt2
def test_gpt2_from_its_two_files():
    tokenizer = gpt2()
    check_ids(tokenizer, GPT2, list(every_code_point()))
    check(tokenizer, GPT2, list(random_texts(1)))
    check(tokenizer, GPT2, list(real_texts()))
    check_random_ids(tokenizer, GPT2, count=1500)


@needs_gpt2
def test_gpt2_from_a_tokenizer_json(tmp_path):
    tokenizer = gpt2()
    folder = save(tokenizer, tmp_path)
    check(tokenizer, folder, list(random_texts(2)) + [SAMPLE])


@needs_gpt2
def test_hostile_text_takes_linear_time():
    texts = list(hostile_texts())
    start = time.monotonic()
    ours = encode(GPT2, texts)
    seconds = time.monotonic() - start
    assert seconds < 20, f"{len(texts)} texts of 1 MB took {seconds:.1f} s"
    for text, ids, encoding in zip(texts, ours, gpt2().encode_batch(texts)):
        assert ids == encoding.ids, text[:20]


@needs_gpt2
def test_special_tokens_as_text():
    tokenizer = gpt2()
    tokenizer.encode_special_tokens = True
    texts = ["a<|endoftext|>b", "<|endoftext|>", SAMPLE]
    assert encode(GPT2, texts, "--specials-as-text") == [e.ids for e in tokenizer.encode_batch(texts)]


def byte_level_bpe(pattern=None, size=600):
    """Small byte-level BPE, split by GPT-2's pattern or another."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<|begin|>", "<|end|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([SAMPLE, *real_texts()], trainer)
    return tokenizer


@pytest.mark.parametrize("options", [
    {"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"normalized": True},
    {"single_word": True, "lstrip": True, "rstrip": True}])
def test_added_tokens(tmp_path, options):
    tokenizer = byte_level_bpe()
    tokenizer.add_tokens([AddedToken("<x>", **options), AddedToken("foo", **options), AddedToken("foobar", **options),
                          AddedToken("  ", normalized=False), AddedToken("\u00e9t\u00e9", **options)])
    tokenizer.add_special_tokens([AddedToken("<m>", **options)])
    folder = save(tokenizer, tmp_path)
    numbers = random.Random(3)
    parts = ["<x>", "foo", "foobar", "<m>", " ", "  ", "\n", "\u00a0", "a", "_", "\u00e9t\u00e9", ".", "9", "\u3000", "<", "fo"]
    texts = ["".join(numbers.choice(parts) for _ in range(numbers.randrange(12))) for _ in range(2000)]
    check(tokenizer, folder, texts)
    check_random_ids(tokenizer, folder)


def test_prefix_space_and_template(tmp_path):
    tokenizer = byte_level_bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin|> $A <|end|> <|end|>", pair="$A $B", special_tokens=[
            ("<|begin|>", 0), ("<|end|>", 1)])])
    check(tokenizer, save(tokenizer, tmp_path), list(random_texts(4)) + ["", " ", SAMPLE, "<|end|>x", " <|end|> x"])


def test_training_equals_hugging_face(tmp_path):
    """Lockstep trains the same tokenizer as Hugging Face's library, which can read the result."""
    texts = list(real_texts()) or [SAMPLE]
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_bytes(text.encode())
    subprocess.run([PROGRAM, "tokenizer", "train", "--vocab-size", "3000", "--output", str(tmp_path / "ours"), "--files",
                    *map(str, files)], check=True)
    theirs = tokenizers.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=3000, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    ours = tokenizers.Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    read = json.loads(ours.to_str())["model"]
    assert read["vocab"] == json.loads(theirs.to_str())["model"]["vocab"]
    assert read["merges"] == json.loads(theirs.to_str())["model"]["merges"]
    check(ours, tmp_path / "ours", list(random_texts(6)) + texts)


def test_transformers_opens_a_trained_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "text.txt").write_text(SAMPLE, encoding="utf-8")
    subprocess.run([PROGRAM, "tokenizer", "train", "--vocab-size", "400", "--output", str(tmp_path), "--files",
                    str(tmp_path / "text.txt")], check=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.eos_token == tokenizer.bos_token == tokenizer.pad_token == "<|endoftext|>"
    texts = [SAMPLE, "a<|endoftext|>b", "  x "]
    assert encode(tmp_path, texts) == tokenizer(texts)["input_ids"]
    assert decode(tmp_path, encode(tmp_path, texts)) == texts
