#!/usr/bin/env python3
"""Write the first seeds of corpus/tokenizer: make_corpus_tokenizer.py FOLDER.

The first byte tells fuzz_tokenizer.c what follows: 0 a vocabulary (a GGUF file), 1 a text, 3 a
trusted text.
"""
import struct
import sys
from pathlib import Path

STRING, I32, F32, BOOL, U32, ARRAY = 8, 5, 6, 7, 4, 9
PREFIX = "tokenizer.ggml."


def string(s):
    return struct.pack("<Q", len(s)) + s


def field(key, kind, value):
    return string((PREFIX + key).encode()) + struct.pack("<I", kind) + value


def array(key, kind, values):
    pack = {STRING: string, I32: lambda v: struct.pack("<i", v), F32: lambda v: struct.pack("<f", v)}
    body = b"".join(map(pack[kind], values))
    return field(key, ARRAY, struct.pack("<IQ", kind, len(values)) + body)


def gguf(*fields):
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + b"".join(fields)


def bpe():
    tokens = [bytes([c]) for c in range(33, 127)] + ["\u0120".encode(), "\u010a".encode()]
    tokens += [b"He", b"lo", b"llo", b"<|im_end|>", b"<u>"]
    return gguf(
        field("model", STRING, string(b"gpt2")),
        field("pre", STRING, string(b"qwen2")),
        array("tokens", STRING, tokens),
        array("token_type", I32, [1] * (len(tokens) - 2) + [3, 4]),
        array("merges", STRING, [b"H e", b"l o", b"l lo"]),
        field("eos_token_id", U32, struct.pack("<I", len(tokens) - 2)),
    )


def spm():
    tokens = [b"<unk>", b"<s>", b"</s>", "\u2581".encode(), b"H", b"e", b"He", b"<0xFF>", b"<0x0A>"]
    return gguf(
        field("model", STRING, string(b"llama")),
        array("tokens", STRING, tokens),
        array("token_type", I32, [2, 3, 3, 1, 1, 1, 1, 6, 6]),
        array("scores", F32, [0, 0, 0, -1, -2, -3, -1, 0, 0]),
        field("bos_token_id", U32, struct.pack("<I", 1)),
        field("eos_token_id", U32, struct.pack("<I", 2)),
        field("add_space_prefix", BOOL, b"\1"),
    )


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "bpe").write_bytes(b"\0" + bpe())
(folder / "spm").write_bytes(b"\0" + spm())
(folder / "text").write_bytes(b"\1the the  </s>th\xc3\xa9\xff\n<tool>")
(folder / "trusted").write_bytes(b"\3the</s>the<tool> the</s></s>\xe2\x96")
