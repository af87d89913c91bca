"""The documents stay true: what they name is there."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/weir"))
SOURCES = "\n".join(p.read_text() for p in sorted((ROOT / "src").rglob("*.[ch]")))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/FLOW.md", "docs/DECISIONS.md", "docs/API.md",
             "docs/PERFORMANCE.md", "docs/EXPERIMENTS.md", "docs/EMBEDDING.md", "models/README.md",
             "tools/nano/README.md", "src/backend/cuda/README.md", "tests/cuda/README.md", "tests/cuda/ptx/README.md",
             "docs/MODELS.md"]
FOLDERS = ("src", "tests", "bench", "tools", "scripts", "examples")
FILES = {p.relative_to(ROOT).as_posix(): p for f in FOLDERS for p in (ROOT / f).rglob("*")
         if p.suffix in (".c", ".h", ".cu", ".cuh", ".cpp", ".py", ".sh", ".txt", ".cmake")}


def plain(document):
    """On one line, and without what keeps Markdown from seeing marks."""
    return re.sub(r"\s+", " ", (ROOT / document).read_text().replace("\\_", "_"))


def files_named(name):
    """Those that a document may mean: `kv.c`, or `src/kv/kv.c`."""
    return [p for f, p in FILES.items() if f == name or f.endswith("/" + name)]


def test_every_function_of_the_flow_exists():
    text = (ROOT / "docs/FLOW.md").read_text()
    names = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    assert len(names) > 25
    names = {n for n in names if not n.startswith("weir_")}  # metrics
    assert not sorted(names - set(re.findall(r"\w+", SOURCES)))


@pytest.mark.parametrize("document", ["docs/FLOW.md", "docs/DECISIONS.md", "docs/EXPERIMENTS.md", "docs/PERFORMANCE.md"])
def test_names_stand_in_the_file_behind_them(document):
    """`name` (file.c), or (`name`, file.c): one of the files that stand there has it."""
    files = r"(?:(?:, )?[\w/]+\.(?:cpp|cuh|cu|c|h|py)\b)+"
    pairs = list(re.finditer(rf"(?P<names>(?:`\w+(?:\.\w+)?`(?:, | and )?)+) ?\((?P<files>{files})", plain(document)))
    pairs += re.finditer(rf"\((?P<names>(?:`\w+`(?:, | and ))*`\w+`)(?P<files>{files})\)", plain(document))
    assert pairs or document == "docs/PERFORMANCE.md"
    for pair in pairs:
        texts = [p.read_text() for f in re.findall(r"[\w/]+\.\w+", pair["files"]) for p in files_named(f)]
        for name in re.findall(r"`(\w+)", pair["names"]):
            assert any(re.search(rf"\b{name}\b", text) for text in texts), pair[0]


@pytest.mark.parametrize("document", ["docs/DECISIONS.md", "docs/PERFORMANCE.md", "docs/EXPERIMENTS.md",
                                      "docs/EMBEDDING.md", "src/backend/cuda/README.md", "tests/cuda/README.md",
                                      "tests/cuda/ptx/README.md"])
def test_every_name_is_one_of_the_sources(document):
    """What has an underscore and stands in backticks, tests and variables of the environment; metrics have a test."""
    text = plain(document)
    names = set(re.findall(r"`(_?[A-Za-z]\w*_\w+)`", text)) | set(re.findall(r"\bWEIR_[A-Z]\w*[A-Z0-9]\b", text))
    sources = "\n".join(p.read_text() for p in FILES.values()) + (ROOT / "CMakeLists.txt").read_text()
    there = set(re.findall(r"\w+", sources)) | {"weir_FOLDER"}
    there |= {f"cuda_{p.stem}" for p in (ROOT / "tests/cuda").glob("test_*.c*")}
    there |= {p.stem for p in FILES.values()}
    listed = set(re.findall(r"`(weir_\w+)", (ROOT / "docs/API.md").read_text()))
    assert names and not sorted(names - there - listed)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_source_that_is_named_exists(document):
    others = ("include/weir.h", "llama.cpp", "ik_llama.cpp", "mmq.cpp")  # others'
    for file in set(re.findall(r"(?<![\w/.-])((?:[a-z_]+/)*[a-z][a-z0-9_]*\.(?:cpp|cuh|cu|c|h|py|sh))\b", plain(document))):
        beside = (ROOT / document).parent / file
        assert files_named(file) or beside.exists() or file in others, file


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_flag_of_a_command_exists(document):
    """Of examples, `weir COMMAND --flag`: the command's help has the flag."""
    for command, rest in re.findall(r"\bweir (serve|run|embed|bench|tokenize|render|logits|inspect|quantize|devices|cache)"
                                    r"\b((?:\\\n|[^\n`#|>])*)", (ROOT / document).read_text()):
        text = subprocess.run([WEIR, command, "--help"], capture_output=True, text=True).stdout
        for flag in re.findall(r"(?<![\w-])(--[a-z][a-z-]+|-[A-Za-z])(?=[ =\n]|$)", rest):
            assert re.search(rf"(?<![\w-]){flag}\b", text), (command, flag)


WORDS = "none one two three four five six seven eight nine ten eleven twelve".split()


