"""Models in several files: each command takes the first, and says in one line what is wrong with the rest.

    WEIR_BIN=build/weir pytest tests/hostile
"""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import tiny_model as tiny  # noqa: E402

WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build" / "weir"))
FIRST, SECOND, THIRD = (f"tiny-0000{i}-of-00003.gguf" for i in (1, 2, 3))
LOGITS = ("logits", "--threads", "1", "--tokens", "1,2,3", "--greedy", "4", "-m")


def weir(*args, **more):
    return subprocess.run([WEIR, *map(str, args)], capture_output=True, text=True, timeout=300,
                          check=False, **more)


@pytest.fixture
def parts(tmp_path):
    for name, data in tiny.split().items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_same_as_whole(parts):
    whole = parts / "whole.gguf"
    whole.write_bytes(tiny.model())
    rows = []
    for path in (whole, parts / FIRST):
        out = parts / "rows"
        run = weir(*LOGITS, path, "--out", out)
        assert run.returncode == 0, run
        rows.append((run.stdout, out.read_bytes()))
    assert rows[0] == rows[1] and len(rows[0][1]) == 4 * tiny.N_VOCAB
    for command in (("tokenize", "-m"), ("run", "--max-tokens", "2", "-p", "ab", "-m")):
        answers = [weir(*command, path, input="ab") for path in (whole, parts / FIRST)]
        assert answers[0].returncode == answers[1].returncode, answers
        assert answers[0].stdout == answers[1].stdout or command[0] == "run", answers


def test_inspect_lists_the_parts(parts):
    run = weir("inspect", parts / FIRST)
    assert run.returncode == 0 and run.stderr == "", run
    assert "parts: 3" in run.stdout and f"tensors: {len(tiny.tensors())}" in run.stdout
    for name in (FIRST, SECOND, THIRD, *tiny.tensors()):
        assert name in run.stdout, name


def test_whatever_their_folder_is_called(parts):
    odd = parts / "a b-00001-of-00009.gguf"
    odd.mkdir()
    for name in (FIRST, SECOND, THIRD):
        (parts / name).rename(odd / name)
    assert weir(*LOGITS, odd / FIRST).returncode == 0
    assert weir(*LOGITS, FIRST, cwd=odd).returncode == 0


def damage_missing(d):
    (d / SECOND).unlink()


def damage_other_name(d):
    (d / FIRST).rename(d / "first.gguf")


def damage_exchanged(d):
    (d / SECOND).rename(d / "t")
    (d / THIRD).rename(d / SECOND)
    (d / "t").rename(d / THIRD)


def damage_other_count(d):
    (d / SECOND).write_bytes(tiny.split(n_parts=4)["tiny-00002-of-00004.gguf"])


def damage_other_model(d):
    (d / SECOND).write_bytes(tiny.split("qwen2")[SECOND])


def damage_no_part(d):
    (d / SECOND).write_bytes(tiny.model())


def damage_truncated(d):
    (d / THIRD).write_bytes((d / THIRD).read_bytes()[:-1])


DAMAGE = [(damage_missing, FIRST, (SECOND, "cannot open")),
          (damage_other_name, "first.gguf", ("first.gguf", "must end in -00001-of-00003.gguf")),
          (damage_exchanged, FIRST, (SECOND, "split.no is 2, expected 1")),
          (damage_other_count, FIRST, (SECOND, "split.count is 4")),
          (damage_other_model, FIRST, (SECOND, "split.tensors.count is 14")),
          (damage_no_part, FIRST, (SECOND, "split.no")),
          (damage_truncated, FIRST, (THIRD, "end past"))]


@pytest.mark.parametrize("damage,name,words", DAMAGE)
@pytest.mark.parametrize("command", [("inspect",), LOGITS, ("serve", "--port", "0", "-m"),
                                     ("tokenize", "-m"), ("run", "-p", "a", "-m"), ("bench", "-m")])
def test_damage(parts, command, damage, name, words):
    damage(parts)
    refused(command, parts / name, *words)


def test_not_the_first(parts):
    refused(("inspect",), parts / SECOND, "part 2 of 3", "name the first, ...-00001-of-00003.gguf")
    refused(LOGITS, parts / THIRD, "part 3 of 3", "name the first")


def refused(command, path, *words):
    run = weir(*command, path, input="")
    lines = [s for s in run.stderr.splitlines() if not s.startswith(("weir: info", "weir: warn"))]
    assert run.returncode == 1 and len(lines) == 1, run
    for word in words:
        assert word in lines[0], run
