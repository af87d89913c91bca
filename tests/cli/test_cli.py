"""The command line: results on stdout, one clear line on stderr, exit status 0, 1 or 2."""

import array
import json
import os
import pathlib
import pty
import resource
import select
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/weir"))
NANO = str(ROOT / "models/weir-nano.gguf")
COMMANDS = ["serve", "run", "embed", "bench", "tokenize", "render", "logits", "inspect", "quantize",
            "cache", "devices"]


def weir(*args, data=None, env=None):
    return subprocess.run([WEIR, *map(str, args)], input=data, capture_output=True, timeout=300,
                          env={**os.environ, **(env or {})})


def test_usage():
    assert weir().returncode == 2
    assert weir("nonsense").returncode == 2
    help_text = weir("--help")
    assert help_text.returncode == 0
    for command in COMMANDS:
        assert command in help_text.stdout.decode()
    assert weir("--version").stdout.decode().startswith("weir ")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command):
    r = weir(command, "--help")
    assert r.returncode == 0 and b"Examples:" in r.stdout, r.stderr
    examples = r.stdout.decode().partition("Examples:\n")[2].splitlines()
    assert examples[0].startswith("  "), examples
    for before, line in zip([""] + examples, examples):  # none is wrapped, so that each can be pasted
        assert line == "" or line.startswith("    " if before.endswith("\\") else "  "), line
    assert weir(command, "--no-such-flag").returncode == 2


@pytest.mark.parametrize("args", [
    ["serve", "--port", "70000"], ["serve", "--kv-memory", "many"], ["serve", "--kv-type", "f8"],
    ["serve", "--max-running", "0"], ["serve", "--max-connections", "1000001"], ["serve", "stray"], ["logits", "-m", NANO],
    ["logits", "-m", NANO, "--tokens", "1", "--rows", "x"], ["run", "--temperature", "9"],
    ["run", "--raw", "-s", "Be short.", "-p", "x"], ["run", "--grammar-file", "-"], ["run", "--json-schema", "-"],
    ["render", "--context", "-", "--template", "-"], ["serve", "--batch-parallel", "2"], ["serve", "--batch-file", "1M"],
    ["bench", "--batch", "1,x"], ["bench", "--batch-tokens", "0"], ["tokenize", "stray"],
    ["devices", "stray"], ["inspect", "a", "b"],
])
def test_wrong_use_is_2(args):
    r = weir(*args)
    assert r.returncode == 2 and r.stderr and not r.stdout, r


@pytest.mark.parametrize("flag", ["--kv-memory", "--host-cache", "--cache-disk", "--max-body",
                                  "--batch-file", "--gpu-memory"])
@pytest.mark.parametrize("none", ["0", "0G"])
def test_a_size_is_more_than_nothing(flag, none):
    r = weir("serve", flag, none)
    assert r.returncode == 2 and f"{flag}: must be more than 0" in r.stderr.decode(), r


@pytest.mark.parametrize("command", ["serve", "run", "embed", "bench", "logits"])
def test_types_of_kv_memory_are_named_alike(command):
    r = weir(command, "--kv-type", "f8")
    assert r.returncode == 2 and b"--kv-type: 'f8' is not f16, f32, bf16 or q8_0" in r.stderr, r


@pytest.mark.parametrize("command", [["run", "-p", "hi", "-n", 1], ["embed", "hi"],
                                     ["bench", "-p", 1, "-n", 1, "-b", 1, "-d", 0],
                                     ["logits", "-t", 1]])
def test_what_runs_a_model_takes_the_same_options(command):
    for flag, wrong in (("-k", "f8"), ("-j", "0"), ("--device", "abacus"), ("--gpu-memory", "0")):
        assert weir(*command, flag, wrong).returncode == 2, flag
    context = [] if command[0] == "bench" else ["-c", 64]
    r = weir(*command, "-m", NANO, "-k", "q8_0", "-j", 2, "--device", "cpu", *context)
    assert r.returncode == 0 and r.stdout, r
    assert command[0] != "bench" or b"kv q8_0" in r.stdout