def test_counts_of_the_decisions():
    """So many functions (`struct X`), and formats of calls."""
    text = plain("docs/DECISIONS.md")
    structs = re.findall(r"\b(\w+) functions \(`struct (\w+)`\)", text)
    assert len(structs) > 1
    for word, name in structs:
        body = re.search(rf"^struct {name} \{{(.*?)^\}};", SOURCES, re.M | re.S).group(1)
        assert len(re.findall(r"\(\*\w+\)\(", body)) == WORDS.index(word), name
    rows = (ROOT / "src/chat/reply/formats.c").read_text().split("reply_formats[] = {")[1].split("\n};")[0]
    n = len(re.findall(r'^    \{(?:\.name = )?"', rows, re.M))
    tens = {30: "Thirty", 40: "Forty", 50: "Fifty"}[n // 10 * 10]
    assert f"{tens}-{WORDS[n % 10]} formats".replace("-none", "") in text


def test_every_function_of_the_library_is_listed():
    """Both ways."""
    header = (ROOT / "src/lib/weir.h").read_text()
    functions = set(re.findall(r"^[a-z][\w *]*\b(weir_[a-z_]+)\(", header, re.M))
    rows = re.findall(r"^\| (`weir_[^|]*) \|", (ROOT / "docs/EMBEDDING.md").read_text(), re.M)
    assert len(functions) > 20 and {n for row in rows for n in re.findall(r"`(\w+)`", row)} == functions


def test_the_size_of_the_source():
    size = re.search(r"\(some ([\d,]+) lines of source\)", (ROOT / "README.md").read_text()).group(1)
    lines = sum(len(p.read_text().splitlines()) for f, p in FILES.items()
                if f.startswith("src/") and p.suffix in (".c", ".h", ".cu", ".cuh"))
    assert 0.95 < int(size.replace(",", "")) / lines < 1.05, lines


def test_the_number_of_pre_tokenizers():
    rows = re.findall(r'\.names = ((?:"[^"]*"\s*)+)', (ROOT / "src/tokenizer/pretokenize.c").read_text())
    said = re.search(r"the (\d+) pre-tokenizers", (ROOT / "README.md").read_text()).group(1)
    assert len(" ".join(rows).replace('"', " ").split()) == int(said)


def test_every_architecture_is_listed():
    """Both ways."""
    tables = "".join(p.read_text() for p in (ROOT / "src/model").glob("arch_*.c"))
    names = re.findall(r'\{\.name = "([^"]+)"', tables)
    lists = re.findall(r"^\*\*.*?\.$", (ROOT / "docs/MODELS.md").read_text(), re.M | re.S)
    listed = [n for part in lists for n in re.findall(r"`([^`]+)`", part)]
    assert len(names) > 100 and sorted(listed) == sorted(names)


@pytest.mark.parametrize("row, section", [
    ("Xeon with AVX-512 alone", "### Xeon with AVX-512 alone"), ("Xeon with the tile unit", "### Xeon with the tile unit"),
    ("Zen 4", "### Zen 4"), ("Zen 5", "### Zen 5")])
def test_the_comparison_of_the_readme_is_that_of_the_measurements(row, section):
    readme = (ROOT / "README.md").read_text().split("## How it compares")[1].split("\n## ")[0]
    [(prefill, decode)] = re.findall(rf"^\| {row}[^|]*\| ([^|]*) \| ([^|]*) \|", readme, re.M)
    measured = (ROOT / "docs/PERFORMANCE.md").read_text().split(section + "\n")[1].split("\n### ")[0]
    for i, name in enumerate(("Q8_0", "Q4_0", "Q4_K_M")):
        cells = re.search(rf"^\| {name} \|(.*)", measured, re.M).group(1).split("|")
        times = [re.search(r", (?:\*\*)?([\d.]+) x", cell).group(1) for cell in cells[:2]]
        said = [cells.split(", ")[i].split(" to ")[-1] for cells in (prefill, decode)]  # more rounds: a range
        assert said == times, name


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
    names = re.findall(r'\b(?:(?:gauge|usage|histogram|head)\(\s*out,|(?:GAUGE|COUNTER|SECONDS|FIGURE|OF_[A-Z]+)'
                       r'\([^";]*)\s*"([a-z_]+)"', served)
    text = (ROOT / "docs/API.md").read_text()
    assert len(names) > 50 and not [n for n in names if not re.search(rf"weir_{n}\b", text)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_program_that_measures_is_where_it_is_said_to_be(document):
    text = plain(document)
    for path in re.findall(r"(?<!/)\b(bench/\w+(?:\.\w+)?)", text):
        assert (ROOT / path).is_file(), path
    for folder, name in re.findall(r"\bbuild/(tests/(?:http/)?)(\w+)\b(?!/)", text):
        lists = (ROOT / folder / "CMakeLists.txt").read_text()
        assert re.search(rf"^(?:add_executable|weir_bench)\({name} ", lists, re.M), folder + name


def anchors(path):
    """Of its headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)]*)\)", path.read_text()):
        if "://" not in target:
            file = path.parent / target if target else path
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), anchor


def test_every_route_is_listed():
    source = (ROOT / "src/api/routes.c").read_text()
    rows = re.findall(r'\{"(/[^"]*)",\s*(?:GET|POST|"DELETE"),\s*API_(\w+)', source)
    named = set(re.findall(r"(?:`|GET |POST |DELETE )(/[a-z][\w/{}.-]*)", (ROOT / "docs/API.md").read_text()))
    for path, shape in rows:
        path = path.replace("*", "{id}") + ("{id}" if path.endswith("/") else "")
        assert path in named or shape == "BARE" and "/v1" + path in named, path


@pytest.mark.parametrize("document", DOCUMENTS)
def test_lines_are_short(document):
    """But for rows of tables, and for what programs print."""
    lines = (ROOT / document).read_text().splitlines()
    assert not [line for line in lines if len(line) > 120 and not line.startswith(("|", "      abcd"))]


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for document in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"(?:^ +|`|  )make ([a-z]+)\b", (ROOT / document).read_text(), re.M):
            assert re.search(rf"^{target}:", makefile, re.M), target


def test_shell_scripts_parse():
    for script in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci/run"]:
        assert subprocess.run(["bash", "-n", script]).returncode == 0, script
