/* How the KV memory is divided between blocks and panes: within its bytes, for long and short
 * sequences alike, and not at all where nothing ever falls out of a window. */
#include "base/mem.h"
#include "engine/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* A model of which only layers and windows are there. */
struct shape {
    uint32_t n_layer, full_every; /* 0: none is full; 1: all are */
    uint32_t window, n_ctx, max_running;
    uint32_t head_dim, n_head_kv;
};

static const struct shape gemma3_1b = {26, 6, 512, 32768, 256, 256, 1};
static const struct shape gpt_oss = {24, 2, 128, 131072, 64, 64, 8};
static const struct shape mistral = {32, 0, 4096, 32768, 16, 128, 8};

static void engine_of(struct engine *eng, struct model *m, const struct shape *s, uint64_t bytes)
{
    *m = (struct model){.hp = {.n_layer = s->n_layer,
                               .head_dim = s->head_dim,
                               .n_head_kv = s->n_head_kv,
                               .window = s->window}};
    m->ops = mem_zalloc(s->n_layer, sizeof *m->ops);
    m->n_ops = s->n_layer;
    for (uint32_t i = 0; i < s->n_layer; i++)
        m->ops[i] =
            (struct op){.kind = OP_ATTENTION,
                        .layer = (uint16_t)i,
                        .head_dim = s->head_dim,
                        .n_head_kv = s->n_head_kv,
                        .window = s->full_every && (i + 1) % s->full_every == 0 ? 0 : s->window};
    *eng = (struct engine){
        .model = m, .cfg = engine_config_default(), .n_ctx = s->n_ctx, .max_rows = 512};
    eng->cfg.kv_bytes = bytes;
    eng->cfg.max_running = s->max_running;
}

/* room: what a device has, 0: none. */
static struct memory divide_on(const struct shape *s,
                               uint64_t room,
                               uint64_t bytes,
                               uint32_t *n_ctx)
{
    struct engine *eng = mem_zalloc(1, sizeof *eng);
    struct model m;
    engine_of(eng, &m, s, bytes);
    struct err_info e;
    if (memory_divide(eng, room, &e) != OK)
        fail_msg("%s", e.text);
    struct memory memory = eng->memory;
    *n_ctx = eng->n_ctx;
    free(m.ops);
    free(eng);
    return memory;
}

static struct memory divide(const struct shape *s, uint64_t bytes, uint32_t *n_ctx)
{
    return divide_on(s, 0, bytes, n_ctx);
}

static uint64_t bytes_of(const struct memory *m)
{
    return m->n_blocks * m->block_bytes + m->n_panes * m->pane_bytes;
}

/* A sequence that fills the context of gemma3-1b takes 140 MiB instead of 832. */
static void test_gemma3_1b(void **state)
{
    (void)state;
    uint32_t n_ctx;
    struct memory m = divide(&gemma3_1b, 4096 * MIB, &n_ctx);
    assert_int_equal(m.window, 512);
    assert_int_equal(m.block_bytes, 4 * 16 * 1024);
    assert_int_equal(m.pane_bytes, 22 * 16 * 1024);
    assert_int_equal(n_ctx, 32768);
    const uint64_t whole = 2048 * (m.block_bytes + m.pane_bytes);
    const uint64_t one = 2048 * m.block_bytes + sched_panes_per_seq(512, 16) * m.pane_bytes;
    assert_int_equal(whole / MIB, 832);
    assert_int_equal(one / MIB, 139);
    assert_true(m.n_blocks / 2048 >= 16); /* so many contexts at once, */
    assert_true(4096 * MIB / whole == 4); /* where one id for all layers had room for 4; */
    assert_true(2 * m.n_panes * (m.block_bytes + m.pane_bytes) > 4096 * MIB);
}

