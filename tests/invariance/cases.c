#include "invariance/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

static uint32_t rng_state = 12345;

uint32_t next_random(uint32_t n)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (rng_state >> 8) % n;
}

void make_case(struct test_case *c, uint32_t i, uint32_t n_vocab)
{
    static const uint32_t lengths[N_CASES] = {1, 15, 16, 33, 100, 200};
    c->n_prompt = lengths[i];
    c->n_new = 24 + i;
    c->temperature = i % 2 ? 0.9f : 0.0f;
    c->prompt_logprobs = i == 3 || i == 4;
    for (uint32_t k = 0; k < c->n_prompt; k++)
        c->prompt[k] = (token_id)next_random(n_vocab);
}

struct request *make_request(struct harness *h, const struct test_case *c)
{
    struct err_info e;
    struct request *r;
    struct request_params p = request_params_default();
    p.max_tokens = c->n_new;
    p.ignore_eos = true;
    p.logprobs = true;
    p.n_top_logprobs = N_TOP;
    p.prompt_logprobs = p.prompt_ranks = c->prompt_logprobs;
    p.sample.temperature = c->temperature;
    p.sample.top_k = 40;
    p.sample.seed = 7;
    if (request_create(h->engine, &p, c->prompt, c->n_prompt, calloc(1, sizeof(bool)), &r, &e) !=
        OK)
        fail_msg("request_create: %s", e.text);
    return r;
}

void drop_request(struct request *r)
{
    free(request_user(r));
    request_destroy(r);
}

struct request *make_mate(struct harness *h, uint32_t most_new)
{
    struct test_case c = {.n_prompt = 1 + next_random(120), .n_new = 1 + next_random(most_new)};
    c.temperature = next_random(2) ? 1.0f : 0.0f;
    for (uint32_t k = 0; k < c.n_prompt; k++)
        c.prompt[k] = (token_id)next_random(h->model->hp.n_vocab);
    return make_request(h, &c);
}

struct engine_config make_config(uint32_t n_threads, uint32_t batch_tokens, enum kv_type kv)
{
    struct engine_config cfg = engine_config_default();
    cfg.n_threads = n_threads;
    cfg.batch_tokens = batch_tokens;
    cfg.max_running = 40;
    cfg.kv_type = kv;
    cfg.n_ctx = 256;
    return cfg;
}

void run_alone(const char *path, const struct test_case *c, enum kv_type kv, struct buf *record)
{
    struct harness h;
    struct engine_config cfg = make_config(1, 512, kv);
    harness_open(&h, path, &cfg);
    struct request *r = make_request(&h, c);
    harness_run(&h, &r, 1);
    assert_int_equal(request_finish(r), FINISH_LENGTH);
    assert_int_equal(request_n_out(r), c->n_new);
    harness_record(r, N_TOP, record);
    drop_request(r);
    harness_close(&h);
}
