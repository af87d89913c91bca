"""Damaged GGUF files, given to the program itself: it must exit with status 1 and say in exactly one
line on stderr what is wrong and where. Never a signal, never a byte of the file on the terminal.

    WEIR_BIN=build/weir pytest tests/hostile
"""

import os
import pathlib
import random
import struct
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
from make_corpus_gguf import ARRAY, BOOL, STRING, U32, U64, array, gguf, scalar, string  # noqa: E402

WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build" / "weir"))
BIG = [2**31, 2**32, 2**61, 2**63, 2**64 - 1]
GOOD = gguf([scalar("general.architecture", STRING, "llama"), array("a.words", STRING, ["x", "yz"]),
             array("a.numbers", U32, [1, 2, 3])],
            [("first", 0, (8, 2)), ("second", 8, (64,)), ("third", 12, (256,))])


def inspect(path):
    return subprocess.run([WEIR, "inspect", str(path)], capture_output=True, timeout=300, check=False)


def refused(path, *words):
    run = inspect(path)
    assert run.returncode == 1, run
    assert run.stdout == b"", run
    assert run.stderr.count(b"\n") == 1 and run.stderr.endswith(b"\n"), run
    line = run.stderr[:-1].decode()
    assert line.isprintable(), run
    assert line.startswith("weir inspect: "), line
    for word in words:
        assert word in line, line


def header(n_tensors=0, n_keys=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys)


def tensor(name="w", kind=0, shape=(8,), offset=0):
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def key(name, kind):
    return string(name) + struct.pack("<I", kind)


def one_tensor(**damage):
    head = header(1) + tensor(**damage)
    return head + bytes(-len(head) % 32) + bytes(64)


def two_tensors(name, offset):
    head = header(2) + tensor("first") + tensor(name, offset=offset)
    return head + bytes(-len(head) % 32) + bytes(64)


