/* The plain routes of earlier engines, and the one that takes a batch of prompts at once:
 *
 *      /generate                           {"prompt"}     -> {"token_ids", "text", "num_generated"}
 *      /batch/generate, /realize/batch     {"prompts"}    -> {"results": [the same, ...]}
 *      /stream/generate, /realize/generate {"prompt"}     -> events `token`, then `done`
 *      /v1/batch/completions               {"prompts"}    -> {"results": [...], "stats"}
 *
 * All prompts of a request are submitted at once, and so are one batch; each ends by itself. In the
 * first three, ids and text begin with the prompt's; the last has what was generated alone. Errors
 * are {"error": TEXT}, with 422 for a body that is no JSON or has a field of the wrong type. */
#include "api/native.h"
#include "api/text.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_TOKENS 50 /* where the operator gave none */
#define DEFAULT_TOP_K 50
#define DEFAULT_TOP_P 0.9

/* Behind api_call.state. */
struct plain {
    uint64_t begin_us;
    bool many;             /* `prompts` */
    bool stream;           /* by the route, not by a field */
    bool bare;             /* of /v1/batch/completions: without the prompt */
    bool max_tokens_given; /* else the default gives way to what fits */
    uint32_t n_generated;  /* in all choices */
};

static const struct api_refused refused[] = {
    {"n", NEUTRAL_NUMBER, 1},
    {"best_of", NEUTRAL_NUMBER, 1},
    {"stream", NEUTRAL_FALSE, 0},
    {"echo", NEUTRAL_FALSE, 0},
    {"logprobs", NEUTRAL_EMPTY, 0},
    {"messages", NEUTRAL_NOTHING, 0},
    {"suffix", NEUTRAL_EMPTY, 0},
    {"add_special_tokens", NEUTRAL_TRUE, 0},
};

/* --- the body ------------------------------------------------------------------------------- */

/* What the routes' own fields must be, for 422. */
static const struct {
    const char *name, *wanted;
    bool number; /* else a string */
} types[] = {{"prompt", "a string", false},
             {"max_tokens", "a number", true},
             {"max_completion_tokens", "a number", true},
             {"n_predict", "a number", true},
             {"temperature", "a number", true},
             {"top_k", "a number", true},
             {"top_p", "a number", true},
             {"seed", "a number", true},
             {"strategy", "a string", false},
             {"model_id", "a string", false}};

static enum err wrong_type(const char *field,
                           const char *wanted,
                           const json_t *v,
                           struct err_info *e)
{
    (void)!api_wrong_type(field, wanted, v, e);
    e->code = ERR_FORMAT;
    return ERR_FORMAT;
}

static enum err check_strings(const json_t *body, const char *name, struct err_info *e)
{
    const json_t *list = json_object_get(body, name);
    char field[32];
    if (!list)
        return err_set_field(e, ERR_FORMAT, name, "'%s' is required", name);
    if (!json_is_array(list))
        return wrong_type(name, "an array of strings", list, e);
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(field, sizeof field, "%s[%zu]", name, i);
        if (!json_is_string(json_array_get(list, i)))
            return wrong_type(field, "a string", json_array_get(list, i), e);
    }
    return OK;
}

static enum err parse_body(const struct api_input *in, json_t **body, struct err_info *e)
{
    enum err err = api_json_parse(in->body, in->body_len, body, e);
    return err == ERR_INVALID ? (e->code = ERR_FORMAT) : err;
}

