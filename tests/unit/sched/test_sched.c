/* Who runs in a step: admission, shares of rows, what need not be computed, and who has to go. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK_TOKENS 16
#define MAX_SEQS 16
#define MAX_TOKENS 1100

struct fixture {
    struct kv *kv;
    struct sched *sched;
    struct sched_seq seqs[MAX_SEQS];
    int32_t tokens[MAX_SEQS][MAX_TOKENS];
    uint32_t n_seqs;
    struct sched_plan plan;
};

static struct sched_config default_config(void)
{
    return (struct sched_config){.max_running = 8,
                                 .max_waiting = 4,
                                 .max_rows = 256,
                                 .max_logit_rows = 64,
                                 .max_blocks_per_seq = 100};
}

static void copy_block(void *ctx, uint32_t from, uint32_t to)
{
    (void)ctx;
    assert_int_not_equal(from, to);
}

static struct kv *open_kv(uint32_t n_blocks)
{
    struct kv_config kc = {
        .n_blocks = n_blocks, .block_tokens = BLOCK_TOKENS, .mover = {.copy = copy_block}};
    struct kv *kv;
    assert_int_equal(kv_create(&kc, &kv, NULL), OK);
    return kv;
}

static struct fixture *start(void **state, struct sched_config cfg, uint32_t n_blocks)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    f->kv = open_kv(n_blocks);
    assert_int_equal(sched_create(&cfg, f->kv, &f->sched, NULL), OK);
    return f;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f) {
        sched_destroy(f->sched);
        kv_destroy(f->kv);
        free(f);
    }
    return 0;
}

static void check(struct fixture *f)
{
    struct err_info e = {0};
    if (sched_check(f->sched, &e) != OK)
        fail_msg("%s", e.text);
}

/* Every sequence has a text of its own. */
static struct sched_seq *seq(struct fixture *f, uint32_t n_prompt, uint32_t n_max)
{
    uint32_t i = f->n_seqs++;
    struct sched_seq *s = &f->seqs[i];
    for (uint32_t k = 0; k < MAX_TOKENS; k++)
        f->tokens[i][k] = (int32_t)(MAX_TOKENS * i + k);
    s->tokens = f->tokens[i];
    s->n_prompt = n_prompt;
    s->n_max = n_max;
    s->shares = true;
    return s;
}

/* As above, and its first n_same tokens are those of `like`. */
static struct sched_seq *add_like(struct fixture *f,
                                  const struct sched_seq *like,
                                  uint32_t n_same,
                                  uint32_t n_prompt,
                                  uint32_t n_max)
{
    uint32_t i = f->n_seqs;
    struct sched_seq *s = seq(f, n_prompt, n_max);
    memcpy(f->tokens[i], like->tokens, n_same * sizeof(int32_t));
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
    return s;
}

static struct sched_seq *add(struct fixture *f, uint32_t n_prompt, uint32_t n_max)
{
    struct sched_seq *s = seq(f, n_prompt, n_max);
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
    return s;
}

/* Plan a step and run it: every item computed, every sample appended while there is room. */
static void step(struct fixture *f, uint32_t row_budget)
{
    sched_plan_step(f->sched, row_budget, &f->plan);
    check(f);
    for (uint32_t i = 0; i < f->plan.n_items; i++) {
        const struct sched_item *item = &f->plan.items[i];
        sched_computed(f->sched, item);
        if (item->samples && item->seq->n_known < item->seq->n_max)
            sched_append(f->sched, item->seq);
    }
    check(f);
}

static uint32_t rows_of(const struct fixture *f, const struct sched_seq *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->plan.n_items; i++)
        if (f->plan.items[i].seq == s)
            n += f->plan.items[i].n_rows;
    return n;
}

