/* weir logits: the raw logits of chosen prompt positions, and what follows greedily. Drives a
 * backend directly, one sequence over blocks 0, 1, 2, ... */
#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/model_options.h"
#include "sample/sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_TOKENS 16
#define CHUNK_ROWS 128
#define MAX_TOKENS (1u << 24)

struct options {
    struct cli_model model;
    const char *tokens, *out;
    uint32_t *rows;
    uint32_t n_rows, n_greedy;
};

static const struct argp_option options[] = {
    CLI_MODEL_OPTIONS("f16"),
    CLI_CONTEXT_OPTION("positions to choose rotation factors for (default: as trained)"),
    {"tokens", 't', "IDS", 0, "prompt: ids separated by commas or blanks, or @FILE", 0},
    {"rows", 'r', "LIST", 0, "prompt positions whose logits are written (default: the last)", 0},
    {"out", 'o', "FILE", 0, "write float32 rows [rows, n_vocab], little endian", 0},
    {"greedy", 'g', "N", 0, "continue greedily for N tokens (default 0)", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct options *o = s->input;
    switch (key) {
    case 't':
        o->tokens = arg;
        return 0;
    case 'o':
        o->out = arg;
        return 0;
    case 'r':
        free(o->rows);
        o->rows = cli_list(s, "--rows", arg, MAX_TOKENS, &o->n_rows);
        return 0;
    case 'g':
        o->n_greedy = (uint32_t)cli_number(s, "--greedy", arg, 0, MAX_TOKENS);
        return 0;
    case ARGP_KEY_END:
        if (!o->tokens)
            argp_error(s, "--tokens is needed");
        return 0;
    default:
        return cli_model_option(key, arg, s, &o->model);
    }
}

static const char doc[] =
    "Compute a prompt's logits. No BOS is added. Prints JSON with `greedy`, the ids that follow."
    "\vExamples:\n"
    "  weir logits -m model.gguf --tokens 1,15043,29892 --greedy 8\n"
    "  weir logits -m model.gguf --tokens @ids.txt --rows 0,5 --out logits.f32 \\\n"
    "    --kv-type f32";

/* The prompt's ids: from the argument, or from the file behind '@'. */
static enum err read_tokens(const struct options *o,
                            uint32_t **ids,
                            uint32_t *n,
                            struct err_info *e)
{
    char *text = NULL;
    size_t len = 0;
    if (o->tokens[0] == '@') {
        enum err err = cli_read_file(o->tokens + 1, SIZE_MAX, &text, &len, e);
        if (err)
            return err;
        if (memchr(text, '\0', len)) {
            free(text);
            return err_invalid(e, "--tokens", "%s has a NUL byte", o->tokens + 1);
        }
    } else {
        text = mem_strdup(o->tokens);
    }
    *ids = mem_alloc((strlen(text) / 2 + 1) * sizeof **ids);
    *n = 0;
    enum err err = OK;
    for (char *save, *word = strtok_r(text, ", \t\r\n", &save); word && !err;
         word = strtok_r(NULL, ", \t\r\n", &save)) {
        char *end;
        unsigned long v = strtoul(word, &end, 10);
        if (*end != '\0' || v > INT32_MAX || word[0] == '-')
            err = err_invalid(e, "--tokens", "'%.30s' is not a token id", word);
        else
            (*ids)[(*n)++] = (uint32_t)v;
    }
    free(text);
    if (!err && *n == 0)
        err = err_invalid(e, "--tokens", "there are none");
    return err;
}

struct session {
    const struct model *m;
    struct backend *backend;
    int32_t *tokens; /* prompt and what follows */
    uint32_t *positions, *blocks;
    uint32_t n_prompt, n_total;
};

/* Run rows first..first+n-1, at most CHUNK_ROWS; all logits. */
static enum err run_chunk(
    struct session *s, uint32_t first, uint32_t n, float **logits, struct err_info *e)
{
    uint32_t wanted[CHUNK_ROWS];
    for (uint32_t i = 0; i < n; i++)
        wanted[i] = i;
    struct batch_seq seq = {.n_rows = n, .first_pos = first, .blocks = s->blocks};
    struct batch b = {.n_rows = n,
                      .tokens = s->tokens + first,
                      .positions = s->positions + first,
                      .n_seqs = 1,
                      .seqs = &seq,
                      .n_logit_rows = n,
                      .logit_rows = wanted};
    return s->backend->ops->run(s->backend, &b, logits, e);
}

/* Copy the logits of position pos to every place in rows that asks for it. */
static void keep_wanted(
    const struct options *o, uint32_t pos, const float *logits, size_t n_vocab, float *rows)
{
    for (uint32_t i = 0; i < o->n_rows; i++) {
        if (o->rows[i] == pos)
            memcpy(rows + i * n_vocab, logits, n_vocab * sizeof *rows);
    }
}

/* Prefill; keep the wanted rows in rows[n_rows, n_vocab]; leave the last row's choice in *next. */
static enum err prefill(
    struct session *s, const struct options *o, float *rows, int32_t *next, struct err_info *e)
{
    size_t n_vocab = s->m->hp.n_vocab;
    for (uint32_t first = 0; first < s->n_prompt; first += CHUNK_ROWS) {
        uint32_t n = s->n_prompt - first < CHUNK_ROWS ? s->n_prompt - first : CHUNK_ROWS;
        float *logits;
        enum err err = run_chunk(s, first, n, &logits, e);
        if (err)
            return err;
        for (uint32_t i = 0; i < n; i++)
            keep_wanted(o, first + i, logits + i * n_vocab, n_vocab, rows);
        *next = sample_argmax(logits + (n - 1) * n_vocab, (uint32_t)n_vocab);
    }
    return OK;
}

static enum err decode(struct session *s, uint32_t n_greedy, int32_t next, struct err_info *e)
{
    for (uint32_t i = 0; i < n_greedy; i++) {
        float *logits;
        s->tokens[s->n_prompt + i] = next;
        if (i + 1 == n_greedy)
            break;
        enum err err = run_chunk(s, s->n_prompt + i, 1, &logits, e);
        if (err)
            return err;
        next = sample_argmax(logits, s->m->hp.n_vocab);
    }
    printf("{\"greedy\": [");
    for (uint32_t i = 0; i < n_greedy; i++)
        printf("%s%d", i ? ", " : "", s->tokens[s->n_prompt + i]);
    printf("]}\n");
    return OK;
}

/* All rows or no file; but what is no regular file, or a link to one, stays. */
static enum err write_rows(const char *path, const float *rows, size_t n, struct err_info *e)
{
    struct stat st;
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(rows, sizeof *rows, n, f) == n;
    int why = errno;
    const bool regular = f && lstat(path, &st) == 0 && S_ISREG(st.st_mode);
    if (f && fclose(f) != 0 && ok) {
        why = errno;
        ok = false;
    }
    if (!ok && regular)
        unlink(path);
    return ok ? OK : err_set(e, ERR_IO, "%s: %s", path, strerror(why));
}

/* The last token that is chosen is not computed with. */
static enum err check_positions(const struct model *m,
                                uint32_t n_prompt,
                                uint32_t n_greedy,
                                struct err_info *e)
{
    const uint64_t n = (uint64_t)n_prompt + (n_greedy ? n_greedy - 1 : 0);
    if (m->hp.n_positions == 0 || n <= m->hp.n_positions)
        return OK;
    return err_set_field(e,
                         ERR_TOO_LONG,
                         "--tokens",
                         "%llu with those of --greedy, but the model%s %u positions",
                         (unsigned long long)n,
                         model_positions_verb(m),
                         m->hp.n_positions);
}

static enum err check_input(
    const struct model *m, struct options *o, const uint32_t *ids, uint32_t n, struct err_info *e)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= m->hp.n_vocab)
            return err_invalid(
                e, "--tokens", "id %u is outside the vocabulary of %u", ids[i], m->hp.n_vocab);
    }
    if (!o->rows) {
        o->rows = mem_alloc(sizeof *o->rows);
        o->rows[0] = n - 1;
        o->n_rows = 1;
    }
    for (uint32_t i = 0; i < o->n_rows; i++) {
        if (o->rows[i] >= n)
            return err_invalid(e, "--rows", "%u is past the prompt of %u tokens", o->rows[i], n);
    }
    return check_positions(m, n, o->n_greedy, e);
}

