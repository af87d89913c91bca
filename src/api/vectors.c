#include "api/vectors.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What would change the vectors, in other servers' words. */
static const struct api_refused refused[] = {
    {"stream", NEUTRAL_FALSE, 0},
    {"truncate", NEUTRAL_FALSE, 0},
    {"truncate_prompt_tokens", NEUTRAL_NOTHING, 0},
    {"max_tokens_per_doc", NEUTRAL_NOTHING, 0},
    {"max_chunks_per_doc", NEUTRAL_NOTHING, 0},
    {"add_special_tokens", NEUTRAL_TRUE, 0},
    {"late_chunking", NEUTRAL_FALSE, 0},
    {"task", NEUTRAL_EMPTY, 0},
    {"input_type", NEUTRAL_EMPTY, 0},
    {"prompt_name", NEUTRAL_EMPTY, 0},
    {"instruction", NEUTRAL_EMPTY, 0},
    {"messages", NEUTRAL_NOTHING, 0},
    {"output_dimension", NEUTRAL_NOTHING, 0},
    {"output_dtype", NEUTRAL_EMPTY, 0},
    {"embed_dtype", NEUTRAL_EMPTY, 0},
    {"embedding_type", NEUTRAL_EMPTY, 0},
    {"embedding_types", NEUTRAL_EMPTY, 0},
    {"normalize", NEUTRAL_TRUE, 0},
    {"normalized", NEUTRAL_TRUE, 0},
    {"rank_fields", NEUTRAL_EMPTY, 0},
};

void api_vectors_destroy(struct api *a, struct api_vectors *v)
{
    if (!v)
        return;
    atomic_fetch_sub(&a->n_vector_values, v->n_held);
    for (uint32_t i = 0; i < v->n_texts; i++)
        buf_deinit(&v->texts[i]);
    free(v->texts);
    free(v);
}

/* The body, and of it what both routes share, into job->params.request. */
static enum err read_body(struct api_call *c,
                          const struct api_input *in,
                          json_t **body,
                          struct api_job *job,
                          struct err_info *e)
{
    struct gguf_str model = {0};
    enum err err;
    c->tokenizer = engine_tokenizer(c->engine);
    c->vectors = mem_zalloc(1, sizeof *c->vectors);
    c->n_per_prompt = 1;
    job->params.n = 1;
    job->params.max_tokens_given = true; /* none */
    job->params.request = request_params_default();
    if (c->api->cfg.no_embeddings)
        return err_set(e, ERR_INVALID, "this server makes no embeddings (--embeddings off)");
    if ((err = api_json_parse(in->body, in->body_len, body, e)) ||
        (err = api_get_str(*body, "model", &model, e)) ||
        (c->shape != API_LLAMA && (err = api_check_model(c, model, e))) ||
        (err = api_refuse_fields(*body, refused, sizeof refused / sizeof refused[0], e)))
        return err;
    if ((err = api_params_cache(*body, &job->params.request, e)) ||
        (err = api_get_bool(*body, "timeline", &c->timeline, e)))
        return err;
    return api_apply_terms(c, *body, &job->terms, &job->params.request, e);
}

/* A vector of each token is as large as the text is long, and stays until the answer is written. */
static enum err hold_each(struct api_call *c,
                          const struct api_dialect *d,
                          const struct api_job *job,
                          struct err_info *e)
{
    struct api_vectors *v = c->vectors;
    const uint64_t n_embd = engine_model(c->engine)->hp.n_embd;
    uint64_t n_tokens = 0;
    if (!v->each)
        return OK;
    for (uint32_t i = 0; i < job->n_prompts; i++)
        n_tokens += job->prompts[i].ids.n;
    const uint64_t n = n_tokens * n_embd;
    if (n > API_MAX_EACH_CALL)
        return err_invalid(e,
                           d->prompt_field,
                           "%llu tokens at once; without pooling, at most %llu are allowed",
                           (unsigned long long)n_tokens,
                           (unsigned long long)(API_MAX_EACH_CALL / n_embd));
    if (atomic_fetch_add(&c->api->n_vector_values, n) + n <= API_MAX_EACH) {
        v->n_held = n;
        return OK;
    }
    atomic_fetch_sub(&c->api->n_vector_values, n);
    return err_set(e, ERR_QUEUE_FULL, "too many vectors of tokens wait to be read");
}

/* A request for each prompt, all to the engine. */
static enum err submit(struct api_call *c,
                       const struct api_dialect *d,
                       struct api_job *job,
                       struct err_info *e)
{
    enum err held = hold_each(c, d, job, e);
    if (held)
        return held;
    enum err err;
    if (!(err = api_create_choices(c, d, job, e)) && !(err = api_charge_job(c, job, e)))
        err = api_submit(c, d, false, e);
    if (err && strcmp(e->field, "n") == 0) /* more than the queue could ever hold */
        snprintf(e->field, sizeof e->field, "%s", d->prompt_field);
    return err;
}

enum err api_vectors_compute(struct api_call *c,
                             const struct api_dialect *d,
                             const struct api_input *in,
                             struct err_info *e)
{
    struct api_job job = {0};
    json_t *body = NULL;
    enum err err;
    if ((err = read_body(c, in, &body, &job, e)) || (err = d->parse(c, body, &job, e)) ||
        (err = submit(c, d, &job, e)))
        api_choices_destroy(c);
    /* submitted: *c is not ours any more, but what follows is */
    api_job_deinit(&job);
    json_decref(body);
    return err;
}

void api_put_text_usage(const struct api_call *c, struct buf *out)
{
    int64_t n_tokens = 0;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        uint32_t n;
        request_prompt(c->choices[i].req, &n);
        n_tokens += n;
    }
    buf_str(out, ",\"usage\":{");
    api_field_int(out, "prompt_tokens", n_tokens);
    api_field_int(out, "total_tokens", n_tokens);
    buf_char(out, '}');
}