static void test_config(void **state)
{
    struct kv *kv = open_kv(4);
    struct sched *s;
    struct sched_config c = default_config();
    c.max_rows = 7;
    assert_int_equal(sched_create(&c, kv, &s, NULL), ERR_INVALID);
    c = default_config();
    c.max_logit_rows = 7;
    assert_int_equal(sched_create(&c, kv, &s, NULL), ERR_INVALID);
    c = default_config();
    c.max_waiting = 0;
    assert_int_equal(sched_create(&c, kv, &s, NULL), ERR_INVALID);
    c = default_config();
    c.overcommit = 1.1;
    assert_int_equal(sched_create(&c, kv, &s, NULL), ERR_INVALID);
    assert_null(s);
    sched_destroy(NULL);
    kv_destroy(kv);
    *state = NULL;
}

/* One sequence from arrival to removal. */
static void test_life(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *s = add(f, 300, 303);
    assert_int_equal(s->n_known, 300);
    assert_int_equal(s->slot, SCHED_NO_SLOT);
    assert_int_equal(sched_n_waiting(f->sched), 1);
    step(f, 256);
    assert_int_equal(f->plan.n_admitted, 1);
    assert_int_equal(f->plan.n_items, 1);
    assert_int_equal(f->plan.n_rows, 256);
    assert_false(f->plan.items[0].samples);
    assert_int_equal(s->slot, 0);
    assert_int_equal(s->table.n_blocks, 16);
    step(f, 256);
    assert_int_equal(f->plan.items[0].first, 256);
    assert_int_equal(f->plan.items[0].n_rows, 44);
    assert_true(f->plan.items[0].samples);
    assert_int_equal(f->plan.n_decodes, 0);
    for (uint32_t i = 0; i < 2; i++) {
        step(f, 256);
        assert_int_equal(f->plan.n_decodes, 1);
        assert_int_equal(f->plan.items[0].first, 300 + i);
        assert_int_equal(f->plan.items[0].n_rows, 1);
        assert_true(f->plan.items[0].samples);
    }
    assert_int_equal(s->n_known, 303);
    assert_int_equal(kv_stats(f->kv).in_use, 19);
    sched_remove(f->sched, s);
    assert_int_equal(s->slot, SCHED_NO_SLOT);
    assert_int_equal(kv_stats(f->kv).in_use, 0);
    sched_remove(f->sched, s); /* nothing */
    step(f, 256);
    assert_int_equal(f->plan.n_items, 0);
}

/* A sequence whose last token was computed and not yet followed by another has nothing to do. */
static void test_nothing_to_compute(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    add(f, 5, 5);
    step(f, 256);
    assert_true(f->plan.items[0].samples);
    step(f, 256);
    assert_int_equal(f->plan.n_items, 0);
}

static void test_refuses(void **state)
{
    struct fixture *f = start(state, default_config(), 50);
    struct err_info e = {0};
    assert_int_equal(sched_add(f->sched, seq(f, 0, 10), &e), ERR_INVALID);
    assert_int_equal(sched_add(f->sched, seq(f, 10, 9), &e), ERR_INVALID);
    assert_int_equal(sched_add(f->sched, seq(f, 10, 801), &e), ERR_TOO_LONG);
    assert_string_equal(e.text, "would need 51 blocks, exceeds max 50");
    assert_int_equal(sched_fits(f->sched, 800, &e), OK);
    assert_int_equal(sched_fits(f->sched, 801, &e), ERR_TOO_LONG);
    for (int i = 0; i < 4; i++)
        add(f, 10, 20);
    assert_int_equal(sched_add(f->sched, seq(f, 10, 20), &e), ERR_QUEUE_FULL);
    step(f, 256);
    assert_int_equal(sched_n_running(f->sched), 4);
    add(f, 10, 20); /* the queue is free again */
}

