/* Run a fuzz target with any compiler:
 *
 *     replay [-mutate SECONDS] FILE|FOLDER ...
 *
 * each file once, the corpus as a test; then for SECONDS files that were damaged by chance, a short
 * run of what the fuzzer does for hours. SEED=n gives the same damage again (it is printed). What a
 * target aborts at, or takes longer over than INPUT_SECONDS, is left in the file TARGET-SEED of the
 * current folder, for the corpus. Exit status 1 if there was nothing to run. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_INPUTS = 4096, MAX_BYTES = 64 << 10, MAX_DAMAGES = 8, INPUT_SECONDS = 120 };

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

struct input {
    uint8_t *data;
    size_t n_bytes;
};

static struct input inputs[MAX_INPUTS];
static size_t n_inputs;
static struct input now; /* what the target has just now */
static char left_in[64];

static void die(const char *what, const char *why)
{
    fprintf(stderr, "replay: %s: %s\n", what, why);
    exit(1);
}

static void read_file(const char *path, size_t n_bytes)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(n_bytes ? n_bytes : 1);
    if (n_inputs == MAX_INPUTS)
        die(path, "too many inputs");
    if (!f || !data || fread(data, 1, n_bytes, f) != n_bytes)
        die(path, "cannot be read");
    fclose(f);
    inputs[n_inputs++] = (struct input){data, n_bytes};
}

static void read_all(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        die(path, "cannot be read");
    if (!S_ISDIR(st.st_mode)) {
        read_file(path, (size_t)st.st_size);
        return;
    }
    struct dirent **entries; /* in one order wherever it is, for a SEED to mean the same */
    const int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            read_all(inner);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

/* A copy of exactly so many bytes, so that ASan sees one too far. */
static void run(const uint8_t *data, size_t n_bytes)
{
    now = (struct input){malloc(n_bytes ? n_bytes : 1), n_bytes};
    if (!now.data)
        die("an input", "no memory");
    memcpy(now.data, data, n_bytes);
    alarm(INPUT_SECONDS);
    LLVMFuzzerTestOneInput(now.data, n_bytes);
    alarm(0);
    free(now.data);
    now = (struct input){0};
}

/* What a sanitizer finds ends here, too (abort_on_error): signals of the processor are its own. */
static void on_death(int sig)
{
    const int fd = now.data ? open(left_in, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    if (fd >= 0 && write(fd, now.data, now.n_bytes) == (ssize_t)now.n_bytes) {
        static const char text[] = "replay: the input is left in ";
        if (write(2, text, sizeof text - 1) < 0 || write(2, left_in, strlen(left_in)) < 0 ||
            write(2, "\n", 1) < 0)
            _exit(1);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

static uint64_t state;

/* xorshift64: Marsaglia 2003 */
static size_t below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return n ? (size_t)(state >> 11) % n : 0;
}

/* n bytes at `at` make room for m, which hold anything. */
static size_t resize(uint8_t *d, size_t n_bytes, size_t at, size_t n, size_t m)
{
    if (n_bytes - n + m > MAX_BYTES)
        return n_bytes;
    memmove(d + at + m, d + at + n, n_bytes - at - n);
    return n_bytes - n + m;
}

static size_t damage(uint8_t *d, size_t n_bytes)
{
    static const int64_t numbers[] = {
        0, 1, -1, 127, 128, 255, 256, 32767, 65535, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX};
    const size_t at = below(n_bytes), left = n_bytes - at;
    switch (below(7)) {
    case 0: /* one bit */
        if (left)
            d[at] ^= (uint8_t)(1 << below(8));
        return n_bytes;
    case 1: /* one byte */
        if (left)
            d[at] = (uint8_t)below(256);
        return n_bytes;
    case 2: { /* a number */
        const int64_t v = numbers[below(sizeof numbers / sizeof *numbers)];
        const size_t n = (size_t)1 << below(4);
        memcpy(d + at, &v, n < left ? n : left);
        return n_bytes;
    }
    case 3: /* its end is missing */
        return at;
    case 4: /* some of it is */
        return resize(d, n_bytes, at, below(left < 64 ? left : 64), 0);
    default: { /* some of it, or of another, once more */
        const struct input from = below(2) ? inputs[below(n_inputs)] : (struct input){d, n_bytes};
        const size_t begin = below(from.n_bytes), rest = from.n_bytes - begin;
        const size_t n = below(rest < 64 ? rest : 64);
        uint8_t copy[64];
        memcpy(copy, from.data + begin, n);
        const size_t grown = resize(d, n_bytes, at, 0, n);
        if (grown != n_bytes)
            memcpy(d + at, copy, n);
        return grown;
    }
    }
}

static void mutate(int seconds)
{
    static uint8_t d[MAX_BYTES];
    size_t n_runs = 0;
    for (const time_t end = time(NULL) + seconds; time(NULL) < end; n_runs++) {
        const struct input *from = &inputs[below(n_inputs)];
        size_t n = from->n_bytes < MAX_BYTES ? from->n_bytes : MAX_BYTES;
        memcpy(d, from->data, n);
        for (size_t i = 1 + below(MAX_DAMAGES); i > 0; i--)
            n = damage(d, n);
        run(d, n);
    }
    printf("%zu damaged inputs\n", n_runs);
}

int main(int argc, char **argv)
{
    const int seconds = argc > 2 && strcmp(argv[1], "-mutate") == 0 ? atoi(argv[2]) : 0;
    for (int i = seconds ? 3 : 1; i < argc; i++)
        read_all(argv[i]);
    const char *given = getenv("SEED");
    const unsigned long long seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    const char *name = strrchr(argv[0], '/');
    state = (seed << 1 | 1) * UINT64_C(0x9e3779b97f4a7c15);
    snprintf(left_in, sizeof left_in, "%s-%llu", name ? name + 1 : argv[0], seed);
    signal(SIGABRT, on_death);
    signal(SIGALRM, on_death);
    printf("%zu inputs, SEED=%llu\n", n_inputs, seed);
    fflush(stdout);
    for (size_t i = 0; i < n_inputs; i++)
        run(inputs[i].data, inputs[i].n_bytes);
    if (n_inputs > 0)
        mutate(seconds);
    return n_inputs == 0;
}
