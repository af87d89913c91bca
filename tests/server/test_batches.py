"""Files of requests worked off in the background: /v1/files and /v1/batches on a real server."""

import concurrent.futures
import http.client
import json
import random
import signal
import socket
import subprocess
import time
import uuid

import pytest

from conftest import MODEL, WEIR, Server, few

COMPLETIONS = "/v1/completions"


def line(custom_id, url=COMPLETIONS, **body):
    body = {"prompt": f"Once {custom_id}", "max_tokens": 8, "temperature": 0, "ignore_eos": True,
            **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def jsonl(lines):
    return "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines).encode()


def form(fields, boundary="b0undary", end=True):
    """fields: (name, filename or None, bytes)"""
    out = b""
    for name, filename, data in fields:
        out += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        if filename is not None:
            out += f'; filename="{filename}"\r\nContent-Type: application/octet-stream'.encode()
        out += b"\r\n\r\n" + data + b"\r\n"
    return out + (f"--{boundary}--\r\n".encode() if end else b"")


def post_form(server, fields, content_type="multipart/form-data; boundary=b0undary", **more):
    return server.request("POST", "/v1/files", form(fields, **more),
                          headers={"Content-Type": content_type})


def upload(server, data, status=200):
    got, _, answer = post_form(server, [("purpose", None, b"batch"), ("file", "in.jsonl", data)])
    assert got == status, answer
    return json.loads(answer)


def create(server, file_id, endpoint=COMPLETIONS, window="24h", status=200, **more):
    return server.json("POST", "/v1/batches", {"input_file_id": file_id, "endpoint": endpoint,
                                               "completion_window": window, **more}, status)


def wait_over(server, batch, seconds=300):
    end = time.monotonic() + seconds
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        assert time.monotonic() < end, batch
        time.sleep(0.02)
        batch = server.json("GET", f"/v1/batches/{batch['id']}")
    return batch


def results(server, file_id):
    if file_id is None:
        return []
    status, headers, data = server.request("GET", f"/v1/files/{file_id}/content")
    assert status == 200 and data.endswith(b"\n")
    return [json.loads(x) for x in data.decode().splitlines()]


@pytest.fixture
def batches(start_server, tmp_path):
    return start_server("--batch-dir", str(tmp_path / "batches"))


def test_without_a_folder_the_routes_say_so(server):
    for method, path in [("GET", "/v1/files"), ("POST", "/v1/batches"),
                         ("GET", "/v1/batches/batch_x"), ("DELETE", "/v1/files/file-x")]:
        body = {} if method == "POST" else None
        error = server.json(method, path, body, status=501)["error"]
        assert "--batch-dir" in error["message"] and "\n" not in error["message"]
    assert server.request("GET", "/v1/filesystem")[0] == 404


def test_a_batch_of_embeddings(batches):
    url, text = "/v1/embeddings", "a text of some words"
    lines = [{"custom_id": f"e{i}", "method": "POST", "url": url, "body": {"input": f"{text} {i}"}}
             for i in range(4)]
    over = wait_over(batches, create(batches, upload(batches, jsonl(lines))["id"], endpoint=url))
    assert over["request_counts"] == {"total": 4, "completed": 4, "failed": 0}
    refused = create(batches, over["output_file_id"], endpoint=url, status=400)["error"]
    assert refused["param"] == "input_file_id" and "batch_output" in refused["message"]
    for r in results(batches, over["output_file_id"]):
        body = next(x["body"] for x in lines if x["custom_id"] == r["custom_id"])
        assert r["response"]["body"]["data"] == batches.json("POST", url, body)["data"]
    # so many values that another thread writes them
    large = {**lines[0], "body": {"input": [f"{text} {i}" for i in range(200)]}}
    over = wait_over(batches, create(batches, upload(batches, jsonl([large]))["id"], endpoint=url))
    assert over["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
    [r] = results(batches, over["output_file_id"])
    assert sum(len(d["embedding"]) for d in r["response"]["body"]["data"]) > 16384
    assert r["response"]["body"]["data"] == batches.json("POST", url, large["body"])["data"]


def test_a_batch_from_upload_to_results(batches):
    lines = [line(f"r{i}") for i in range(30)]
    chat = [line(f"c{i}", "/v1/chat/completions", prompt=None,
                 messages=[{"role": "user", "content": f"What is {i} + 1?"}]) for i in range(5)]
    file = upload(batches, jsonl(lines))
    assert file == batches.json("GET", f"/v1/files/{file['id']}")
    assert file["object"] == "file" and file["purpose"] == "batch"
    assert file["bytes"] == len(jsonl(lines)) and file["filename"] == "in.jsonl"
    assert batches.request("GET", f"/v1/files/{file['id']}/content")[2] == jsonl(lines)
    batch = create(batches, file["id"], metadata={"night": "first"})
    assert batch["object"] == "batch" and batch["status"] == "validating"
    assert batch["expires_at"] - batch["created_at"] == 86400
    over = wait_over(batches, batch)
    assert over["status"] == "completed" and over["metadata"] == {"night": "first"}
    assert over["request_counts"] == {"total": 30, "completed": 30, "failed": 0}
    assert over["error_file_id"] is None
    got = results(batches, over["output_file_id"])
    assert sorted(r["custom_id"] for r in got) == sorted(x["custom_id"] for x in lines)
    for r in got:
        assert r["error"] is None and r["response"]["status_code"] == 200
        assert r["response"]["request_id"] and r["id"].startswith("batch_req_")
        body = next(x["body"] for x in lines if x["custom_id"] == r["custom_id"])
        direct = batches.json("POST", COMPLETIONS, body)
        assert r["response"]["body"]["choices"] == direct["choices"]
        assert r["response"]["body"]["usage"]["completion_tokens"] == 8
    over = wait_over(batches, create(batches, upload(batches, jsonl(chat))["id"],
                                     "/v1/chat/completions"))
    assert over["request_counts"] == {"total": 5, "completed": 5, "failed": 0}
    assert batches.metric('weir_http_requests_total{status="200"}') < 200 + 30


def test_a_line_whose_answer_is_large(batches):
    """So large that another thread writes it: 3 choices, 80 tokens, 21 log-probabilities each."""
    body = {"max_tokens": 80, "temperature": 1, "seed": 5}
    lines = [line(f"l{i}", n=3, logprobs=20, **body) for i in range(3)]
    over = wait_over(batches, create(batches, upload(batches, jsonl(lines))["id"]))
    assert over["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    for r in results(batches, over["output_file_id"]):
        own = next(x["body"] for x in lines if x["custom_id"] == r["custom_id"])
        assert r["response"]["body"]["choices"] == batches.json("POST", COMPLETIONS, own)["choices"]
        for i, choice in enumerate(r["response"]["body"]["choices"]):
            small = batches.json("POST", COMPLETIONS, {**own, "n": 1, "seed": 5 + i})["choices"][0]
            assert {**small, "index": i} == choice and len(choice["logprobs"]["tokens"]) == 80


def test_bad_lines_go_to_the_error_file(batches):
    good = line("good")
    lines = ["not json", good, "", "[1]", "   \t", json.dumps({**good, "custom_id": 7}),
             json.dumps(good),  # the same custom_id again
             json.dumps({**line("method"), "method": "GET"}),
             json.dumps(line("url", "/v1/chat/completions")),
             json.dumps({**line("body"), "body": "x"}), json.dumps(line("stream", stream=True)),
             json.dumps(line("field", max_tokens="many")), json.dumps(line("model", model="other")),
             json.dumps(line("rank", priority=5)), '{"custom_id": "nul\\u0000"}', "\x00\x01",
             json.dumps(line("ünï ☃ \"quoted\"")), json.dumps(line("long", seed=2 ** 64 - 1))]
    over = wait_over(batches, create(batches, upload(batches, jsonl(lines))["id"]))
    assert over["status"] == "completed"
    assert over["request_counts"] == {"total": 16, "completed": 2, "failed": 14}
    ok = results(batches, over["output_file_id"])
    assert sorted(r["custom_id"] for r in ok) == ["good", 'ünï ☃ "quoted"']
    bad = results(batches, over["error_file_id"])
    by_line = {r["error"]["line"]: (r["custom_id"], r["error"]["code"]) for r in bad if r["error"]}
    assert by_line == {1: (None, "invalid_json_line"), 4: (None, "invalid_json_line"),
                       6: (None, "invalid_custom_id"), 7: ("good", "duplicate_custom_id"),
                       8: ("method", "invalid_request"), 9: ("url", "mismatched_endpoint"),
                       10: ("body", "invalid_request"), 11: ("stream", "invalid_request"),
                       15: (None, "invalid_json_line"), 16: (None, "invalid_json_line")}
    refused = {r["custom_id"]: r["response"] for r in bad if r["response"]}
    assert {k: v["status_code"] for k, v in refused.items()} == {"field": 400, "model": 404,
                                                                 "rank": 400, "long": 400}
    assert refused["field"]["body"]["error"]["param"] == "max_tokens"
    assert refused["long"]["body"]["error"]["param"] == "seed"


def test_a_file_with_a_byte_order_mark(batches):
    file = upload(batches, b"\xef\xbb\xbf" + jsonl([line("a"), line("b")]))
    over = wait_over(batches, create(batches, file["id"]))
    assert over["request_counts"] == {"total": 2, "completed": 2, "failed": 0}


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
    c = http.client.HTTPConnection(batches.url.split("//")[1], timeout=60)
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


def test_what_does_not_exist(batches):
    file = upload(batches, jsonl([line("a")]))
    for method, path in [("GET", "/v1/files/file-x"), ("DELETE", "/v1/files/file-x"),
                         ("GET", "/v1/files/file-x/content"), ("GET", "/v1/files/..%2f..%2flock"),
                         ("GET", f"/v1/files/{file['id']}/other"), ("GET", "/v1/batches/batch_x"),
                         ("POST", "/v1/batches/batch_x/cancel"), ("GET", "/v1/files/")]:
        body = {} if method == "POST" else None
        assert batches.json(method, path, body, status=404)["error"]["code"] == "not_found"
    for method, path, allow in [("PUT", "/v1/files", "GET, HEAD, POST"),
                                ("POST", f"/v1/files/{file['id']}", "GET, HEAD, DELETE"),
                                ("GET", "/v1/batches/batch_x/cancel", "POST")]:
        status, headers, _ = batches.request(method, path, {} if method != "GET" else None)
        assert status == 405 and headers["Allow"] == allow
    for body, field in [({}, "input_file_id"),
                        ({"input_file_id": "file-x", "endpoint": COMPLETIONS,
                          "completion_window": "24h"}, "input_file_id"),
                        ({"input_file_id": file["id"], "endpoint": "/v1/models",
                          "completion_window": "24h"}, "endpoint"),
                        ({"input_file_id": file["id"], "endpoint": COMPLETIONS,
                          "completion_window": "soon"}, "completion_window"),
                        ({"input_file_id": file["id"], "endpoint": COMPLETIONS,
                          "completion_window": "99999999999999999999d"}, "completion_window"),
                        ({"input_file_id": file["id"], "endpoint": COMPLETIONS,
                          "completion_window": "24h", "metadata": {"a": 1}}, "metadata.a")]:
        error = batches.json("POST", "/v1/batches", body, status=400)["error"]
        assert error["param"] == field, error
    assert batches.json("GET", "/v1/batches?limit=0", status=400)["error"]["param"] == "limit"
    assert batches.json("GET", "/v1/batches?after=x", status=400)["error"]["param"] == "after"
    assert batches.json("GET", "/v1/batches")["data"] == []


def test_a_list_of_files_is_not_cut_where_nobody_asks_for_less(batches):
    files = [upload(batches, jsonl([line(f"p{i}")]))["id"] for i in range(21)]
    for query in ("", "&limit=101", "&limit=10000"):
        page = batches.json("GET", "/v1/files?order=asc" + query)
        assert [f["id"] for f in page["data"]] == files and not page["has_more"]
    for path in ("/v1/files?limit=10001", "/v1/batches?limit=101"):
        assert batches.json("GET", path, status=400)["error"]["param"] == "limit"


def test_lists_in_pages(batches):
    files = [upload(batches, jsonl([line(f"p{i}")]))["id"] for i in range(5)]
    made = [wait_over(batches, create(batches, f))["id"] for f in files]
    seen, after = [], ""
    while True:
        page = batches.json("GET", "/v1/batches?limit=2" + after)
        seen += [b["id"] for b in page["data"]]
        assert page["first_id"] == page["data"][0]["id"]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert seen == made[::-1]
    asc = batches.json("GET", "/v1/files?order=asc&purpose=batch")
    assert [f["id"] for f in asc["data"]] == files and not asc["has_more"]
    assert len(batches.json("GET", "/v1/files?purpose=batch_output")["data"]) == 5
    assert batches.json("DELETE", f"/v1/files/{files[0]}")["deleted"] is True
    assert batches.request("GET", f"/v1/files/{files[0]}")[0] == 404


def test_cancel_and_delete_while_it_runs(start_server, tmp_path):
    s = start_server("--batch-dir", str(tmp_path), "--batch-parallel", "1")
    file = upload(s, jsonl([line(f"r{i}", max_tokens=400) for i in range(60)]))
    batch = create(s, file["id"])
    while s.json("GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"] < 2:
        time.sleep(0.01)
    error = s.json("DELETE", f"/v1/files/{file['id']}", status=400)["error"]
    assert "not over" in error["message"]
    assert s.json("POST", f"/v1/batches/{batch['id']}/cancel", {})["status"] == "cancelling"
    over = wait_over(s, batch)
    assert over["status"] == "cancelled" and over["cancelled_at"] >= over["cancelling_at"]
    counts = over["request_counts"]
    assert counts["total"] == 60 == counts["completed"] + counts["failed"] and counts["failed"] > 0
    done = [r["custom_id"] for r in results(s, over["output_file_id"])]
    not_done = results(s, over["error_file_id"])
    assert {r["error"]["code"] for r in not_done} == {"batch_cancelled"}
    assert sorted(done + [r["custom_id"] for r in not_done]) == sorted(f"r{i}" for i in range(60))
    assert s.json("POST", f"/v1/batches/{batch['id']}/cancel", {}, status=400)


def test_results_that_somebody_removes_are_made_again(start_server, tmp_path):
    s = start_server("--batch-dir", str(tmp_path), "--batch-parallel", "1")
    batch = create(s, upload(s, jsonl([line(f"r{i}", max_tokens=200) for i in range(40)]))["id"])
    while s.json("GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"] < 2:
        time.sleep(0.01)
    removed = [f for f in (tmp_path / "files").glob("*.jsonl")
               if not f.with_suffix(".json").exists() and f.stat().st_size > 0]
    assert len(removed) == 1
    removed[0].unlink()
    over = wait_over(s, batch)
    assert over["status"] == "completed" and over["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
    assert sorted(r["custom_id"] for r in results(s, over["output_file_id"])) == sorted(f"r{i}" for i in range(40))


def test_cancel_before_it_began(start_server, tmp_path):
    """While 20,000 lines are looked at: the cancellation is not lost."""
    s = start_server("--batch-dir", str(tmp_path), "--batch-parallel", "1")
    batch = create(s, upload(s, jsonl([line(f"r{i}") for i in range(20000)]))["id"])
    s.json("POST", f"/v1/batches/{batch['id']}/cancel", {})
    over = wait_over(s, batch)
    assert over["status"] == "cancelled"
    counts = over["request_counts"]
    assert counts["total"] == counts["completed"] + counts["failed"] == 20000
    assert counts["completed"] < 10000


@pytest.mark.parametrize("left", [0, 10])
def test_an_input_that_is_gone(tmp_path, left):
    """Between two starts, or all but the first lines: the batch fails and says so; what was done is
    still there, and counted."""
    flags = ("--batch-dir", str(tmp_path), "--batch-parallel", "1")
    s = Server(*flags).wait_ready()
    file = upload(s, jsonl([line(f"r{i}", max_tokens=300) for i in range(50)]))
    batch = create(s, file["id"])
    while s.json("GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"] < 2:
        time.sleep(0.01)
    s.stop()
    path = tmp_path / "files" / f"{file['id']}.jsonl"
    kept = path.read_bytes().splitlines(True)[:left]
    path.write_bytes(b"".join(kept)) if left else path.unlink()
    with open(next(tmp_path.glob("batches/*.json"))) as f:
        output = tmp_path / "files" / (json.load(f)["output"] + ".jsonl")
    n_done = output.read_bytes().count(b"\n")
    with open(output, "ab") as f:
        f.write(b'{"id":"batch_req_')
    s = Server(*flags).wait_ready()
    over = wait_over(s, batch)
    assert over["status"] == "failed" and "input file" in over["errors"]["data"][0]["message"]
    assert over["request_counts"] == {"total": 50, "completed": n_done, "failed": 0}
    assert len(results(s, over["output_file_id"])) == n_done >= 2
    s.stop()


def test_expires(start_server, tmp_path):
    s = start_server("--batch-dir", str(tmp_path), "--batch-parallel", "1")
    file = upload(s, jsonl([line(f"r{i}", max_tokens=1500) for i in range(300)]))
    over = wait_over(s, create(s, file["id"], window="1s"))
    assert over["status"] == "expired"
    codes = {r["error"]["code"] for r in results(s, over["error_file_id"])}
    assert codes == {"batch_expired"}
    assert sum(over["request_counts"].values()) == 600


def test_killed_again_and_again_every_request_is_done_once(tmp_path):
    """kill -9 at any moment, and a torn line now and then: every custom_id is there exactly once,
    with the same answer that it has alone."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    folder = tmp_path / "batches"
    n = few(400, 120)
    lines = [line(f"r{i}", max_tokens=rng.randrange(20, 200), seed=i, temperature=1)
             for i in range(n)] + ["broken"] * 3
    flags = ("--batch-dir", str(folder), "--batch-parallel", "4", "--threads", "1")
    s = Server(*flags).wait_ready()
    batch = create(s, upload(s, jsonl(lines))["id"])
    for kill in range(8):
        state, enough = batch, (kill + rng.random()) * n // 10
        while state["request_counts"]["completed"] < enough:
            time.sleep(0.002)
            state = s.json("GET", f"/v1/batches/{batch['id']}")
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
        assert state["status"] in ("validating", "in_progress")
        if rng.random() < 0.5:
            for name in ("output", "errors"):
                with open(next(folder.glob("batches/*.json"))) as f:
                    path = folder / "files" / (json.load(f)[name] + ".jsonl")
                if path.exists() and path.stat().st_size > 100:
                    data = path.read_bytes()
                    cut = rng.choice([data[:-7], data + b'{"id":"batch_req_', data + b"\0" * 50])
                    path.write_bytes(cut)
        s = Server(*flags).wait_ready()
    over = wait_over(s, s.json("GET", f"/v1/batches/{batch['id']}"))
    assert over["status"] == "completed"
    assert over["request_counts"] == {"total": n + 3, "completed": n, "failed": 3}
    got = results(s, over["output_file_id"])
    assert sorted(r["custom_id"] for r in got) == sorted(f"r{i}" for i in range(n))
    assert sorted(r["error"]["line"] for r in results(s, over["error_file_id"])) == [n + 1, n + 2, n + 3]
    for r in rng.sample(got, 20):
        alone = s.json("POST", COMPLETIONS, lines[int(r["custom_id"][1:])]["body"])
        assert alone["choices"] == r["response"]["body"]["choices"]
    s.stop()


def test_survives_a_clean_end_and_is_not_delayed_by_it(tmp_path):
    folder = str(tmp_path)
    s = Server("--batch-dir", folder).wait_ready()
    n = few(100, 30)
    batch = create(s, upload(s, jsonl([line(f"r{i}", max_tokens=200) for i in range(n)]))["id"])
    while s.json("GET", f"/v1/batches/{batch['id']}")["status"] == "validating":
        time.sleep(0.01)
    began = time.monotonic()
    s.stop()
    assert time.monotonic() - began < 25  # not the 30 s that requests of clients would have
    s = Server("--batch-dir", folder).wait_ready()
    over = wait_over(s, batch)
    assert over["request_counts"] == {"total": n, "completed": n, "failed": 0}
    s.stop()


def test_one_server_at_a_time(batches, tmp_path):
    p = subprocess.run([WEIR, "serve", "-m", MODEL, "--port", "0", "--batch-dir",
                        str(tmp_path / "batches")], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and "another server works there" in p.stderr


def test_clients_come_first(start_server, tmp_path):
    """With one place to run in, a client's request displaces a batch's and is not behind it."""
    s = start_server("--batch-dir", str(tmp_path), "--max-running", "1", "--threads", "1")
    batch = create(s, upload(s, jsonl([line(f"r{i}", max_tokens=1500) for i in range(40)]))["id"])
    while s.metric("weir_requests_running") < 1 or s.metric("weir_requests_waiting") < 15:
        time.sleep(0.01)
    for i in range(5):
        s.json("POST", COMPLETIONS, {"prompt": f"Hello {i}", "max_tokens": 4})
    state = s.json("GET", f"/v1/batches/{batch['id']}")
    assert state["status"] == "in_progress" and state["request_counts"]["completed"] < 40
    assert s.metric("weir_preemptions_total") >= 1
    s.json("POST", f"/v1/batches/{batch['id']}/cancel", {})


def test_more_than_the_queue_holds(start_server, tmp_path):
    """429 inside is no result: the line waits and is done later."""
    s = start_server("--batch-dir", str(tmp_path), "--batch-parallel", "32", "--max-running", "2",
                     "--max-queue", "2", "--threads", "1")
    over = wait_over(s, create(s, upload(s, jsonl([line(f"r{i}") for i in range(100)]))["id"]))
    assert over["request_counts"] == {"total": 100, "completed": 100, "failed": 0}


def test_several_at_once_with_clients_beside(batches):
    files = [upload(batches, jsonl([line(f"{k}-{i}") for i in range(40)]))["id"] for k in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda f: create(batches, f), files))
        asked = [pool.submit(batches.json, "POST", COMPLETIONS, line(f"x{i}")["body"])
                 for i in range(40)]
        over = list(pool.map(lambda b: wait_over(batches, b), made))
        assert all(a.result()["usage"]["completion_tokens"] == 8 for a in asked)
    for k, b in enumerate(over):
        got = results(batches, b["output_file_id"])
        assert sorted(r["custom_id"] for r in got) == sorted(f"{k}-{i}" for i in range(40))


def test_the_key_guards_files_and_batches(start_server, tmp_path):
    s = start_server("--batch-dir", str(tmp_path), "--api-key", "secret")
    assert s.request("GET", "/v1/files")[0] == 401
    assert s.request("GET", "/v1/batches")[0] == 401
    key = {"Authorization": "Bearer secret"}
    data = form([("purpose", None, b"batch"), ("file", "x", jsonl([line("a")]))])
    status, _, answer = s.request("POST", "/v1/files", data, headers={
        **key, "Content-Type": "multipart/form-data; boundary=b0undary"})
    assert status == 200
    body = {"input_file_id": json.loads(answer)["id"], "endpoint": COMPLETIONS,
            "completion_window": "24h"}
    batch = s.json("POST", "/v1/batches", body, headers=key)
    end = time.monotonic() + 60
    while batch["status"] != "completed":
        assert time.monotonic() < end
        time.sleep(0.02)
        batch = s.json("GET", f"/v1/batches/{batch['id']}", headers=key)
    assert batch["request_counts"]["completed"] == 1


def test_a_batch_keeps_to_the_limits_of_its_key(start_server, tmp_path):
    """It leaves half of them to the key's clients, waits as long as they say, and holds nobody else up."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "a", "key": "ka-0", "requests_per_minute": 120},
                                         {"name": "b", "key": "kb-0"}]}))
    s = start_server("--batch-dir", str(tmp_path / "batches"), "--api-keys", str(keys))
    heads = {k: {"Authorization": f"Bearer {k}"} for k in ("ka-0", "kb-0")}
    begun = {}
    for k, head in heads.items():
        data = form([("purpose", None, b"batch"),
                     ("file", "x", jsonl(line(str(i), max_tokens=1) for i in range(66)))])
        _, _, answer = s.request("POST", "/v1/files", data, headers={
            **head, "Content-Type": "multipart/form-data; boundary=b0undary"})
        begun[k] = s.json("POST", "/v1/batches", {
            "input_file_id": json.loads(answer)["id"], "endpoint": COMPLETIONS,
            "completion_window": "24h"}, headers=head)
    began = time.monotonic()

    def wait(k, enough):
        while True:
            batch = s.json("GET", f"/v1/batches/{begun[k]['id']}", headers=heads[k])
            if enough(batch):
                return batch
            assert time.monotonic() < began + 120, batch
            time.sleep(0.02)

    wait("kb-0", lambda x: x["status"] == "completed")
    wait("ka-0", lambda x: x["request_counts"]["completed"] >= 55)
    status, head, _ = s.request("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1}, headers=heads["ka-0"])
    assert status == 200 and int(head["X-RateLimit-Remaining-Requests"]) >= 55
    over = wait("ka-0", lambda x: x["status"] == "completed")
    assert over["request_counts"] == {"total": 66, "completed": 66, "failed": 0}
    assert time.monotonic() - began > 2  # 120 a minute, of which 60 and one each half second are its
    text = s.request("GET", "/metrics", headers=heads["kb-0"])[2].decode()
    assert 'weir_key_refused_total{key="a",limit="requests"} 0\n' in text
    assert 'weir_key_requests_total{key="a"} 67\n' in text  # none twice


def test_a_batch_shares_the_places_of_its_key(start_server, tmp_path):
    """Half of `concurrency`, and a place that is free again is taken at once."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "a", "key": "ka-0", "concurrency": 4}]}))
    s = start_server("--batch-dir", str(tmp_path / "batches"), "--api-keys", str(keys))
    head = {"Authorization": "Bearer ka-0"}
    data = form([("purpose", None, b"batch"), ("file", "x", jsonl(line(str(i)) for i in range(100)))])
    _, _, answer = s.request("POST", "/v1/files", data, headers={
        **head, "Content-Type": "multipart/form-data; boundary=b0undary"})
    batch = s.json("POST", "/v1/batches", {"input_file_id": json.loads(answer)["id"], "endpoint": COMPLETIONS,
                                           "completion_window": "24h"}, headers=head)
    most, began = 0, time.monotonic()
    while batch["status"] != "completed":
        text = s.request("GET", "/metrics", headers=head)[2].decode()
        most = max(most, int(text.split('weir_key_requests_running{key="a"} ')[1].split("\n")[0]))
        batch = s.json("GET", f"/v1/batches/{batch['id']}", headers=head)
        assert time.monotonic() < began + 120
    assert batch["request_counts"]["completed"] == 100 and most <= 3  # two, and the one that starts it
    assert time.monotonic() < began + 25  # two a second, were nobody told of a place


def test_a_batch_outlives_its_key_and_stays_by_itself(tmp_path):
    """What the work of a key with a salt leaves in memory is not found by others, key or none."""
    keys, folder = tmp_path / "keys", tmp_path / "batches"
    flags = ("--batch-dir", str(folder), "--batch-parallel", "1", "--api-keys", str(keys))
    prompt = "Once there was a secret that nobody else may know of, " * 4

    def write(name, **more):
        keys.write_text(json.dumps({"keys": [{"name": name, "key": name * 8, **more}]}))
        keys.chmod(0o600)
        return {"Authorization": "Bearer " + name * 8}

    auth = write("a", cache_salt="of a")
    s = Server(*flags).wait_ready()
    lines = [line(f"r{i}", prompt=prompt, max_tokens=100) for i in range(40)]
    data = form([("purpose", None, b"batch"), ("file", "x", jsonl(lines))])
    status, _, answer = s.request("POST", "/v1/files", data, headers={
        **auth, "Content-Type": "multipart/form-data; boundary=b0undary"})
    assert status == 200
    s.json("POST", "/v1/batches", {"input_file_id": json.loads(answer)["id"], "endpoint":
                                   COMPLETIONS, "completion_window": "24h"}, headers=auth)
    s.stop()
    auth = write("b")
    before = sum(f.stat().st_size for f in (folder / "files").iterdir())
    s = Server(*flags).wait_ready()
    end = time.monotonic() + 60
    while sum(f.stat().st_size for f in (folder / "files").iterdir()) == before:
        assert time.monotonic() < end
        time.sleep(0.01)
    body = {"prompt": prompt, "max_tokens": 1}
    usage = s.json("POST", COMPLETIONS, body, headers=auth)["usage"]
    assert usage["prompt_tokens"] > 40
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    s.stop()


def test_the_official_client(batches):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=batches.url + "/v1", api_key="none", max_retries=0)
    name = f"{uuid.uuid4()}.jsonl"
    file = client.files.create(file=(name, jsonl([line(f"r{i}") for i in range(12)])),
                               purpose="batch")
    assert file.filename == name and file.status == "processed"
    batch = client.batches.create(input_file_id=file.id, endpoint=COMPLETIONS,
                                  completion_window="24h", metadata={"a": "b"})
    end = time.monotonic() + 60
    while batch.status != "completed":
        assert time.monotonic() < end, batch
        time.sleep(0.02)
        batch = client.batches.retrieve(batch.id)
    assert batch.request_counts.completed == 12 and batch.metadata == {"a": "b"}
    text = client.files.content(batch.output_file_id).text
    assert len(text.splitlines()) == 12
    assert [b.id for b in client.batches.list(limit=1)] == [batch.id]
    assert {f.id for f in client.files.list(limit=1)} == {file.id, batch.output_file_id}
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    with pytest.raises(openai.BadRequestError):
        client.batches.cancel(batch.id)