@pytest.mark.parametrize("number", ["0x1", " 1", "1 ", "nan", "inf", "", ".", "--1", "+-1", "1e", "1f", "1,5"])
def test_reals_are_decimal(number):
    for flag in ("--temperature", "--gpu-memory"):
        r = weir("serve", "-m", "/nonexistent", f"{flag}={number}")
        assert r.returncode == 2 and flag.encode() in r.stderr, r
    assert weir("serve", "-m", "/nonexistent", f"--top-k={number}").returncode == 2
    for good in ("1", "+1", "1.", ".5", "5e-1", "1E0"):
        assert weir("serve", "-m", "/nonexistent", f"--temperature={good}").returncode == 1


@pytest.mark.parametrize("command", ["serve", "run"])
def test_seeds_have_one_range(command):
    assert "0 to 2^63 - 1" in " ".join(weir(command, "--help").stdout.decode().split())
    for seed, status in ((0, 1), (2**63 - 1, 1), (2**63, 2), (-1, 2)):  # 1: it came as far as the model's file
        r = weir(command, "-m", "/nonexistent", f"--seed={seed}")
        assert r.returncode == status and (b"from 0 to 9223372036854775807" in r.stderr) == (status == 2), r


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", ""])
def test_a_chat_at_a_terminal_reads_utf8(tmp_path, locale):
    """libedit drops what it can't read, and the model would never know."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "HOME": str(tmp_path), "LC_ALL": locale, "TERM": "xterm"}
    p = subprocess.Popen([WEIR, "run", "-m", NANO, "-n", "1"], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen, typed, end = b"", False, time.monotonic() + 60
    while p.poll() is None and time.monotonic() < end:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # it has ended
                break
        elif b"> " in seen and not typed:  # from now on it is libedit that shows what is typed
            seen, typed = b"", True
            os.write(ours, "Où est Zürich 漢字?\n".encode())
        elif typed:
            os.write(ours, b"\x04")
    assert p.wait(300) == 0
    os.close(ours)
    assert "Où est Zürich 漢字?".encode() in seen, seen


@pytest.mark.parametrize("ahead", [b"\x04", b"Hi\n\x04", b"Hi\n\x04\x04"])
def test_an_end_typed_ahead_ends_a_chat(tmp_path, ahead):
    """Before the model is loaded, or while it answers."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm"}
    os.write(ours, ahead)
    p = subprocess.Popen([WEIR, "run", "-m", NANO, "-n", "1"], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    assert p.wait(300) == 0
    os.close(ours)


def test_several_addresses_have_commas_between_them():
    r = weir("serve", "-m", NANO, "--port", "0", "--host", "127.0.0.1 ::1")
    assert r.returncode == 1 and b"commas" in r.stderr, r
    assert weir("serve", "-m", "/nonexistent", "--host", "").returncode == 2


def test_a_pipe_that_nobody_reads_is_no_log(tmp_path):
    os.mkfifo(tmp_path / "log")
    r = weir("serve", "-m", NANO, "--port", "0", "--access-log", tmp_path / "log")
    assert r.returncode == 1 and len(r.stderr.splitlines()) == 1, r


def test_what_stands_behind_a_nul_is_not_lost(tmp_path):
    (tmp_path / "ids").write_bytes(b"1,2\0,3")
    r = weir("logits", "-m", NANO, "--tokens", f"@{tmp_path / 'ids'}")
    assert r.returncode == 1 and b"NUL" in r.stderr, r
    (tmp_path / "key").write_bytes("secret".encode("utf-16-le"))
    r = weir("serve", "-m", NANO, "--port", "0", "--admin-key-file", tmp_path / "key")
    assert r.returncode == 1 and b"NUL" in r.stderr, r


def test_more_kv_memory_than_there_is():
    r = weir("serve", "-m", NANO, "--port", "0", "--device", "cpu", "--kv-memory", "99999G")
    assert r.returncode == 1 and b"99999.0 GiB were asked for beside weights of 0.0 GiB, there are" in r.stderr, r


def test_a_larger_host_cache_than_there_is_memory():
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    r = weir("serve", "-m", NANO, "--port", "0", "--device", "cpu", "--kv-memory", "16M",
             "--host-cache", f"{int(gib) + 1}G")
    assert r.returncode == 1 and b"host-cache: " in r.stderr and b"GiB were asked for beside weights of" in r.stderr, r


def test_environment_is_checked_like_flags():
    r = weir("serve", env={"WEIR_KV_MEMORY": "many"})
    assert r.returncode == 2 and b"--kv-memory" in r.stderr


@pytest.mark.parametrize("env, args", [
    ({"WEIR_API_KEY": "a"}, ["--api-keys", "/nonexistent"]), ({"WEIR_API_KEYS": "/nonexistent"}, ["--api-key", "a"]),
    ({"WEIR_CHAT_TEMPLATE": "chatml"}, ["--chat-template-f", "/nonexistent"]),
    ({"WEIR_CHAT_TEMPLATE_FILE": "/nonexistent"}, ["--chat-template=chatml"]),
    ({"WEIR_PORT": "many"}, ["--por", "0"]), ({"WEIR_API_KEY": ""}, ["--api-key", "a"]),
])
def test_a_flag_wins_over_the_environment(env, args):
    """1: it came as far as the model's file, or that of keys, which is not there; 2: the flags are wrong."""
    r = weir("serve", "-m", "/nonexistent", *args, env=env)
    assert r.returncode == 1, r
    flags = [f"--{name[5:].lower().replace('_', '-')}={value}" for name, value in env.items()]
    assert weir("serve", "-m", "/nonexistent", *flags, *args).returncode == 2


@pytest.mark.parametrize("value, status", [("1", 1), ("on", 1), ("true", 1), ("0", 1), ("off", 1),
                                           ("false", 1), ("", 1), ("yes", 1), ("no", 1), ("yes please", 2)])
def test_a_flag_without_a_value_in_the_environment(value, status):
    """1: it came as far as the model's file, which is not there; 2: the flag is wrong."""
    r = weir("serve", "--port", "0", "-m", "/nonexistent", env={"WEIR_GPU_ZERO_BUFFERS": value})
    lines = [x for x in r.stderr.splitlines() if not x.startswith(b"weir: info: ")]
    assert r.returncode == status and len(lines) == 1, r
    assert (b"WEIR_GPU_ZERO_BUFFERS=yes please: " in r.stderr) == (status == 2)
    for flag in ("any-model", "embeddings", "verbose"):  # those that may have one know the same words
        r = weir("serve", "-m", "/nonexistent", env={"WEIR_" + flag.upper().replace("-", "_"): value})
        assert r.returncode == status and (b"is not on or off" in r.stderr) == (status == 2), r
        assert value == "" or weir("serve", "-m", "/nonexistent", f"--{flag}={value}").returncode == status


@pytest.mark.parametrize("flag", ["api-key", "api-keys", "admin-key-file", "tls-cert", "tls-key"])
def test_an_empty_secret_never_opens_the_server(flag):
    """As a compose file passes on a variable that nobody set. What guards nothing is then not set."""
    env = {"WEIR_" + flag.upper().replace("-", "_"): "", "WEIR_MAX_QUEUE": "", "WEIR_CACHE_DIR": ""}
    for args, more in (((), env), ((f"--{flag}=",), {})):
        r = weir("serve", "-m", "/nonexistent", *args, env=more)
        assert r.returncode == 2 and f"--{flag}: the ".encode() in r.stderr and b"empty" in r.stderr, r


@pytest.mark.parametrize("key", ["two words", " a", "a ", "a\n", "a\tb", "schlüssel", "\x7f"])
def test_a_key_that_no_client_can_send(key):
    for args, more in (((), {"WEIR_API_KEY": key}), ((f"--api-key={key}",), {})):
        r = weir("serve", "-m", "/nonexistent", *args, env=more)
        assert r.returncode == 2 and b"--api-key: the key must be visible ASCII" in r.stderr, r
        assert len(key) < 3 or key.encode() not in r.stderr, r


@pytest.mark.parametrize("args", [
    ["run", "-m", "/nonexistent.gguf", "-p", "x"], ["serve", "--port", "0", "-m", "/nonexistent"],
    ["logits", "-m", NANO, "--tokens", "999999"], ["logits", "-m", NANO, "--tokens", "1,x"],
    ["logits", "-m", NANO, "--tokens", "1,2", "--rows", "2"], ["logits", "-m", NANO, "--tokens", ""],
    ["serve", "-m", ""], ["run", "-m", "", "-p", "x"], ["inspect", "/dev/null"], ["tokenize", "-m", "/etc/passwd"], ["run", "-m", "/", "-p", "x"],
    ["run", "-m", NANO, "-n", "5000", "-p", "x"],
])
def test_failure_is_1_and_one_line(args):
    r = weir(*args, data=b"")
    lines = [x for x in r.stderr.decode().splitlines() if not x.startswith("weir: info: ")]
    assert r.returncode == 1 and len(lines) == 1, r
    assert lines[0].startswith("weir "), lines
    assert "" not in args or args[-1] == "" and args[-2] == "--tokens" or "path is empty" in lines[0], lines


def test_run_without_a_template_of_the_models_own(tmp_path):
    """ChatML, as weir serve has it, and as is the built-in model's own."""
    bare, nano = tmp_path / "bare.gguf", pathlib.Path(NANO).read_bytes()
    bare.write_bytes(nano.replace(b"tokenizer.chat_template", b"tokenizer.chat_templat_"))
    done = weir("run", "-m", bare, "-p", "Hello")
    assert done.returncode == 0 and b"no chat template: chats use ChatML" in done.stderr, done
    assert done.stdout == weir("run", "-p", "Hello").stdout and done.stdout.strip()
    raw = weir("run", "--raw", "-n", "8", "-m", bare, "-p", "Hello")
    assert raw.returncode == 0 and not raw.stderr, raw
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(nano.replace(b"{%", b"{{", 1))
    r = weir("run", "-m", broken, "-p", "Hello")
    assert r.returncode == 1 and b"chat template cannot be run" in r.stderr and b"weir run --raw" in r.stderr, r


def test_a_line_with_a_nul_is_no_text():
    r = weir("embed", data=b"one\ntwo\0three\n")
    assert r.returncode == 1 and not r.stdout and b"text 2: it holds a NUL byte" in r.stderr, r
    assert weir("embed", data=b"one\ntwo three").stdout.count(b"\n") == 2


def test_lines_end_with_cr_lf_too():
    want = weir("embed", "one", "two three")
    assert want.returncode == 0 and want.stdout.count(b"\n") == 2
    for data in (b"one\ntwo three\n", b"one\r\ntwo three\r\n", b"one\r\ntwo three\r"):
        assert weir("embed", data=data).stdout == want.stdout, data
    assert weir("embed", data=b"one\rtwo").stdout == weir("embed", "one\rtwo").stdout


def test_a_closed_stderr_is_no_file(tmp_path):
    """The server's lines are not for whichever file is opened first."""
    log = tmp_path / "access.log"
    p = subprocess.Popen([WEIR, "serve", "-m", NANO, "--port", "0", "--device", "cpu", "--access-log", log],
                         preexec_fn=lambda: os.close(2), stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not log.exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert os.readlink(f"/proc/{p.pid}/fd/2") == "/dev/null"
    finally:
        p.terminate()
        p.wait(300)
    assert log.read_text() == ""


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["tokenize", "--file", "/etc/hostname"],
                                  ["run", "--help"], ["cache", "--usage"]])
