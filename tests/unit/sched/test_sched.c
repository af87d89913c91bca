/* Who runs in a step: admission, shares of rows, and what removal gives back. */
#include "unit/sched/fixture.h"

static void test_config(void **state)
{
    struct kv *kv = open_kv(4, 0, 0);
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
    assert_int_equal(sched_n_running(f->sched), 1);
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
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 19);
    sched_remove(f->sched, s);
    assert_int_equal(s->slot, SCHED_NO_SLOT);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 0);
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
    for (int i = 0; i < 4; i++)
        add(f, 10, 20);
    assert_int_equal(sched_add(f->sched, seq(f, 10, 20), &e), ERR_QUEUE_FULL);
    step(f, 256);
    assert_int_equal(sched_n_running(f->sched), 4);
    add(f, 10, 800); /* the queue is free again, and all the blocks would be enough */
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
    assert_int_equal(sched_n_running(f->sched), 1);
    assert_int_equal(b->slot, SCHED_NO_SLOT);
    sched_remove(f->sched, a);
    step(f, 256);
    assert_int_equal(sched_n_running(f->sched), 2);
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
    assert_int_equal(kv_stats(f->kv).blocks.free, 0);
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
    assert_int_equal(sched_n_running(f->sched), 4);
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
    assert_int_equal(rows_of(f, c), 4);
    step(f, 0);
    assert_int_equal(rows_of(f, c), 4);
    step(f, 10);
    assert_int_equal(rows_of(f, c), 8); /* to the end of a block */
    sched_remove(f->sched, a);
    sched_remove(f->sched, b);
    step(f, 96); /* nobody decodes, but newcomers may wait for the step's end */
    assert_int_equal(rows_of(f, c), 96);
    step(f, 256);
    assert_int_equal(rows_of(f, c), 256);
}

/* What decodes leave is used up, although chunks are to end where blocks do. */
static void test_small_chunks_are_not_cut_down(void **state)
{
    struct fixture *f = start(state, default_config(), 400);
    add(f, 4, 1000);
    step(f, 64);
    for (uint32_t n = 4; n <= 40; n += 4) {
        struct sched_seq *s = add(f, 1000, 1010);
        uint32_t n_steps = 0, n_ends = 0;
        for (; s->n_computed < 960; n_steps++) {
            step(f, 1 + n);
            n_ends += s->n_computed % BLOCK_TOKENS == 0;
        }
        assert_true(n_steps * n <= 960 + 960 / 8 + n); /* an eighth less at most */
        assert_true(n_ends * 4 >= n_steps - 3);
        sched_remove(f->sched, s);
    }
}

/* What the next step holds is known before it is planned. */
static void test_load(void **state)
{
    struct fixture *f = start(state, default_config(), 400);
    struct sched_seq *a = add(f, 4, 200), *b = add(f, 6, 200);
    assert_int_equal(sched_load(f->sched).n_decodes, 0);
    step(f, 64);
    struct sched_load load = sched_load(f->sched);
    assert_int_equal(load.n_decodes, 2);
    assert_int_equal(load.decodes_attend, 5 + 7);
    assert_int_equal(load.prefill_depth, 0);
    add(f, 1000, 1010);
    step(f, 66);
    add(f, 1000, 1010);
    step(f, 66);
    load = sched_load(f->sched);
    assert_int_equal(load.n_decodes, 2);
    assert_int_equal(load.decodes_attend, 7 + 9);
    assert_int_equal(load.prefill_depth, 96); /* 64, then half of 64 */
    assert_int_equal(load.n_prompts, 2);
    assert_int_equal(load.prompts_attend, 1000 + 1000);
    sched_remove(f->sched, a);
    sched_remove(f->sched, b);
    assert_int_equal(sched_load(f->sched).n_decodes, 0);
}

