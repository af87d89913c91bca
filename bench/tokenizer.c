/* What tokenizing costs, on one thread.
 *
 *      tokenizer_speed MODEL.gguf TEXT       the model's tokenizer over the text
 *      tokenizer_speed TEXT                  every pre-tokenizer: cutting the text into words alone
 *
 * A line each: megabytes a second, the best of five rounds, and how many ids or words. The text
 * has to be UTF-8. */
#include "tokenizer/tokenizer.h"
#include "base/clock.h"
#include "tokenizer/pretokenize.h"

#include <stdio.h>
#include <string.h>

#define N_ROUNDS 5

static void report(const char *name, size_t n_bytes, uint64_t best_us, size_t n, const char *what)
{
    printf("%-60s %8.1f MB/s %9zu %s\n", name, (double)n_bytes / (double)best_us, n, what);
}

static int encode(const char *path, const char *text, size_t n)
{
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err_info e = {0};
    struct token_list ids = {0};
    struct text_piece piece = {text, n, false};
    uint64_t best_us = UINT64_MAX;
    enum err err = gguf_open(path, &g, &e);
    if (!err)
        err = tokenizer_create(g, &t, &e);
    for (int i = 0; i < N_ROUNDS && !err; i++) {
        ids.n = 0;
        uint64_t begin_us = clock_us();
        err = tokenizer_encode(t, &piece, 1, &ids, &e);
        uint64_t us = clock_us() - begin_us;
        best_us = us < best_us ? us : best_us;
    }
    if (err)
        fprintf(stderr, "%s: %s %s\n", path, e.field, e.text);
    else
        report(path, n, best_us, ids.n, "ids");
    token_list_deinit(&ids);
    tokenizer_destroy(t);
    gguf_close(g);
    return err ? 1 : 0;
}

static void cut(const struct pretokenize_rule *rule, const char *text, size_t n)
{
    struct pretokenize_scratch s;
    uint64_t best_us = UINT64_MAX;
    size_t n_words = 0;
    char name[48];
    for (int i = 0; i < N_ROUNDS; i++) {
        n_words = 0;
        uint64_t begin_us = clock_us();
        for (size_t at = 0; at < n; n_words++)
            at = pretokenize_next(rule, &s, text, n, at);
        uint64_t us = clock_us() - begin_us;
        best_us = us < best_us ? us : best_us;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(rule->names + 1, " "), rule->names + 1);
    report(name, n, best_us, n_words, "words");
}

int main(int argc, char **argv)
{
    FILE *f = argc == 2 || argc == 3 ? fopen(argv[argc - 1], "rb") : NULL;
    if (!f) {
        fprintf(stderr, "usage: tokenizer_speed [MODEL.gguf] TEXT\n");
        return 2;
    }
    struct buf text = {0};
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        buf_add(&text, chunk, n);
    fclose(f);
    int status = 0;
    if (argc == 3)
        status = encode(argv[1], text.data, text.len);
    for (size_t i = 0; argc == 2 && pretokenize_rule_at(i); i++)
        cut(pretokenize_rule_at(i), text.data, text.len);
    buf_deinit(&text);
    return status;
}
