/* weir bench: prefill and decode, beside what this machine could do at best.
 *
 * Limits: prefill is bound by multiplications, two operations a weight and token; decode by reading
 * every weight once a step, and every sequence's keys and values, or by multiplications if those
 * take longer. How fast memory is read is measured again before each run of decode, as a machine
 * drifts from one minute to the next. Tokens per second are those of all streams together. */
#include "backend/async.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/bench_limits.h"
#include "cli/cli.h"
#include "cli/model_options.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    BLOCK_TOKENS = 16,
    MAX_TOKENS = 1 << 20,
    MAX_BATCH = 1024,
    MAX_STEP = 1 << 16,
    KEY_STEP = 0x2000, /* --batch-tokens has no letter */
    KEY_SHARED,        /* nor --shared */
};

struct options {
    struct cli_model model;
    uint32_t n_prefill, n_decode, n_repeat, batch_tokens;
    uint32_t *batches, *depths;
    uint32_t n_batches, n_depths;
    bool shared, json;
};

static const struct argp_option options[] = {
    CLI_MODEL_OPTIONS("f16"),
    {"prefill", 'p', "N", 0, "prompt tokens of the prefill test (default 256)", 0},
    {"batch-tokens", KEY_STEP, "N", 0, "tokens of a prompt in one step (default 512)", 0},
    {"decode", 'n', "N", 0, "tokens a stream of each decode test (default 32)", 0},
    {"batch", 'b', "LIST", 0, "streams that decode at once (default 1,8,32)", 0},
    {"depth", 'd', "LIST", 0, "positions each stream holds already (default 0,1500)", 0},
    {"shared", KEY_SHARED, NULL, 0, "what streams hold already is one prefix that all share", 0},
    {"repeat", 'r', "N", 0, "runs of each test; the median counts (default 3)", 0},
    {"json", 'J', NULL, 0, "one JSON object a line", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct options *o = s->input;
    switch (key) {
    case 'p':
        o->n_prefill = (uint32_t)cli_number(s, "--prefill", arg, 0, MAX_TOKENS);
        return 0;
    case KEY_STEP:
        o->batch_tokens = (uint32_t)cli_number(s, "--batch-tokens", arg, 1, MAX_STEP);
        return 0;
    case 'n':
        o->n_decode = (uint32_t)cli_number(s, "--decode", arg, 0, MAX_TOKENS);
        return 0;
    case 'b':
        free(o->batches);
        o->batches = cli_list(s, "--batch", arg, MAX_BATCH, &o->n_batches);
        return 0;
    case 'd':
        free(o->depths);
        o->depths = cli_list(s, "--depth", arg, MAX_TOKENS, &o->n_depths);
        return 0;
    case 'r':
        o->n_repeat = (uint32_t)cli_number(s, "--repeat", arg, 1, 1000);
        return 0;
    case KEY_SHARED:
        o->shared = true;
        return 0;
    case 'J':
        o->json = true;
        return 0;
    case ARGP_KEY_END:
        for (uint32_t i = 0; i < o->n_batches; i++) {
            if (o->batches[i] == 0)
                argp_error(s, "--batch: 0 streams");
        }
        return 0;
    default:
        return cli_model_option(key, arg, s, &o->model);
    }
}

static const char doc[] = "Measure prompt processing and generation, each as a fraction of what "
                          "this machine's memory and arithmetic, measured first, allow."
                          "\vExamples:\n"
                          "  weir bench -m model.gguf\n"
                          "  weir bench -m model.gguf --batch 1,64 --depth 0,1000,4000 --json";

struct bench {
    const struct options *o;
    struct model *m;
    struct backend *backend;
    struct device_limits limits;
    uint32_t n_blocks, blocks_per_seq, n_shared; /* of the test at hand; the blocks all share */
    /* The batch under construction. */
    int32_t *tokens;
    uint32_t *positions, *blocks, *logit_rows;
    struct batch_seq *seqs;
    int32_t *token_from;    /* of backends that run beside the host: for each of a step's streams */
    struct async_job *jobs; /* likewise */
    double *seconds, *rates;  /* [n_repeat]; bytes a second that memory was read with before each */
    double run_us, waited_us; /* of the backend's workers in the test's runs, */
    double run_from, waited_from; /* and when the present run began */
    uint64_t began_us;
};

/* Tokens that mean nothing but differ. */
static int32_t some_token(const struct bench *b, uint32_t seq, uint32_t pos)
{
    return (int32_t)((pos * 7919u + seq * 104729u + 17u) % b->m->hp.n_vocab);
}

/* Sequence `seq` of the batch: rows first_pos .. + n - 1, its last one wanting logits or not. */
static void push_seq(
    struct bench *b, struct batch *x, uint32_t seq, uint32_t first_pos, uint32_t n, bool logits)
{
    b->seqs[x->n_seqs++] = (struct batch_seq){
        .first_row = x->n_rows,
        .n_rows = n,
        .first_pos = first_pos,
        .blocks = b->blocks + (size_t)seq * b->blocks_per_seq,
        .state_from = seq,
        .state_to = seq,
    };
    for (uint32_t i = 0; i < n; i++, x->n_rows++) {
        b->positions[x->n_rows] = first_pos + i;
        b->tokens[x->n_rows] = some_token(b, seq, first_pos + i);
    }
    if (logits)
        b->logit_rows[x->n_logit_rows++] = x->n_rows - 1;
}

static struct batch empty_batch(const struct bench *b)
{
    return (struct batch){.tokens = b->tokens,
                          .positions = b->positions,
                          .seqs = b->seqs,
                          .logit_rows = b->logit_rows};
}

static enum err run_batch(struct bench *b, const struct batch *x, struct err_info *e)
{
    float *logits;
    return b->backend->ops->run(b->backend, x, &logits, e);
}

static enum err prefill_once(struct bench *b, uint32_t n, struct err_info *e)
{
    const uint32_t chunk = b->o->batch_tokens;
    for (uint32_t pos = 0; pos < n; pos += chunk) {
        struct batch x = empty_batch(b);
        const uint32_t here = n - pos < chunk ? n - pos : chunk;
        push_seq(b, &x, 0, pos, here, pos + here == n);
        enum err err = run_batch(b, &x, e);
        if (err)
            return err;
    }
    return OK;
}

/* Each stream's own blocks, behind those that all share. */
static void lay_blocks(struct bench *b, uint32_t batch, uint32_t depth, uint32_t n)
{
    b->blocks_per_seq = (depth + n + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    b->n_shared = b->o->shared ? depth / BLOCK_TOKENS : 0;
    for (uint32_t i = 0; i < batch * b->blocks_per_seq; i++) {
        const uint32_t at = i % b->blocks_per_seq;
        b->blocks[i] = at < b->n_shared ? at : i;
    }
}

/* Streams that are `depth` long already: one row in every block puts the memory of their keys and
 * values in place. What is in them does not matter to the clock. A batch has one row of a stream at
 * most where layers are recurrent, as each changes its state. */
static enum err make_depth(struct bench *b, uint32_t batch, uint32_t depth, struct err_info *e)
{
    const bool recurrent = model_state_bytes(b->m) > 0;
    struct batch x = empty_batch(b);
    for (uint32_t pos = 0; pos < depth; pos += BLOCK_TOKENS) {
        const uint32_t n_seqs = pos / BLOCK_TOKENS < b->n_shared ? 1 : batch;
        for (uint32_t s = 0; s < n_seqs; s++) {
            push_seq(b, &x, s, pos, 1, false);
            if (x.n_rows < b->o->batch_tokens && !(recurrent && s + 1 == n_seqs))
                continue;
            enum err err = run_batch(b, &x, e);
            if (err)
                return err;
            x = empty_batch(b);
        }
    }
    return x.n_rows ? run_batch(b, &x, e) : OK;
}

/* Row s of x is stream s, and so is job s, which chooses the likeliest. */
static enum err begin_decode(struct bench *b, const struct batch *x, bool first, struct err_info *e)
{
    static const struct sample_params greedy = {.top_p = 1.0f, .repetition_penalty = 1.0f};
    for (uint32_t s = 0; s < x->n_seqs; s++) {
        b->token_from[s] = first ? -1 : (int32_t)s;
        b->jobs[s] = (struct async_job){.logit_row = s,
                                        .slot = s,
                                        .position = b->positions[s] + 1,
                                        .params = &greedy,
                                        .tokens = first ? b->tokens + s : NULL,
                                        .n_tokens = first};
    }
    const struct async_step step = {.batch = x,
                                    .token_from = b->token_from,
                                    .jobs = b->jobs,
                                    .n_jobs = x->n_seqs,
                                    .follows = !first};
    return b->backend->ops->async->begin(b->backend, &step, e);
}

static enum err end_decode(struct bench *b, struct err_info *e)
{
    struct async_result unused;
    return b->backend->ops->async->end(b->backend, &unused, e);
}

/* As a server does it where steps run beside the host: the next one is begun before this one is
 * over, each token being what the step before chose; no logits come back. */
static enum err decode_beside(struct bench *b, uint32_t batch, uint32_t depth, struct err_info *e)
{
    uint32_t n_begun = 0, n_ended = 0;
    enum err err = OK;
    while (n_begun < b->o->n_decode && !err) {
        struct batch x = empty_batch(b);
        for (uint32_t s = 0; s < batch; s++)
            push_seq(b, &x, s, depth + n_begun, 1, true);
        err = begin_decode(b, &x, n_begun == 0, e);
        n_begun += !err;
        if (!err && n_begun > 1) {
            err = end_decode(b, e);
            n_ended++;
        }
    }
    for (; n_ended < n_begun; n_ended++) {
        const enum err last = end_decode(b, err ? NULL : e);
        err = err ? err : last;
    }
    return err;
}

static enum err decode_once(struct bench *b, uint32_t batch, uint32_t depth, struct err_info *e)
{
    if (b->backend->ops->async)
        return decode_beside(b, batch, depth, e);
    for (uint32_t i = 0; i < b->o->n_decode; i++) {
        struct batch x = empty_batch(b);
        for (uint32_t s = 0; s < batch; s++)
            push_seq(b, &x, s, depth + i, 1, true);
        enum err err = run_batch(b, &x, e);
        if (err)
            return err;
    }
    return OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void begin_test(struct bench *b)
{
    b->run_us = b->waited_us = 0;
}

static void begin_run(struct bench *b)
{
    b->backend->ops->times(b->backend, &b->run_from, &b->waited_from);
    b->began_us = clock_us();
}

static void end_run(struct bench *b, uint32_t i)
{
    double run_us, waited_us;
    b->seconds[i] = (double)(clock_us() - b->began_us + 1) * 1e-6;
    b->backend->ops->times(b->backend, &run_us, &waited_us);
    b->run_us += run_us - b->run_from;
    b->waited_us += waited_us - b->waited_from;
}

/* The part of the workers' time in the test's runs that they waited for one another. */
static double waited_part(const struct bench *b)
{
    return b->run_us > 0 ? b->waited_us / b->run_us : 0;
}

/* Of [n_repeat] values, which are sorted. */
static double median(const struct bench *b, double *values)
{
    const uint32_t n = b->o->n_repeat;
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Median tokens per second of b->seconds; the spread is (slowest - fastest) / median time. */
static void report(const struct bench *b,
                   const char *test,
                   uint32_t tokens,
                   uint32_t batch,
                   uint32_t depth,
                   double limit)
{
    const double seconds = median(b, b->seconds);
    const double tok_s = (double)tokens * batch / seconds;
    const double spread = (b->seconds[b->o->n_repeat - 1] - b->seconds[0]) / seconds;
    if (b->o->json)
        printf("{\"test\": \"%s\", \"tokens\": %u, \"batch\": %u, \"depth\": %u, "
               "\"tok_s\": %.3f, \"spread\": %.4f, \"limit\": %.3f, \"limit_fraction\": %.4f, "
               "\"waiting\": %.4f}\n",
               test,
               tokens,
               batch,
               depth,
               tok_s,
               spread,
               limit,
               tok_s / limit,
               waited_part(b));
    else
        printf("%-8s %6u %6u %6u %10.2f %7.1f %% %10.1f %7.1f %% %7.1f %%\n",
               test,
               tokens,
               batch,
               depth,
               tok_s,
               spread * 100,
               limit,
               tok_s / limit * 100,
               waited_part(b) * 100);
    fflush(stdout);
}

/* A test that cannot be done says so, on stderr. */
static void skipped(const char *test, uint32_t batch, uint32_t depth, const char *why)
{
    fprintf(stderr, "weir bench: skipped %s, batch %u, depth %u: %s\n", test, batch, depth, why);
}

static enum err bench_prefill(struct bench *b, struct err_info *e)
{
    const uint32_t n = b->o->n_prefill;
    if (n == 0)
        return OK;
    if (n > model_default_context(b->m)) {
        skipped("prefill", 1, 0, "longer than the model's context");
        return OK;
    }
    b->blocks_per_seq = b->n_blocks;
    enum err err = prefill_once(b, n, e); /* warm */
    begin_test(b);
    for (uint32_t i = 0; i < b->o->n_repeat && !err; i++) {
        begin_run(b);
        err = prefill_once(b, n, e);
        end_run(b, i);
    }
    if (!err) {
        const uint32_t last = b->backend->ops->gpu_stats ? (n - 1) % b->o->batch_tokens + 1 : 1;
        report(b, "prefill", n, 1, 0, n / prefill_least_seconds(b->m, &b->limits, n, last));
    }
    return err;
}

/* How fast memory is read now, or was when the machine was measured. */
static double read_rate(const struct bench *b)
{
    const double now = b->backend->ops->read_rate ? b->backend->ops->read_rate(b->backend) : 0;
    return now > 0 ? now : b->limits.read_bytes_s;
}

static double decode_limit(const struct bench *b, uint32_t batch, uint32_t depth)
{
    const double at = depth + b->o->n_decode / 2.0, rate = median(b, b->rates);
    const double shared = b->n_shared * (double)BLOCK_TOKENS;
    const enum kv_type type = b->o->model.kv_type;
    return batch / decode_least_seconds(b->m, &b->limits, type, batch, at, shared, rate);
}

static enum err bench_decode(struct bench *b, uint32_t batch, uint32_t depth, struct err_info *e)
{
    const uint32_t n = b->o->n_decode;
    if (n == 0)
        return OK;
    if ((uint64_t)depth + n > model_default_context(b->m)) {
        skipped("decode", batch, depth, "longer than the model's context");
        return OK;
    }
    lay_blocks(b, batch, depth, n);
    enum err err = make_depth(b, batch, depth, e);
    begin_test(b);
    for (uint32_t i = 0; i < b->o->n_repeat && !err; i++) {
        b->rates[i] = read_rate(b);
        begin_run(b);
        err = decode_once(b, batch, depth, e);
        end_run(b, i);
    }
    if (!err)
        report(b, "decode", n, batch, depth, decode_limit(b, batch, depth));
    return err;
}

/* Blocks for the largest test that fits the model's context. */
static uint32_t blocks_needed(const struct bench *b)
{
    uint64_t need = (b->o->n_prefill + BLOCK_TOKENS - 1) / BLOCK_TOKENS + 1;
    for (uint32_t i = 0; i < b->o->n_batches; i++) {
        for (uint32_t d = 0; d < b->o->n_depths; d++) {
            const uint64_t len = (uint64_t)b->o->depths[d] + b->o->n_decode;
            const uint64_t n = (len + BLOCK_TOKENS - 1) / BLOCK_TOKENS * b->o->batches[i];
            if (len <= model_default_context(b->m))
                need = n > need ? n : need;
        }
    }
    return (uint32_t)need;
}

static enum err open_backend(struct bench *b, struct err_info *e)
{
    uint32_t max_batch = 1;
    for (uint32_t i = 0; i < b->o->n_batches; i++)
        max_batch = b->o->batches[i] > max_batch ? b->o->batches[i] : max_batch;
    b->n_blocks = blocks_needed(b);
    const uint32_t rows = max_batch > b->o->batch_tokens ? max_batch : b->o->batch_tokens;
    struct backend_config cfg = {
        .device = b->o->model.device,
        .n_threads = b->o->model.n_threads,
        .kv_type = b->o->model.kv_type,
        .n_blocks = b->n_blocks,
        .n_states = max_batch,
        .block_tokens = BLOCK_TOKENS,
        .max_rows = rows,
        .max_seqs = rows,
        .max_logit_rows = max_batch,
        .progress = cli_progress,
        .progress_ctx = "loading",
    };
    struct backend_room room;
    const uint64_t kv_bytes =
        (uint64_t)b->n_blocks * backend_kv_block_bytes(b->m, cfg.kv_type, BLOCK_TOKENS);
    enum err err = backend_choose(b->m, &cfg, kv_bytes, &room, e);
    if (!err) /* before the model takes its memory */
        err = device_limits_measure(&cfg.device, cfg.n_threads, &b->limits, e);
    if (!err)
        err = backend_create(b->m, &cfg, &b->backend, e);
    if (err)
        return err;
    model_drop_made(b->m);
    b->tokens = mem_zalloc(rows, sizeof *b->tokens);
    b->positions = mem_zalloc(rows, sizeof *b->positions);
    b->logit_rows = mem_zalloc(rows, sizeof *b->logit_rows);
    b->seqs = mem_zalloc(rows, sizeof *b->seqs);
    b->token_from = mem_zalloc(rows, sizeof *b->token_from);
    b->jobs = mem_zalloc(rows, sizeof *b->jobs);
    b->blocks = mem_zalloc(b->n_blocks, sizeof *b->blocks);
    b->seconds = mem_zalloc(b->o->n_repeat, sizeof *b->seconds);
    b->rates = mem_zalloc(b->o->n_repeat, sizeof *b->rates);
    lay_blocks(b, 1, b->n_blocks * BLOCK_TOKENS, 0);
    return OK;
}

static void print_head(const struct bench *b)
{
    fprintf(b->o->json ? stderr : stdout,
            "%s, %s, kv %s; %s; memory %.1f GB/s, q8_0 %.0f, other quantised %.0f, "
            "f16 %.0f, bf16 %.0f, f32 %.0f Gop/s\n",
            b->m->name,
            b->m->arch,
            kv_type_name(b->o->model.kv_type),
            b->backend->ops->describe(b->backend),
            b->limits.read_bytes_s * 1e-9,
            b->limits.ops_s[LIMIT_Q8_0] * 1e-9,
            b->limits.ops_s[LIMIT_QUANT] * 1e-9,
            b->limits.ops_s[LIMIT_F16] * 1e-9,
            b->limits.ops_s[LIMIT_BF16] * 1e-9,
            b->limits.ops_s[LIMIT_F32] * 1e-9);
    if (!b->o->json)
        printf("%-8s %6s %6s %6s %10s %9s %10s %9s %9s\n",
               "test",
               "tokens",
               "batch",
               "depth",
               "tokens/s",
               "spread",
               "limit",
               "reached",
               "waiting");
    fflush(stdout);
}

static enum err bench_all(struct bench *b, struct err_info *e)
{
    const char *path = cli_model_path(b->o->model.path, e);
    if (!path)
        return e->code;
    enum err err = model_load(path, &b->m, e);
    if (!err)
        err = model_must_generate(b->m, e);
    if (!err)
        err = open_backend(b, e);
    if (err)
        return err;
    print_head(b);
    err = bench_prefill(b, e);
    for (uint32_t d = 0; d < b->o->n_depths; d++) {
        for (uint32_t i = 0; i < b->o->n_batches && !err; i++)
            err = bench_decode(b, b->o->batches[i], b->o->depths[d], e);
    }
    return err;
}

int cmd_bench(int argc, char **argv)
{
    struct options o = {.model = cli_model_default(KV_F16),
                        .n_prefill = 256,
                        .n_decode = 32,
                        .n_repeat = 3,
                        .batch_tokens = 512};
    log_set_level(LOG_WARN);
    static const struct argp argp = {options, parse_option, NULL, doc, NULL, NULL, NULL};
    o.batches = cli_list(NULL, "--batch", "1,8,32", MAX_BATCH, &o.n_batches);
    o.depths = cli_list(NULL, "--depth", "0,1500", MAX_TOKENS, &o.n_depths);
    cli_parse(&argp, argc, argv, &o);
    struct bench b = {.o = &o};
    struct err_info e = {0};
    const enum err err = bench_all(&b, &e);
    if (b.backend)
        b.backend->ops->destroy(b.backend);
    model_destroy(b.m);
    free(b.tokens);
    free(b.positions);
    free(b.logit_rows);
    free(b.seqs);
    free(b.token_from);
    free(b.jobs);
    free(b.blocks);
    free(b.seconds);
    free(b.rates);
    free(o.batches);
    free(o.depths);
    return err ? cli_fail("bench", &e) : EXIT_DONE;
}
