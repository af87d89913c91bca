"""Check that every #include under src/ runs along the path of a request, never against it.

A folder may include its own headers and those of the folders that ALLOWED names for it; a library's
header may be included only in the folders that LIBRARIES names. Each violation is printed as
FILE:LINE: text, and the exit status is 1. Before that, the check proves on a made-up tree that it
can fail.

    python3 tests/include_graph.py [SRC]
"""

import pathlib
import re
import sys
import tempfile

# folder: the folders whose headers it may include, beside its own
ALLOWED = {
    "base": "",
    "gguf": "base",
    "tokenizer": "base gguf",
    "chat": "base tokenizer grammar",
    "model": "base gguf",
    "backend": "base gguf model sample",
    "grammar": "base",
    "sample": "base",
    "kv": "base",
    "sched": "base kv",
    "engine": "base gguf tokenizer grammar sched kv sample model backend",
    "api": "base chat grammar engine gguf",
    "batches": "base api",
    "http": "base",
    "lib": "base chat engine",
    "cli": "base gguf tokenizer chat model backend sample kv engine api batches http",
}

# header (or folder of headers, with a slash): the folders that may include it
LIBRARIES = {
    "microhttpd.h": "http",
    "gnutls/": "http",
    "jansson.h": "api batches chat grammar",
    "utf8proc.h": "tokenizer chat grammar",
    "xxhash.h": "api chat gguf kv tokenizer",
    "openssl/": "api kv",
    "editline/": "cli",
    "argp.h": "cli",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SOURCES = {".c", ".h", ".cu", ".cuh", ".inc"}


def library_of(header):
    for library in LIBRARIES:
        if header == library or (library.endswith("/") and header.startswith(library)):
            return library
    return None


def problem(src, folder, quote, header):
    """What is wrong with this include, or None."""
    library = library_of(header)
    if library:
        if folder not in LIBRARIES[library].split():
            return f"<{header}> belongs to {LIBRARIES[library]}, not to {folder}"
        return None
    if quote == "<":
        return None
    target = header.split("/")[0]
    if "/" not in header or ".." in header.split("/"):
        return f'"{header}" is not a path from src/'
    if target not in ALLOWED:
        return f'"{header}": no such folder'
    if not (src / header).is_file():
        return f'"{header}" does not exist'
    if target != folder and target not in ALLOWED[folder].split():
        return f'"{header}": {folder} must not include {target}'
    return None


def check(src):
    """All violations under src, as text; and the pairs of a folder and what it includes, which is
    another folder or a library, once for each include."""
    found, seen = [], []
    for path in sorted(p for p in src.rglob("*") if p.suffix in SOURCES and p.is_file()):
        folder = path.relative_to(src).parts[0]
        if folder not in ALLOWED:
            found.append(f"{path}:1: {folder} is not a folder that tests/include_graph.py knows")
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                seen.append((folder, library_of(match[2]) or match[2].split("/")[0]))
                text = problem(src, folder, *match.groups())
                if text:
                    found.append(f"{path}:{number}: {text}")
    return found, seen


def unused(seen):
    """What may be included and is not."""
    pairs = [(folder, target) for folder, targets in ALLOWED.items() for target in targets.split()]
    pairs += [(folder, name) for name, folders in LIBRARIES.items() for folder in folders.split()]
    return [f"{folder} need not be allowed {target}" for folder, target in pairs
            if (folder, target) not in seen]


def self_test():
    """A tree in which every kind of violation occurs once, beside lines that are fine."""
    tree = {
        "base/err.h": "#include <stdio.h>\n",
        "base/bad.c": '#include "base/err.h"\n#include "kv/kv.h"\n',  # upstream
        "kv/kv.h": '#include "base/err.h"\n#include <xxhash.h>\n#include <openssl/sha.h>\n',
        "model/model.h": '#include "model/absent.h"\n',  # no such file
        "backend/cpu/ok.c": '#include "model/model.h"\n#include "backend/cpu/own.h"\n',
        "backend/cpu/own.h": "  #  include <jansson.h>\n",  # another folder's library
        "sched/sched.c": '#include "sched.h"\n#include "../kv/kv.h"\n',  # not from src/, twice
        "http/http.c": '#include <microhttpd.h>\n#include "api/api.h"\n',  # sideways
        "api/api.h": '/* "http/http.h" */\n#include <jansson.h>\n#include <argp.h>\n',  # library
        "other/new.c": "\n",  # unknown folder
        "cli/main.c": '#include "api/api.h"\n#include <argp.h>\n#include "nowhere/x.h"\n',  # folder
    }
    want = ["api/api.h:3", "backend/cpu/own.h:1", "base/bad.c:2", "cli/main.c:3", "http/http.c:2",
            "model/model.h:1", "other/new.c:1", "sched/sched.c:1", "sched/sched.c:2"]
    with tempfile.TemporaryDirectory() as folder:
        src = pathlib.Path(folder)
        for name, text in tree.items():
            (src / name).parent.mkdir(parents=True, exist_ok=True)
            (src / name).write_text(text)
        got = [line[len(folder) + 1 :].split(": ")[0] for line in check(src)[0]]
    if got != want:
        sys.exit(f"include_graph: the self-test failed\n  want {want}\n  got  {got}")


def main():
    self_test()
    default = pathlib.Path(__file__).resolve().parents[1] / "src"
    src = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    found, seen = check(src)
    if src == default:
        found += unused(set(seen))
    for line in found:
        print(line)
    if not seen:
        print(f"{src}: no includes found")
    else:
        print(f"{len(seen)} includes, {len(found)} violations")
    return 1 if found or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
