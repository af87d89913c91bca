"""`weir render`: the text exactly, errors in one line; and beside Python's Jinja2, where it is."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/weir"))
FIXTURES = os.environ.get("WEIR_FIXTURES")
NOW = "2026-11-20T12:00:00"


def render(template, context, folder, *more):
    path = folder / "t.jinja"
    path.write_bytes(template if isinstance(template, bytes) else template.encode())
    return subprocess.run(
        [WEIR, "render", "--template", str(path), "--context", "-", "--now", NOW, *more],
        input=context if isinstance(context, bytes) else json.dumps(context).encode(),
        capture_output=True, timeout=300)


def test_exact_text(tmp_path):
    r = render("a\n{{ x }}\n\n", {"x": "ü\n"}, tmp_path)
    assert (r.returncode, r.stdout, r.stderr) == (0, "a\nü\n\n".encode(), b"")
    assert render("{{ strftime_now('%d %B %Y %H:%M') }}", {}, tmp_path).stdout == \
        b"20 November 2026 12:00"


def test_built_in_model(tmp_path):
    context = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
    path = tmp_path / "c.json"
    path.write_text(json.dumps(context))
    r = subprocess.run([WEIR, "render", "--context", str(path)], capture_output=True, timeout=300)
    assert r.returncode == 0
    assert r.stdout == b"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("template, context, words", [
    ("{% if %}", {}, "line 1"), ("x\n{{ a.b }}", {}, "line 2: 'a' is undefined"),
    ("{{ raise_exception('no\nway') }}", {}, "no way"), ("{% include 'x' %}", {}, "include"),
    ("x", b"{", "context"), ("x", b"[]", "object"), (b"\xff", {}, "UTF-8"),
])
def test_errors(template, context, words, tmp_path):
    r = render(template, context, tmp_path)
    assert r.returncode == 1 and r.stdout == b""
    assert r.stderr.startswith(b"weir render: ") and r.stderr.count(b"\n") == 1
    assert words in r.stderr.decode()


def test_usage():
    for args in ([], ["--context", "x", "--now", "soon"], ["--context", "x", "y"],
                 ["--context", "x", "--now", "2026-02-31T12:00:00"],
                 ["--context", "x", "-m", "a", "--template", "b"]):
        r = subprocess.run([WEIR, "render", *args], capture_output=True, timeout=300)
        assert r.returncode == 2 and r.stderr


def test_released_templates(tmp_path):
    """Templates of released models, with what the reference makes of them."""
    if not FIXTURES:
        pytest.skip("WEIR_FIXTURES is not set: the templates of released models are not here")
    folder = pathlib.Path(FIXTURES) / "templates"
    bad, n = [], 0
    for line in (folder / "expected.jsonl").open():
        row = json.loads(line)
        n += 1
        if os.environ.get("WEIR_FEW_SHAPES") and n % 3:
            continue
        r = render((folder / row["template"]).read_bytes(), row["context"], tmp_path)
        same = r.returncode == 1 if "error" in row else r.stdout.decode() == row["text"]
        if not same:
            bad.append((row["template"], row["case"], r.stderr.decode()))
    assert n > 100 and not bad


def test_random_expressions(tmp_path):
    """Expressions put together at random, here and in Python."""
    pytest.importorskip("jinja2")
    sys.path.insert(0, str(ROOT / "tests/golden"))
    import make_jinja_cases as cases

    seed = int(os.environ.get("WEIR_SEED", "20"))
    print("seed", seed)
    bad = []
    for template, context in cases.random_cases(seed, 150):
        want = cases.expected(template, context)
        if not cases.is_comparable(want):
            continue
        r = render(template, context, tmp_path)
        if (r.returncode != 1) if "error" in want else (r.stdout.decode() != want["text"]):
            bad.append((template, want, r.stdout, r.stderr))
    assert not bad