static enum err open_backend(struct session *s, struct backend_config *cfg, struct err_info *e)
{
    struct backend_room room;
    const uint64_t kv_bytes =
        (uint64_t)cfg->n_blocks * backend_kv_block_bytes(s->m, cfg->kv_type, cfg->block_tokens);
    enum err err = backend_choose(s->m, cfg, kv_bytes, &room, e);
    return err ? err : backend_create(s->m, cfg, &s->backend, e);
}

static enum err open_session(struct session *s,
                             const struct options *o,
                             const uint32_t *ids,
                             struct err_info *e)
{
    uint32_t n_blocks = (s->n_total + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    struct backend_config cfg = {.device = o->model.device,
                                 .n_threads = o->model.n_threads,
                                 .kv_type = o->model.kv_type,
                                 .n_blocks = n_blocks,
                                 .n_states = 1,
                                 .block_tokens = BLOCK_TOKENS,
                                 .max_rows = CHUNK_ROWS,
                                 .max_seqs = 1,
                                 .max_logit_rows = CHUNK_ROWS};
    s->tokens = mem_zalloc(s->n_total, sizeof *s->tokens);
    s->positions = mem_zalloc(s->n_total, sizeof *s->positions);
    s->blocks = mem_zalloc(n_blocks, sizeof *s->blocks);
    for (uint32_t i = 0; i < s->n_total; i++)
        s->positions[i] = i;
    for (uint32_t i = 0; i < s->n_prompt; i++)
        s->tokens[i] = (int32_t)ids[i];
    for (uint32_t i = 0; i < n_blocks; i++)
        s->blocks[i] = i;
    return open_backend(s, &cfg, e);
}

int cmd_logits(int argc, char **argv)
{
    const struct argp argp = {.options = options, .parser = parse_option, .doc = doc};
    struct options o = {.model = cli_model_default(KV_F16)};
    struct err_info e = {0};
    struct model *m = NULL;
    struct session s = {0};
    uint32_t *ids = NULL;
    float *rows = NULL;
    int32_t next = 0;
    enum err err;
    cli_parse(&argp, argc, argv, &o);
    log_set_level(LOG_WARN);

    const char *path = cli_model_path(o.model.path, &e);
    err = path ? OK : e.code;
    if (err || (err = read_tokens(&o, &ids, &s.n_prompt, &e)) || (err = model_load(path, &m, &e)) ||
        (err = model_must_generate(m, &e)) || (err = model_set_context(m, o.model.n_ctx, &e)) ||
        (err = check_input(m, &o, ids, s.n_prompt, &e)))
        goto out;
    s.m = m;
    s.n_total = s.n_prompt + o.n_greedy;
    rows = malloc((size_t)o.n_rows * m->hp.n_vocab * sizeof *rows);
    if (!rows) {
        err = err_set(&e, ERR_NOMEM, "no memory for %u rows", o.n_rows);
        goto out;
    }
    if ((err = open_session(&s, &o, ids, &e)) || (err = prefill(&s, &o, rows, &next, &e)))
        goto out;
    if (o.out && (err = write_rows(o.out, rows, (size_t)o.n_rows * m->hp.n_vocab, &e)))
        goto out;
    err = decode(&s, o.n_greedy, next, &e);
out:
    if (s.backend)
        s.backend->ops->destroy(s.backend);
    model_destroy(m);
    free(s.tokens);
    free(s.positions);
    free(s.blocks);
    free(ids);
    free(rows);
    free(o.rows);
    return err ? cli_fail("logits", &e) : EXIT_DONE;
}
