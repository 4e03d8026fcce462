"""Compares tokenizer components of other families with Hugging Face's library, one by one."""

import base64
import json
import pathlib
import random
import struct
import sys
import time

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_tokenizers import (  # noqa: E402
    ALPHABETS, LLAMA3, QWEN2, SAMPLE, byte_level_bpe, check, check_ids, check_random_ids, encode, every_code_point,
    random_texts, real_texts, run, save)

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def piece_ends(pre_tokenizer):
    """Tokenizer whose ids identify every byte and the end of each piece."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: id for id, token in enumerate(alphabet + [character + "</w>" for character in alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizer, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def bytes_of(normalizer):
    """Tokenizer whose ids identify every byte of the normalized text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(alphabet)}, []))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("pattern", [LLAMA3, QWEN2, CL100K, O200K, DEEPSEEK], ids=["llama3", "qwen2", "cl100k", "o200k", "deepseek"])
def test_split_patterns(tmp_path, pattern):
    tokenizer = piece_ends(pre_tokenizers.Split(Regex(pattern), "isolated"))
    folder = save(tokenizer, tmp_path)
    check_ids(tokenizer, folder, list(every_code_point("a{0} {0}7{0}s")))
    check_ids(tokenizer, folder, list(random_texts(7, 2000)))
    check_ids(tokenizer, folder, [SAMPLE, *(text[:100_000] for text in real_texts())])


@pytest.mark.parametrize("behavior", ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"])
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("pattern", [" ", Regex(r"\s+"), Regex(r"\w+|[^\w\s]+"), Regex(LLAMA3), Regex(r"x*"), Regex(r"\b"),
                                     Regex(r"^|\P{L}$"), Regex(r"[\d\P{N}a-c]{,2}(?m:.)")])
def test_split_behaviors(tmp_path, pattern, behavior, invert):
    tokenizer = piece_ends(pre_tokenizers.Split(pattern, behavior, invert))
    check_ids(tokenizer, save(tokenizer, tmp_path), list(random_texts(8, 300)) + ["", "x", " ", "axx x\nx", SAMPLE[:300]])


@pytest.mark.parametrize("pre_tokenizer", [
    pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer(),
    pre_tokenizers.Punctuation(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(True),
    pre_tokenizers.Digits(False), pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.FixedLength(3),
    pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Metaspace(prepend_scheme="first"),
    pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
    pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Split("o", "removed"),
                             pre_tokenizers.Metaspace(prepend_scheme="first")]),
    pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=True)]),
], ids=str)
def test_pre_tokenizers(tmp_path, pre_tokenizer):
    tokenizer = piece_ends(pre_tokenizer)
    tokenizer.add_tokens([AddedToken("fox", normalized=False)])
    folder = save(tokenizer, tmp_path)
    check_ids(tokenizer, folder, list(every_code_point())[::3])
    check_ids(tokenizer, folder, list(random_texts(9, 600)) + [SAMPLE, "fox fox", " fox a", "a fox b"])


def double_array(rules):
    """SentencePiece charsmap of the rules: a Darts-clone double array in which the children of each node have a separate block."""
    trie, values = {}, b""
    for key, value in rules.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node["value"] = len(values)
        values += value.encode() + b"\0"
    units, free, waiting = {0: 0}, 0x100, [(trie, 0)]
    while waiting:
        node, place = waiting.pop()
        units[place] |= (place ^ free) << 10
        if "value" in node:
            units[place] |= 1 << 8
            units[free] = 1 << 31 | node.pop("value")
        for byte, child in node.items():
            units[free ^ byte] = byte
            waiting.append((child, free ^ byte))
        free += 0x100
    data = b"".join(struct.pack("<I", units.get(place, 0x7FFFFF00)) for place in range(free))
    return struct.pack("<I", len(data)) + data + values


RULES = {"\t": " ", "\r": "", "\n": " ", "\ufb01": "fi", "e\u0301": "\u00e9", "a": "A", "\u00a9": "(c)", "\u0300": "", "\u200d": "",
         "\u1100\u1161": "\uac00", "\u3000": " ", "\u0915": "k", "\U0001f1e6": "I", "\u00bd": "1/2"}
