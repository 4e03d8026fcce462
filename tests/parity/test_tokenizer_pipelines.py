"""Tokenizers with randomly drawn components. test_tokenizer_families.py tests each component alone; this file tests combinations: added tokens after
normalizers that change lengths, prefixes of pieces that were split, chains of decoders."""

import json
import pathlib
import random
import sys

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_tokenizers import check, random_texts, save  # noqa: E402

NORMALIZERS = [
    normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase, normalizers.StripAccents, normalizers.Nmt,
    normalizers.Strip, lambda: normalizers.Strip(right=False), lambda: normalizers.Prepend("\u2581"), lambda: normalizers.Prepend("x "),
    lambda: normalizers.Replace(" ", "\u2581"), lambda: normalizers.Replace(Regex(r"\s+"), " "), lambda: normalizers.Replace("a", ""),
    lambda: normalizers.Replace(Regex("(?i)t(he)?"), "\u00e9\u00e9"), normalizers.BertNormalizer,
    lambda: normalizers.BertNormalizer(clean_text=False, lowercase=False),
]
CUTTERS = [
    pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer, pre_tokenizers.Punctuation,
    lambda: pre_tokenizers.Punctuation("merged_with_next"), pre_tokenizers.Digits, lambda: pre_tokenizers.Digits(True),
    lambda: pre_tokenizers.CharDelimiterSplit("e"), lambda: pre_tokenizers.FixedLength(4), pre_tokenizers.Metaspace,
    lambda: pre_tokenizers.Metaspace(prepend_scheme="first"), lambda: pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
    lambda: pre_tokenizers.Split(Regex(r"\d{1,3}"), "isolated"), lambda: pre_tokenizers.Split(" ", "merged_with_previous"),
    lambda: pre_tokenizers.Split(Regex(r"\p{L}+"), "removed", invert=True), lambda: pre_tokenizers.Split(Regex("s|\u00e9"), "contiguous"),
]
DECODERS = [
    decoders.ByteLevel, decoders.ByteFallback, decoders.Fuse, decoders.Metaspace, lambda: decoders.Metaspace(prepend_scheme="never"),
    lambda: decoders.Replace("\u2581", " "), lambda: decoders.Strip(" ", 1, 0), lambda: decoders.Strip("a", 0, 2),
    lambda: decoders.BPEDecoder("</w>"), lambda: decoders.WordPiece("##", False), lambda: decoders.CTC("a", "|", True),
]
ADDED = ["<x>", "the", "then", "  ", "\u00c9t", "9", "a\u0301", "\u2581", "[MASK]", "S"]
TEXTS = ["", " ", "the  then\u00e9 The", "<x> [MASK]<x>the", "\u00c9t\u00e9 e\u0301t\u00e9 a\u0301", "  99 9a S\u017f", "\u2581the \u2581", "\ufb01 \u00bd \u3000the"]


def pipeline(seed):
    numbers = random.Random(seed)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<unk>", *alphabet, *(character + "</w>" for character in alphabet), "<s>", "</s>", "\u0120t", "he", "\u0120the"]
    merges = [("\u0120", "t"), ("h", "e"), ("\u0120t", "he")] if numbers.random() < 0.5 else []
    suffix = {} if numbers.random() < 0.5 else {"end_of_word_suffix": "</w>"}
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges, unk_token="<unk>", **suffix))
    chosen = [make() for make in numbers.choices(NORMALIZERS, k=numbers.randrange(4))]
    if chosen:
        tokenizer.normalizer = chosen[0] if len(chosen) == 1 else normalizers.Sequence(chosen)
    cutters = [make() for make in numbers.choices(CUTTERS, k=numbers.randrange(4))]
    last = pre_tokenizers.ByteLevel(add_prefix_space=numbers.random() < 0.3, use_regex=numbers.random() < 0.4)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cutters, last])
    chain = [make() for make in numbers.choices(DECODERS, k=numbers.randrange(4))]
    if chain:
        tokenizer.decoder = chain[0] if len(chain) == 1 else decoders.Sequence(chain)
    for token in numbers.sample(ADDED, numbers.randrange(5)):
        added = AddedToken(token, **{flag: numbers.random() < 0.4 for flag in ("single_word", "lstrip", "rstrip", "normalized")})
        (tokenizer.add_special_tokens if numbers.random() < 0.4 else tokenizer.add_tokens)([added])
    ends = [("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))]
    tokenizer.post_processor = numbers.choice([
        processors.ByteLevel(), processors.BertProcessing(ends[1], ends[0]), processors.RobertaProcessing(ends[1], ends[0]),
        processors.TemplateProcessing(single="<s> $A </s> </s>", pair="$A $B", special_tokens=ends)])
    return tokenizer


def panics(tokenizer, texts):
    """True if Hugging Face's library panics, as its Strip decoder does within a character."""
    try:
        for encoding in tokenizer.encode_batch(texts):
            tokenizer.decode(encoding.ids, skip_special_tokens=False)
    except BaseException as error:  # a panic is not an Exception
        if type(error).__name__ != "PanicException":
            raise
        return True
    return False


@pytest.mark.parametrize("first", range(0, 160, 20))
def test_random_pipelines(tmp_path, first):
    compared = 0
    for seed in range(first, first + 20):
        tokenizer = pipeline(seed)
        texts = [*TEXTS, *random_texts(seed, 60)]
        if panics(tokenizer, texts):
            continue
        folder = save(tokenizer, tmp_path / str(seed))
        try:
            check(tokenizer, folder, texts)
        except AssertionError as error:
            parts = {key: part for key, part in json.loads(tokenizer.to_str()).items() if key != "model"}
            raise AssertionError(f"pipeline {seed}: {error}\n{json.dumps(parts, ensure_ascii=False)}") from error
        compared += 1
    assert compared >= 15
