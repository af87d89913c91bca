#include "invariance/harness.h"

#include "invariance/beside.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(enum err err, const struct err_info *e)
{
    if (err) {
        fprintf(stderr, "harness: %s\n", e->text);
        exit(1);
    }
}

void harness_open(struct harness *h, const char *model_path, const struct engine_config *cfg)
{
    struct err_info e;
    must(model_load(model_path, &h->model, &e), &e);
    must(tokenizer_create(h->model->gguf, &h->tokenizer, &e), &e);
    struct engine_config c = *cfg;
    const char *seed = getenv("WEIR_TEST_BESIDE");
    if (seed && !c.make_backend) {
        beside_set(&(struct beside_options){
            .seed = strtoull(seed, NULL, 10), .most_delay_us = 200, .most_biases = 2});
        c.make_backend = beside_create;
        c.check_always = true;
    }
    must(engine_create(h->model, h->tokenizer, &c, &h->engine, &e), &e);
}

void harness_close(struct harness *h)
{
    struct engine_stats st;
    engine_stats_get(h->engine, &st);
    if (st.checks > 0 && !st.check_ok) {
        fprintf(stderr, "harness: %s\n", st.check_error.text);
        exit(1);
    }
    engine_destroy(h->engine);
    tokenizer_destroy(h->tokenizer);
    model_destroy(h->model);
}

void harness_run(struct harness *h, struct request **rs, uint32_t n)
{
    struct err_info e;
    must(engine_submit_all(h->engine, rs, n, &e), &e);
    harness_wait(h, n);
}

void harness_wait(struct harness *h, uint32_t n)
{
    uint32_t n_done = 0;
    while (n_done < n) {
        struct pollfd p = {.fd = engine_event_fd(h->engine), .events = POLLIN};
        if (poll(&p, 1, 60000) <= 0) {
            fprintf(stderr, "harness: no event for a minute, %u of %u done\n", n_done, n);
            exit(1);
        }
        for (struct request *r; (r = engine_next_event(h->engine));) {
            bool *ended = request_user(r);
            if (*ended) {
                fprintf(stderr, "harness: news of a request that had ended\n");
                exit(1);
            }
            *ended = request_finish(r) != FINISH_NONE;
            n_done += *ended;
        }
    }
}

void harness_record(const struct request *r, uint32_t n_top, struct buf *out)
{
    const struct request_token *tokens = request_out(r);
    for (uint32_t i = 0; i < request_n_out(r); i++) {
        buf_add(out, &tokens[i].id, sizeof tokens[i].id);
        buf_add(out, &tokens[i].logprob, sizeof tokens[i].logprob);
        buf_add(out, request_top(r, i), n_top * sizeof(struct token_logprob));
    }
    uint32_t n_prompt;
    const float *lp = request_prompt_logprobs(r, &n_prompt);
    buf_add(out, lp, n_prompt * sizeof *lp);
    for (uint32_t i = 1; i < n_prompt; i++) {
        const uint32_t rank = request_prompt_rank(r, i);
        buf_add(out, &rank, sizeof rank);
    }
    if (n_prompt)
        buf_add(out, request_prompt_top(r, 0), n_prompt * n_top * sizeof(struct token_logprob));
}
