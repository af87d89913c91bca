/* Any bytes as the body of a request, read by the code of the routes themselves, up to where a
 * request would go to the engine. What is refused must come with one error that names what is
 * wrong, in JSON that a strict reader takes; what is not must have sane values.
 *
 * The first byte chooses the route; the vocabulary has every byte, so that any text is a prompt. */
#include "api/call.h"
#include "api/store.h"
#include "engine/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void put_str(struct buf *b, const char *s)
{
    uint64_t n = strlen(s);
    buf_add(b, &n, sizeof n);
    buf_add(b, s, n);
}

static void put_array(struct buf *b, const char *key, uint32_t elem_kind, uint64_t n)
{
    const uint32_t kinds[2] = {GGUF_ARRAY, elem_kind};
    put_str(b, key);
    buf_add(b, kinds, sizeof kinds);
    buf_add(b, &n, sizeof n);
}

/* The smallest SPM vocabulary that can read anything: a control token, and every byte. */
static struct tokenizer *make_tokenizer(void)
{
    static struct buf b; /* lives as long as the process */
    static struct gguf *g;
    const uint64_t counts[2] = {0, 4};
    const uint32_t string = GGUF_STRING;
    struct tokenizer *t;
    buf_add(&b, "GGUF\3\0\0\0", 8);
    buf_add(&b, counts, sizeof counts);
    put_str(&b, "tokenizer.ggml.model");
    buf_add(&b, &string, sizeof string);
    put_str(&b, "llama");
    put_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 257);
    for (unsigned i = 0; i < 257; i++) {
        char name[8] = "</s>";
        if (i < 256)
            snprintf(name, sizeof name, "<0x%02X>", i);
        put_str(&b, name);
    }
    put_array(&b, "tokenizer.ggml.token_type", GGUF_I32, 257);
    for (unsigned i = 0; i < 257; i++) {
        const uint32_t type = i < 256 ? 6 : 3;
        buf_add(&b, &type, sizeof type);
    }
    put_array(&b, "tokenizer.ggml.scores", GGUF_F32, 257);
    for (unsigned i = 0; i < 257; i++)
        buf_add(&b, &(float){0}, sizeof(float));
    must(gguf_open_memory(b.data, b.len, &g, NULL) == OK);
    must(tokenizer_create(g, &t, NULL) == OK);
    return t;
}

/* What api_answer_error would send. */
static void check_error(enum err err, const struct err_info *e)
{
    struct buf out = {0};
    json_error_t je;
    int status = api_status_of(err);
    must(e->code == err && e->text[0]);
    for (const char *c = e->text; *c; c++)
        must((unsigned char)*c >= ' ' && *c != 127);
    must(status >= 400 && status < 500);
    must(!api_error_body(status, e, NULL, NULL, &out));
    json_t *v = json_loadb(out.data, out.len, 0, &je);
    must(v && json_is_string(json_object_get(json_object_get(v, "error"), "message")));
    json_decref(v);
    buf_deinit(&out);
}

static void check_job(const struct api_call *c, const struct api_job *job)
{
    const struct request_params *p = &job->params.request;
    const struct sample_params *s = &p->sample;
    uint32_t n_vocab = tokenizer_n_vocab(c->tokenizer);
    must(job->n_prompts > 0 && job->params.n > 0 &&
         job->n_prompts * job->params.n <= c->api->max_choices);
    for (uint32_t i = 0; i < job->n_prompts; i++) {
        must(job->prompts[i].ids.n > 0);
        for (size_t j = 0; j < job->prompts[i].ids.n; j++)
            must((uint32_t)job->prompts[i].ids.ids[j] < n_vocab);
    }
    must(s->temperature >= 0 && s->temperature <= 2 && s->top_p >= 0 && s->top_p <= 1);
    must(s->min_p >= 0 && s->min_p <= 1 && s->top_k >= 0 && s->repetition_penalty > 0);
    must(stop_texts_count(p->stops) <= REQUEST_MAX_STOPS && c->n_top <= REQUEST_MAX_TOP_LOGPROBS);
    for (uint32_t i = 0; i < s->n_bias; i++)
        must((uint32_t)s->bias[i].id < n_vocab && s->bias[i].bias <= 100);
    for (uint32_t i = 0; i < p->n_stop_ids; i++)
        must((uint32_t)p->stop_ids[i] < n_vocab);
}

/* api_generate (generate.c) up to the requests. */
static enum err parse(struct api_call *c,
                      const struct api_dialect *d,
                      const json_t *given,
                      struct api_job *job,
                      struct err_info *e)
{
    json_t *made = NULL;
    enum err err = d->adapt ? d->adapt(c, given, &made, e) : OK;
    const json_t *body = made ? made : given;
    if (!err)
        err = api_params_parse(
            body, tokenizer_n_vocab(c->tokenizer), c->api->max_choices, &job->params, e);
    if (!err)
        err = d->parse(c, body, job, e);
    json_decref(made);
    return err;
}

/* By the first byte, from '0' on: those that read a body without an engine. */
static const struct api_dialect *const routes[] = {
    &api_completions, &api_chat, &api_responses, &api_messages};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct api api = {.max_choices = 8};
    static struct tokenizer *tokenizer;
    if (n_bytes == 0)
        return 0;
    if (!tokenizer) {
        tokenizer = make_tokenizer();
        api.tmpl = chat_template_create(chatml, sizeof chatml - 1);
        api.store = api_store_create(1, 1 << 10);
    }
    struct api_call c = {.api = &api, .tokenizer = tokenizer};
    struct api_job job = {0};
    struct err_info e = {0};
    json_t *body = NULL;
    enum err err = api_json_parse((const char *)data + 1, n_bytes - 1, &body, &e);
    if (!err)
        err = parse(&c, routes[data[0] % (sizeof routes / sizeof *routes)], body, &job, &e);
    if (err)
        check_error(err, &e);
    else
        check_job(&c, &job);
    for (uint32_t i = 0; i < job.n_prompts; i++) {
        token_list_deinit(&job.prompts[i].ids);
        buf_deinit(&job.prompts[i].text);
    }
    free(job.prompts);
    chat_tools_deinit(&c.tools);
    api_params_deinit(&job.params);
    if (c.free_state)
        c.free_state(c.state);
    json_decref(body);
    return 0;
}
