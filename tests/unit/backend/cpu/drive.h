/* Drives a backend with block tables of its own, for the tests of this folder. */
#ifndef WEIR_TESTS_CPU_DRIVE_H
#define WEIR_TESTS_CPU_DRIVE_H

#include "backend/backend.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PROMPT 70
#define MAX_SEQS 8

/* Of tests/data/golden: the rows whose logits are stored, and the prompt of the model loaded last.
 */
static const uint32_t golden_rows[10] = {0, 1, 2, 15, 16, 31, 32, 47, 63, 69};
static int32_t golden_prompt[N_PROMPT];

/* sum (a - b)^2 / sum b^2 */
static inline double nmse(const float *a, const float *b, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        num += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        den += (double)b[i] * b[i];
    }
    return num / den;
}

/* A step made by hand, of sequences one after the other: made_begin, made_add, and which rows are
 * wanted. */
enum { MADE_ROWS = 20000, MADE_SEQS = 16 };
struct made {
    int32_t tokens[MADE_ROWS];
    uint32_t positions[MADE_ROWS], wanted[MADE_ROWS];
    struct batch_seq seqs[MADE_SEQS];
    struct batch batch;
};

static inline void made_begin(struct made *s)
{
    s->batch = (struct batch){.tokens = s->tokens,
                              .positions = s->positions,
                              .seqs = s->seqs,
                              .logit_rows = s->wanted,
                              .hidden_rows = s->wanted};
}

/* seq.n_rows rows from seq.first_pos on; tokens: of the sequence, by position. */
static inline void made_add(struct made *s, struct batch_seq seq, const int32_t *tokens)
{
    assert_true(s->batch.n_seqs < MADE_SEQS && seq.n_rows <= MADE_ROWS - s->batch.n_rows);
    seq.first_row = s->batch.n_rows;
    s->seqs[s->batch.n_seqs++] = seq;
    for (uint32_t pos = seq.first_pos; pos < seq.first_pos + seq.n_rows; pos++) {
        s->tokens[s->batch.n_rows] = tokens[pos];
        s->positions[s->batch.n_rows++] = pos;
    }
}

/* Of all rows so far; how many. */
static inline uint32_t made_want_all(struct made *s)
{
    for (uint32_t i = 0; i < s->batch.n_rows; i++)
        s->wanted[i] = i;
    return s->batch.n_rows;
}

/* A part of one sequence to run. */
struct part {
    uint32_t seq, first_pos, n;
};

struct drive {
    struct backend *b;
    uint32_t n_vocab, block_tokens;
    uint32_t window; /* of layers that have one; 0: none has */
    uint32_t tables[MAX_SEQS][64];
    uint32_t panes[MAX_SEQS][64]; /* likewise, in another order */
    uint32_t states[MAX_SEQS];    /* of recurrent layers, each sequence's own; */
    uint32_t kept[MAX_SEQS][64];  /* and of its full blocks, where they are kept */
    bool keeps;
    uint32_t wanted_each; /* logits: of positions that are multiples (drive_wants); 1 at first */
};

/* The list of numbers behind "prompt": in the model's description. */
static inline void load_prompt(const char *name)
{
    char path[512], text[4096] = "";
    snprintf(path, sizeof path, "%s/golden/%s.json", TEST_DATA, name);
    FILE *f = fopen(path, "r");
    if (f)
        (void)!fread(text, 1, sizeof text - 1, f);
    char *at = strstr(text, "\"prompt\"");
    at = at ? strchr(at, '[') : NULL;
    int ok = at != NULL;
    for (int i = 0; ok && i < N_PROMPT; i++) {
        char *end;
        golden_prompt[i] = (int32_t)strtol(at + 1, &end, 10);
        ok = end != at + 1;
        at = end;
    }
    if (f)
        fclose(f);
    if (!ok) {
        fprintf(stderr, "%s: no prompt\n", path);
        abort();
    }
}

static inline struct model *load_golden(const char *name)
{
    char path[512];
    load_prompt(name);
    snprintf(path, sizeof path, "%s/golden/%s.gguf", TEST_DATA, name);
    struct model *m;
    struct err_info e;
    if (model_load(path, &m, &e) != OK) {
        fprintf(stderr, "%s: %s\n", path, e.text);
        abort();
    }
    return m;
}

typedef enum err (*drive_create_fn)(const struct model *m,
                                    const struct backend_config *cfg,
                                    struct backend **out,
                                    struct err_info *e);

/* Steps have at most so many rows. Blocks are dealt to sequences in an order that `shuffle`
 * decides. Layers with windows have panes of their own. With it the states behind full blocks are
 * kept, and gone on from. */
