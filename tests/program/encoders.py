"""Small encoders in Hugging Face format: config.json and a matching tokenizer."""

import collections
import json
import re

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = {
    "model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32, "intermediate_size": 52, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 64, "type_vocab_size": 2, "pad_token_id": 0,
}
DISTILBERT = {
    "model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"], "dim": 32, "hidden_dim": 52, "n_layers": 2, "n_heads": 2,
    "max_position_embeddings": 64, "pad_token_id": 0,
}
ROBERTA = dict(BERT, model_type="roberta", architectures=["RobertaForMaskedLM"], max_position_embeddings=66, type_vocab_size=1,
               pad_token_id=1, bos_token_id=0, eos_token_id=2)

T5 = {
    "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2,
    "num_decoder_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "dropout_rate": 0.1,
    "feed_forward_proj": "gated-gelu", "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}


def word_pieces(text, words=300):
    """BERT tokenizer with the letters and the most frequent words of `text`."""
    text = text.lower()
    letters = sorted(set(text) - set(" \t\r\n"))
    counted = collections.Counter(re.findall(r"\w+", text))
    vocabulary = SPECIALS + letters + ["##" + letter for letter in letters]
    vocabulary += [word for word, _ in counted.most_common(words) if word not in vocabulary]
    special = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, token in enumerate(SPECIALS)]

    def token(name, kind):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def part(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}

    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": [token("[CLS]", 0), part("A", 0), token("[SEP]", 0)],
            "pair": [token("[CLS]", 0), part("A", 0), token("[SEP]", 0), part("B", 1), token("[SEP]", 1)],
            "special_tokens": {name: {"id": name, "ids": [SPECIALS.index(name)], "tokens": [name]}
                               for name in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {piece: i for i, piece in enumerate(vocabulary)}}}


def byte_pieces(trained):
    """RoBERTa tokenizer: byte-level BPE whose ids are shifted past its special tokens."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = {token: i for i, token in enumerate(specials)}
    for token, _ in sorted(trained["model"]["vocab"].items(), key=lambda item: item[1]):
        if not token.startswith("<|"):
            vocabulary[token] = len(vocabulary)
    vocabulary["<mask>"] = len(vocabulary)
    special = [{"id": vocabulary[token], "content": token, "single_word": False, "lstrip": token == "<mask>", "rstrip": False,
                "normalized": False, "special": True} for token in (*specials, "<mask>")]
    return dict(
        trained, added_tokens=special, model=dict(trained["model"], vocab=vocabulary),
        post_processor={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
                        "add_prefix_space": False})


def ended_pieces(trained):
    """The same vocabulary with T5's template: text, </s>, paired text, </s>."""
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return dict(byte_pieces(trained), post_processor={
        "type": "TemplateProcessing", "single": [first, end], "pair": [first, end, second, end],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}})


def write_folder(folder, config, tokenizer):
    """Writes config.json, with the tokenizer's vocabulary size, and the tokenizer's files."""
    folder.mkdir()
    names = ({"cls_token": "<s>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>",
              "unk_token": "<unk>", "mask_token": "<mask>", "tokenizer_class": "RobertaTokenizer"}
             if config["model_type"] == "roberta" else
             {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "tokenizer_class": "PreTrainedTokenizerFast"}
             if config["model_type"] == "t5" else
             {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]",
              "tokenizer_class": "BertTokenizer"})
    (folder / "config.json").write_text(json.dumps(dict(config, vocab_size=len(tokenizer["model"]["vocab"]))))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
