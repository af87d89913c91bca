"""Writes the seeds of a fuzzer: for the programs beside it, make_corpus_*.py."""

import pathlib
import sys


def write(kind, suffix, seeds):
    """-> the folder: the one that the command line names, or corpus/KIND beside this file."""
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "corpus" / kind
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (folder / (name + suffix)).write_bytes(data)
    print(f"{len(seeds)} seeds in {folder}")
    return folder