/* The head of the line waits for its whole length, and nobody overtakes it. */
static void test_first_come_first_served(void **state)
{
    struct fixture *f = start(state, default_config(), 10);
    struct sched_seq *a = add(f, 16, 96), *b = add(f, 16, 80), *c = add(f, 16, 32);
    step(f, 256);
    assert_int_equal(sched_n_running(f->sched), 1); /* 6 + 5 blocks are more than 10 */
    assert_int_equal(sched_n_waiting(f->sched), 2);
    step(f, 256);
    assert_int_equal(f->plan.n_admitted, 0);
    assert_int_equal(b->slot, SCHED_NO_SLOT);
    sched_remove(f->sched, a);
    step(f, 256);
    assert_int_equal(f->plan.n_admitted, 2);
    assert_true(b->n_computed > 0 && c->n_computed > 0);
}

static void test_reservation_fills_the_pool_exactly(void **state)
{
    struct fixture *f = start(state, default_config(), 10);
    struct sched_seq *a = add(f, 1, 80), *b = add(f, 1, 80);
    for (int i = 0; i < 80; i++)
        step(f, 256);
    assert_int_equal(a->n_known, 80);
    assert_int_equal(b->n_computed, 80);
    assert_int_equal(kv_stats(f->kv).free, 0);
}

static void test_slots_bound_running(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 2;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *a = add(f, 4, 8), *b = add(f, 4, 8), *d = add(f, 4, 8);
    step(f, 256);
    assert_int_equal(a->slot, 0);
    assert_int_equal(b->slot, 1);
    assert_int_equal(d->slot, SCHED_NO_SLOT);
    sched_remove(f->sched, a);
    step(f, 256);
    assert_int_equal(d->slot, 0);
    assert_int_equal(f->plan.n_decodes, 1);
    assert_ptr_equal(f->plan.items[0].seq, b);
}

/* A short prompt behind a long one is computed in the first step it is there. */
static void test_short_prompt_behind_a_long_one(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *longer = add(f, 1000, 1010);
    step(f, 256);
    struct sched_seq *shorter = add(f, 20, 30);
    step(f, 256);
    assert_int_equal(rows_of(f, shorter), 20);
    assert_int_equal(rows_of(f, longer), 224); /* 236 left, whole chunks */
    assert_int_equal(shorter->n_known, 21);
}

static void test_rows_are_shared_evenly(void **state)
{
    struct fixture *f = start(state, default_config(), 400);
    struct sched_seq *a = add(f, 1000, 1010), *b = add(f, 40, 50), *c = add(f, 900, 910),
                     *d = add(f, 8, 10);
    step(f, 256);
    assert_int_equal(f->plan.n_admitted, 4);
    assert_int_equal(rows_of(f, d), 8);
    assert_int_equal(rows_of(f, b), 40);
    assert_int_equal(rows_of(f, c), 96); /* 208 / 2, in whole sixteens */
    assert_int_equal(rows_of(f, a), 112);
}

/* While others decode, the budget bounds the step; but prompts always move. */
static void test_budget_beside_decodes(void **state)
{
    struct fixture *f = start(state, default_config(), 400);
    struct sched_seq *a = add(f, 4, 200), *b = add(f, 4, 200);
    step(f, 64);
    struct sched_seq *c = add(f, 1000, 1010);
    step(f, 66);
    assert_int_equal(f->plan.n_decodes, 2);
    assert_ptr_equal(f->plan.items[0].seq, a);
    assert_ptr_equal(f->plan.items[1].seq, b);
    assert_int_equal(rows_of(f, c), 64);
    step(f, 5);
    assert_int_equal(rows_of(f, c), 16);
    step(f, 0);
    assert_int_equal(rows_of(f, c), 16);
    sched_remove(f->sched, a);
    sched_remove(f->sched, b);
    step(f, 96); /* nobody decodes, but newcomers may wait for the step's end */
    assert_int_equal(rows_of(f, c), 96);
    step(f, 256);
    assert_int_equal(rows_of(f, c), 256);
}

