#!/usr/bin/env python3
"""Write the first seeds of corpus/tokenizer: make_corpus_tokenizer.py FOLDER.

The first byte tells fuzz_tokenizer.c what follows: 0 a vocabulary (a GGUF file), 1 a text, 3 a
trusted text; 5 and 7 the same behind a byte that chooses the vocabulary.
"""
import struct
import sys
from pathlib import Path

U8, STRING, I32, F32, BOOL, U32, ARRAY = 0, 8, 5, 6, 7, 4, 9
W = "\u2581".encode()
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
        array("suppress_tokens", I32, [3, 8, -1, 3, 9]),
    )


def wpm():
    tokens = [b"[UNK]", b"[CLS]", b"[SEP]"] + [W + w for w in (b"hello", b"12", b"<", b"|", b">")]
    return gguf(
        field("model", STRING, string(b"bert")),
        array("tokens", STRING, tokens),
        array("token_type", I32, [2, 3, 3] + [1] * (len(tokens) - 3)),
        field("unknown_token_id", U32, struct.pack("<I", 0)),
        field("normalizer.strip_accents", BOOL, b"\1"),
    )


def ugm():
    tokens = [b"<pad>", b"</s>", b"<unk>", W, W + b"He", b"l", b"lo", b"12", b"<u>"]
    units = [0] * 256
    units[ord("H")] = ord("H") | 1 << 8 | 0x80 << 10
    units[ord("H") ^ 0x80] = 1 << 31
    charsmap = struct.pack("<I256I", 1024, *units) + b"h\0"
    return gguf(
        field("model", STRING, string(b"t5")),
        array("tokens", STRING, tokens),
        array("token_type", I32, [3, 3, 2, 1, 1, 1, 1, 1, 4]),
        array("scores", F32, [0, 0, 0, -2, -3, -3, -4, -5, 0]),
        field("precompiled_charsmap", ARRAY, struct.pack("<IQ", U8, len(charsmap)) + charsmap),
        field("remove_extra_whitespaces", BOOL, b"\1"),
    )


def plamo():
    tokens = [b"<0x%02X>" % b for b in range(256)] + [b"He", b"l", b"lo", "\u304b".encode(), b"12", b"<u>"]
    return gguf(
        field("model", STRING, string(b"plamo2")),
        array("tokens", STRING, tokens),
        array("token_type", I32, [6] * 256 + [1] * 5 + [4]),
        array("scores", F32, [0] * 256 + [-3, -3, -4, -5, -2001, 0]),
    )


def rwkv():
    tokens = [b"<s>"] + [b"\\x%02x" % b for b in range(256)] + [b"He", b"Hel", b"lo", b"\\n\\n", b"\\xe3\\x81", b"\\\\"]
    return gguf(
        field("model", STRING, string(b"rwkv")),
        array("tokens", STRING, tokens),
        array("token_type", I32, [3] + [1] * (len(tokens) - 1)),
    )


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "bpe").write_bytes(b"\0" + bpe())
(folder / "spm").write_bytes(b"\0" + spm())
(folder / "text").write_bytes(b"\1the the  </s>th\xc3\xa9\xff\n<tool>")
(folder / "trusted").write_bytes(b"\3the</s>the<tool> the</s></s>\xe2\x96")
(folder / "wpm").write_bytes(b"\0" + wpm())
(folder / "ugm").write_bytes(b"\0" + ugm())
(folder / "plamo").write_bytes(b"\0" + plamo())
(folder / "rwkv").write_bytes(b"\0" + rwkv())
mixed = "the 12345 's'LL  \n\r\n\u4e2d\u304b\ud55c e\u0301 ABc...</s>\u0663 <sentinel:1>IMGIMGAZ\t x\u3000"
for i in range(40):
    (folder / f"words{i:02}").write_bytes(bytes([5 + 2 * (i % 2), i]) + mixed.encode() + b"\xff \xe4")
