"""Write the seeds of the fuzzer of split models: the length of the first file, and two files.

    python3 make_corpus_split.py [FOLDER]        (default: corpus/split beside this file)
"""

import struct

import seeds
from make_corpus_gguf import I32, STRING, U16, gguf, scalar


def part(no, count=2, total=2, more=(), tensors=()):
    return gguf([scalar("split.no", U16, no), scalar("split.count", U16, count),
                 scalar("split.tensors.count", I32, total), *more], tensors)


def pair(first, second):
    return struct.pack("<H", len(first)) + first + second


A, B = [("a", 0, (8,))], [("b", 8, (32, 2))]
NAME = [scalar("general.name", STRING, "m")]

SEEDS = {
    "good": pair(part(0, tensors=A), part(1, tensors=B)),
    "named": pair(part(0, more=NAME, tensors=A), part(1, more=NAME, tensors=B)),
    "whole": pair(gguf(NAME, A), b""),
    "one_of_one": pair(part(0, 1, 1, tensors=A), b""),
    "no_tensors_first": pair(part(0, total=1), part(1, total=1, tensors=B)),
    "same_tensor": pair(part(0, tensors=A), part(1, tensors=A)),
    "same_part": pair(part(0, tensors=A), part(0, tensors=B)),
    "second_first": pair(part(1, tensors=A), part(0, tensors=B)),
    "other_count": pair(part(0, tensors=A), part(1, 3, tensors=B)),
    "other_total": pair(part(0, total=3, tensors=A), part(1, total=3, tensors=B)),
    "three": pair(part(0, 3, tensors=A), part(1, 3, tensors=B)),
    "second_not_gguf": pair(part(0, tensors=A), b"GGML"),
    "second_empty": pair(part(0, tensors=A), b""),
}

if __name__ == "__main__":
    seeds.write("split", ".bin", SEEDS)