DAMAGE = {
    "empty": (b"", "empty"),
    "not_gguf": (b"PK\3\4" + bytes(60), "not a GGUF file"),
    "only_magic": (b"GGUF", "header"),
    "version_1": (header(version=1), "version 1"),
    "version_4": (header(version=4), "version 4"),
    "big_endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    **{f"{n:#x}_keys": (header(0, n), "keys") for n in BIG},
    **{f"{n:#x}_tensors": (header(n), "tensors") for n in BIG},
    **{f"key_of_{n:#x}": (header(0, 1) + struct.pack("<Q", n) + bytes(99), "key 0 at byte 24")
       for n in BIG},
    **{f"string_of_{n:#x}": (header(0, 1) + key("k", STRING) + struct.pack("<Q", n) + bytes(99),
                             '"k"') for n in BIG},
    **{f"array_of_{n:#x}": (header(0, 1) + key("k", ARRAY) + struct.pack("<IQ", U64, n) + bytes(99),
                            '"k"', "elements") for n in BIG},
    **{f"strings_{n:#x}": (header(0, 1) + key("k", ARRAY) + struct.pack("<IQ", STRING, n) + bytes(99),
                           '"k"', "strings") for n in BIG},
    "nested_array": (header(0, 1) + key("k", ARRAY) + struct.pack("<IQ", ARRAY, 1) + bytes(99), '"k"'),
    "unknown_kind": (header(0, 1) + key("k", 77) + bytes(99), '"k"', "77"),
    "bool_of_2": (header(0, 1) + key("k", BOOL) + b"\2", '"k"', "bool"),
    "empty_key": (gguf([scalar("", U32, 1)]), "key 0", "empty"),
    "same_key": (gguf([scalar("k", U32, 1), scalar("k", U32, 1)]), 'key 1 "k"', "twice"),
    "escape_in_key": (header(0, 1) + key("\33]0;title\7\n", 77) + bytes(9), "\\x1b", "\\n"),
    **{f"alignment_{n}": (gguf([scalar("general.alignment", U32, n)]), "general.alignment")
       for n in (0, 1, 24, 2**31)},
    "alignment_text": (gguf([scalar("general.alignment", STRING, "32")]), "general.alignment"),
    "no_dimension": (one_tensor(shape=()), '"w"', "0 dimensions"),
    "five_dimensions": (one_tensor(shape=(1,) * 5), '"w"', "5 dimensions"),
    "zero_rows": (one_tensor(shape=(8, 0)), '"w"', "dimension 1 is 0"),
    **{f"shape_{n:#x}": (one_tensor(shape=(n, n)), '"w"', "larger than the file") for n in BIG},
    "product_wraps": (one_tensor(shape=(2**16,) * 4), '"w"', "larger than the file"),
    "half_a_block": (one_tensor(kind=8, shape=(33,)), '"w"', "Q8_0"),
    "withdrawn_type": (one_tensor(kind=4, shape=(32,)), '"w"', "type 4 "),
    "unknown_type": (one_tensor(kind=2**32 - 1), '"w"', "type 4294967295 "),
    "offset_unaligned": (one_tensor(offset=4), '"w"', "offset 4"),
    **{f"offset_{n:#x}": (one_tensor(offset=n // 32 * 32), '"w"', "end past") for n in BIG},
    "same_name": (two_tensors("first", 32), 'tensor 1 "first"', "twice"),
    "no_name": (two_tensors("", 32), "tensor 1", "empty"),
    "overlap": (two_tensors("second", 0), "overlap"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged(tmp_path, name):
    data, *words = DAMAGE[name]
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    refused(path, "damaged.gguf: ", *words)


def test_truncated(tmp_path):
    path = tmp_path / "short.gguf"
    for n in sorted(random.Random(1).sample(range(len(GOOD)), 60)):
        path.write_bytes(GOOD[:n])
        refused(path, "short.gguf: ")


def test_truncated_model(tmp_path):
    model = ROOT / "models" / "weir-nano.gguf"
    if not model.exists():
        pytest.skip("no built-in model")
    data = model.read_bytes()
    path = tmp_path / "short.gguf"
    for n in (100, 1000, 20000, 47000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:n])
        refused(path, "short.gguf: ")


def test_random_damage(tmp_path):
    """Whether or not a damaged file is still a valid one, there is an answer, and no signal."""
    path = tmp_path / "damaged.gguf"
    rng = random.Random(2)
    statuses = set()
    for _ in range(150):
        data = bytearray(GOOD)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data) - 256)] = rng.randrange(256)
        path.write_bytes(data)
        run = inspect(path)
        statuses.add(run.returncode)
        assert run.returncode in (0, 1), run
        assert run.stderr.count(b"\n") == run.returncode, run
    assert statuses == {0, 1}


def test_not_a_file(tmp_path):
    refused(tmp_path / "absent.gguf", "absent.gguf", "No such file")
    refused(tmp_path, "not a regular file")
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", "not a regular file")
    refused("/dev/zero", "not a regular file")


def test_sparse_giant(tmp_path):
    """A file may claim as many keys as its holes have room for: still no memory is taken for them."""
    path = tmp_path / "sparse.gguf"
    path.write_bytes(header(0, 2**33))
    os.truncate(path, 2**40)
    refused(path, "8589934592 keys")


def test_good(tmp_path):
    path = tmp_path / "good.gguf"
    path.write_bytes(GOOD)
    run = inspect(path)
    assert run.returncode == 0 and run.stderr == b"", run
    for word in (b"version 3", b'"llama"', b'["x", "yz"]', b"u32[3]", b"Q4_K", b"third", b"8 x 2"):
        assert word in run.stdout, run.stdout


def test_output_is_printable(tmp_path):
    path = tmp_path / "escapes.gguf"
    nasty = b"\x1b[2J\x1b]0;t\x07\x00\xff\r\xc2\x9b31m\xe2\x80\xae\n"
    path.write_bytes(gguf([scalar(nasty, STRING, nasty), array("a", STRING, [nasty])],
                          [(nasty, 0, (8,))]))
    for options in ([], ["--full"]):
        run = subprocess.run([WEIR, "inspect", *options, str(path)], capture_output=True, check=True)
        assert run.stdout.decode().replace("\n", "").isprintable(), run.stdout
