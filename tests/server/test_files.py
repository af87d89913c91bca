"""Files that clients bring: how forms are read, and /v1/files on a real server."""

import http.client
import json
import random
import socket
import time

import pytest

from uploads import COMPLETIONS, form, jsonl, line, post_form, upload


def test_hostile_uploads(batches):
    ok = jsonl([line("a")])
    purpose, file = ("purpose", None, b"batch"), ("file", "x.jsonl", ok)

    def refused(fields, want, status=400, **more):
        got, _, data = post_form(batches, fields, **more)
        error = json.loads(data)["error"]
        assert got == status and want in error["message"], (got, error)

    refused([purpose, ("file", "x", b"")], "no requests")
    refused([purpose, ("file", "x", b"\n\n  \n")], "no requests")
    refused([purpose, ("file", "x", b"x" * (1 << 20) + b"y")], "line 1 has")
    refused([purpose, ("file", "x", b"{}\n" * 50001)], "50000 requests")
    refused([purpose], "'file' is required")
    refused([file], "'purpose' is required")
    refused([("purpose", None, b"fine-tune"), file], "'purpose' must be batch")
    refused([purpose, ("file", "n" * 300, ok)], "name is longer")
    refused([purpose, file], "no boundary", content_type="multipart/form-data")
    refused([purpose, file], "no boundary", content_type='multipart/form-data; boundary=""', boundary="")
    refused([purpose, file], "too long", content_type=f"multipart/form-data; boundary={'b' * 257}")
    refused([purpose, file], "cut short", end=False)
    refused([purpose, file], "malformed", content_type="multipart/form-data; boundary=other")
    refused([("p", None, b"1")] * 40, "too many parts")
    refused([purpose, ('file"\r\nX: "' + "x" * 20000, None, ok)], "the head of a part")
    refused([purpose, ("fi\0le", "x", ok)], "a NUL in the head")
    refused([purpose, ("file", "n" * 1100, ok)], "a name in the multipart form is too long")
    refused([purpose, ("n" * 1100, None, ok)], "a name in the multipart form is too long")
    nameless = form([purpose, ("x", None, ok)]).replace(b'; name="x"', b"")
    status, _, data = batches.request("POST", "/v1/files", nameless, headers={
        "Content-Type": "multipart/form-data; boundary=b0undary"})
    assert status == 400 and "no name" in json.loads(data)["error"]["message"]
    status, _, data = batches.request("POST", "/v1/files", {"purpose": "batch"})
    assert status == 400 and b"multipart/form-data" in data
    status, _, _ = batches.request("POST", "/v1/files", b"")
    assert status == 400
    # nothing of all this was kept, and the server goes on
    assert batches.json("GET", "/v1/files")["data"] == []
    upload(batches, ok)
    for boundary in ("b", "b" * 70):
        got, _, data = post_form(batches, [purpose, file], f'multipart/form-data; boundary="{boundary}"',
                                 boundary=boundary)
        assert got == 200, data


def test_forms_as_clients_write_them(batches):
    """Names in quotes or not, with parameters in any order, and boundaries that look like others."""
    data = jsonl([line("a"), line("b\r\n--b0unda\r\n--b0undary_\r\n--b0undary-")])
    disposition = 'Content-Disposition: form-data; name="file"; filename="x.jsonl"'

    def put(head=disposition, name="x.jsonl", content_type="multipart/form-data; boundary=b0undary",
            purpose='Content-Disposition: form-data; name="purpose"', before=b"", padding="", after=b"\r\n"):
        begin = f"--b0undary{padding}\r\n"
        body = before + f"{begin}{purpose}\r\n\r\nbatch\r\n{begin}{head}\r\n\r\n".encode()
        body += data + b"\r\n--b0undary--" + after
        status, _, got = batches.request("POST", "/v1/files", body, headers={"Content-Type": content_type})
        assert status == 200, (status, got)
        file = json.loads(got)
        assert file["filename"] == name
        assert batches.request("GET", f"/v1/files/{file['id']}/content")[2] == data

    put()
    for content_type in ('multipart/form-data; boundary="b0undary"', "Multipart/Form-Data;boundary=b0undary",
                         "multipart/form-data; BOUNDARY=b0undary; charset=UTF-8",  # Apache's HttpClient
                         'multipart/form-data; charset="a;b"; boundary=b0undary'):
        put(content_type=content_type)
    # as .NET writes it
    put("Content-Type: application/json\r\nContent-Disposition: form-data; name=file; filename=x.jsonl; "
        "filename*=utf-8''x.jsonl", purpose="Content-Type: text/plain; charset=utf-8\r\n"
        "Content-Disposition: form-data; name=purpose")
    named = 'Content-Disposition: form-data; name="file"; filename='
    for head, name in {"content-disposition:form-data;filename=x y.jsonl ;name=file": "x y.jsonl",
                       "X: y\r\n" + disposition + "\r\nContent-Type: a/b; name=z": "x.jsonl",
                       named.replace("; ", ";\r\n\t ") + '"x.jsonl"': "x.jsonl",
                       named + '"a\\"b; name=c\\\\.jsonl"': 'a"b; name=c\\.jsonl',
                       named + '"C:\\d\\x.jsonl"': "C:\\d\\x.jsonl"}.items():
        put(head, name)
    put(before=b"nobody reads this\r\n", padding=" \t", after=b"\r\nnor this: --b0undary\r\n")
    put(after=b"")
    # a part without bytes, also without the line's end before its own
    for empty in (b"\r\n\r\n\r\n", b"\r\n\r\n"):
        body = b'--b\r\nContent-Disposition: form-data; name="purpose"' + empty + b"--b--\r\n"
        status, _, got = batches.request("POST", "/v1/files", body,
                                         headers={"Content-Type": "multipart/form-data; boundary=b"})
        assert status == 400 and "files for ''" in json.loads(got)["error"]["message"], got
    for broken in ("--b0undary\r\n\r\n", "--b0undary", "--b0undar", "-", "--b0undary--", "--b0undary\r\nX",
                   '--b0undary\r\nContent-Disposition: form-data; name="x\r\n\r\n\r\n--b0undary--'):
        status, _, _ = batches.request("POST", "/v1/files", broken.encode(), headers={
            "Content-Type": "multipart/form-data; boundary=b0undary"})
        assert status == 400, broken