/* Over models and sizes: all bytes are used, none is missing, and both kinds lose alike. */
static void test_loses_alike(void **state)
{
    (void)state;
    static const struct shape *shapes[] = {&gemma3_1b, &gpt_oss};
    for (int i = 0; i < 2; i++) {
        const struct shape *s = shapes[i];
        for (uint64_t bytes = 1100 * MIB; bytes < 3000 * MIB; bytes += 77 * MIB) {
            uint32_t n_ctx;
            struct memory m = divide(s, bytes, &n_ctx);
            assert_true(bytes_of(&m) <= bytes);
            assert_true(bytes_of(&m) + m.block_bytes + m.pane_bytes > bytes);
            assert_true(m.n_panes <= m.n_blocks);
            const double b = (double)m.block_bytes, p = (double)m.pane_bytes, c = s->n_ctx / 16;
            const double w = sched_panes_per_seq(s->window, 16);
            const double shorts = m.n_panes * (b + p) / (double)bytes;
            const double longs = m.n_blocks * (b + p * w / c) / (double)bytes;
            assert_true(longs >= 0.5);
            if (m.n_panes < w * s->max_running) /* else nobody could use more */
                assert_true(shorts > 0.99 * longs && longs > 0.99 * shorts);
        }
    }
}

static void test_all_windowed(void **state)
{
    (void)state;
    uint32_t n_ctx;
    struct memory m = divide(&mistral, 2048 * MIB, &n_ctx);
    assert_int_equal(m.block_bytes, 0);
    assert_int_equal(m.n_panes, 2048 * MIB / m.pane_bytes);
    assert_int_equal(n_ctx, 32768);
    const uint32_t w = sched_panes_per_seq(4096, 16);
    assert_in_range(m.n_blocks, m.n_panes / w * 2048, (m.n_panes / w + 1) * 2048);
}

/* A file of a few kilobytes may call its context 2^26 long: blocks without bytes, and those of tiny
 * models, cost the host's index all the same. */
static void test_tiny_blocks_are_bounded(void **state)
{
    (void)state;
    for (uint32_t full_every = 0; full_every <= 2; full_every += 2) {
        const struct shape tiny = {2, full_every, 16, 1 << 26, 256, 8, 1};
        for (uint64_t bytes = 0; bytes <= 4096 * MIB; bytes += 4096 * MIB) {
            uint32_t n_ctx;
            struct memory m = divide(&tiny, bytes, &n_ctx);
            assert_true(m.pane_bytes > 0 && m.n_panes > 0);
            if (bytes == 0 || m.block_bytes == 0) {
                assert_in_range(m.n_blocks, 1, 1 << 20);
                assert_in_range(m.n_panes, 1, m.n_blocks);
            }
            assert_true(n_ctx <= (uint64_t)m.n_blocks * 16);
        }
    }
}

/* A device is not left half empty for it: 1,024 sequences may hold two million blocks of 64 KiB.
 * But no file makes the host account for more than 2^24. */
static void test_devices_hold_more(void **state)
{
    (void)state;
    uint32_t n_ctx;
    const struct shape many = {26, 6, 512, 32768, 1024, 256, 1};
    struct memory m = divide_on(&many, 131072 * MIB, 0, &n_ctx);
    assert_true(m.n_blocks > 3 << 19 && bytes_of(&m) > 131072 * MIB / 100 * 99);
    for (uint32_t full_every = 1; full_every <= 2; full_every++) {
        const struct shape tiny = {2, full_every, 16, 1 << 26, 256, 8, 1};
        m = divide_on(&tiny, 131072 * MIB, 0, &n_ctx);
        assert_int_equal(m.n_blocks, 1 << 24);
    }
}

