"""weir serve with a certificate: streams, clients that leave, reading it again without losing any."""

import http.client
import json
import ssl
import subprocess
import time

import pytest

from conftest import MODEL, WEIR

COMPLETIONS = "/v1/completions"
ASK = {"prompt": "Once there was a", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def make_certificate(folder, name):
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", cert, "-days", "30", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True)
    return cert, key


def trusting(cert):
    return ssl.create_default_context(cafile=cert)


@pytest.fixture
def tls_server(start_server, tmp_path):
    cert, key = make_certificate(tmp_path, "first")
    return start_server("--tls-cert", cert, "--tls-key", key, context=trusting(cert))


def connect(server, context=None):
    host = server.url.split("//")[1]
    return http.client.HTTPSConnection(host, timeout=300, context=context or server.context)


def open_stream(server, n_tokens, **more):
    c = connect(server)
    c.request("POST", COMPLETIONS, json.dumps({**ASK, "max_tokens": n_tokens, "stream": True, **more}))
    r = c.getresponse()
    assert r.status == 200
    return c, r


def name_of(server, context):
    c = connect(server, context)
    c.connect()
    subject = dict(x[0] for x in c.sock.getpeercert()["subject"])
    c.close()
    return subject["commonName"]


def test_the_same_answers(tls_server, server):
    assert tls_server.url.startswith("https://")
    plain = server.json("POST", COMPLETIONS, ASK)
    secret = tls_server.json("POST", COMPLETIONS, ASK)
    assert plain["choices"] == secret["choices"]
    streamed = tls_server.events(COMPLETIONS, ASK)
    assert "".join(e["choices"][0]["text"] for e in streamed) == plain["choices"][0]["text"]


def test_a_client_that_leaves(tls_server):
    c, r = open_stream(tls_server, 2000, n=50)  # half a minute's work
    r.readline()
    assert tls_server.metric("weir_requests_running") <= 50
    r.close()
    c.close()
    end = time.monotonic() + 30
    while tls_server.metric('weir_request_success_total{finished_reason="abort"}') != 50:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert tls_server.metric("weir_http_clients_gone_total") == 1


def test_reload_drops_no_stream(tls_server, tmp_path):
    """Streams from before go on; handshakes from then on see the new certificate; one that does not
    fit changes nothing."""
    old = tls_server.context
    streams = [open_stream(tls_server, 400) for _ in range(4)]
    for _, r in streams:
        assert r.readline().startswith(b"data: ")
    cert, key = make_certificate(tmp_path, "second")
    assert "reload: tls-cert\n" in tls_server.reload()
    tls_server.context = trusting(cert)
    assert name_of(tls_server, tls_server.context) == "second"
    with pytest.raises(ssl.SSLError):
        name_of(tls_server, old)
    for c, r in streams:
        assert r.read().endswith(b"data: [DONE]\n\n")
        c.request("POST", COMPLETIONS, json.dumps(ASK))  # the old connection lives on, too
        assert c.getresponse().status == 200
        c.close()
    for broken in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        cert.write_text(broken)
        assert "error: reload: tls-cert: the certificate cannot be read" in tls_server.reload()
        assert name_of(tls_server, tls_server.context) == "second"


def test_many_reloads_under_traffic(tls_server, tmp_path):
    import threading
    stop, problems = threading.Event(), []
    anyone = ssl._create_unverified_context()
    tls_server.context = anyone

    def client():
        while not stop.is_set():
            try:
                if tls_server.request("POST", COMPLETIONS, ASK)[0] != 200:
                    problems.append("status")
            except OSError as e:
                problems.append(e)

    threads = [threading.Thread(target=client) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(10):
        make_certificate(tmp_path, f"number-{i}")
        tls_server.reload()
    stop.set()
    for t in threads:
        t.join()
    assert not problems


def start_with(*flags):
    return subprocess.run([WEIR, "serve", "-m", MODEL, "--port", "0", *flags],
                          capture_output=True, text=True, timeout=300)


def test_mistakes_are_one_line_at_start(tmp_path):
    cert, key = make_certificate(tmp_path, "a")
    (tmp_path / "b").mkdir()
    _, other = make_certificate(tmp_path / "b", "b")
    locked = tmp_path / "locked.pem"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked],
                   check=True, capture_output=True)
    for c, k, says in ((cert, other, "the key is not that of the certificate"),
                       (key, key, "the certificate cannot be read"),
                       (cert, cert, "the key cannot be read"),
                       (cert, locked, "has a password"),
                       (tmp_path / "no", key, "No such file"),
                       (cert, tmp_path / "no", "No such file")):
        r = start_with("--tls-cert", c, "--tls-key", k)
        lines = [line for line in r.stderr.splitlines() if "warning" not in line]
        assert r.returncode == 1 and len(lines) == 1 and says in lines[0], r.stderr
        assert lines[0].startswith("weir serve: tls-")
    assert start_with("--tls-cert", cert).returncode == 2


def test_a_key_for_all_to_read_is_a_warning(start_server, tmp_path):
    cert, key = make_certificate(tmp_path, "a")
    key.chmod(0o600)
    good = start_server("--tls-cert", cert, "--tls-key", key, context=trusting(cert))
    assert "warning" not in good.log
    key.chmod(0o644)
    bad = start_server("--tls-cert", cert, "--tls-key", key, context=trusting(cert))
    assert f"warning: tls-key: others on this machine may read or change {key}" in bad.log
