"""The library as it is installed: a program in C, or C++, has it with what pkg-config says and nothing
else, finds none of its names taken, and gets the text that `weir run` gives."""

import ctypes
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = pathlib.Path(os.environ.get("WEIR_BIN", ROOT / "build/weir"))
NANO = ROOT / "models/weir-nano.gguf"
HEADER = (ROOT / "src/lib/weir.h").read_text()
QUESTIONS = ["What is 37 + 48?", "What is the capital of France?"]

pytestmark = pytest.mark.skipif("WEIR_SANITIZED" in os.environ, reason="a program would need the sanitizer")


def output(*args, **more):
    r = subprocess.run([*map(str, args)], capture_output=True, text=True, timeout=300, **more)
    assert r.returncode == 0, (args, r.stdout, r.stderr)
    return r.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    at = tmp_path_factory.mktemp("usr")
    output("cmake", "--install", WEIR.parent, "--prefix", at)
    return at


def functions():
    return set(re.findall(r"\b(weir_[a-z_]+)\(", re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)))


@pytest.mark.parametrize("compiler", [["cc", "-std=c11"], ["c++", "-std=c++17", "-x", "c++"]])
@pytest.mark.parametrize("kind", ["pkg-config", "--static", "shared"])
def test_the_example_answers_as_weir_run(prefix, tmp_path, compiler, kind):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    static = ["--static"] if kind == "--static" else []
    flags = output("pkg-config", "--cflags", "--libs", *static, "weir", env=env).split()
    if kind == "shared":
        flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lweir", f"-Wl,-rpath,{prefix}/lib"]
    program = tmp_path / "chat"
    output(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", ROOT / "examples/chat.c", "-x", "none", *flags,
           "-o", program)
    needed = re.findall(r"NEEDED.*\[(.*?)\]", output("readelf", "-d", program))
    assert any(n.startswith("libweir.so") for n in needed) == (kind == "shared"), needed
    r = subprocess.run([program, NANO, *QUESTIONS], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0 and r.stderr == "", r
    lines = r.stdout.splitlines()
    for i, question in enumerate(QUESTIONS):
        text = "".join(line[3:] for line in lines if line.startswith(f"{i + 1}: "))
        assert text + "\n" == output(WEIR, "run", "-m", NANO, "-p", question)
    r = subprocess.run([program, "/nonexistent", *QUESTIONS], capture_output=True, text=True, timeout=300)
    assert r.returncode == 1 and r.stderr.startswith("/nonexistent: "), r


def test_the_document_compiles_and_runs(prefix, tmp_path):
    """Its lines as they stand: those that link, and those in short, between what declares their names."""
    text = (ROOT / "docs/EMBEDDING.md").read_text()
    link = re.search(r"^    (cc chat\.c .*)", text, re.M).group(1)
    lines = text.split("## In short\n\n")[1].split("\n\nFunctions")[0].replace("model.gguf", str(NANO))
    (tmp_path / "chat.c").write_text("""#include <stdio.h>
#include <weir.h>
int main(void)
{
    struct weir_options options;
    struct weir_request request;
    struct weir_result result;
    struct weir_generation *generation;
    struct weir *model;
    struct weir_error error;
    const char *text;
""" + lines + """
    return result.n_output == 0;
}
""")
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    output("bash", "-ec", link, cwd=tmp_path, env=env)
    assert len(output(tmp_path / "chat")) > 20


COMMA = """LC_NUMERIC
decimal_point ","
thousands_sep ""
grouping -1
END LC_NUMERIC
"""
IN_COMMAS = r"""
#include <locale.h>
#include <stdio.h>
#include <weir.h>

int main(int argc, char **argv)
{
    const struct weir_message none = {"user", ""};
    struct weir_options o;
    struct weir_request q;
    struct weir_generation *g;
    struct weir *w;
    int32_t ids[64];
    size_t n;
    char text[64];
    weir_options_init(&o);
    o.model = argv[1];
    o.chat_template = "{{ 1.5 + 1 }}";
    weir_request_init(&q);
    q.prompt = "x";
    q.json_schema = "{\"type\": \"number\", \"minimum\": 1.25, \"maximum\": 1.25}";
    if (argc != 2 || !setlocale(LC_NUMERIC, "comma") || weir_open(&o, &w, NULL) ||
        weir_apply_template(w, &none, 1, ids, 64, &n, NULL) || weir_generate(w, &q, &g, NULL))
        return 1;
    weir_detokenize(w, ids, n, false, text, 64, &n);
    printf("%s %.1f ", text, 0.5);
    for (const char *piece; (piece = weir_next(g, NULL)) != NULL;)
        printf("%s", piece);
    weir_free(g);
    weir_close(w);
    return 0;
}
"""


def test_a_program_that_writes_numbers_with_commas(prefix, tmp_path):
    """Templates and schemas have points; the program keeps its commas."""
    (tmp_path / "comma.src").write_text(COMMA)
    (tmp_path / "commas.c").write_text(IN_COMMAS)
    subprocess.run(["localedef", "-c", "-i", tmp_path / "comma.src", "-f", "ANSI_X3.4-1968", tmp_path / "comma"],
                   capture_output=True, timeout=300)
    if not (tmp_path / "comma/LC_NUMERIC").exists():
        pytest.skip("localedef makes no locale here")
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lweir", f"-Wl,-rpath,{prefix}/lib"]
    output("cc", tmp_path / "commas.c", *flags, "-o", tmp_path / "commas")
    said = output(tmp_path / "commas", NANO, env={**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": ""})
    assert re.fullmatch(r"2\.5 0,5 1\.250*", said), said


NO_THREADS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <weir.h>

static int left;

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return left-- > 0 ? real(t, a, fn, arg) : EAGAIN;
}

int main(int argc, char **argv)
{
    for (int n = 0; argc == 2 && n < 4; n++) { /* worker, engine, events */
        struct weir_options o;
        struct weir_error e;
        struct weir *w;
        weir_options_init(&o);
        o.model = argv[1];
        o.device = "cpu";
        o.n_threads = 2;
        left = n;
        enum weir_status status = weir_open(&o, &w, &e);
        printf("%d ", status - (n < 3 ? WEIR_ERR_NOMEM : WEIR_OK));
        weir_close(w);
    }
    return 0;
}
"""


def test_threads_that_are_refused(prefix, tmp_path):
    """Whichever it is: no memory, as the header says, and nothing left behind."""
    (tmp_path / "threads.c").write_text(NO_THREADS)
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lweir", f"-Wl,-rpath,{prefix}/lib", "-ldl"]
    output("cc", tmp_path / "threads.c", *flags, "-o", tmp_path / "threads")
    assert output(tmp_path / "threads", NANO) == "0 0 0 0 "


SMALL_STACK = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

static const char *model;

static char *nest(const char *begin, const char *within, const char *end, int n)
{
    char *text = malloc(strlen(within) + n * (strlen(begin) + strlen(end)) + 1), *at = text;
    for (int i = 0; i < n; i++)
        at += sprintf(at, "%s", begin);
    at += sprintf(at, "%s", within);
    for (int i = 0; i < n; i++)
        at += sprintf(at, "%s", end);
    return text;
}

static void *run(void *arg)
{
    const struct weir_message m = {"user", "x"};
    struct weir_options o;
    struct weir_request q;
    struct weir *w;
    size_t n;
    weir_options_init(&o);
    o.model = model;
    o.device = "cpu";
    for (int depth = 100; depth < 2000; depth += 100) {
        char *braces = nest("[", "1", "]", depth), *brackets = nest("(", braces, ")", depth);
        o.chat_template = nest("{{ ", brackets, " }}", 1);
        if (weir_open(&o, &w, NULL))
            continue; /* nested too deeply */
        (void)weir_apply_template(w, &m, 1, NULL, 0, &n, NULL);
        weir_close(w);
        puts("template");
    }
    o.chat_template = NULL;
    if (weir_open(&o, &w, NULL))
        return NULL;
    for (int depth = 20; depth < 2000; depth += 20) {
        struct weir_generation *g = NULL;
        weir_request_init(&q);
        q.prompt = "x";
        q.json_schema = nest("{\"minItems\":1,\"type\":\"array\",\"items\":", "{}", "}", depth);
        puts(weir_generate(w, &q, &g, NULL) ? "refused" : "schema");
        weir_free(g);
    }
    weir_close(w);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_attr_t a;
    pthread_t t;
    model = argv[argc - 1];
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 512 << 10);
    return pthread_create(&t, &a, run, NULL) || pthread_join(t, NULL);
}
"""


def test_half_a_mebibyte_of_stack(prefix, tmp_path):
    """That much is enough for whatever nests, up to where it is refused."""
    (tmp_path / "small.c").write_text(SMALL_STACK)
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lweir", f"-Wl,-rpath,{prefix}/lib"]
    output("cc", tmp_path / "small.c", *flags, "-o", tmp_path / "small")
    assert set(output(tmp_path / "small", NANO).split()) == {"template", "schema", "refused"}


def test_nothing_else_is_exported(prefix):
    names = functions() - {"weir_options_init", "weir_request_init"}  # inline
    assert len(names) > 15
    for at, flag in (("libweir.a", "-g"), ("libweir.so", "-D")):
        lines = output("nm", flag, "--defined-only", prefix / "lib" / at).splitlines()
        assert {line.split()[-1] for line in lines if len(line.split()) == 3} == names, at


def test_nothing_else_is_included():
    assert re.findall(r"#include (.*)", HEADER) == ["<stdbool.h>", "<stddef.h>", "<stdint.h>"]


def test_other_languages_load_it(prefix):
    library = ctypes.CDLL(str(prefix / "lib/libweir.so"))
    library.weir_version.restype = ctypes.c_char_p
    assert "weir " + library.weir_version().decode() == output(WEIR, "--version").strip()


def test_the_document_tells_of_every_function():
    text = (ROOT / "docs/EMBEDDING.md").read_text()
    assert not [f for f in sorted(functions()) if f"`{f}`" not in text]
    assert not sorted(set(re.findall(r"`(weir_[a-z_]+)`", text)) - set(re.findall(r"\w+", HEADER)))