def test_forms_are_for_uploads_alone(start_server, tmp_path):
    """Elsewhere a body is JSON, whatever its Content-Type, and --max-body is its limit."""
    as_form = {"Content-Type": "multipart/form-data; boundary=b0undary"}
    for flags in ([], ["--batch-dir", tmp_path / "kept"]):
        server = start_server("--max-body", "64K", *flags)
        got, _, data = server.request("POST", COMPLETIONS, line("a")["body"], headers=as_form)
        assert got == 200, data
        large = form([("purpose", None, b"batch"), ("file", "in.jsonl", jsonl([line("a")] * 1000))])
        for path in (COMPLETIONS, "/v1/nothing", "/v1/batches"):
            assert server.request("POST", path, large, headers=as_form)[0] == 413
        got, _, data = server.request("POST", COMPLETIONS, form([("file", "x", b"y")]), headers=as_form)
        assert got == 400 and b"not valid JSON" in data
        assert server.request("POST", "/v1/files", large, headers=as_form)[0] == (200 if flags else 413)


def test_an_upload_whose_client_leaves(batches):
    port = int(batches.url.rsplit(":", 1)[1])
    head = (b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
            b"Content-Type: multipart/form-data; boundary=b0undary\r\n\r\n")
    for cut in (0, 30, 200):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(head + form([("purpose", None, b"batch"), ("file", "x", b"y" * 500)])[:cut])
    assert batches.json("GET", "/v1/files")["data"] == []


def test_an_upload_in_small_pieces(batches):
    """However the bytes of a form are cut on their way, the file is what was sent."""
    port = int(batches.url.rsplit(":", 1)[1])
    rng = random.Random(5)
    for k, size in enumerate([1] * 3 + [rng.randrange(2, 40) for _ in range(12)]):
        data = jsonl([line(f"{k}-{i}\r\n--b0undar") for i in range(3)])
        body = form([("purpose", None, b"batch"), ("file", "x", data)])
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(f"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
                      "Content-Type: multipart/form-data; boundary=b0undary\r\n"
                      "Connection: close\r\n\r\n".encode())
            for i in range(0, len(body), size):
                s.sendall(body[i:i + size])
                time.sleep(0.0002)  # so that each is read alone, or some together: both must work
            answer = b""
            while part := s.recv(65536):
                answer += part
        head, _, made = answer.partition(b"\r\n\r\n")
        assert b" 200 " in head, answer
        made = json.loads(made)
        assert batches.request("GET", f"/v1/files/{made['id']}/content")[2] == data


def test_head_of_a_file(batches):
    """What GET would say of it and no body, so that the connection can be used again."""
    data = jsonl([line(f"r{i}") for i in range(2000)])
    file = upload(batches, data)
    c = http.client.HTTPConnection(batches.url.split("//")[1], timeout=300)
    for method in ("HEAD", "GET", "HEAD"):
        c.request(method, f"/v1/files/{file['id']}/content")
        r = c.getresponse()
        assert r.status == 200 and r.headers["Content-Length"] == str(len(data)) and not r.will_close
        assert r.read() == (data if method == "GET" else b"")
    c.request("GET", "/health")
    assert c.getresponse().status == 200
    c.close()


@pytest.mark.parametrize("left", [70000, 0])
def test_a_file_cut_short_on_disk_is_not_passed_off_as_whole(batches, tmp_path, left):
    file = upload(batches, jsonl([line(f"r{i}") for i in range(2000)]))
    [path] = (tmp_path / "batches" / "files").glob("*.jsonl")
    with open(path, "r+b") as f:
        f.truncate(left)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        batches.request("GET", f"/v1/files/{file['id']}/content")
    assert batches.request("GET", "/health")[0] == 200


def test_a_list_of_files_is_not_cut_where_nobody_asks_for_less(batches):
    files = [upload(batches, jsonl([line(f"p{i}")]))["id"] for i in range(21)]
    for query in ("", "&limit=101", "&limit=10000"):
        page = batches.json("GET", "/v1/files?order=asc" + query)
        assert [f["id"] for f in page["data"]] == files and not page["has_more"]
    for path in ("/v1/files?limit=10001", "/v1/batches?limit=101"):
        assert batches.json("GET", path, status=400)["error"]["param"] == "limit"
