/* weir embed: a vector of each text, a line each. */
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/model_options.h"
#include "engine/engine.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_POOLING 256
#define KEY_RAW 257
#define AT_ONCE 64 /* texts that the engine has together */

struct options {
    struct cli_model model;
    const char **texts; /* [n_texts] */
    uint32_t n_texts;
    bool raw;
    struct engine_config engine;
};

static const struct argp_option options[] = {
    CLI_MODEL_OPTIONS("f32"),
    CLI_CONTEXT_OPTION("longest text in tokens " CLI_CONTEXT_DEFAULT),
    {"pooling",
     KEY_POOLING,
     "TYPE",
     0,
     "mean, cls, last, or none: a vector of each token (default: as the file says)",
     0},
    {"raw", KEY_RAW, 0, 0, "as the model has them, not brought to length 1", 0},
    {0},
};

static const char doc[] =
    "Make an embedding of each TEXT, or of each line of standard input. Prints a JSON array a line."
    "\vExamples:\n"
    "  weir embed -m bge-small.gguf 'query: where is it?' 'passage: here'\n"
    "  weir embed -m qwen3-embedding.gguf < lines.txt > vectors.jsonl";

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct options *o = s->input;
    switch (key) {
    case KEY_POOLING:
        if (pooling_parse(arg, &o->engine.pooling) != OK)
            argp_error(s, "--pooling: '%s' is not mean, cls, last or none", arg);
        return 0;
    case KEY_RAW:
        o->raw = true;
        return 0;
    case ARGP_KEY_ARG:
        o->texts[o->n_texts++] = arg;
        return 0;
    default:
        return cli_model_option(key, arg, s, &o->model);
    }
}

struct session {
    const struct options *o;
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
};

static enum err open_session(struct session *s, struct err_info *e)
{
    const char *path = cli_model_path(s->o->model.path, e);
    enum err err;
    if (!path)
        return e->code;
    if ((err = model_load(path, &s->model, e)) ||
        (err = model_set_context(s->model, s->o->engine.n_ctx, e)) ||
        (err = tokenizer_create(s->model->gguf, &s->tokenizer, e)) ||
        (err = engine_create(s->model, s->tokenizer, &s->o->engine, &s->engine, e)))
        return err;
    model_drop_made(s->model);
    return OK;
}

static void close_session(struct session *s)
{
    engine_destroy(s->engine);
    tokenizer_destroy(s->tokenizer);
    model_destroy(s->model);
}

/* The request of one text; `number` says which, for errors. */
static enum err create_request(const struct session *s,
                               const char *text,
                               size_t number,
                               struct request **out,
                               struct err_info *e)
{
    struct text_piece piece = {.text = text, .n_bytes = strlen(text)};
    struct request_params params = request_params_default();
    struct token_list ids = {0};
    struct err_info why = {0};
    params.output = OUTPUT_EMBEDDING;
    enum err err = utf8_valid(text, piece.n_bytes) && piece.n_bytes > 0
                       ? OK
                       : err_set(&why, ERR_INVALID, "it is empty, or not valid UTF-8");
    tokenizer_add_begin(s->tokenizer, &ids);
    if (!err)
        err = tokenizer_encode(s->tokenizer, &piece, 1, &ids, &why);
    tokenizer_add_end(s->tokenizer, &ids);
    if (!err && ids.n > UINT32_MAX / 2)
        err = err_set(&why, ERR_TOO_LONG, "it is too long");
    if (!err)
        err = request_create(s->engine, &params, ids.ids, (uint32_t)ids.n, NULL, out, &why);
    token_list_deinit(&ids);
    return err ? err_set(e, why.code, "text %zu: %.400s", number, why.text) : OK;
}

/* A JSON array of it, of length 1 where that is wanted. */
static void print_vector(const struct session *s, const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    const double length = s->o->raw ? 1 : sum > 0 ? sqrt(sum) : 1;
    for (uint32_t i = 0; i < n; i++)
        printf("%s%.9g", i ? ", " : "[", (double)(float)(x[i] / length));
    putchar(']');
}

