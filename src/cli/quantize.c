/* weir quantize: a file of floats to one of blocks.
 *
 * A tensor is a row of blocks that do not depend on one another. It is taken in parts; all threads
 * quantise pieces of a part, then it is written, then comes the next. So memory stays at a part's
 * size, and the bytes are the same for any number of threads. */
#include "gguf/quantize.h"
#include "base/machine.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "gguf/recipe.h"
#include "gguf/write.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 4096,      /* values a thread takes at a time: a multiple of every block */
    PART = 4096 * 512, /* values that are written at a time */
    MAX_THREADS = 256,
    MAX_TYPES = 64,
};

struct options {
    const char *in, *out;
    const struct gguf_recipe *recipe;
    uint32_t n_threads;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* What would end the process, and leave the half file, ends the work instead. Who began it with
 * nohup wants it to go on. */
static void catch_signals(void)
{
    const struct sigaction stop = {.sa_handler = on_signal};
    struct sigaction before;
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    if (sigaction(SIGHUP, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &stop, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 't':
        o->n_threads = (uint32_t)cli_number(state, "--threads", arg, 1, MAX_THREADS);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            o->in = arg;
        else if (state->arg_num == 1)
            o->out = arg;
        else if (state->arg_num == 2 && !(o->recipe = gguf_find_recipe(arg)))
            argp_error(state, "TYPE '%s' is not " GGUF_RECIPES, arg);
        else if (state->arg_num > 2)
            argp_error(state, "IN, OUT and TYPE are all");
        return 0;
    case ARGP_KEY_END:
        if (!o->recipe)
            argp_error(state, "IN, OUT and TYPE are needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"threads", 't', "N", 0, "Threads that quantise (default: the CPUs of this process)", 0},
    {0},
};

static const struct argp argp = {
    .options = options,
    .parser = parse_option,
    .args_doc = "IN OUT TYPE",
    .doc = "Quantise the F32, F16 or BF16 weights of the GGUF file IN to OUT. TYPE is " GGUF_RECIPES
           "; the _M mixes give more bits to the output matrix and to attn_v and ffn_down of some "
           "layers. Vectors stay as they are. OUT appears when it is whole."
           "\vExamples:\n"
           "  weir quantize model.F16.gguf model.Q8_0.gguf Q8_0\n"
           "  weir quantize model.BF16.gguf model.Q4_K_M.gguf Q4_K_M --threads 8",
};

/* A part of a tensor on its way through the threads. */
struct part {
    const struct gguf_tensor *tensor;
    enum gguf_type type;
    size_t first, n_values;
    uint8_t *out;
    atomic_size_t next; /* piece */
    atomic_bool not_finite, too_large;
};

static size_t bytes_of(enum gguf_type type, size_t n_values)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    return n_values / info->block_values * info->block_bytes;
}

static void *quantise_pieces(void *ctx)
{
    struct part *p = ctx;
    const float limit = gguf_quantize_limit(p->type);
    float x[PIECE];
    for (;;) {
        const size_t at = atomic_fetch_add(&p->next, 1) * PIECE;
        if (at >= p->n_values)
            return NULL;
        const size_t n = p->n_values - at < PIECE ? p->n_values - at : PIECE;
        const enum gguf_type from = p->tensor->type;
        gguf_dequantize(from, p->tensor->data + bytes_of(from, p->first + at), x, n);
        for (size_t i = 0; i < n; i++) {
            if (!isfinite(x[i]))
                atomic_store(&p->not_finite, true);
            else if (fabsf(x[i]) > limit)
                atomic_store(&p->too_large, true);
        }
        if (atomic_load(&p->not_finite) || atomic_load(&p->too_large))
            return NULL;
        gguf_quantize(p->type, x, p->out + bytes_of(p->type, at), n);
    }
}

/* With fewer threads than asked for if the system does not give them. */
static void quantise_part(struct part *p, uint32_t n_threads)
{
    pthread_t threads[MAX_THREADS];
    uint32_t n = 0;
    while (n + 1 < n_threads && pthread_create(&threads[n], NULL, quantise_pieces, p) == 0)
        n++;
    quantise_pieces(p);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

struct job {
    const struct options *o;
    struct gguf *g;
    enum gguf_type *types; /* [n_tensors] */
    struct gguf_writer *writer;
    uint8_t *out;            /* of one part */
    size_t n_done, n_values; /* of all tensors */
};

static size_t values_of(const struct gguf_tensor *t)
{
    return (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
}

static enum err quantise_tensor(struct job *j,
                                const struct gguf_tensor *t,
                                enum gguf_type type,
                                struct err_info *e)
{
    const size_t n = values_of(t);
    enum err err = OK;
    for (size_t first = 0; first < n && !err; first += PART) {
        struct part p = {.tensor = t, .type = type, .first = first, .out = j->out};
        p.n_values = n - first < PART ? n - first : PART;
        quantise_part(&p, j->o->n_threads);
        if (atomic_load(&p.not_finite)) {
            char name[72];
            return err_set(e,
                           ERR_FORMAT,
                           "%s: tensor \"%s\" holds values that are not finite",
                           j->o->in,
                           gguf_show(t->name, name, sizeof name));
        }
        if (atomic_load(&p.too_large)) {
            char name[72];
            return err_set(e,
                           ERR_UNSUPPORTED,
                           "%s: tensor \"%s\" holds values above %.3g, more than %s can store",
                           j->o->in,
                           gguf_show(t->name, name, sizeof name),
                           (double)gguf_quantize_limit(type),
                           gguf_type_name((uint32_t)type));
        }
        if (interrupted)
            return err_set(e, ERR_IO, "interrupted");
        err = gguf_write_data(j->writer, p.out, bytes_of(type, p.n_values), e);
        j->n_done += p.n_values;
        cli_progress("quantising", (double)j->n_done / (double)(j->n_values + 1));
    }
    return err;
}

static enum err copy_tensor(struct job *j, const struct gguf_tensor *t, struct err_info *e)
{
    enum { CHUNK = 16 << 20 };
    enum err err = OK;
    for (size_t at = 0; at < t->n_bytes && !err; at += CHUNK) {
        if (interrupted)
            return err_set(e, ERR_IO, "interrupted");
        const size_t n = t->n_bytes - at < CHUNK ? t->n_bytes - at : CHUNK;
        err = gguf_write_data(j->writer, t->data + at, n, e);
    }
    j->n_done += values_of(t);
    return err;
}

static enum err convert(struct job *j, struct err_info *e)
{
    const uint64_t n = gguf_n_tensors(j->g);
    enum err err = OK;
    for (uint64_t i = 0; i < n; i++)
        j->n_values += values_of(gguf_tensor_at(j->g, i));
    for (uint64_t i = 0; i < n && !err; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
        err = j->types[i] == t->type ? copy_tensor(j, t, e) : quantise_tensor(j, t, j->types[i], e);
        gguf_drop_pages(j->g, t, 0, t->n_bytes);
    }
    if (!err)
        cli_progress("quantising", 1.0);
    return err;
}

static enum err choose_types(struct job *j, struct err_info *e)
{
    const uint64_t n = gguf_n_tensors(j->g);
    j->types = mem_alloc((n ? n : 1) * sizeof *j->types);
    return gguf_recipe_types(j->o->recipe, j->g, j->types, e);
}

/* "Q4_K_M: 667814464 bytes of 2201016832; Q4_K 135, Q6_K 21, F32 45 tensors" */
static void report(const struct job *j, size_t n_bytes)
{
    uint64_t counts[MAX_TYPES] = {0};
    const char *comma = "";
    for (uint64_t i = 0; i < gguf_n_tensors(j->g); i++)
        counts[j->types[i]]++;
    printf("%s: %zu bytes of %zu; ", j->o->recipe->name, n_bytes, gguf_file_bytes(j->g));
    for (uint32_t i = 0; i < MAX_TYPES; i++) {
        if (counts[i]) {
            printf("%s%s %llu", comma, gguf_type_name(i), (unsigned long long)counts[i]);
            comma = ", ";
        }
    }
    printf(" tensors\n");
}

static enum err run(struct job *j, struct err_info *e)
{
    size_t n_bytes = 0;
    enum err err = gguf_open(j->o->in, &j->g, e);
    if (!err)
        err = choose_types(j, e);
    if (!err)
        err = gguf_write_begin(j->o->out, j->g, j->types, j->o->recipe->file_type, &j->writer, e);
    if (err)
        return err;
    cli_remove_on_lost_page(gguf_write_part(j->writer));
    n_bytes = gguf_write_bytes(j->writer);
    j->out = mem_alloc(bytes_of(GGUF_TYPE_F16, PART)); /* the largest that is written */
    err = convert(j, e);
    cli_remove_on_lost_page(NULL);
    if (err)
        gguf_write_abort(j->writer);
    else
        err = gguf_write_end(j->writer, e);
    if (!err)
        report(j, n_bytes);
    return err;
}

static uint32_t n_cpus(void)
{
    uint32_t *cpus, n = machine_cpus(&cpus);
    const uint32_t quota = machine_cpu_quota();
    free(cpus);
    n = n < quota ? n : quota;
    return n > MAX_THREADS ? MAX_THREADS : n > 0 ? n : 1;
}

int cmd_quantize(int argc, char **argv)
{
    struct options o = {.n_threads = n_cpus()};
    struct job j = {.o = &o};
    struct err_info e = {0};
    cli_parse(&argp, argc, argv, &o);
    catch_signals();
    enum err err = run(&j, &e);
    gguf_close(j.g);
    free(j.types);
    free(j.out);
    return err ? cli_fail("quantize", &e) : EXIT_DONE;
}