/* More prompts than useful chunks: they take turns, so none waits for ever. */
static void test_turns(void **state)
{
    struct sched_config c = default_config();
    c.max_waiting = 8;
    struct fixture *f = start(state, c, 800);
    struct sched_seq *d = add(f, 1, 500), *p[5];
    for (int i = 0; i < 5; i++)
        p[i] = add(f, 400, 410);
    step(f, 256); /* all are admitted */
    assert_int_equal(sched_n_running(f->sched), 6);
    uint32_t before[5];
    for (int i = 0; i < 5; i++)
        before[i] = p[i]->n_computed;
    for (int i = 0; i < 10; i++) {
        step(f, 33); /* two chunks of 16 */
        assert_int_equal(rows_of(f, d), 1);
        assert_int_equal(f->plan.n_rows, 33);
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(p[i]->n_computed - before[i], 64); /* 10 * 32 rows, 5 sequences */
}

static void test_all_logits_are_capped(void **state)
{
    struct sched_config c = default_config();
    c.max_logit_rows = 20;
    struct fixture *f = start(state, c, 400);
    struct sched_seq *a = seq(f, 500, 510), *b = seq(f, 500, 510);
    a->all_logits = b->all_logits = true;
    assert_int_equal(sched_add(f->sched, a, NULL), OK);
    assert_int_equal(sched_add(f->sched, b, NULL), OK);
    struct sched_seq *d = add(f, 100, 110);
    step(f, 256);
    assert_int_equal(rows_of(f, d), 80);
    /* 20 logit rows: one for each of three, the other 17 shared */
    assert_int_equal(rows_of(f, a), 9);
    assert_int_equal(rows_of(f, b), 10);
    for (int i = 0; i < 300 && a->n_known < 505; i++) {
        step(f, 256);
        uint32_t n_logits = 0;
        for (uint32_t k = 0; k < f->plan.n_items; k++) {
            const struct sched_item *item = &f->plan.items[k];
            n_logits += item->seq->all_logits && item->first < item->seq->n_prompt ? item->n_rows
                                                                                   : item->samples;
        }
        assert_true(n_logits <= 20);
    }
    assert_int_equal(a->n_known, 505);
}

static void test_cancel_while_waiting(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 1;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *a = add(f, 4, 8);
    step(f, 256);
    struct sched_seq *w[4];
    for (int i = 0; i < 4; i++)
        w[i] = add(f, 4, 8);
    sched_remove(f->sched, w[1]);
    assert_int_equal(sched_n_waiting(f->sched), 3);
    check(f);
    struct sched_seq *late = add(f, 4, 8);
    struct sched_seq *order[] = {w[0], w[2], w[3], late};
    struct sched_seq *running = a;
    for (int i = 0; i < 4; i++) {
        sched_remove(f->sched, running);
        step(f, 256);
        running = order[i];
        assert_int_equal(running->slot, 0);
    }
}

/* Two tokens known at once (a resumed sequence) are computed together, beyond the prompt. */
static void test_catching_up_is_a_prefill(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *s = add(f, 10, 40);
    step(f, 256);
    sched_append(f->sched, s);
    step(f, 256);
    assert_int_equal(f->plan.n_decodes, 0);
    assert_int_equal(f->plan.items[0].n_rows, 2);
    assert_true(f->plan.items[0].samples);
}

/* Who arrives while another computes the same text waits for it, to the token. */
static void test_follows_who_computes_the_same(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 600, 610);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 395, 420, 430), *c = add_like(f, a, 600, 600, 610);
    struct sched_seq *other = add(f, 20, 30);
    step(f, 256);
    assert_int_equal(b->n_computed, 256); /* what was there is taken over at once */
    assert_ptr_equal(b->leader, a);
    assert_ptr_equal(c->leader, a);
    assert_int_equal(rows_of(f, b) + rows_of(f, c), 0);
    assert_int_equal(rows_of(f, other), 20);
    step(f, 256); /* a has computed enough for b */
    assert_int_equal(rows_of(f, b), 25);
    assert_int_equal(b->n_cached, 395);
    assert_int_equal(rows_of(f, c), 0);
    step(f, 256);
    assert_int_equal(rows_of(f, c), 1); /* a full hit leaves one token to compute */
    assert_int_equal(c->n_cached, 599);
    assert_int_equal(c->n_known, 601);
    assert_int_equal(kv_stats(f->kv).counts.hit_tokens, 395 + 599);
    assert_int_equal(a->n_cached, 0);
}