/* Who will decode beside the decodes: those in the queue as well, while there are slots. */
static void test_load_to_come(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 4;
    struct fixture *f = start(state, c, 400);
    struct sched_seq *a = add(f, 4, 200);
    step(f, 64);
    add(f, 100, 110);
    step(f, 17); /* of its prompt a part */
    assert_int_equal(sched_load(f->sched).n_prompts, 1);
    add(f, 50, 60);
    struct sched_load load = sched_load(f->sched);
    assert_int_equal(load.n_prompts, 2);
    assert_int_equal(load.prompts_attend, 100 + 50);
    assert_int_equal(load.longest_prompt, 100); /* also of what it has computed */
    for (uint32_t i = 0; i < 3; i++)
        add(f, 40 - i, 60);
    load = sched_load(f->sched); /* two slots are left */
    assert_int_equal(load.n_decodes, 1);
    assert_int_equal(load.n_prompts, 3);
    assert_int_equal(load.prompts_attend, 100 + 50 + 40);
    a->priority = 1; /* it waits for nobody below it */
    load = sched_load(f->sched);
    assert_int_equal(load.n_prompts, 0);
    assert_int_equal(load.prompts_attend, 0);
    assert_int_equal(load.prefill_depth, 16);
}

/* Nor those for whom there is no memory, or who do not decode. */
static void test_load_not_to_come(void **state)
{
    struct fixture *f = start(state, default_config(), 16);
    add(f, 4, BLOCK_TOKENS);
    step(f, 64);
    add(f, 10, 11); /* wants one token, which its prompt's last row chooses */
    assert_int_equal(sched_load(f->sched).n_prompts, 0);
    add(f, 10, BLOCK_TOKENS);
    assert_int_equal(sched_load(f->sched).n_prompts, 1);
    add(f, 12 * BLOCK_TOKENS, 13 * BLOCK_TOKENS); /* with it all 16 blocks are taken */
    assert_int_equal(sched_load(f->sched).n_prompts, 2);
    add(f, 10, 2 * BLOCK_TOKENS);
    assert_int_equal(sched_load(f->sched).n_prompts, 2);
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
    step(f, 241); /* all are admitted */
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

/* Nor do newcomers that are done at once, as many in each step as leave, keep its turn from one. */
static void test_turns_beside_newcomers(void **state)
{
    struct sched_config c = default_config();
    c.max_waiting = 8;
    struct fixture *f = start(state, c, 800);
    struct sched_seq *l = add(f, 500, 510), *shorts[6];
    for (int i = 0; i < 6; i++) {
        shorts[i] = seq(f, 16, 17);
        shorts[i]->shares = false; /* all of it is computed each time */
        shorts[i]->tenant = 1 + (uint32_t)i;
        assert_int_equal(sched_add(f->sched, shorts[i], NULL), OK);
    }
    step(f, 32);
    assert_int_equal(sched_n_running(f->sched), 7);
    const uint32_t before = l->n_computed;
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 6; k++) {
            if (shorts[k]->n_known < shorts[k]->n_max)
                continue;
            sched_remove(f->sched, shorts[k]);
            assert_int_equal(sched_add(f->sched, shorts[k], NULL), OK); /* another like it */
        }
        step(f, 32); /* two chunks of 16 */
    }
    assert_true(l->n_computed - before >= 10 * 16); /* once in seven chunks */
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
    sched_append(s);
    step(f, 256);
    assert_int_equal(f->plan.n_decodes, 0);
    assert_int_equal(f->plan.items[0].n_rows, 2);
    assert_true(f->plan.items[0].samples);
}

/* Who was removed is gone: again, it takes nothing from others, whether it ran or waited. */
static void test_is_removed_once(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 1;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *a = add(f, 4, 8), *w = add(f, 4, 8), *last = add(f, 4, 8);
    step(f, 256);
    for (int i = 0; i < 2; i++) {
        sched_remove(f->sched, w);
        assert_int_equal(sched_n_waiting(f->sched), 1);
        assert_int_equal(sched_n_running(f->sched), 1);
        check(f);
    }
    for (int i = 0; i < 2; i++) {
        sched_remove(f->sched, a);
        assert_int_equal(sched_n_waiting(f->sched), 1);
        assert_int_equal(sched_n_running(f->sched), 0);
        check(f);
    }
    step(f, 256);
    assert_int_equal(last->slot, 0);
    a->n_prompt = 0; /* refused: it was never there, whatever it was before */
    a->tenant_at = 0;
    assert_int_equal(sched_add(f->sched, a, NULL), ERR_INVALID);
    sched_remove(f->sched, a);
    assert_int_equal(sched_n_running(f->sched), 1);
    check(f);
}