CLUSTERS = ("a e \u0301 \u0300 \u200d \u00a9 \U0001f468 \ufe0f \u0915 \u094d \u0937 \r \n \u1100 \u1161 \u11a8 \uac00 \uac01 \u0600 "
            "\U0001f1e6 \U0001f1e7 \u0903 \u0e33 \u00ad \u0d4e \ufb01 \u00bd \u20dd \U000e0041 \U0001f3fb").split(" ")


def clusters(seed=12, count=3000):
    numbers = random.Random(seed)
    return ["".join(numbers.choice(CLUSTERS) for _ in range(numbers.randrange(1, 9))) for _ in range(count)]


def marks(seed=13, count=3000):
    """Letters, marks of many classes, Hangul and characters that compose with it, in random order."""
    numbers = random.Random(seed)
    points = [c for first, last in [(0x300, 0x370), (0x1100, 0x1200), (0xAC00, 0xAC40), (0xC0, 0x180), (0x900, 0xE00), (0x1DC0, 0x2000),
                                    (0x3040, 0x3100), (0xFB00, 0xFB50), (0x1D150, 0x1D1F0), (0x11080, 0x11140), (0x591, 0x5F0)]
              for c in range(first, last)] + [0x61] * 300 + [0x301, 0x334, 0x345, 0x5B0] * 40
    return ["".join(chr(numbers.choice(points)) for _ in range(numbers.randrange(1, 14))) for _ in range(count)]


@pytest.mark.parametrize("normalizer", [
    normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.Nmt(),
    normalizers.StripAccents(), normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    normalizers.BertNormalizer(), normalizers.BertNormalizer(strip_accents=False, lowercase=True, clean_text=False),
    normalizers.BertNormalizer(strip_accents=True, lowercase=False, handle_chinese_chars=False),
    normalizers.Strip(), normalizers.Strip(left=False), normalizers.Prepend("\u2581"), normalizers.ByteLevel(),
    normalizers.Replace("a", "bb"), normalizers.Replace(Regex(r"\s+"), " "),
    normalizers.Precompiled(double_array(RULES)),
    normalizers.Sequence([normalizers.Precompiled(double_array(RULES)), normalizers.Replace(Regex(" {2,}"), " ")]),
], ids=lambda normalizer: json.loads(normalizer.__getstate__()).get("type"))
def test_normalizers(tmp_path, normalizer):
    tokenizer = bytes_of(normalizer)
    tokenizer.add_tokens([AddedToken("Fox", normalized=True), AddedToken("\u00c5\u0301", normalized=True)])
    folder = save(tokenizer, tmp_path)
    check_ids(tokenizer, folder, list(every_code_point("{0}A{0}")))
    check_ids(tokenizer, folder, marks() + clusters() + list(random_texts(10)) + [SAMPLE, "  \t x  ", "A\u030a\u0301 Fox fox FOX"])


def test_every_pair_with_a_mark(tmp_path):
    points = [c for c in range(0x80, 0x30000) if not 0xD800 <= c <= 0xDFFF]
    texts = [" ".join(f"{chr(c)}\u0301\u0323\u0334{chr(c)}\u3099" for c in points[i:i + 1024]) for i in range(0, len(points), 1024)]
    for number, normalizer in enumerate([normalizers.NFC(), normalizers.NFKD(), normalizers.NFD(), normalizers.NFKC()]):
        tokenizer = bytes_of(normalizer)
        check_ids(tokenizer, save(tokenizer, tmp_path / str(number)), texts)