static inline void drive_open_rows(struct drive *d,
                                   const struct model *m,
                                   drive_create_fn create,
                                   enum kv_type kv,
                                   uint32_t threads,
                                   uint32_t block_tokens,
                                   uint32_t shuffle,
                                   uint32_t max_rows)
{
    const uint32_t per_seq = (N_PROMPT + 30 + block_tokens - 1) / block_tokens;
    struct backend_config cfg = {.n_threads = threads,
                                 .kv_type = kv,
                                 .n_blocks = per_seq * MAX_SEQS,
                                 .block_tokens = block_tokens,
                                 .max_rows = max_rows,
                                 .max_seqs = MAX_SEQS,
                                 .max_logit_rows = max_rows};
    struct err_info e;
    d->window = 0;
    for (uint32_t i = 0; i < m->n_ops; i++)
        if (m->ops[i].window > d->window && m->ops[i].window_kind != WINDOW_AROUND)
            d->window = m->ops[i].window;
    cfg.n_states = (per_seq + 1) * MAX_SEQS;
    d->keeps = shuffle > 0;
    for (uint32_t s = 0; s < MAX_SEQS; s++) {
        d->states[s] = (per_seq + 1) * s + per_seq / 2;
        for (uint32_t i = 0; i < 64; i++)
            d->kept[s][i] = i < per_seq ? (per_seq + 1) * s + i + (i >= per_seq / 2) : UINT32_MAX;
    }
    cfg.n_panes = d->window ? per_seq * MAX_SEQS : 0;
    if (create(m, &cfg, &d->b, &e) != OK) {
        fprintf(stderr, "create: %s\n", e.text);
        abort();
    }
    d->n_vocab = m->hp.n_vocab;
    d->wanted_each = 1;
    d->block_tokens = block_tokens;
    uint32_t n = per_seq * MAX_SEQS, next = shuffle;
    for (uint32_t s = 0; s < MAX_SEQS; s++) {
        for (uint32_t i = 0; i < per_seq; i++, next++)
            d->tables[s][i] = shuffle ? (next * 5 + 3) % n : s * per_seq + i;
        for (uint32_t i = 0; i < per_seq; i++)
            d->panes[s][i] = n - 1 - d->tables[s][i];
    }
    if (shuffle && n % 5 == 0)
        abort(); /* the stride must reach every block */
}

static inline void drive_open_on(struct drive *d,
                                 const struct model *m,
                                 drive_create_fn create,
                                 enum kv_type kv,
                                 uint32_t threads,
                                 uint32_t block_tokens,
                                 uint32_t shuffle)
{
    drive_open_rows(d, m, create, kv, threads, block_tokens, shuffle, MAX_SEQS * N_PROMPT);
}

static inline void drive_open(struct drive *d,
                              const struct model *m,
                              const char *isa,
                              enum kv_type kv,
                              uint32_t threads,
                              uint32_t block_tokens,
                              uint32_t shuffle)
{
    setenv("WEIR_ISA", isa, 1);
    drive_open_on(d, m, cpu_backend_create, kv, threads, block_tokens, shuffle);
}

static inline void drive_close(struct drive *d)
{
    d->b->ops->destroy(d->b);
}

/* Row i of a part: one by itself is wanted anyhow, as the engine does. */
static inline bool drive_wants(const struct drive *d, const struct part *part, uint32_t i)
{
    return part->n == 1 || (part->first_pos + i) % d->wanted_each == 0;
}

/* Run one batch of parts, sequence i made of tokens[i]; logits of the rows that are wanted are
 * copied to out[i][position]. */
static inline void drive_run(struct drive *d,
                             const struct part *parts,
                             uint32_t n_parts,
                             const int32_t *const *tokens,
                             float *const *out)
{
    static struct made step;
    uint32_t panes[MAX_SEQS][64];
    made_begin(&step);
    for (uint32_t i = 0; i < n_parts; i++) {
        const uint32_t s = parts[i].seq, pos = parts[i].first_pos;
        const uint32_t first = d->window && pos >= d->window ? pos + 1 - d->window : 0;
        for (uint32_t k = 0; k < 64; k++) /* those that the window has passed are nowhere */
            panes[i][k] = k < first / d->block_tokens ? UINT32_MAX : d->panes[s][k];
        struct batch_seq seq = {.n_rows = parts[i].n,
                                .first_pos = pos,
                                .blocks = d->tables[s],
                                .panes = panes[i],
                                .state_to = d->states[s],
                                .state_from = d->states[s],
                                .states = d->keeps ? d->kept[s] : NULL};
        if (d->keeps && pos > 0 && pos % d->block_tokens == 0)
            seq.state_from = d->kept[s][pos / d->block_tokens - 1];
        made_add(&step, seq, tokens[i]);
        for (uint32_t p = 0; p < parts[i].n; p++) {
            if (drive_wants(d, &parts[i], p))
                step.wanted[step.batch.n_logit_rows++] = step.batch.n_rows - parts[i].n + p;
        }
    }
    float *logits;
    struct err_info e;
    if (d->b->ops->run(d->b, &step.batch, &logits, &e) != OK) {
        fprintf(stderr, "run: %s\n", e.text);
        abort();
    }
    for (uint32_t i = 0, r = 0; i < n_parts; i++) {
        for (uint32_t p = 0; p < parts[i].n; p++) {
            if (drive_wants(d, &parts[i], p))
                memcpy(out[i] + (size_t)(parts[i].first_pos + p) * d->n_vocab,
                       logits + (size_t)r++ * d->n_vocab,
                       d->n_vocab * sizeof *logits);
        }
    }
}

#endif