/* ERR_FORMAT if this is no JSON or has the wrong types; its values are looked at later. */
static enum err check_types(const struct api_input *in, const char *prompts, struct err_info *e)
{
    json_t *body = NULL;
    enum err err = parse_body(in, &body, e);
    for (size_t i = 0; !err && i < sizeof types / sizeof types[0]; i++) {
        const json_t *v = api_get(body, types[i].name);
        if (v && !(types[i].number ? json_is_number(v) : json_is_string(v)))
            err = wrong_type(types[i].name, types[i].wanted, v, e);
    }
    if (!err && prompts)
        err = check_strings(body, prompts, e);
    else if (!err && json_is_null(json_object_get(body, "prompt")))
        err = wrong_type("prompt", "a string", json_object_get(body, "prompt"), e);
    else if (!err && !json_object_get(body, "prompt"))
        err = err_set_field(e, ERR_FORMAT, "prompt", "'prompt' is required");
    json_decref(body);
    return err;
}

/* strategy decides which of temperature, top_k and top_p count; those that do not are checked all
 * the same. Without one it is greedy, but where the operator gave a temperature, all count. */
static enum err apply_strategy(const struct api *a, json_t *body, struct err_info *e)
{
    const json_t *v = api_get(body, "strategy");
    const char *strategy = v ? json_string_value(v) : "greedy";
    int64_t top_k = 0;
    double top_p = 1, temperature = 1;
    enum err err;
    if ((err = api_get_int(body, "top_k", -1, INT32_MAX, &top_k, e)) ||
        (err = api_get_real(body, "top_p", 0, 1, &top_p, e)) ||
        (err = api_get_real(body, "temperature", 0, 2, &temperature, e)))
        return err;
    if (!v && json_object_get(a->defaults, "temperature"))
        return OK;
    if (strcmp(strategy, "greedy") == 0) {
        json_object_set_new(body, "temperature", json_integer(0));
        json_object_del(body, "top_k");
        json_object_del(body, "top_p");
    } else if (strcmp(strategy, "top_k") == 0) {
        api_set_default(body, "top_k", json_integer(DEFAULT_TOP_K));
        json_object_del(body, "top_p");
    } else if (strcmp(strategy, "top_p") == 0) {
        api_set_default(body, "top_p", json_real(DEFAULT_TOP_P));
        json_object_del(body, "top_k");
    } else {
        return err_invalid(
            e, "strategy", "'strategy' must be greedy, top_k or top_p, not '%.40s'", strategy);
    }
    return OK;
}

/* -1 is no number (params.c). */
static bool has_number(const json_t *body, const char *field)
{
    const json_t *v = api_get(body, field);
    return v && !(json_is_number(v) && json_number_value(v) == -1);
}

static enum err adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
{
    struct plain *s = c->state;
    enum err err = api_refuse_fields(body, refused, sizeof refused / sizeof refused[0], e);
    if (err)
        return err;
    json_t *v = *out = json_copy((json_t *)body); /* its members are shared, not changed */
    const json_t *id = api_get(v, "model_id");
    s->max_tokens_given = has_number(v, "max_tokens") || has_number(v, "max_completion_tokens");
    const uint32_t usual = c->api->cfg.max_tokens; /* the operator's, or 0 */
    if (!s->max_tokens_given && !api_get(v, "n_predict"))
        json_object_set_new(v, "max_tokens", json_integer(usual ? usual : DEFAULT_MAX_TOKENS));
    json_object_set_new(v, "return_tokens", json_true());
    json_object_set_new(v, "stream", json_boolean(s->stream));
    if (id)
        json_object_set(v, "model", (json_t *)id);
    if (!s->bare)
        return apply_strategy(c->api, v, e);
    api_set_default(v, "temperature", json_integer(0));
    api_set_default(v, "top_k", json_integer(DEFAULT_TOP_K));
    return OK;
}

static enum err parse_one(struct api_call *c,
                          const json_t *text,
                          const char *field,
                          struct api_prompt *p,
                          struct err_info *e)
{
    if (json_string_length(text) == 0)
        return err_invalid(e, field, "'%s' is empty", field);
    const enum err err = native_encode(c->tokenizer, text, true, false, &p->ids, e);
    if (err)
        return api_not_tokenized(err, field, e);
    buf_add(&p->text, json_string_value(text), json_string_length(text));
    return OK;
}

