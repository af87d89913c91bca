#!/usr/bin/env python3
"""Write the first seeds of corpus/jinja: make_corpus_jinja.py FOLDER.

Templates of the cases that golden/make_jinja_cases.py wrote, some of them in one file, and one with
variables of its own behind a NUL byte.
"""
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
rows = [json.loads(line) for line in open(ROOT / "data/jinja/cases.jsonl")]
context = json.load(open(ROOT / "data/jinja/context.json"))
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
works = [r["template"] for r in rows if "text" in r]
fails = [r["template"] for r in rows if "error" in r]
variables = b"\0" + json.dumps(context).encode()
for i in range(0, len(works), 30):
    text = "".join(works[i : i + 30]).encode()
    (folder / f"works{i // 30:02}").write_bytes(text + variables)
for i in range(0, len(fails), 12):
    (folder / f"fails{i // 12:02}").write_bytes(fails[i].encode() + variables)
(folder / "chatml").write_bytes(
    b"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}{% endfor %}")