static void test_goes_on_alone_when_its_leader_leaves(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 600, 610);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 600, 600, 610), *c = add_like(f, a, 600, 600, 610);
    step(f, 100);
    assert_ptr_equal(b->leader, a);
    sched_remove(f->sched, a);
    assert_null(b->leader);
    step(f, 256);
    assert_true(rows_of(f, b) > 0); /* and leads the other */
    assert_ptr_equal(c->leader, b);
    assert_int_equal(b->n_cached, 352); /* all that a had computed */
}

static void test_tenants_and_those_who_opt_out_share_nothing(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *a = add(f, 100, 110);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 100, 100, 110), *c = add_like(f, a, 100, 100, 110);
    assert_int_equal(kv_space_of("tenant", 6, &b->space, NULL), OK);
    c->shares = false;
    step(f, 256);
    assert_int_equal(rows_of(f, b), 100);
    assert_int_equal(rows_of(f, c), 100);
    assert_int_equal(kv_stats(f->kv).counts.hit_tokens, 0);
    struct sched_seq *d = add_like(f, b, 100, 100, 110);
    d->space = b->space;
    step(f, 256);
    assert_int_equal(rows_of(f, d), 1);
}

/* Nor does one wait for what the other computes: that, too, would tell. */
static void test_nobody_waits_for_another_tenant(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *a = add(f, 600, 610);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 600, 600, 610);
    assert_int_equal(kv_space_of("tenant", 6, &b->space, NULL), OK);
    step(f, 256);
    assert_null(b->leader);
    assert_true(rows_of(f, b) > 0);
}

static void test_logits_of_all_rows_are_computed(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 40, 50);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 40, 40, 50);
    b->all_logits = true;
    step(f, 256);
    assert_int_equal(rows_of(f, b), 40);
    assert_int_equal(b->n_cached, 0);
}

/* The next turn of a conversation finds the one before, with the answer. */
static void test_next_turn_finds_its_history(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 50, 61);
    for (int i = 0; i < 11; i++)
        step(f, 256);
    assert_int_equal(a->n_known, 61);
    sched_remove(f->sched, a);
    struct sched_seq *b = add_like(f, a, 61, 80, 90);
    step(f, 256);
    assert_int_equal(b->n_cached, 60); /* the last token of the answer was never computed */
    assert_int_equal(rows_of(f, b), 20);
    assert_int_equal(kv_stats(f->kv).counts.copied, 0); /* the block that was begun is filled up */
}

static struct sched_config optimistic(void)
{
    struct sched_config c = default_config();
    c.overcommit = 1.0;
    return c;
}

/* Blocks run out: the latest goes, comes back when there is room, and goes on where it was. */
static void test_preempts_the_latest(void **state)
{
    struct fixture *f = start(state, optimistic(), 10);
    struct sched_seq *a = add(f, 32, 112), *b = add(f, 32, 112), *c = add(f, 32, 64);
    int i = 0;
    for (; sched_n_preempted(f->sched) == 0; i++)
        step(f, 256);
    assert_int_equal(c->n_preempted, 1);
    assert_int_equal(c->slot, SCHED_NO_SLOT);
    assert_true(c->n_known > 32 && c->n_known < 64);
    assert_int_equal(f->plan.n_decodes, 2);
    while (b->n_preempted == 0)
        step(f, 256);
    assert_int_equal(a->n_preempted, 0); /* who came first never yields */
    while (a->n_known < 112)
        step(f, 256);
    sched_remove(f->sched, a);
    for (i = 0; i < 400 && (b->n_known < 112 || c->n_known < 64); i++) {
        step(f, 256);
        if (b->n_known == 112)
            sched_remove(f->sched, b);
    }
    assert_int_equal(b->n_known, 112);
    assert_int_equal(c->n_known, 64);
}

