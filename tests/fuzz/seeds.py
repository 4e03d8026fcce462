"""Seed corpus of the fuzzer: for each parser (tests/fuzz/parsers.cpp) a few valid inputs, a dictionary of tokens, and every input
that once exposed a defect. tools/fuzz.py writes them to files."""

import gzip
import json
import pathlib
import struct
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(*patterns):
    """Returns the contents of files of the repository, of at most 16 KB each."""
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [path.read_bytes() for path in found if path.stat().st_size <= 16384]


def safetensors(header, data=b""):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(text)) + text + data


VOCABULARY = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4, "Ġa": 5, "##b": 6, "é": 7, "</s>": 8}


def tokenizer(model, **more):
    parts = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    return json.dumps({**parts, **more}).encode()


BPE = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
       "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": VOCABULARY, "merges": ["a b", "Ġ a"]}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
           "vocab": [["<unk>", 0.0], ["▁", -1.0], ["a", -1.5], ["ab", -0.5], ["é", -2.0], ["<0x0A>", -3.0]]}
ADDED = [{"id": 8, "content": "</s>", "single_word": False, "lstrip": True, "rstrip": False, "normalized": False, "special": True}]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def store(*messages):
    """Returns messages of c10d's store, split into chunks of up to 255 bytes, after the greeting."""
    pieces = b""
    for message in messages:
        for at in range(0, len(message), 255):
            pieces += bytes([len(message[at:at + 255])]) + message[at:at + 255]
    return b"\x01" + pieces


def text(value):
    return struct.pack("<Q", len(value)) + value


def token_file(token_bytes, tokens, documents, vocabulary, flags, contents):
    """Returns the input for a token file: the header's fields after its magic number, and the contents after the header."""
    return struct.pack("<IIQQQQQ", 1, token_bytes, tokens, documents, vocabulary, 0, flags) + contents


def manifest(hash="sum of XXH3-128 of 4096", **files):
    return json.dumps({"format": "lockstep-checkpoint", "version": 1, "sequence": 3, "hash": hash, "chunk_bytes": 16 << 20,
                       "files": {name: {"size": size, "chunks": chunks} for name, (size, chunks) in files.items()}}).encode()


HEX = "0123456789abcdef" * 2
NODE = {"id": 0, "host": "n1", "address": "10.0.0.1", "pid": 3, "workers": 1, "node_rank": -1, "probe_port": 4, "probe_token": "x",
        "host_port": 4001, "hosts": False}


def said(*messages):
    return b"\n".join(str(guest).encode() + (json.dumps(message).encode() if not isinstance(message, bytes) else message)
                      for guest, message in messages)


