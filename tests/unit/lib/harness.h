/* What the tests of lib/ share: a small model behind weir.h, and answers read to their end. */
#ifndef TESTS_LIB_HARNESS_H
#define TESTS_LIB_HARNESS_H

#include "lib/weir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#define NANO WEIR_MODELS "/weir-nano.gguf"
#define MAX_TEXT 4096
/* What the model would not end by itself before somebody else does. */
#define LONG "root ::= [a-z]{1500}"

static inline struct weir_options on_cpu(const char *path)
{
    struct weir_options o;
    weir_options_init(&o);
    o.model = path;
    o.device = "cpu";
    o.n_threads = 2;
    o.kv_bytes = 64 << 20;
    return o;
}

static inline struct weir *open_with(const struct weir_options *o)
{
    struct weir_error e;
    struct weir *w;
    if (weir_open(o, &w, &e) != WEIR_OK)
        fail_msg("%s: %s", o->model, e.text);
    return w;
}

static inline struct weir *open_model(const char *path, uint32_t max_running, uint32_t max_waiting)
{
    struct weir_options o = on_cpu(path);
    o.max_running = max_running;
    o.max_waiting = max_waiting;
    return open_with(&o);
}

static inline struct weir_generation *begin(struct weir *w, const struct weir_request *q)
{
    struct weir_generation *g;
    struct weir_error e;
    if (weir_generate(w, q, &g, &e) != WEIR_OK)
        fail_msg("%s", e.text);
    return g;
}

static inline struct weir_generation *begin_long(struct weir *w)
{
    struct weir_request q;
    weir_request_init(&q);
    q.prompt = "Once";
    q.grammar = LONG;
    return begin(w, &q);
}

/* All that is left of it, in text[MAX_TEXT]; how many pieces it came in. */
static inline size_t read_all(struct weir_generation *g, char *text)
{
    size_t n = 0, n_pieces = 0, n_piece;
    const char *piece;
    for (; (piece = weir_next(g, &n_piece)) != NULL; n_pieces++) {
        assert_int_equal(strlen(piece), n_piece);
        assert_true(n_piece > 0 && n + n_piece < MAX_TEXT);
        memcpy(text + n, piece, n_piece);
        n += n_piece;
    }
    text[n] = '\0';
    return n_pieces;
}

static inline struct weir_result answer(struct weir *w, const struct weir_request *q, char *text)
{
    struct weir_generation *g = begin(w, q);
    struct weir_result r;
    struct weir_error e;
    read_all(g, text);
    assert_int_equal(weir_result(g, &r, &e), WEIR_OK);
    assert_string_equal(e.text, "");
    weir_free(g);
    return r;
}

#endif
