"""Files of requests, and batches made of them."""

import json
import time

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


def post_form(server, fields, content_type="multipart/form-data; boundary=b0undary", headers=None, **more):
    return server.request("POST", "/v1/files", form(fields, **more),
                          headers={"Content-Type": content_type, **(headers or {})})


def upload(server, data, headers=None):
    status, _, answer = post_form(server, [("purpose", None, b"batch"), ("file", "in.jsonl", data)],
                                  headers=headers)
    assert status == 200, answer
    return json.loads(answer)


def create(server, file_id, endpoint=COMPLETIONS, window="24h", status=200, headers=None, **more):
    return server.json("POST", "/v1/batches", {"input_file_id": file_id, "endpoint": endpoint,
                                               "completion_window": window, **more}, status, headers=headers)


def wait_over(server, batch, headers=None):
    end = time.monotonic() + 300
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        assert time.monotonic() < end, batch
        time.sleep(0.02)
        batch = server.json("GET", f"/v1/batches/{batch['id']}", headers=headers)
    return batch


def results(server, file_id):
    if file_id is None:
        return []
    status, headers, data = server.request("GET", f"/v1/files/{file_id}/content")
    assert status == 200 and data.endswith(b"\n")
    return [json.loads(x) for x in data.decode().splitlines()]
