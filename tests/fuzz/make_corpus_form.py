"""Write the seeds of the form fuzzer.

    python3 make_corpus_form.py [FOLDER]        (default: corpus/form beside this file)
"""

import seeds

TYPE = b"multipart/form-data; boundary="


def part(disposition, data, *headers, eol=b"\r\n"):
    lines = [b"Content-Disposition: form-data; " + disposition, *headers]
    return b"".join(line + eol for line in lines) + eol + data


def form(parts, boundary=b"abc", quoted=None, before=b"", behind=b"\r\n", step=7, more=b""):
    """A Content-Type, the size of the pieces, and the body."""
    body = before + b"".join(b"--" + boundary + b"\r\n" + p + b"\r\n" for p in parts)
    return TYPE + (quoted or boundary) + more + b"\n" + bytes([step]) + body + b"--" + boundary + b"--" + behind


LINE = b'{"custom_id":"1","method":"POST","url":"/v1/completions","body":{"prompt":"a"}}\n'
PURPOSE = part(b'name="purpose"', b"batch")
FILE = part(b'name="file"; filename="a.jsonl"', LINE, b"Content-Type: application/jsonl")

SEEDS = {
    "python": form([PURPOSE, FILE], b"------------------------d74496d66958873e"),
    "dotnet": form([part(b"name=purpose", b"batch"),
                    part(b"name=file; filename=a.jsonl; filename*=utf-8''a.jsonl", LINE)], quoted=b'"abc"'),
    "java": form([PURPOSE, FILE], more=b"; charset=UTF-8", step=1),
    "escaped": form([part(b'name="a\\"b\\\\"; filename="x', b"1"), part(b' filename = "f" ; name = n', b"2")]),
    "empty": form([part(b"name=a", b""), part(b"name=b", b"")], step=2),
    "folded": form([b"X: y\r\nContent-Disposition: form-data;\r\n name=a\r\n\r\nb"],
                   before=b"preamble\r\n", behind=b"epilogue"),
    "like": form([part(b"name=a", b"\r\n--ab\r\n--abcd\r\n--abc-\r\r\n--abc x\r\n--abc \t")], step=3),
    "no_name": form([part(b"filename=a", b"")]),
    "cut": form([PURPOSE, FILE])[:-9],
    "nul": form([part(b'name="a\0b"', b"\0\0")]),
    "many": form([part(b"name=a", b"%d" % i) for i in range(33)]),
    "most_padded": form([PURPOSE], step=11).replace(b"--abc\r\n", b"--abc" + b" " * 256 + b"\r\n"),
    "padded": form([PURPOSE]).replace(b"--abc\r\n", b"--abc \t \r\n"),
}

if __name__ == "__main__":
    seeds.write("form", "", SEEDS)