def test_a_closed_stdout_is_a_failure(args):
    r = subprocess.run([WEIR, *args], preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE)
    assert r.returncode == 1 and b"standard output" in r.stderr, r
    assert len(r.stderr.splitlines()) == 1, r


def test_a_limit_on_files_is_a_failure(tmp_path):
    """A line that says so, and no half file by the name that was asked for."""
    out, before = tmp_path / "rows", {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))}
    r = subprocess.run([WEIR, "logits", "-t", "1,2,3", "-r", "0,1,2", "-o", out], capture_output=True, **before)
    assert r.returncode == 1 and r.stderr.endswith(b"rows: File too large\n") and not out.exists(), r
    with open(tmp_path / "text", "w") as f:
        r = subprocess.run([WEIR, "inspect", "--full"], stdout=f, stderr=subprocess.PIPE, **before)
    assert r.returncode == 1 and r.stderr == b"weir: standard output: File too large\n", r


@pytest.mark.parametrize("args", [["tokenize", "--file", "/dev/zero"], ["render", "--context", "/dev/zero"],
                                  ["run", "-p", "x", "--threads", "1", "--grammar-file", "/dev/zero"]])
@pytest.mark.skipif("WEIR_SANITIZED" in os.environ, reason="a sanitizer needs more addresses than that")
def test_a_file_without_an_end_is_a_failure(args):
    def little():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    r = subprocess.run([WEIR, *args], capture_output=True, preexec_fn=little)
    lines = r.stderr.splitlines()
    assert r.returncode == 1 and len(lines) == 1 and b"/dev/zero: no memory for more than" in lines[0], r


