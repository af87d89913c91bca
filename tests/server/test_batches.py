"""Files of requests worked off in the background: /v1/batches on a real server."""

import concurrent.futures
import json
import random
import signal
import subprocess
import time
import uuid

import pytest

from conftest import MODEL, WEIR, Server, few
from uploads import COMPLETIONS, create, jsonl, line, results, upload, wait_over


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
    _, _, metrics = batches.request("GET", "/metrics")
    assert b'weir_http_requests_total{status="40' not in metrics  # lines are not counted there


def test_a_file_with_a_byte_order_mark(batches):
    file = upload(batches, b"\xef\xbb\xbf" + jsonl([line("a"), line("b")]))
    over = wait_over(batches, create(batches, file["id"]))
    assert over["request_counts"] == {"total": 2, "completed": 2, "failed": 0}


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
    n = few(40, 12)
    file = upload(s, jsonl([line(f"r{i}", max_tokens=200) for i in range(n)]))
    for _ in range(10):  # unless it is over before one looks
        batch = create(s, file["id"])
        while s.json("GET", f"/v1/batches/{batch['id']}")["request_counts"]["completed"] < 2:
            time.sleep(0.01)
        removed = [f for f in (tmp_path / "files").glob("*.jsonl")
                   if not f.with_suffix(".json").exists() and f.stat().st_size > 0]
        if removed:
            break
    assert len(removed) == 1
    removed[0].unlink()
    over = wait_over(s, batch)
    assert over["status"] == "completed" and over["request_counts"] == {"total": n, "completed": n, "failed": 0}
    assert sorted(r["custom_id"] for r in results(s, over["output_file_id"])) == sorted(f"r{i}" for i in range(n))


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
    file = upload(s, jsonl([line(f"r{i}", max_tokens=300) for i in range(500)]))
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
    assert over["request_counts"] == {"total": 500, "completed": n_done, "failed": 0}
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
    n = few(400, 60)
    lines = [line(f"r{i}", max_tokens=rng.randrange(20, 200), seed=i, temperature=1)
             for i in range(n)] + ["broken"] * 3
    flags = ("--batch-dir", str(folder), "--batch-parallel", "4", "--threads", "1")
    s = Server(*flags).wait_ready()
    batch = create(s, upload(s, jsonl(lines))["id"])
    n_amid = 0
    for kill in range(8):
        state, enough = batch, (kill + rng.random()) * n // 10
        while state["request_counts"]["completed"] < enough:
            time.sleep(0.002)
            state = s.json("GET", f"/v1/batches/{batch['id']}")
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
        with open(next(folder.glob("batches/*.json"))) as f:
            record = json.load(f)
        amid = record["status"] != "completed"  # else this program was held up
        n_amid += amid
        if amid and rng.random() < 0.5:
            for name in ("output", "errors"):
                path = folder / "files" / (record[name] + ".jsonl")
                if path.exists() and path.stat().st_size > 100:
                    data = path.read_bytes()
                    cut = rng.choice([data[:-7], data + b'{"id":"batch_req_', data + b"\0" * 50])
                    path.write_bytes(cut)
        s = Server(*flags).wait_ready()
    over = wait_over(s, s.json("GET", f"/v1/batches/{batch['id']}"))
    assert over["status"] == "completed" and n_amid > 0
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
                        str(tmp_path / "batches")], capture_output=True, text=True, timeout=300)
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
    batch = create(s, upload(s, jsonl([line("a")]), key)["id"], headers=key)
    assert wait_over(s, batch, key)["request_counts"]["completed"] == 1


def test_a_batch_keeps_to_the_limits_of_its_key(start_server, tmp_path):
    """It leaves half of them to the key's clients, waits as long as they say, and holds nobody else up."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "a", "key": "ka-0", "requests_per_minute": 120},
                                         {"name": "b", "key": "kb-0"}]}))
    s = start_server("--batch-dir", str(tmp_path / "batches"), "--api-keys", str(keys))
    heads = {k: {"Authorization": f"Bearer {k}"} for k in ("ka-0", "kb-0")}
    begun = {}
    for k, head in heads.items():
        file = upload(s, jsonl(line(str(i), max_tokens=1) for i in range(66)), head)
        begun[k] = create(s, file["id"], headers=head)
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
    batch = create(s, upload(s, jsonl(line(str(i), max_tokens=1) for i in range(300)), head)["id"], headers=head)
    most, began = 0, time.monotonic()
    while batch["status"] != "completed":
        text = s.request("GET", "/metrics", headers=head)[2].decode()
        most = max(most, int(text.split('weir_key_requests_running{key="a"} ')[1].split("\n")[0]))
        batch = s.json("GET", f"/v1/batches/{batch['id']}", headers=head)
        assert time.monotonic() < began + 140  # two a second, were nobody told of a place
    assert batch["request_counts"]["completed"] == 300 and most <= 3  # two, and the one that starts it


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
    create(s, upload(s, jsonl(lines), auth)["id"], headers=auth)
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