/* With a pool of its own size, the blocks of a preempted sequence are mostly still there. */
static void test_comes_back_to_its_blocks(void **state)
{
    struct fixture *f = start(state, optimistic(), 10);
    struct sched_seq *a = add(f, 60, 80), *b = add(f, 60, 100);
    while (b->n_preempted == 0)
        step(f, 256);
    uint32_t n_known = b->n_known;
    sched_remove(f->sched, a);
    step(f, 256);
    assert_int_equal(b->n_computed, n_known);
    assert_int_equal(rows_of(f, b), 1);
}

static void test_priority_goes_first(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 1;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *a = add(f, 4, 50);
    step(f, 256);
    struct sched_seq *b = add(f, 4, 50), *high = seq(f, 4, 50), *low = seq(f, 4, 50);
    high->priority = 1;
    low->priority = -1;
    assert_int_equal(sched_add(f->sched, low, NULL), OK);
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    step(f, 256);
    assert_int_equal(high->slot, 0); /* a made way */
    assert_int_equal(a->n_preempted, 1);
    struct sched_seq *order[] = {high, a, b, low};
    for (int i = 0; i < 4; i++) {
        step(f, 256);
        assert_int_equal(order[i]->slot, 0);
        sched_remove(f->sched, order[i]);
    }
}

/* While the budget is a single chunk, a long prompt must not keep everybody else out. */
static void test_a_long_prompt_does_not_keep_others_out(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *d = add(f, 1, 500), *longer = seq(f, 1000, 1010);
    longer->priority = -1;
    step(f, 0);
    assert_int_equal(sched_add(f->sched, longer, NULL), OK);
    step(f, 0);
    assert_int_equal(rows_of(f, longer), 16);
    struct sched_seq *shorter = add(f, 40, 50), *high = seq(f, 40, 50);
    high->priority = 5;
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    for (int i = 0; i < 3; i++) { /* the one of higher priority has every row */
        step(f, 0);
        assert_true(rows_of(f, high) > 0);
        assert_int_equal(rows_of(f, d), 1);
    }
    assert_int_equal(high->n_known, 41);
    for (int i = 0; i < 6; i++)
        step(f, 0);
    assert_true(shorter->n_known > 40);
    assert_true(longer->n_computed < 100);
}

/* The same priority: by turns. */
static void test_two_prompts_take_turns_at_one_chunk(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    add(f, 1, 500);
    struct sched_seq *longer = add(f, 1000, 1010);
    step(f, 0);
    step(f, 0);
    struct sched_seq *shorter = add(f, 40, 50);
    for (int i = 0; i < 6; i++)
        step(f, 0);
    assert_int_equal(shorter->n_known, 41);
    assert_true(longer->n_computed >= 64);
}

/* Nobody is preempted for one that would not fit even then. */
static void test_makes_way_only_if_that_helps(void **state)
{
    struct fixture *f = start(state, default_config(), 10);
    struct sched_seq *high = seq(f, 90, 96), *low = seq(f, 30, 60), *middle = seq(f, 100, 128);
    high->priority = 2;
    middle->priority = 1;
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    assert_int_equal(sched_add(f->sched, low, NULL), OK);
    step(f, 256);
    assert_int_equal(sched_n_running(f->sched), 2);
    assert_int_equal(sched_add(f->sched, middle, NULL), OK); /* needs 8, 6 are of higher priority */
    step(f, 256);
    assert_int_equal(low->n_preempted, 0);
    assert_int_equal(middle->slot, SCHED_NO_SLOT);
    sched_remove(f->sched, high);
    step(f, 256);
    assert_int_equal(low->n_preempted, 1);
    assert_int_equal(middle->n_known, 101);
}