def test_of_a_file_of_keys_no_more_is_read_than_it_may_have():
    r = weir("serve", "-m", NANO, "--port", "0", "--api-keys", "/dev/zero")
    assert r.returncode == 1 and b"/dev/zero is too large" in r.stderr and len(r.stderr.splitlines()) == 1, r


def test_what_cannot_hold_logits_stays():
    r = weir("logits", "-t", "1,2,3", "-o", "/dev/full")
    assert r.returncode == 1 and b"/dev/full: No space left" in r.stderr and os.path.exists("/dev/full"), r


def test_a_closed_stdin_is_a_failure():
    r = subprocess.run([WEIR, "embed"], preexec_fn=lambda: os.close(0), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert r.returncode == 1 and b"Bad file descriptor" in r.stderr, r


def test_run_answers():
    r = weir("run", "-p", "What is the capital of France?")
    assert r.returncode == 0, r.stderr
    assert "Paris" in r.stdout.decode()
    piped = weir("run", data=b"What is the capital of France?\n")
    assert piped.returncode == 0 and piped.stdout == r.stdout
    assert weir("run", data=b"\xff\xfe").returncode == 1
    drafted = weir("run", "--draft-tokens", "7", "-p", "What is the capital of France?")
    assert drafted.returncode == 0 and drafted.stdout == r.stdout
    assert weir("run", "--draft-tokens", "8", "-p", "Hi").returncode == 2
    recurrent = ROOT / "tests/data/golden/recurrent/mamba2.f32.gguf"
    args = ["run", "-m", str(recurrent), "--raw", "-n", "2", "-p", "Hi"]
    assert b"nothing is drafted" in weir(*args, "--draft-tokens", "3").stderr
    assert b"nothing is drafted" not in weir(*args).stderr


def test_seed_decides():
    args = ["run", "--temperature", "1.5", "-n", "40", "-p", "Tell me a short story."]
    one, again, other = [weir(*args, "--seed", s).stdout for s in (1, 1, 2)]
    assert one == again != other


def test_tokenize_round_trip():
    text = "Grüße, 37 + 48 = 85!\n\n  <|im_end|> \U0001f600".encode()
    ids = weir("tokenize", "-m", NANO, data=text)
    assert ids.returncode == 0
    back = weir("tokenize", "-m", NANO, "--decode", data=ids.stdout)
    assert back.returncode == 0 and back.stdout.rstrip(b"\n") == text.rstrip(b"\n")
    special = weir("tokenize", "-m", NANO, "--special", data=b"<|im_end|>").stdout.split()
    plain = weir("tokenize", "-m", NANO, data=b"<|im_end|>").stdout.split()
    assert len(special) == 1 < len(plain) and special[0] not in plain


def test_logits_rows(tmp_path):
    ids = tmp_path / "ids"
    ids.write_text("5 6,7\n8")
    rows, last = tmp_path / "rows", tmp_path / "last"
    r = weir("logits", "-m", NANO, "--tokens", f"@{ids}", "--rows", "3,0,3", "--out", rows,
             "--greedy", 3)
    assert r.returncode == 0, r.stderr
    assert len(json.loads(r.stdout)["greedy"]) == 3
    assert weir("logits", "-m", NANO, "--tokens", "5,6,7,8", "--out", last).returncode == 0
    got, want = array.array("f", rows.read_bytes()), array.array("f", last.read_bytes())
    n_vocab = len(want)
    assert got[:n_vocab] == want == got[2 * n_vocab:] and got[n_vocab: 2 * n_vocab] != want


@pytest.mark.parametrize("name", ["gpt2", "starcoder", "glm-dsa"])
def test_logits_within_the_learned_positions(tmp_path, name):
    """96 rows of positions: what has none is refused, and not read from behind the table; or as many
    positions as an index would pick."""
    model = ROOT / f"tests/data/golden/families/{name}.f32.gguf"
    for n_prompt, n_greedy, status in ((96, 1, 0), (90, 7, 0), (97, 0, 1), (90, 8, 1), (5000, 3, 1)):
        ids = tmp_path / "ids"
        ids.write_text(",".join(["5"] * n_prompt))
        r = weir("logits", "-m", model, "--tokens", f"@{ids}", "--greedy", n_greedy)
        assert r.returncode == status, r
        assert status == 0 or b"96 positions" in r.stderr and r.stderr.count(b"\n") == 1, r


def test_a_sparse_model_says_how_long_its_texts_may_be():
    """Without --context the file's 512 become the 96 that its index would pick; more is refused."""
    model = ROOT / "tests/data/golden/families/glm-dsa.f32.gguf"
    r = weir("embed", "-m", model, data=b"a\n")
    assert r.returncode == 0 and b"a context of 96 tokens, not 512: the model, whose sparse" in r.stderr, r
    r = weir("embed", "-m", model, "--context", 97, data=b"a\n")
    assert r.returncode == 1 and b"takes up to 96 positions" in r.stderr, r
    assert r.stderr.count(b"\n") == 1, r
    r = weir("bench", "-m", model, "--prefill", 97, "--decode", 1, "--depth", 96, "--batch", 1)
    assert r.returncode == 0 and r.stderr.count(b"longer than the model's context") == 2, r


def test_bench_json():
    r = weir("bench", "-m", NANO, "--prefill", 32, "--batch-tokens", 7, "--decode", 4, "--batch", "1,3",
             "--depth", "0,64", "--repeat", 2, "--json")
    assert r.returncode == 0, r.stderr
    lines = [json.loads(line) for line in r.stdout.decode().splitlines()]
    assert {(x["test"], x["batch"], x["depth"]) for x in lines} >= {
        ("prefill", 1, 0), ("decode", 1, 0), ("decode", 3, 0), ("decode", 1, 64), ("decode", 3, 64)}
    for line in lines:
        assert line["tok_s"] > 0 and line["limit"] > 0 and line["tokens"] > 0
        assert abs(line["limit_fraction"] - line["tok_s"] / line["limit"]) < 0.01
        assert "spread" in line and line["waiting"] >= 0
    # what a worker waited is counted when it goes on: of one that was put aside, perhaps in the next line
    assert sum(line["waiting"] < 1 for line in lines) > len(lines) / 2


def test_inspect_is_readable():
    r = weir("inspect", NANO)
    text = r.stdout.decode()
    assert r.returncode == 0
    for expected in ("general.architecture", "llama", "token_embd.weight", "Q8_0"):
        assert expected in text


def test_run_with_a_form(tmp_path):
    """weir run keeps to a grammar or a schema from a file, and says what is wrong with one."""
    gbnf, schema = tmp_path / "a.gbnf", tmp_path / "a.json"
    gbnf.write_text('root ::= "yes" | "no"\n')
    schema.write_text('{"type": "array", "items": {"const": 7}, "minItems": 2, "maxItems": 2}')
    done = weir("run", "-p", "Hello", "--grammar-file", gbnf)
    assert done.returncode == 0 and done.stdout in (b"yes\n", b"no\n"), done
    done = weir("run", "-p", "Hello", "--json-schema", schema)
    assert done.returncode == 0 and json.loads(done.stdout) == [7, 7], done
    gbnf.write_text('root ::= "yes\n')
    done = weir("run", "-p", "Hello", "--grammar-file", gbnf)
    assert done.returncode == 1 and b"line 1, column 10" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1
    assert weir("run", "--grammar-file", gbnf, "--json-schema", schema).returncode == 2
