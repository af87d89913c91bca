"""Write the seeds of the segment fuzzer. segment() is the file format written a second time, so
tests that need segments use it too.

    python3 make_corpus_segment.py [FOLDER]        (default: corpus/segment beside this file)
"""

import ctypes
import ctypes.util
import hashlib
import struct

import seeds

_xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def xxh3(data):
    return _xxhash.XXH3_64bits(data, len(data))


def block_key(parent, tokens):
    return hashlib.sha256(b"weir kv block 1\0" + parent + struct.pack(f"<{len(tokens)}i", *tokens)
                          ).digest()


def segment(tokens, payload, parent=bytes(32), fingerprint=bytes(range(32)), key=None, version=1,
            n_tokens=None, payload_bytes=None):
    """A whole segment; what is given beside its content is written instead of what would be right,
    under right checksums."""
    packed = struct.pack(f"<{len(tokens)}i", *tokens)
    head = b"weir kv\n" + struct.pack(
        "<IIQQQ", version, len(tokens) if n_tokens is None else n_tokens,
        len(payload) if payload_bytes is None else payload_bytes, xxh3(packed), xxh3(payload))
    head += fingerprint + parent + (key or block_key(parent, tokens))
    return head + struct.pack("<Q", xxh3(head)) + packed + payload


TOKENS, PAYLOAD = [1, -1, 0, 151643], bytes(i * 7 % 256 for i in range(96))
GOOD = segment(TOKENS, PAYLOAD)

# The first byte is the fuzzer's: 0 for bytes as they are, 1 to mend the checksums first.
SEEDS = {
    "empty": b"",
    "nothing": b"\0",
    "good": b"\0" + GOOD,
    "good_mended": b"\1" + GOOD,
    "smallest": b"\0" + segment([0], b"x"),
    "behind_another": b"\0" + segment(TOKENS, PAYLOAD, parent=bytes(range(100, 132))),
    "torn": b"\0" + GOOD[:-1],
    "head_only": b"\0" + GOOD[:144],
    "torn_head": b"\0" + GOOD[:143],
    "longer": b"\0" + GOOD + b"\0",
    "flipped": b"\0" + GOOD[:-5] + bytes([GOOD[-5] ^ 1]) + GOOD[-4:],
    "version": b"\0" + segment(TOKENS, PAYLOAD, version=2),
    "key": b"\0" + segment(TOKENS, PAYLOAD, key=bytes(32)),
    "no_tokens": b"\0" + segment([], PAYLOAD),
    "no_payload": b"\0" + segment(TOKENS, b""),
    "many_tokens": b"\0" + segment(TOKENS, PAYLOAD, n_tokens=2**32 - 1),
    "much_payload": b"\0" + segment(TOKENS, PAYLOAD, payload_bytes=2**64 - 1),
    "sizes_overflow": b"\0" + segment(TOKENS, PAYLOAD, n_tokens=65536, payload_bytes=2**64 - 2**18),
    "sizes_traded": b"\0" + segment(TOKENS, PAYLOAD, n_tokens=8, payload_bytes=80),
    "zeros": b"\1" + bytes(len(GOOD)),
}

if __name__ == "__main__":
    seeds.write("segment", ".bin", SEEDS)
