"""Write the seeds of the GGUF fuzzer: small files, each of which shows it one thing more.

    python3 make_corpus_gguf.py [FOLDER]        (default: corpus/gguf beside this file)
"""

import struct

import seeds

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B",
        U64: "Q", I64: "q", F64: "d"}
# type: (values, bytes) of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 10: (256, 84), 12: (256, 144),
          14: (256, 210), 30: (1, 2), 39: (32, 17)}


def string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    return string(v) if kind == STRING else struct.pack("<" + PACK[kind], v)


def scalar(key, kind, v):
    return string(key) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, values):
    head = string(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(value(kind, v) for v in values)


def gguf(keys=(), tensors=(), version=3, alignment=32):
    """tensors: (name, type, shape); their data follow each other, aligned."""
    infos, data = b"", b""
    for name, kind, shape in tensors:
        n_values, n_bytes = BLOCKS[kind]
        size = n_bytes * shape[0] // n_values
        for n in shape[1:]:
            size *= n
        data += bytes(-len(data) % alignment)
        infos += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += bytes(i * 7 % 256 for i in range(size))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + infos
    return head + bytes(-len(head) % alignment) + data if tensors else head


SCALARS = [scalar(f"k.{kind}", kind, "text" if kind == STRING else 1) for kind in range(13)
           if kind != ARRAY]
ARRAYS = [array(f"a.{kind}", kind, ["one", "", "three"] if kind == STRING else [0, 1, 1])
          for kind in range(13) if kind != ARRAY]

SEEDS = {
    "empty": b"",
    "magic": b"GGUF",
    "version1": gguf(version=1),
    "version2": gguf(SCALARS[:2], version=2),
    "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "nothing": gguf(),
    "scalars": gguf(SCALARS),
    "arrays": gguf(ARRAYS),
    "empty_array": gguf([array("a", F64, [])]),
    "nested_array": gguf([string("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(24)]),
    "not_finite": gguf([scalar("nan", F32, float("nan")), scalar("inf", F64, float("inf")),
                        scalar("big", F64, 1e300)]),
    "limits": gguf([scalar("u", U64, 2**64 - 1), scalar("i", I64, -(2**63)), scalar("h", I8, -1)]),
    "bytes": gguf([scalar("s", STRING, b"\x1b[2J\0\xff\xc3\xe2\x80\xae\n"), scalar(b"\xff", U8, 1)]),
    "alignment": gguf([scalar("general.alignment", U32, 8)],
                      [("a", 0, (3, 1)), ("b", 0, (5,))], alignment=8),
    "bad_alignment": gguf([scalar("general.alignment", U32, 24)], [("a", 0, (4,))]),
    "twice": gguf([scalar("k", U8, 1)] * 2),
    "same_name": gguf([], [("w", 0, (8,))] * 2),
    "dims": gguf([], [("w", 0, (2, 2, 2, 2)), ("v", 1, (1, 1, 1))]),
    **{f"type{kind}": gguf([], [("w", kind, (n, 2))]) for kind, (n, _) in BLOCKS.items()},
    "model": gguf([scalar("general.architecture", STRING, "llama"),
                   scalar("llama.block_count", U32, 1),
                   array("tokenizer.ggml.tokens", STRING, ["<s>", "a", "b"]),
                   array("tokenizer.ggml.scores", F32, [0.0, -1.0, -2.0])],
                  [("token_embd.weight", 8, (32, 3)), ("output_norm.weight", 0, (32,))]),
    "truncated": gguf(SCALARS + ARRAYS, [("w", 8, (32, 2))])[:-9],
    "huge_counts": b"GGUF" + struct.pack("<IQQ", 3, 2**61, 2**61) + bytes(64),
    "huge_string": gguf([string("k") + struct.pack("<IQ", STRING, 2**64 - 4)]),
    "huge_shape": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + string("w")
                  + struct.pack("<IQQIQ", 2, 2**32, 2**32, 0, 0) + bytes(64),
}

if __name__ == "__main__":
    seeds.write("gguf", ".gguf", SEEDS)
