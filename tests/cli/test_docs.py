"""The documents stay true: what they name is there."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = "\n".join(p.read_text() for p in sorted((ROOT / "src").rglob("*.[ch]")))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/FLOW.md", "docs/DECISIONS.md", "docs/API.md",
             "docs/PERFORMANCE.md", "docs/EXPERIMENTS.md", "docs/EMBEDDING.md", "models/README.md", "tools/nano/README.md"]


def test_every_function_of_the_flow_exists():
    text = (ROOT / "docs/FLOW.md").read_text()
    names = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    assert len(names) > 25
    names = {n for n in names if not n.startswith("weir_")}  # metrics
    assert not sorted(names - set(re.findall(r"\w+", SOURCES)))


def test_the_readme_lists_every_architecture():
    tables = "".join(p.read_text() for p in (ROOT / "src/model").glob("arch_*.c"))
    names = re.findall(r'\{\.name = "([^"]+)"', tables)
    row = re.search(r"^\| Architectures \|.*", (ROOT / "README.md").read_text(), re.M).group()
    listed = re.findall(r"[a-z][a-z0-9_-]+", row)
    assert len(names) > 40 and not [n for n in names if n not in listed]


def test_every_file_of_the_flow_exists():
    text = (ROOT / "docs/FLOW.md").read_text()
    paths = set(re.findall(r"\b(src/[a-z0-9_/]+\.[ch])\b", text))
    assert len(paths) > 10
    assert not [p for p in sorted(paths) if not (ROOT / p).exists()]


def test_every_file_that_a_contributor_is_sent_to_exists():
    rows = re.findall(r"^\| (?:a|an) .*", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    files = set(re.findall(r"[\w./]+\.(?:c|h|cu|cuh|py|json|md)\b", "\n".join(rows)))
    folders = [ROOT / f for f in ("src", "tests", "docs")]
    there = {str(p.relative_to(ROOT)) for f in folders for p in f.rglob("*.*")} | {"README.md"}
    names = {pathlib.Path(p).name for p in there}
    files.remove("linear_FAMILY_impl.h")
    assert len(rows) > 10 and len(files) > 40
    assert not [f for f in sorted(files) if f not in there and ("/" in f or f not in names)]


@pytest.mark.parametrize("table, flag", [("reply_formats", "tool-format"),
                                         ("all_thoughts", "reasoning-format")])
def test_every_format_of_calls_and_reasoning_is_listed(table, flag):
    source = (ROOT / "src/chat/reply/formats.c").read_text()
    rows = source.split(table + "[] = {")[1].split("\n};")[0]
    names = re.findall(r'^    \{(?:\.name = )?"([^"]+)"', rows, re.M)
    text = (ROOT / "docs/API.md").read_text().split(f"`weir serve --{flag}`")[1].split("\n\n")[0]
    assert len(names) > 10 and set(re.findall(r"`([a-z][a-z0-9.-]+)`", text)) >= set(names)


def test_every_metric_is_listed():
    served = "".join((ROOT / f"src/api/{f}.c").read_text() for f in ("metrics", "figures", "gpu"))
    names = re.findall(r'\b(?:gauge|counter|seconds|histogram|head)\(\s*out,\s*"([a-z_]+)"', served)
    text = (ROOT / "docs/API.md").read_text()
    assert len(names) > 50 and not [n for n in names if not re.search(rf"weir_{n}\b", text)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_program_that_measures_is_where_it_is_said_to_be(document):
    text = (ROOT / document).read_text()
    for path in re.findall(r"(?<!/)\b(bench/\w+(?:\.\w+)?)", text):
        assert (ROOT / path).is_file(), path
    for folder, name in re.findall(r"\bbuild/(tests/(?:http/)?)(\w+)", text):
        lists = (ROOT / folder / "CMakeLists.txt").read_text()
        assert f"add_executable({name} " in lists, folder + name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for document in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"(?:^ +|`|  )make ([a-z]+)\b", (ROOT / document).read_text(), re.M):
            assert re.search(rf"^{target}:", makefile, re.M), target


def test_shell_scripts_parse():
    for script in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci/run"]:
        assert subprocess.run(["bash", "-n", script]).returncode == 0, script