/* What was found of one that did not fit says nothing of another that lies in its place. */
static void test_another_in_the_same_place_is_tried(void **state)
{
    struct fixture *f = start(state, default_config(), 10);
    struct sched_seq *a = add(f, 60, 80), *b = add(f, 100, 120);
    step(f, 256);
    step(f, 256); /* b was tried in vain, and nothing comes free meanwhile */
    assert_int_equal(a->slot, 0);
    assert_int_equal(b->slot, SCHED_NO_SLOT);
    sched_remove(f->sched, b);
    b->n_prompt = 20;
    b->n_max = 30;
    assert_int_equal(sched_add(f->sched, b, NULL), OK);
    step(f, 256);
    assert_int_equal(b->slot, 1);
}

/* A prompt for whose rest there are just enough rows is done, wherever blocks end. */
static void test_a_rest_that_fits_is_not_cut(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 250, 260);
    step(f, 250);
    assert_int_equal(rows_of(f, a), 250);
    assert_int_equal(a->n_known, 251);
}

/* Drafts fill up the rows that cost little, as far as the blocks go that are there anyway; beside
 * prompts there are none. What was right counts as stored, and nothing else. */
static void test_drafts(void **state)
{
    struct fixture *f = start(state, default_config(), 64);
    struct sched_seq *a = add(f, 20, 100), *b = add(f, 10, 100);
    step(f, 256);
    a->n_draft = 7;
    step(f, 256);
    assert_int_equal(f->plan.n_items, 2);
    assert_int_equal(f->plan.n_drafts, 6); /* two of eight rows are their newest tokens */
    assert_int_equal(rows_of(f, a), 7);
    assert_int_equal(rows_of(f, b), 1);
    assert_int_equal(a->n_computed, 21);
    b->n_draft = 4;
    assert_int_equal(sched_draft_rows(f->sched, 5), 3);
    step(f, 5); /* the first in rank has them all */
    assert_int_equal(rows_of(f, a), 4);
    assert_int_equal(rows_of(f, b), 1);
    sched_remove(f->sched, b);

    sched_plan_step(f->sched, 256, &f->plan);
    check(f);
    assert_int_equal(f->plan.items[0].n_rows, 8);
    assert_int_equal(f->plan.items[0].n_draft, 7);
    assert_int_equal(f->plan.n_drafts, 7);
    sched_computed(f->sched, &f->plan.items[0]);
    sched_append(a);
    for (int i = 0; i < 3; i++) {
        sched_confirm(f->sched, a);
        check(f);
        sched_append(a);
        check(f);
    }
    assert_int_equal(a->n_computed, 26);
    assert_int_equal(a->n_known, 27);

    while (a->n_computed < 29)
        step(f, 256);
    step(f, 256); /* position 29: two more end the block */
    assert_int_equal(rows_of(f, a), 3);
    assert_int_equal(a->table.n_blocks, 2);

    struct sched_seq *c = add(f, 40, 50);
    step(f, 256);
    assert_int_equal(rows_of(f, c), 40);
    assert_int_equal(rows_of(f, a), 1);
    assert_int_equal(f->plan.n_drafts, 0);
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
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 0);
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

/* A tier that has every block, but the first that it is asked for is lost. */
struct lossy_tier {
    struct kv_tier base;
    uint64_t tickets[64];
    uint32_t n_asked, n_answered;
};

static uint32_t lossy_has(struct kv_tier *t, const struct kv_key *key)
{
    (void)t;
    (void)key;
    return 1;
}

