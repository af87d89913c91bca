#include "invariance/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

void prepare(struct fixture *f, const char *model, enum kv_type kv, uint32_t n_threads)
{
    struct harness h;
    struct engine_config cfg = make_config(1, 512, kv);
    *f = (struct fixture){.model = model, .kv = kv, .n_threads = n_threads};
    harness_open(&h, model, &cfg);
    for (uint32_t i = 0; i < N_CASES; i++) {
        make_case(&f->cases[i], i, h.model->hp.n_vocab);
        f->cases[i].prompt_logprobs = false; /* they would have to be computed */
    }
    harness_close(&h);
    for (uint32_t i = 0; i < N_CASES; i++)
        run_alone(model, &f->cases[i], kv, &f->want[i]);
}

void forget(struct fixture *f)
{
    for (uint32_t i = 0; i < N_CASES; i++)
        buf_deinit(&f->want[i]);
}

struct engine_stats stats_of(const struct harness *h)
{
    struct engine_stats st;
    engine_stats_get(h->engine, &st);
    assert_int_equal(st.step_allocations, 0);
    assert_int_equal(st.kv.blocks.in_use, 0);
    assert_int_equal(st.kv.blocks.free + st.kv.blocks.cached, st.kv.blocks.total);
    assert_int_equal(st.kv.panes.in_use, 0);
    assert_int_equal(st.kv.panes.free + st.kv.panes.cached, st.kv.panes.total);
    assert_int_equal(st.kv.states.in_use, 0);
    assert_int_equal(st.kv.states.free + st.kv.states.cached, st.kv.states.total);
    return st;
}

void assert_sound(struct harness *h)
{
    struct engine_stats st;
    struct timespec pause = {.tv_nsec = 10000000};
    engine_want_check(h->engine);
    for (int i = 0; i < 2000; i++) {
        engine_stats_get(h->engine, &st);
        if (st.checks > 0)
            break;
        nanosleep(&pause, NULL);
    }
    if (!st.check_ok)
        fail_msg("%s", st.checks ? st.check_error.text : "no check was made");
}

static bool is_same(const struct request *r, const struct buf *want)
{
    struct buf got = {0};
    assert_int_equal(request_finish(r), FINISH_LENGTH);
    harness_record(r, N_TOP, &got);
    const bool same = got.len == want->len && memcmp(got.data, want->data, got.len) == 0;
    buf_deinit(&got);
    return same;
}

void assert_same(const struct request *r, const struct buf *want, uint32_t i)
{
    if (!is_same(r, want))
        fail_msg("case %u differs: %u tokens found", i, request_n_cached(r));
}

uint32_t run_cases(struct harness *h, const struct fixture *f, uint32_t n_mates)
{
    struct request *rs[N_CASES + N_MATES];
    uint32_t n_cached = 0;
    for (uint32_t i = 0; i < N_CASES; i++)
        rs[i] = make_request(h, &f->cases[i]);
    for (uint32_t i = 0; i < n_mates; i++)
        rs[N_CASES + i] = make_mate(h, 120);
    harness_run(h, rs, N_CASES + n_mates);
    for (uint32_t i = 0; i < N_CASES; i++) {
        if (!is_same(rs[i], &f->want[i]))
            fail_msg("case %u differs: %u threads, KV %s, %u tokens found",
                     i,
                     f->n_threads,
                     kv_type_name(f->kv),
                     request_n_cached(rs[i]));
        n_cached += request_n_cached(rs[i]);
    }
    for (uint32_t i = 0; i < N_CASES + n_mates; i++)
        drop_request(rs[i]);
    return n_cached;
}