def llama3():
    tokenizer = byte_level_bpe(LLAMA3, 900)
    model = json.loads(tokenizer.to_str())
    model["model"]["ignore_merges"] = True
    # Tokens that no merge produces; only ignore_merges finds them.
    for token in ["\u0120jumpso", "lazyd", "\u00e4\u00bd\u0142\u00e5"]:
        model["model"]["vocab"][token] = len(model["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(model))
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", 0)])])
    return tokenizer


def test_llama3(tmp_path):
    tokenizer = llama3()
    folder = save(tokenizer, tmp_path)
    check(tokenizer, folder, list(random_texts(14)) + list(real_texts()) + [SAMPLE, " jumpso lazyd", ""])
    check_random_ids(tokenizer, folder)


def test_qwen2(tmp_path):
    tokenizer = byte_level_bpe(QWEN2, 900)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    folder = save(tokenizer, tmp_path)
    check(tokenizer, folder, list(random_texts(15)) + marks() + list(real_texts()) + [SAMPLE, "<|im_start|>user\nA\u030a<|im_end|>"])
    check_random_ids(tokenizer, folder)


def sentencepiece_bpe(variant):
    """BPE of characters with byte fallback, as in Llama 2, in both formats."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    trained.train_from_iterator([SAMPLE, *real_texts()], trainers.BpeTrainer(vocab_size=700, show_progress=False, limit_alphabet=80))
    model = json.loads(trained.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [token for token in sorted(model["vocab"], key=model["vocab"].get) if token not in tokens]
    model.update(vocab={token: id for id, token in enumerate(tokens)}, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(models.BPE(model["vocab"], [tuple(pair) for pair in model["merges"]], unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    if variant == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<x>", normalized=False), AddedToken("fox jumps", normalized=True)])
    return tokenizer


@pytest.mark.parametrize("variant", ["normalizer", "pre_tokenizer"])
def test_sentencepiece_bpe(tmp_path, variant):
    tokenizer = sentencepiece_bpe(variant)
    folder = save(tokenizer, tmp_path)
    texts = list(random_texts(16)) + [text[:60_000] for text in real_texts()]
    check(tokenizer, folder, texts + [SAMPLE, "", " ", "  a  b ", "<s>a</s> b<x>c", "a<x> <x>b", "the fox jumps over"])
    check_ids(tokenizer, folder, list(every_code_point())[::1 if variant == "normalizer" else 8])
    check_random_ids(tokenizer, folder, count=2000)


def test_sentencepiece_bpe_takes_a_megabyte(tmp_path):
    tokenizer = sentencepiece_bpe("pre_tokenizer")
    folder = save(tokenizer, tmp_path)
    texts = ["a" * 1_000_000, "the quick " * 100_000, "\U0001f600" * 250_000]
    assert encode(folder, texts) == [tokenizer.encode(text).ids for text in texts]


def test_bpe_with_unknown_tokens_prefixes_and_suffixes(tmp_path):
    numbers = random.Random(17)
    texts = ["".join(numbers.choice("abcdxy\u00e9 ") for _ in range(numbers.randrange(20))) for _ in range(1000)]
    for number, options in enumerate([
            {}, {"unk_token": "<unk>"}, {"unk_token": "<unk>", "fuse_unk": True},
            {"continuing_subword_prefix": "##"}, {"end_of_word_suffix": "</w>"},
            {"unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"}]):
        tokenizer = Tokenizer(models.BPE(**options))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        parts = {key: value for key, value in options.items() if key in ("continuing_subword_prefix", "end_of_word_suffix")}
        tokenizer.train_from_iterator(["abcd abab cdcd dcba abcabc bcd"] * 4, trainers.BpeTrainer(
            vocab_size=40, show_progress=False, special_tokens=["<unk>"], **parts))
        tokenizer.decoder = decoders.BPEDecoder("</w>")
        folder = save(tokenizer, tmp_path / str(number))
        check_ids(tokenizer, folder, [text for text in texts if tokenizer.encode(text).ids])
        check_random_ids(tokenizer, folder)


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator([SAMPLE, *real_texts()], trainers.WordPieceTrainer(
        vocab_size=900, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    return tokenizer


@pytest.mark.parametrize("processor", [
    processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]),
    processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))],
    ids=["template", "bert", "roberta"])
def test_word_piece(tmp_path, processor):
    tokenizer = bert()
    tokenizer.post_processor = processor
    folder = save(tokenizer, tmp_path)
    check(tokenizer, folder, list(random_texts(18)) + list(real_texts()) + [SAMPLE, "", "x" * 200, "[MASK]ed [MASK]"])
    check_ids(tokenizer, folder, list(every_code_point())[::1 if "BertProcessing" in str(processor) else 8])
    check_random_ids(tokenizer, folder, count=1000)


def test_word_level(tmp_path):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator([SAMPLE], trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False))
    folder = save(tokenizer, tmp_path)
    check(tokenizer, folder, list(random_texts(19)) + [SAMPLE, ""])  # no decoder: joined by spaces
    check_random_ids(tokenizer, folder)


def unigram(byte_fallback):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(double_array(RULES)), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator([SAMPLE * 5, *(text[:100_000] for text in real_texts())], trainers.UnigramTrainer(
        vocab_size=700, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"))
    model = json.loads(tokenizer.to_str())
    if byte_fallback:
        model["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
        model["model"]["byte_fallback"] = True
        model["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, model["decoder"]]}
        tokenizer = Tokenizer.from_str(json.dumps(model))
    return tokenizer


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_unigram(tmp_path, byte_fallback):
    tokenizer = unigram(byte_fallback)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    folder = save(tokenizer, tmp_path)
    check(tokenizer, folder, list(random_texts(20)) + list(real_texts()) + clusters(count=500) + [SAMPLE, "", "<unk> x</s>"])
    check_ids(tokenizer, folder, list(every_code_point())[::8 if byte_fallback else 1])
    check_random_ids(tokenizer, folder, count=1000)


def qwen2():
    tokenizer = byte_level_bpe(QWEN2, 900)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


@pytest.mark.parametrize("make", [llama3, qwen2, bert, lambda: unigram(False), lambda: unigram(True)],
                         ids=["llama3", "qwen2", "word_piece", "unigram", "unigram_bytes"])
def test_hostile_text_of_a_megabyte(tmp_path, make):
    """Checks the ids and that the time is far below that of a quadratic algorithm."""
    tokenizer = make()
    folder = save(tokenizer, tmp_path)
    texts = ["a" * 1_000_000, "\n " * 500_000, "a\u0301\u0323" * 200_000, "12'" * 333_333, "\U0001f600" * 250_000]
    start = time.monotonic()
    ours = encode(folder, texts)
    seconds = time.monotonic() - start
    assert seconds < 20, f"{len(texts)} texts of 1 MB took {seconds:.1f} s"
    for text, ids in zip(texts, ours):
        assert ids == tokenizer.encode(text).ids, text[:20]


@pytest.mark.parametrize("decoder", [
    decoders.ByteLevel(), decoders.WordPiece("##", True), decoders.WordPiece("##", False), decoders.BPEDecoder("</w>"),
    decoders.CTC("<pad>", "|", True), decoders.CTC("<pad>", "|", False), decoders.Metaspace(), decoders.ByteFallback(),
    decoders.Metaspace(prepend_scheme="never"), decoders.Fuse(), decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 2, 0)]),
    decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    decoders.Replace(Regex(r"\W"), "_"), decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]), None], ids=str)
def test_decoders(tmp_path, decoder):
    tokens = ["<unk>", "a", "##b", "c</w>", "</w>", " ", "\u2581", "\u2581d", "e\u2581", "\u2581\u2581", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>",
              "<0xe2>", "<0x+A>", "<0xZZ>", "<0x41>", "<pad>", "|", " n't", ".", " do not", "\u0120the", "\u00f0\u0141", "\u013a\u0122", "\u00e9",
              "\u4f60", "\U0001f600", " .", "!", "'", "ve", "<s>"]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token="<unk>"))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<s>"])
    folder = save(tokenizer, tmp_path)
    numbers = random.Random(21)
    ids = [[numbers.randrange(len(tokens)) for _ in range(numbers.randrange(1, 16))] for _ in range(3000)]
    ours = run(["--model", str(folder), "--json", "--decode"], ids)
    assert ours == [tokenizer.decode(each, skip_special_tokens=False) for each in ids]