static enum err parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    const struct plain *s = c->state;
    job->params.max_tokens_gives = !s->max_tokens_given;
    if (!s->many)
        return parse_one(c, json_object_get(body, "prompt"), "prompt", api_job_prompts(job, 1), e);
    const json_t *list = json_object_get(body, "prompts");
    size_t n = json_array_size(list);
    if (n == 0 || n > c->api->max_choices)
        return err_invalid(
            e, "prompts", "'prompts' has %zu prompts; 1 to %u are allowed", n, c->api->max_choices);
    return api_read_prompts(c, list, "prompts", parse_one, job, e);
}

/* --- answers -------------------------------------------------------------------------------- */

/* One answer, all of it there. The braces are the caller's. */
static void put_result(struct api_choice *ch, struct buf *out)
{
    struct plain *s = ch->call->state;
    const struct buf *prompt = &ch->call->echoes[ch->index];
    struct buf text = {0};
    struct api_piece p;
    uint32_t n_prompt, n = 0;
    const token_id *ids = request_prompt(ch->req, &n_prompt);
    buf_str(out, "\"token_ids\":[");
    for (uint32_t i = 0; i < n_prompt && !s->bare; i++)
        buf_printf(out, "%s%d", i ? "," : "", ids[i]);
    while (api_next_piece(ch, &p)) {
        json_text_escape(&text, p.text, p.len);
        if (p.token < 0)
            continue;
        buf_printf(out,
                   "%s%d",
                   n > 0 || (!s->bare && n_prompt > 0) ? "," : "",
                   request_out(ch->req)[p.token].id);
        n++;
    }
    buf_str(out, "],\"text\":\"");
    if (!s->bare)
        json_text_escape(out, prompt->data, prompt->len);
    buf_join(out, &text);
    buf_printf(out, "\",\"num_generated\":%u", n);
    s->n_generated += n;
    buf_deinit(&text);
}

static void whole_one(struct api_call *c, struct buf *out)
{
    buf_char(out, '{');
    put_result(&c->choices[0], out);
    api_add_timeline(c, out);
    buf_char(out, '}');
}