/* Little memory: the context becomes as long as what can be held, to the last pane. */
static void test_little_memory(void **state)
{
    (void)state;
    const uint64_t block = 26 * 16 * 1024;
    for (uint64_t n = 1; n < 300; n += 7) {
        uint32_t n_ctx;
        struct memory m = divide(&gemma3_1b, n * block, &n_ctx);
        const uint32_t w = sched_panes_per_seq(512, 16), blocks = n_ctx / 16;
        assert_true(bytes_of(&m) <= n * block);
        assert_true(m.n_blocks >= n && m.n_panes >= (n < w ? n : w));
        assert_true(blocks <= m.n_blocks && (blocks < w ? blocks : w) <= m.n_panes);
        assert_true(blocks >= n || blocks == 2048);
    }
    struct engine *eng = mem_zalloc(1, sizeof *eng);
    struct model m;
    struct err_info e;
    engine_of(eng, &m, &gemma3_1b, block - 1);
    assert_int_equal(memory_divide(eng, 0, &e), ERR_INVALID);
    free(m.ops);
    free(eng);
}

/* Nothing falls out of a window that is as long as the context, or of none. */
static void test_without_windows(void **state)
{
    (void)state;
    struct shape s = gemma3_1b;
    uint32_t n_ctx;
    s.n_ctx = 512;
    struct memory m = divide(&s, 100 * MIB, &n_ctx);
    assert_int_equal(m.n_panes + m.window + m.pane_bytes, 0);
    assert_int_equal(m.block_bytes, 26 * 16 * 1024);
    assert_int_equal(m.n_blocks, 100 * MIB / m.block_bytes);
    s = gemma3_1b;
    s.full_every = 1;
    m = divide(&s, 900 * MIB, &n_ctx);
    assert_int_equal(m.n_panes + m.window + m.pane_bytes, 0);
    assert_int_equal(m.n_blocks, 900 * MIB / m.block_bytes);
    assert_int_equal(n_ctx, 32768);
}

/* Qwen3.5-0.8B: every fourth of 24 layers attends; a state is as large as the blocks of some 1,600
 * tokens. Half of the memory at most is for states, and never too little for one beside a block. */
static void test_states(void **state)
{
    (void)state;
    struct engine *eng = mem_zalloc(1, sizeof *eng);
    const struct shape s = {6, 1, 0, 262144, 16, 256, 2};
    struct model_layer layers[24];
    struct model m;
    struct err_info e;
    engine_of(eng, &m, &s, 0);
    m.hp.n_layer = 24;
    m.hp.conv_width = 4;
    m.hp.conv_channels = 6144;
    m.hp.n_rec_head = m.hp.n_rec_group = 16;
    m.hp.rec_key = m.hp.rec_value = 128;
    m.layers = layers;
    for (uint32_t i = 0; i < 24; i++)
        layers[i] = (struct model_layer){.recurrent = i % 4 != 3};
    const uint64_t size = 20201472, block = 6 * 16 * 2048;
    for (uint64_t bytes = size + block; bytes < (uint64_t)9 << 40; bytes += bytes / 3) {
        eng->cfg.kv_bytes = bytes;
        eng->n_ctx = s.n_ctx;
        assert_int_equal(memory_divide(eng, 0, &e), OK);
        const struct memory *d = &eng->memory;
        assert_int_equal(d->state_bytes, size);
        assert_int_equal(d->block_bytes, block);
        assert_true(d->n_states >= 1 && d->n_blocks >= 1 && d->n_panes == 0);
        const uint64_t states = d->n_states * size, blocks = d->n_blocks * block;
        assert_true(states + blocks <= bytes && states + blocks + block > bytes);
        assert_true(d->n_states == 1 || states <= bytes / 2);
        assert_true(states + size > bytes / 2 || d->n_states >= 32);
    }
    eng->cfg.kv_bytes = size + block - 1;
    assert_int_equal(memory_divide(eng, 0, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "state takes 20201472 bytes"));
    free(m.ops);
    free(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma3_1b),
        cmocka_unit_test(test_loses_alike),
        cmocka_unit_test(test_all_windowed),
        cmocka_unit_test(test_tiny_blocks_are_bounded),
        cmocka_unit_test(test_devices_hold_more),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_without_windows),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