static void lossy_used(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use)
{
    (void)t;
    (void)key;
    (void)use;
}

static uint64_t lossy_estimate_us(struct kv_tier *t, uint32_t n)
{
    (void)t;
    return n;
}

static bool lossy_fetch(struct kv_tier *t, const struct kv_tier_block *b, uint64_t ticket)
{
    struct lossy_tier *x = (struct lossy_tier *)t;
    (void)b;
    assert_in_range(x->n_asked, 0, 63);
    x->tickets[x->n_asked++] = ticket;
    return true;
}

static bool lossy_poll(struct kv_tier *t, struct kv_tier_done *out)
{
    static const char bytes[1];
    struct lossy_tier *x = (struct lossy_tier *)t;
    if (x->n_answered == x->n_asked)
        return false;
    *out = (struct kv_tier_done){x->tickets[x->n_answered], x->n_answered > 0 ? bytes : NULL};
    x->n_answered++;
    return true;
}

static void lossy_release(struct kv_tier *t, const void *bytes)
{
    (void)t;
    (void)bytes;
}

static void *lossy_store_begin(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why)
{
    (void)t;
    (void)key;
    (void)why;
    return NULL;
}

static void write_block(void *ctx, struct kv_place to, const void *bytes)
{
    (void)ctx;
    (void)to;
    (void)bytes;
}

/* No row behind it is computed before what is there has been fetched, also by a step that is
 * planned while the one before it runs. */
static void test_a_lost_block_alone_is_computed(void **state)
{
    static const struct kv_tier_ops ops = {.name = "lossy",
                                           .has = lossy_has,
                                           .used = lossy_used,
                                           .estimate_us = lossy_estimate_us,
                                           .fetch = lossy_fetch,
                                           .poll = lossy_poll,
                                           .release = lossy_release,
                                           .store_begin = lossy_store_begin};
    static struct lossy_tier tier;
    tier = (struct lossy_tier){.base.ops = &ops};
    const struct sched_config cfg = default_config();
    const struct kv_config kc = {.n_blocks = 40,
                                 .block_tokens = BLOCK_TOKENS,
                                 .mover = {.copy = copy_block, .write = write_block},
                                 .tier = &tier.base};
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    assert_int_equal(kv_create(&kc, &f->kv, NULL), OK);
    assert_int_equal(sched_create(&cfg, f->kv, &f->sched, NULL), OK);
    struct sched_seq *s = add(f, 200, 210);
    step(f, 256);
    assert_int_equal(f->plan.n_rows, 0); /* it is fetched */
    sched_plan_step(f->sched, 256, &f->plan);
    assert_int_equal(rows_of(f, s), BLOCK_TOKENS);
    const struct sched_item lost = f->plan.items[0];
    sched_plan_step(f->sched, 256, &f->plan);
    assert_int_equal(f->plan.n_rows, 0);
    sched_computed(f->sched, &lost);
    step(f, 256);
    assert_int_equal(f->plan.n_rows, 0); /* again */
    step(f, 256);
    assert_int_equal(rows_of(f, s), 200 - 192);
    assert_int_equal(s->n_cached, 192 - BLOCK_TOKENS);
    sched_remove(f->sched, s);
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
        TEST(test_small_chunks_are_not_cut_down),
        TEST(test_load),
        TEST(test_load_to_come),
        TEST(test_load_not_to_come),
        TEST(test_turns),
        TEST(test_turns_beside_newcomers),
        TEST(test_all_logits_are_capped),
        TEST(test_cancel_while_waiting),
        TEST(test_catching_up_is_a_prefill),
        TEST(test_is_removed_once),
        TEST(test_another_in_the_same_place_is_tried),
        TEST(test_a_rest_that_fits_is_not_cut),
        TEST(test_drafts),
        TEST(test_a_lost_block_alone_is_computed),
        TEST(test_destroy_lets_go_of_all),
        TEST(test_check_finds_a_wrong_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