static void put_results(struct api_call *c, struct buf *out)
{
    const struct plain *s = c->state;
    buf_str(out, "{\"results\":[");
    for (uint32_t i = 0; i < c->n_choices; i++) {
        buf_str(out, i ? ",{" : "{");
        if (s->bare)
            buf_printf(out, "\"index\":%u,", i);
        put_result(&c->choices[i], out);
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

static void whole_many(struct api_call *c, struct buf *out)
{
    put_results(c, out);
    api_add_timeline(c, out);
    buf_char(out, '}');
}

/* From the beginning of the call to its last token's arrival here. */
static void whole_batch(struct api_call *c, struct buf *out)
{
    const struct plain *s = c->state;
    double ms = (double)(clock_us() - s->begin_us) * 1e-3;
    put_results(c, out);
    buf_str(out, ",\"stats\":{");
    api_field_int(out, "batch_size", c->n_choices);
    api_field_bool(out, "gpu_used", engine_on_gpu(c->engine));
    api_field_int(out, "total_tokens", s->n_generated);
    api_field_real(out, "processing_time_ms", ms);
    api_field_real(out, "throughput_tps", ms > 0 ? s->n_generated / ms * 1e3 : 0);
    buf_char(out, '}');
    api_add_timeline(c, out);
    buf_char(out, '}');
}

/* Text that the end released without a token of its own has no id. */
static void piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    struct plain *s = ch->call->state;
    buf_str(out, "event: token\ndata: {\"token_id\":");
    if (p->token >= 0)
        api_put_int(out, request_out(ch->req)[p->token].id);
    else
        buf_str(out, "null");
    buf_str(out, ",\"text\":");
    api_put_str(out, p->text, p->len);
    buf_str(out, "}\n\n");
    s->n_generated += p->token >= 0;
}

static void close_choice(struct api_choice *ch, struct buf *out)
{
    const struct plain *s = ch->call->state;
    buf_printf(out, "event: done\ndata: {\"num_generated\":%u", s->n_generated);
    api_add_timeline(ch->call, out);
    buf_str(out, "}\n\n");
}

/* `done` is the end. */
#define PLAIN_DIALECT(writes_whole)                                                                \
    {                                                                                              \
        .id_prefix = "gen-", .prompt_field = "prompt", .whole_context = true, .adapt = adapt,      \
        .parse = parse, .piece = piece, .close = close_choice, .fail = api_named_fail,             \
        .whole = (writes_whole)                                                                    \
    }

static const struct api_dialect one = PLAIN_DIALECT(whole_one);
static const struct api_dialect many = PLAIN_DIALECT(whole_many);
static const struct api_dialect batch = PLAIN_DIALECT(whole_batch);

static enum err generate(struct api_call *c,
                         const struct api_input *in,
                         const struct api_dialect *d,
                         struct plain like,
                         struct err_info *e)
{
    enum err err = check_types(in, like.many ? "prompts" : NULL, e);
    if (err)
        return err;
    struct plain *s = mem_alloc(sizeof *s);
    *s = like;
    s->begin_us = clock_us();
    c->state = s;
    c->free_state = free;
    return api_generate(c, d, in, e);
}

enum err api_plain(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return generate(c, in, &one, (struct plain){0}, e);
}

enum err api_plain_stream(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return generate(c, in, &one, (struct plain){.stream = true}, e);
}

enum err api_plain_many(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return generate(c, in, &many, (struct plain){.many = true}, e);
}

enum err api_plain_batch(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return generate(c, in, &batch, (struct plain){.many = true, .bare = true}, e);
}

/* --- routes beside them --------------------------------------------------------------------- */

static enum err tokenize_all(struct api_call *c, const json_t *texts, struct err_info *e)
{
    enum err err = OK;
    if (json_array_size(texts) == 0)
        return err_invalid(e, "texts", "'texts' is empty");
    buf_str(&c->body, "{\"results\":[");
    for (size_t i = 0; !err && i < json_array_size(texts); i++) {
        struct token_list ids = {0};
        err = native_encode(c->tokenizer, json_array_get(texts, i), true, false, &ids, e);
        buf_str(&c->body, i ? "," : "");
        api_put_tokenized(&ids, &c->body);
        token_list_deinit(&ids);
    }
    buf_str(&c->body, "]}");
    return err;
}

enum err api_tokenize_batch(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    json_t *body = NULL;
    c->tokenizer = engine_tokenizer(c->engine);
    enum err err = parse_body(in, &body, e);
    if (!err && !(err = check_strings(body, "texts", e)))
        err = tokenize_all(c, json_object_get(body, "texts"), e);
    json_decref(body);
    return err;
}

/* Chat as a stream, whatever the body says of that; at most CAP tokens. */
enum err api_chat_stream(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    enum { CAP = 4096 };
    static const char *const limits[] = {"max_tokens", "max_completion_tokens", "n_predict"};
    json_t *body = NULL;
    enum err err = api_json_parse(in->body, in->body_len, &body, e);
    if (err)
        return err;
    json_object_set_new(body, "stream", json_true());
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const json_t *v = json_object_get(body, limits[i]);
        int64_t n; /* 5000.0 is a whole number too; what is none is refused where it is read */
        if (v && api_int_of(v, limits[i], CAP + 1, INT64_MAX, &n, NULL) == OK)
            json_object_set_new(body, limits[i], json_integer(CAP));
    }
    char *text = json_dumps(body, JSON_COMPACT);
    struct api_input streamed = *in;
    streamed.body = text;
    streamed.body_len = text ? strlen(text) : 0;
    err = text ? api_generate(c, &api_chat, &streamed, e) : api_no_memory(e);
    free(text);
    json_decref(body);
    return err;
}