/* The text's vector; without pooling an array of them. */
static enum err print_request(const struct session *s,
                              const struct request *r,
                              size_t number,
                              struct err_info *e)
{
    uint32_t n;
    const float *x = request_vector(r, &n);
    const size_t n_vectors = request_n_vectors(r);
    const bool many = engine_pooling(s->engine) == POOLING_NONE;
    if (request_finish(r) != FINISH_STOP)
        return err_set(e, ERR_INTERNAL, "text %zu: %.400s", number, request_error(r)->text);
    for (size_t i = 0; i < n_vectors * n; i++) {
        if (!isfinite(x[i]))
            return err_set(e, ERR_INTERNAL, "text %zu: a value is no number", number);
    }
    for (size_t i = 0; i < n_vectors; i++) {
        fputs(i > 0 ? ", " : many ? "[" : "", stdout);
        print_vector(s, x + i * n, n);
    }
    puts(many ? "]" : "");
    return OK;
}

/* At most AT_ONCE texts, which the engine computes together. */
static enum err embed_some(const struct session *s,
                           const char *const *texts,
                           uint32_t n,
                           size_t before,
                           struct err_info *e)
{
    struct request *rs[AT_ONCE] = {NULL};
    enum err err = OK;
    for (uint32_t i = 0; i < n && !err; i++)
        err = create_request(s, texts[i], before + i + 1, &rs[i], e);
    if (!err)
        err = engine_submit_all(s->engine, rs, n, e);
    for (uint32_t n_ended = 0; !err && n_ended < n;) {
        struct pollfd p = {.fd = engine_event_fd(s->engine), .events = POLLIN};
        (void)poll(&p, 1, -1);
        const struct request *r;
        while ((r = engine_next_event(s->engine)))
            n_ended += request_finish(r) != FINISH_NONE;
    }
    for (uint32_t i = 0; i < n && !err; i++)
        err = print_request(s, rs[i], before + i + 1, e);
    for (uint32_t i = 0; i < n; i++)
        request_destroy(rs[i]);
    return err;
}

static enum err embed_all(const struct session *s,
                          const char *const *texts,
                          size_t n,
                          struct err_info *e)
{
    for (size_t i = 0; i < n; i += AT_ONCE) {
        const uint32_t here = (uint32_t)(n - i < AT_ONCE ? n - i : AT_ONCE);
        enum err err = embed_some(s, texts + i, here, i, e);
        if (err)
            return err;
    }
    return OK;
}

static enum err embed_lines(const struct session *s, struct err_info *e)
{
    char *text;
    size_t n, n_lines = 0, cap = 64;
    enum err err = cli_read_file("-", SIZE_MAX, &text, &n, e);
    if (err)
        return err;
    const char **lines = mem_alloc(cap * sizeof *lines);
    for (char *at = text, *end; at < text + n; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + n - at));
        end = end ? end : text + n;
        if (memchr(at, '\0', (size_t)(end - at))) {
            err = err_set(e, ERR_INVALID, "text %zu: it holds a NUL byte", n_lines + 1);
            break;
        }
        *end = '\0';
        if (end > at && end[-1] == '\r') /* of a file from Windows */
            end[-1] = '\0';
        if (n_lines == cap)
            lines = mem_realloc(lines, (cap *= 2) * sizeof *lines);
        lines[n_lines++] = at;
    }
    if (!err)
        err = embed_all(s, lines, n_lines, e);
    free(lines);
    free(text);
    return err;
}

int cmd_embed(int argc, char **argv)
{
    const struct argp argp = {
        .options = options, .parser = parse_option, .args_doc = "[TEXT...]", .doc = doc};
    struct options o = {.model = cli_model_default(KV_F32), .engine = engine_config_default()};
    struct session s = {.o = &o};
    struct err_info e = {0};
    o.texts = mem_zalloc((size_t)argc, sizeof *o.texts);
    o.engine.max_running = AT_ONCE;
    o.engine.progress = cli_progress;
    o.engine.progress_ctx = "loading";
    cli_parse(&argp, argc, argv, &o);
    cli_model_configure(&o.model, &o.engine);
    log_set_level(LOG_WARN);
    enum err err = open_session(&s, &e);
    if (!err)
        err = o.n_texts ? embed_all(&s, o.texts, o.n_texts, &e) : embed_lines(&s, &e);
    close_session(&s);
    free(o.texts);
    return err ? cli_fail("embed", &e) : EXIT_DONE;
}
