"""weir cache: list, verify and remove segments of a disk cache, which are made here by hand."""

import fcntl
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/weir"))
sys.path.insert(0, str(ROOT / "tests/fuzz"))
from make_corpus_segment import block_key, segment  # noqa: E402

MODEL_A, MODEL_B = bytes([0xab, 0xcd]) + bytes(30), bytes([0x12]) + bytes(31)
PAYLOAD = bytes(i * 11 % 256 for i in range(500))


def weir(*args):
    return subprocess.run([WEIR, "cache", *map(str, args)], capture_output=True, timeout=300,
                          env={**os.environ, "TZ": "UTC"})


def add(root, number, fingerprint=MODEL_A, tokens=16, **kwargs):
    """Segment `number` under its right name; its path."""
    ids = [number * 1000 + i for i in range(tokens)]
    name = block_key(bytes(32), ids).hex()
    path = root / fingerprint[:8].hex() / name[:2] / f"{name}.kv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(segment(ids, PAYLOAD, fingerprint=fingerprint, **kwargs))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return path


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "lock").touch()
    for number in range(3):
        add(tmp_path, number)
    add(tmp_path, 7, MODEL_B, tokens=8)
    (tmp_path / MODEL_A[:8].hex() / "about").write_text("model A, q8_0\n")
    return tmp_path


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


@pytest.mark.parametrize("args", [[], ["ls"], ["list", "."], ["ls", ".", "."], ["ls", "--bad", "."],
                                  ["verify", "--bad", "."], ["rm"], ["ls", "--nonsense", "."]])
def test_wrong_use_is_2(args):
    r = weir(*args)
    assert r.returncode == 2 and r.stderr and not r.stdout, r


@pytest.mark.parametrize("action", ["ls", "verify", "rm"])
def test_no_such_folder(action, tmp_path):
    for path in (tmp_path / "absent", "/dev/null"):
        r = weir(action, path)
        assert r.returncode == 1 and r.stderr.startswith(b"weir cache: ") and not r.stdout, r
        assert len(r.stderr.splitlines()) == 1


def test_ls(cache):
    r = weir("ls", cache)
    assert r.returncode == 0 and not r.stderr, r
    lines = r.stdout.decode().splitlines()
    of = {line.split()[0]: line for line in lines}
    size = 144 + 64 + 500
    a = of["abcd000000000000"].split()
    assert a[1:4] == ["3", "48", str(3 * size)]
    assert a[4:8] == ["2023-11-14", "22:13:20", "2023-11-14", "22:13:22"]
    assert of["abcd000000000000"].endswith("model A, q8_0")
    assert of["1200000000000000"].split()[1:4] == ["1", "8", str(size - 32)]
    assert of["all"].split()[1:] == ["4", "56", str(4 * size - 32)]
    assert "other files: 1, 14 bytes" in lines[-1]


def test_ls_shows_no_escape_sequences(cache):
    (cache / MODEL_B[:8].hex() / "about").write_bytes(b"\x1b[2Jred\xff\0")
    r = weir("ls", cache)
    assert r.returncode == 0 and b"\x1b" not in r.stdout and b"\\x1b[2Jred" in r.stdout


def test_ls_of_nothing(tmp_path):
    r = weir("ls", tmp_path)
    assert r.returncode == 0 and r.stdout.split()[-4:] == [b"all", b"0", b"0", b"0"]
    assert files(tmp_path) == []


def test_verify_good(cache):
    before = files(cache)
    r = weir("verify", cache)
    assert r.returncode == 0 and r.stdout == b"4 segments: 4 good, 0 bad\n" and not r.stderr, r
    assert files(cache) == before


def damaged(cache):
    """One of each kind of damage, by a part of what is said about it."""
    bad = {}
    for number, (text, how) in enumerate({
        "payload's checksum": lambda p: flip(p, 400),
        "tokens' checksum": lambda p: flip(p, 150),
        "header's checksum": lambda p: flip(p, 70),
        "does not begin": lambda p: flip(p, 0),
        "torn": lambda p: os.truncate(p, 600),
        "no header": lambda p: os.truncate(p, 0),
    }.items(), 100):
        path = add(cache, number)
        how(path)
        bad[text] = path
    bad["version 2"] = add(cache, 120, version=2)
    bad["key is not that of its tokens"] = add(cache, 121, key=bytes(32))
    bad["another model"] = add(cache, 122)
    bad["another model"].write_bytes(segment([122000 + i for i in range(16)], PAYLOAD,
                                             fingerprint=MODEL_B))
    other, there = add(cache, 123), add(cache, 124)
    there.write_bytes(other.read_bytes())
    bad["its key is not its name"] = there
    bad["of another model"] = bad.pop("another model")
    return bad


def test_verify_names_each_bad_segment(cache):
    bad = damaged(cache)
    r = weir("verify", cache)
    lines = r.stdout.decode().splitlines()
    assert r.returncode == 1 and lines[-1] == f"15 segments: 5 good, {len(bad)} bad", r
    for text, path in bad.items():
        line = [x for x in lines if x.startswith(str(path.relative_to(cache)) + ": ")]
        assert len(line) == 1 and text in line[0], (text, line)
    assert b"damaged or of another version: 5;" in weir("ls", cache).stdout


def test_rm_bad(cache):
    before = files(cache)
    bad = damaged(cache)
    good = [f for f in files(cache) if cache / f not in bad.values()]
    r = weir("rm", "--bad", cache)
    assert r.returncode == 0 and f"removed {len(bad)} segments".encode() in r.stdout, r
    assert files(cache) == good and set(before) < set(good)
    assert weir("verify", cache).returncode == 0


def test_rm_leaves_strangers(cache):
    outside = cache.parent / "outside.kv"
    outside.write_bytes(b"x")
    (cache / "notes").write_text("mine")
    name = "ab" + "0" * 62
    folder = cache / MODEL_A[:8].hex() / "ab"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.kv").symlink_to(outside)
    (folder / f"{name}.tmp").write_bytes(b"left over")
    (folder / f"{name}.txt").write_bytes(b"mine too")
    assert b": 4 segments" not in weir("verify", cache).stdout
    r = weir("rm", cache)
    assert r.returncode == 0 and r.stdout.startswith(b"removed 4 segments, "), r
    left = [f"{MODEL_A[:8].hex()}/{f}" for f in ("about", f"ab/{name}.kv", f"ab/{name}.txt")]
    assert files(cache) == sorted(left + ["lock", "notes"])
    assert outside.exists() and not (cache / MODEL_B[:8].hex()).exists()


def test_rm_all(cache):
    assert weir("rm", cache).returncode == 0
    assert [p.name for p in cache.iterdir()] == ["lock"]


def test_rm_refuses_beside_a_server(cache):
    before = files(cache)
    with open(cache / "lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for args in (["rm"], ["rm", "--bad"]):
            r = weir(*args, cache)
            assert r.returncode == 1 and b"a server writes to it" in r.stderr and not r.stdout, r
            assert len(r.stderr.splitlines()) == 1
        assert weir("verify", cache).returncode == 0
    assert files(cache) == before
    assert weir("rm", "--bad", cache).returncode == 0
    assert files(cache) == before


def test_rm_refuses_what_is_no_cache(tmp_path):
    add(tmp_path, 1)
    before = files(tmp_path)
    r = weir("rm", tmp_path)
    assert r.returncode == 1 and b"no lock file" in r.stderr, r
    assert files(tmp_path) == before