SEEDS = {
    "yaml": files("examples/files/**/*.yaml") + [
        b"a: 1\nb: [1, 2.5, null, ~, true, 'x', \"y\\n\"]\nc: {d: e}\n", b"- &x {a: 1}\n- *x\n- <<: *x\n", b"a: |\n  x\n  y\nb: >-\n  z\n",
        b"---\na: !!int 3\n...\n", b"? a\n: b\n", b"a: 0x1F\nb: 1e5\nc: .inf\nd: 1_000\n"],
    "json_comments": [b'{"a": 1, // c\n "b": [1, 2,], /* d */ "c": "\\u00e9\\n"}', b'{"a": "\\\\"}', b"[1e5, -0.5, null, true]"],
    "json": [b'{"a": [1, 2.5, -3e10, null, true, "\\u00e9"]}', b"[[[[1]]]]", b'"\\ud83d\\ude00"'],
    "override": [b"training.seed=3", b"+a.b=[1,2]", b"++a={b:1,c:'x'}", b"~a", b"model@x=gpt2", b"a=range(1,5)", b"a=choice(a,b)",
                 b"a=${b.c}", b"a=sort(3,1,2)", b"a=int('3')", b"a=\"x\\\"y\"", b"a=1e-4", b"a=null", b"a=interval(0,1)"],
    "command_line": [b"training.seed=3\n--nproc\n2\nmodel.path=x", b"--dry-run\n--learning_rate=1e-4", b"parallel.tensor=2\n--model=x"],
    "configuration": files("examples/files/**/*.yaml") + [
        b"model: {preset: gpt2-small}\ndata: {train: x.txt, sequence_length: 32}\ntraining: {output_dir: run, max_steps: 3}\n",
        b"defaults: [_self_]\ntraining: {seed: ${oc.env:X,3}}\n"],
    "deepspeed": files("examples/files/**/ds*.json") + [
        b'{"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "fp16": {"enabled": "auto"}}',
        b'{"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}}, "gradient_clipping": 1.0}'],
    "tokenizer": [
        tokenizer(BPE), tokenizer(BPE, pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL, post_processor=BYTE_LEVEL),
        tokenizer(BPE, added_tokens=ADDED, normalizer={"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Replace", "pattern": {"String": "b"}, "content": "a"}]}),
        tokenizer(BPE, pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\d"}, "behavior": "Isolated", "invert": False},
            {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"}]}),
        tokenizer(UNIGRAM, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
                  decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
                  normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}),
        tokenizer({"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                   "vocab": VOCABULARY}, normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                                                     "strip_accents": None, "lowercase": True},
                  pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
                  post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                  "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [8], "tokens": ["</s>"]}}}),
        tokenizer({"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "<unk>"}, pre_tokenizer={"type": "Whitespace"}),
        tokenizer({**BPE, "byte_fallback": True, "fuse_unk": True}, decoder={"type": "Sequence", "decoders": [
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})],
    "tokenizer_config": [
        b'{"eos_token": "<e>", "bos_token": {"content": "<s>", "lstrip": true}, "additional_special_tokens": ["<u>", {"content": "<v>"}]}',
        b'{"added_tokens_decoder": {"2": {"content": "<s>", "special": true}, "3": {"content": "x y", "normalized": true}}}',
        b'{"extra_special_tokens": {"image": "<i>"}, "unk_token": null}\n====\n{"<x>": 3, "<y>": 9}'],
    "tokenizer_pair": [json.dumps(VOCABULARY).encode() + b"\n====\n#version: 0.2\na b\n"],
    "regex": [b"\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}]+", b"(?i:'s|'t)|\\s+(?!\\S)|\\s+", b"[a-z&&[^aeiou]]", b"(?<x>a)\\k<x>", b"\\h\\R\\X", b"a{2,3}?b*+",
              b"[[:alpha:]\\x{41}-\\u005a]", b"(?>a|b)(?=c)(?<!d)", b"[^\\r\\n\\p{Lu}\\p{Han}]"],
    "template": [
        b"{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m['content'] | trim }}{% endfor %}{% if add_generation_prompt %}A{% endif %}",
        b"{%- set ns = namespace(x=0) -%}{% for m in messages if m.role == 'user' %}{% set ns.x = ns.x + loop.index %}{% endfor %}{{ ns.x }}",
        b"{% macro f(a, b=2) %}{{ a ~ b }}{% endmacro %}{{ f(1) }}{{ [1,2,3][::-1] | join(', ') }}{{ {'a': 1} | tojson }}",
        b"{% generation %}{{ messages[-1].content }}{% endgeneration %}{# c #}{% raw %}{{ }}{% endraw %}",
        b"{{ raise_exception('x') if n > 5 else 'a' * 3 }}{{ range(3) | list | length }}{{ 'a,b'.split(',') }}{{ 7 // 2 % 2 ** 3 }}",
        b"{% filter upper %}a{% endfilter %}{{ x is defined and not y }}{{ 'abc'[1:] | replace('b', 'd') }}{% with a = 1 %}{{ a }}{% endwith %}"],
    "jsonl": [b'{"text": "a"}\n\n{"text": "b\\n"}\r\n', b'[{"a": 1}, {"b": [1, 2]}]', b'\xef\xbb\xbf{"a": "}"}\n'],
    "csv": [b'a,b\n1,"x ""y"",\nz"\n,\n\n3,4', b"text,label\r\nx,y\r\n", b"\xef\xbb\xbfa\n1\n"],
    "tsv": [b'a\tb\n1\t"x\t"\n'],
    "text": [b"one\n<|endoftext|>\ntwo\r\n\r\nthree", b"\xef\xbb\xbfx\xc3\xa9\n", b"\xff\n"],
    "model_config": [json.dumps(c).encode() for c in (
        {"model_type": "gpt2", "vocab_size": 512, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
        {"model_type": "llama", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 32}},
        {"model_type": "mixtral", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
        {"model_type": "t5", "vocab_size": 512, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 4, "num_layers": 2})],
    "store": [store(b"\x01" + text(b"k") + text(b"v"), b"\x03" + text(b"k")), store(b"\x04" + text(b"n") + struct.pack("<q", 2)),
              store(b"\x02" + text(b"k") + text(b"") + text(b"v")), b"\x00\x04abcd", store(b"\x05" + struct.pack("<Q", 1) + text(b"k"))],
    "agent_message": [json.dumps({"id": 1, "host": "n1", "address": "10.0.0.1", "pid": 3, "workers": 8, "node_rank": -1,
                                  "probe_port": 4000, "probe_token": "x", "host_port": 4001, "hosts": False}).encode(),
                      json.dumps({"job": {"id": "ab", "started": 5, "first_world_size": 4}, "rounds": 2, "restarts": 1, "heirs": 2,
                                  "progress": {"furthest": 7, "in_vain": ["rank 1 on n1: x"]},
                                  "hosts": [{"address": "10.0.0.1", "port": 29400}, {"address": "10.0.0.2", "port": 4001}]}).encode()],
    "failure": [json.dumps({"host": "n1", "rank": 1, "local_rank": 1, "pid": 7, "code": 7, "signal": 0, "time": 5, "error_file": "",
                            "message": "lockstep::Error: x: no answer in 2 s from rank 3", "callstack": "a\nb", "hint": "", "memory": "",
                            "last_lines": ["\x1b[31mx"], "hangs": True, "step": 4}).encode(),
                b'{"message": {"message": "x", "errorCode": 1, "extraInfo": {"py_callstack": "a", "timestamp": "12", "step": 3}}}', b'{"message": "x", "timestamp": 3}'],
    "hostfile": [b"n1 slots=4\n# c\n\nn2 slots=2\n"],
    "hosts": [b"n1@n2:0,2", b"n[01-03,7],m2", b"0:1,12:3", b"[::1]:29500", b"eyJuMSI6IFswLCAxXX0=", b"host:29500"],
    "shell_words": [b"a 'b c' \"d\\\"e\" f\\ g", b"A=1\n# c\nB='x y'\n"],
    "http": [b"GET /runs?token=a%20b&x=1 HTTP/1.1\r\nHost: 127.0.0.1:80\r\nCookie: a=b\r\n\r\n", b"/healthz?steps=20"],
    "control": [b'{"act": "set", "learning_rate": 1e-4, "force": true}', b'{"act": "log", "level": "debug"}', b'{"act": "trace", "steps": 3}', b'{"act": "save"}'],
    "run_record": [b'{"step": 1, "loss": 5.5, "learning_rate": 0.001, "grad_norm": 1.0}\n{"step": 2, "loss": 5.25}\n====\n'
                   b'{"time": 1.0, "step": 0, "event": "began", "model": "gpt2", "plan": "data 2", "ranks": 2, "steps": 10}\n'
                   b'{"time": 3.0, "step": 2, "event": "saved", "in_steps_s": 1.5}\n{"time": 4.0, "step": 2, "event": "finished"}\n'],
    "resumed_record": [
        b'\x01{"step": 1, "loss": 5.5}\n{"step": 2, "loss": 5.25}\n{"step": 3, "loss": 5.0}\n', b'\x02{"step": 1}\n\x00\x00\x00\n{"step": 3}\n{"st',
        b'\x00{"a": 1, "step": 1}\n\n{"step": 2, "b": null}\n'],
    "rank_times": [b"\n".join(json.dumps({
        "step": step, "steps": 1, "step_s": [0.5, 1.0], "data_wait_s": [0, 0], "communication_wait_s": [0.4, 0], "checkpoint_s": [0, 0],
        "moving_s": [0.1, 0.1], "memory_bytes": [1e9, 2e9], "stages": [0, 1]}).encode() for step in (1, 2, 3, 3)) + b"\n"],
    "pulse": [struct.pack("<QQqii", 0x316573_6C75704B4C, 2, 7, 1, 2) + b"\x01" * 2000, b""],
    "safetensors": [
        safetensors({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                     "b": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [8, 14]}}, b"\x01" * 14),
        safetensors({}), safetensors({"a": {"dtype": "I64", "shape": [0], "data_offsets": [0, 0]}}), safetensors(b'{"a":1}'), b"\xff" * 8],
    "manifest": [manifest(), manifest("XXH3-128", **{"model.safetensors": (5, [HEX]), "state.json": (0, []), "o-1": (1 << 25, [HEX, HEX])})],
    "shards": [json.dumps({"metadata": {"total_size": 4}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "x"}}).encode(),
               b'{"weight_map": {"a": "../x"}}'],
    "compressed": [gzip.compress(b"hello " * 50, mtime=0), gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0), b"plain\ntext",
                   bytes.fromhex("28b52ffd24 0b 590000 68656c6c6f20776f726c64".replace(" ", "")), b"BZh9", b"PK\x03\x04", b"\xfd7zXZ\x00",
                   b"\x1f\x8b\x08\x1c" + bytes(6) + b"\x02\x00xyname\x00comment\x00" + zlib.compress(b"q")[2:-4] + bytes(8)],
    "token_file": [
        token_file(2, 4, 2, 9, 0, struct.pack("<4H2Q", 1, 2, 3, 8, 2, 4)),
        token_file(4, 3, 1, 70000, 3, struct.pack("<4I3Q", 1, 69999, 3, 0, 3, 2, 5)), token_file(2, 0, 0, 9, 0, b"")],
    "unicode": ["a\u0301e\u0323\u0301 \uac00\u1100\u1161 \ufb01\u01c4 \U0001F468\u200d\U0001F469\u200d\U0001F467 \u0130\u03a3".encode(), b"\xff\x80a\xc3",
                "\U0001F1E9\U0001F1EA\U0001F1EB \u0915\u094d\u0937 \r\n \u1e9b\u0323".encode()],
    "schedule": [b"0F0, 0F1, 0B0, 0B1\n1F0 1B0 1F1 1B1\n", b"# c\n0F0 0I0 0W0\n1F0 1I0 1W0\nheld: 1 1\n"],
    "cluster": [b"nodes:\n  - {count: 1, devices: 4, device: h100-80gb}\n  - {count: 1, devices: 4, device: v100-32gb, peer_gb_s: 40}\n",
                b"nodes: [{count: 2, devices: 8, device: a100-80gb, network_gb_s: 25}]\n"],
    "trainer_state": [json.dumps({"epoch": 1.5, "global_step": 3, "max_steps": 6, "logging_steps": 1, "best_metric": None, "best_model_checkpoint": "x",
                                  "log_history": [{"epoch": 0.5, "step": 1, "loss": 5.5}], "total_flos": 1e10}).encode()],
    "timer": [b'{"pid": 5, "scope_id": "a", "expiration_time": 1.5e9, "signal": 9}'],
    "strangers": [
        said((0, {"ready": 1}), (0, {"ending": 1, "exit_code": 3, "signal": 9, "failures": ["{}"]})),
        said((0, {"join": "job", "nonce": "x", "proof": HEX + HEX, "node": NODE}), (0, {"ready": 1})),
        said((0, {"join": "job", "nonce": "x", "proof": "", "node": NODE}), (1, {"checked": 0, "problems": ["x"]}), (1, {"beat": 1})),
        said((0, b"{"), (1, {"moved": {"address": "10.0.0.9", "port": 4}, "term": 5, "job": "", "command": ""}), (2, b"\xff"))],
    "member": [
        b'{"ready":1}\n{"checked":0,"problems":[]}\n{"ending":1,"end":"failed","failures":[]}\n{"ended":1,"end":"failed","exit_code":1,"failures":[]}',
        b'{"ready":1}\n{"checked":0,"problems":["p"]}\n{"ready":1}', b'{"beat":1}\n{"moved":{"address":"10.0.0.9","port":4},"term":5,"job":"","command":""}',
        b'{"ready":1}\n{"checked":0,"problems":[]}\n{"ended":1,"end":"succeeded","exit_code":0,"failures":[],"step":4}\n{"ready":1}'],
    "terminal": ["\x1b[31mred\x1b]0;title\x07 \u202e é".encode(), b"\xff\xfe\x80a\tb"],
}

# Inputs that once exposed a defect, now fixed. Every replay runs them.
FOUND = {
    # Uppercasing invalid UTF-8; an index too large for an integer; an empty value repeated two
    # billion times.
    "template": [b"{% filter upper %}a\xff\xf3{% endfilter %}", b"{{ a.22222222222222222222222 }}", b"{{ a|map(attribute='22222222222222222222222')|list }}",
                 b"{{ 'abc'[9:] * 2222222222 }}{{ ([] * 2222222222) | length }}"],
    # A host name that is not valid UTF-8: the JSON library threw an exception.
    "hostfile": [b"n1 slots=4\n#=\n\xf5\x912 slots=2 "],
    # A zero byte: the library treated it as the end and ignored the rest. Found by comparison with
    # Python's reader.
    "json": [b'{"a": 1}\x00{"a": 2}'],
    "safetensors": [safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}\x00{}', b"x")],
    # A normalizer table without a trie: memcpy to a null pointer. A template with an id that is not
    # in the vocabulary.
    "tokenizer": [tokenizer(UNIGRAM, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}),
                  tokenizer(BPE, post_processor={"type": "BertProcessing", "sep": ["</s>", 9], "cls": ["<unk>", 0]})],
    # Frames whose header has a wrong size: accepted or rejected depending on the size of the read
    # buffer.
    "compressed": [bytes.fromhex("28b52ffd310042010000"), bytes.fromhex("28b52ffd32000000680100")],
    # A number that does not fit an int was converted to one.
    "timer": [b'{"pid": 5, "scope_id": "a", "expiration_time": 1.5e9, "signal": 2e21}'],
    "trainer_state": [b'{"global_step": 2e21}'],
    "run_record": [b'====\n{"time": 1.0, "step": 2e21, "event": "saved"}\n'],
    "failure": [b'{"host": "n1", "rank": 2e21}'],
    "agent_message": [b'{"id": 2e21, "host": "n1"}'],
}

# Files of other packages in a parser's format: their test data and the files that they ship (--wild
# of tools/fuzz.py).
WILD = {
    "yaml": ("**/*.yaml", "**/*.yml"), "json": ("**/*.json",), "json_comments": ("**/*.json",), "csv": ("**/*.csv",), "tsv": ("**/*.tsv", "**/*.csv"),
    "jsonl": ("**/*.jsonl", "**/*.ndjson"), "text": ("**/*.txt",), "template": ("**/*.jinja", "**/*.j2", "**/*.jinja2"), "compressed": ("**/*.gz", "**/*.zst"),
    "unicode": ("**/*.txt", "**/*.rst"), "safetensors": ("**/*.safetensors",), "tokenizer": ("**/tokenizer.json",), "regex": (),
}
MOST_WILD = 400  # of one form


def wild(parser, folders=None):
    """Returns distinct files of the installed Python packages and of Python's own tests, of at most 16 KB each, smallest first."""
    folders = folders or [pathlib.Path(path) for path in [*sys.path, *ROOT.glob(".deps/*/lib/python3*/site-packages")] if "python3" in str(path)]
    found = {}
    for folder in folders:
        for pattern in WILD.get(parser, ()):
            for path in folder.glob(pattern):
                if path.is_file() and 0 < path.stat().st_size <= 16384:
                    found.setdefault(path.read_bytes(), None)
    return sorted(found, key=len)[:MOST_WILD]