/* After a copied beginning, chunks end at blocks again, and what follows can be found. */
static void test_looks_again_after_a_copied_beginning(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *a = add(f, 20, 30);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 5, 400, 410);
    step(f, 100);
    assert_int_equal(b->n_cached, 5);
    assert_int_equal(b->n_computed % BLOCK_TOKENS, 0);
    assert_true(b->n_computed >= 80);
}

/* A step of priority is a head start, not a right of way for ever. */
static void test_priority_is_a_head_start(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 1;
    c.max_waiting = 1;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *low = add(f, 4, 50), *high = seq(f, 4, 50);
    low->priority = 0;
    high->priority = 1;
    step(f, 256);
    for (int i = 0; i < SCHED_PRIORITY_PLACES; i++) { /* others come and go */
        assert_int_equal(sched_add(f->sched, high, NULL), OK);
        sched_remove(f->sched, high);
    }
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    step(f, 256);
    assert_int_equal(low->slot, 0);
    assert_int_equal(high->slot, SCHED_NO_SLOT);
}

static void test_destroy_lets_go_of_all(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 10, 40);
    add(f, 10, 40);
    step(f, 256);
    add(f, 10, 40);
    sched_destroy(f->sched);
    f->sched = NULL;
    assert_int_equal(a->slot, SCHED_NO_SLOT);
    assert_int_equal(kv_stats(f->kv).in_use, 0);
}

static void test_check_finds_a_wrong_count(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *s = add(f, 10, 40);
    step(f, 256);
    struct err_info e;
    s->n_computed = 30;
    assert_int_equal(sched_check(f->sched, &e), ERR_INTERNAL);
    s->n_computed = 10;
    s->n_max = 9;
    assert_int_equal(sched_check(f->sched, &e), ERR_INTERNAL);
    s->n_max = 40;
    s->leader = s;
    assert_int_equal(sched_check(f->sched, &e), ERR_INTERNAL);
    s->leader = NULL;
    s->table.n_blocks = 0;
    assert_int_equal(sched_check(f->sched, &e), ERR_INTERNAL);
    s->table.n_blocks = 1;
    check(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_config),
        TEST(test_life),
        TEST(test_nothing_to_compute),
        TEST(test_refuses),
        TEST(test_first_come_first_served),
        TEST(test_reservation_fills_the_pool_exactly),
        TEST(test_slots_bound_running),
        TEST(test_short_prompt_behind_a_long_one),
        TEST(test_rows_are_shared_evenly),
        TEST(test_budget_beside_decodes),
        TEST(test_turns),
        TEST(test_all_logits_are_capped),
        TEST(test_cancel_while_waiting),
        TEST(test_catching_up_is_a_prefill),
        TEST(test_follows_who_computes_the_same),
        TEST(test_goes_on_alone_when_its_leader_leaves),
        TEST(test_tenants_and_those_who_opt_out_share_nothing),
        TEST(test_nobody_waits_for_another_tenant),
        TEST(test_logits_of_all_rows_are_computed),
        TEST(test_next_turn_finds_its_history),
        TEST(test_preempts_the_latest),
        TEST(test_comes_back_to_its_blocks),
        TEST(test_priority_goes_first),
        TEST(test_a_long_prompt_does_not_keep_others_out),
        TEST(test_two_prompts_take_turns_at_one_chunk),
        TEST(test_makes_way_only_if_that_helps),
        TEST(test_looks_again_after_a_copied_beginning),
        TEST(test_priority_is_a_head_start),
        TEST(test_destroy_lets_go_of_all),
        TEST(test_check_finds_a_wrong_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
