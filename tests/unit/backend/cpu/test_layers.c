/* Widths that differ from layer to layer: what the plan makes of them, what KV memory they take,
 * and arrays that no file may hold. */
#include "backend/backend.h"
#include "model/model.h"

#include "../../gguf/file_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#define FAMILIES TEST_DATA "/golden/families/"

enum { N_LAYERS = 4 };

static struct model *load(const char *path)
{
    struct model *m;
    struct err_info e;
    if (model_load(path, &m, &e) != OK)
        fail_msg("%s: %s", path, e.text);
    return m;
}

/* The op of a layer, or NULL. */
static const struct op *find_op(const struct model *m, enum op_kind kind, uint32_t layer)
{
    for (uint32_t i = 0; i < m->n_ops; i++) {
        if (m->ops[i].kind == kind && m->ops[i].layer == layer)
            return &m->ops[i];
    }
    return NULL;
}

/* OpenELM: heads, KV heads and feed-forward parts that grow. */
static void test_growing(void **state)
{
    (void)state;
    static const struct model_layer want[] = {
        {2, 1, 16, 8, 0, false}, {3, 1, 24, 8, 1, false}, {4, 2, 40, 8, 2, false}};
    struct model *m = load(FAMILIES "openelm.f32.gguf");
    assert_int_equal(m->hp.n_head, 4);
    assert_int_equal(m->hp.n_head_kv, 2);
    assert_int_equal(m->hp.n_ff, 40);
    assert_int_equal(m->buf_width[BUF_Q], 4 * 8);
    assert_int_equal(m->buf_width[BUF_K], 2 * 8);
    assert_int_equal(m->buf_width[BUF_GATE], 40);
    for (uint32_t l = 0; l < 3; l++) {
        const struct op *attend = find_op(m, OP_ATTENTION, l);
        assert_memory_equal(&m->layers[l], &want[l], offsetof(struct model_layer, recurrent));
        assert_false(m->layers[l].recurrent);
        assert_int_equal(attend->n_head, want[l].n_head);
        assert_int_equal(attend->n_head_kv, want[l].n_head_kv);
        assert_int_equal(attend->n_out, want[l].n_head * 8);
        assert_int_equal(find_op(m, OP_HEAD_NORM, l)->n_out, want[l].n_head * 8);
        assert_int_equal(find_op(m, OP_GATED, l)->n_out, want[l].n_ff);
    }
    /* K and V of 1, 1 and 2 heads of 8 values of 2 bytes */
    assert_int_equal(backend_kv_block_bytes(m, KV_F16, 16), 16 * 4 * 2 * 8 * 2);
    assert_int_equal(backend_kv_pane_bytes(m, KV_F16, 16), 0);
    model_destroy(m);
}

/* DeciLM: attention, a matrix in its place, neither; and a layer without feed-forward part. */
static void test_gaps(void **state)
{
    (void)state;
    struct model *m = load(FAMILIES "deci.f32.gguf");
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        assert_int_equal(find_op(m, OP_ATTENTION, l) != NULL, l == 0 || l == 3);
        assert_int_equal(find_op(m, OP_ROPE_STORE, l) != NULL, l == 0 || l == 3);
        assert_int_equal(find_op(m, OP_GATED, l) != NULL, l != 3);
    }
    assert_int_equal(backend_kv_block_bytes(m, KV_F32, 1), (1 + 2) * 2 * 8 * 4);
    model_destroy(m);
}

/* Gemma 4: windowed layers with shorter heads, the last three attend to K and V of others. */
static void test_borrowing(void **state)
{
    (void)state;
    static const uint32_t from[] = {0, 1, 2, 1, 1, 2}, dims[] = {8, 8, 16, 8, 8, 16};
    struct model *m = load(FAMILIES "gemma4.f32.gguf");
    uint32_t n_attend = 0, n_store = 0;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        n_store += op->kind == OP_ROPE_STORE;
        if (op->kind != OP_ATTENTION)
            continue;
        assert_int_equal(op->layer, from[n_attend]);
        assert_int_equal(op->borrowed, n_attend >= 3);
        assert_int_equal(op->head_dim, dims[n_attend]);
        assert_int_equal(op->window, dims[n_attend] == 8 ? 20 : 0);
        n_attend++;
    }
    assert_int_equal(n_attend, 6);
    assert_int_equal(n_store, 3);
    assert_int_equal(m->ropes[ROPE_FULL].n_dims, 16);
    assert_int_equal(m->ropes[ROPE_WINDOW].n_dims, 8);
    /* K and V of 8, 8 and 16 values of 2 bytes; of the first two again, in panes */
    assert_int_equal(backend_kv_block_bytes(m, KV_F16, 16), 16 * (8 + 8 + 16) * 2 * 2);
    assert_int_equal(backend_kv_pane_bytes(m, KV_F16, 16), 16 * (8 + 8) * 2 * 2);
    model_destroy(m);
}

static void put_u32_array(struct buf *b, const char *key, const uint32_t *v, uint64_t n)
{
    put_array(b, key, GGUF_I32, n);
    for (uint64_t i = 0; i < n; i++)
        put_u32(b, v[i]);
}

struct arrays {
    const char *name, *words;
    uint32_t heads[6], heads_kv[6], ff[6];
    uint32_t n_heads, n_heads_kv, n_ff; /* 0: one value, the first */
    uint32_t key_length;                /* 0: not told */
};

static void put_widths(struct buf *b, const char *key, const uint32_t *v, uint32_t n)
{
    if (n)
        put_u32_array(b, key, v, n);
    else
        put_kv_u32(b, key, v[0]);
}

/* What a file without tensors, of 4 layers, is refused for. */
static void refuse(const char *arch, const struct arrays *a)
{
    struct buf b = {0};
    char key[64];
    put_header(&b, 3, 0, 7 + (a->key_length > 0));
    put_key(&b, "general.architecture", GGUF_STRING);
    put_str(&b, arch);
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, arch), key)
    put_kv_u32(&b, KEY("block_count"), N_LAYERS);
    put_kv_u32(&b, KEY("context_length"), 64);
    put_kv_u32(&b, KEY("embedding_length"), 16);
    if (a->key_length)
        put_kv_u32(&b, KEY("attention.key_length"), a->key_length);
    put_widths(&b, KEY("attention.head_count"), a->heads, a->n_heads);
    put_widths(&b, KEY("attention.head_count_kv"), a->heads_kv, a->n_heads_kv);
    put_widths(&b, KEY("feed_forward_length"), a->ff, a->n_ff);
#undef KEY
    put_padding(&b, 32);
    struct gguf *g;
    struct model *m;
    struct err_info e;
    if (gguf_open_memory(b.data, b.len, &g, &e) != OK)
        fail_msg("%s: %s", a->name, e.text);
    enum err err = model_from_gguf(g, "arrays", &m, &e);
    if (err != ERR_FORMAT || m || !strstr(e.text, a->words) || strchr(e.text, '\n'))
        fail_msg("%s: wanted '%s', got %d: %s", a->name, a->words, err, e.text);
    buf_deinit(&b);
}

static void test_refused(void **state)
{
    (void)state;
#define ALL(x)                                                                                     \
    {                                                                                              \
        x, x, x, x, x, x                                                                           \
    }
    static const struct arrays cases[] = {
        {"short", "head_count has 3 values for 4 layers", ALL(2), ALL(1), ALL(8), 3, 4, 4, 8},
        {"long", "head_count_kv has 5 values for 4 layers", ALL(2), ALL(1), ALL(8), 4, 5, 4, 8},
        {"ff short", "length has 1 values for 4 layers", ALL(2), ALL(1), ALL(8), 4, 4, 1, 8},
        {"zero", "head_count[1] is 0, expected 1", {2, 0, 2, 2}, ALL(1), ALL(8), 4, 4, 4, 8},
        {"zero KV", "head_count_kv[3] is 0", ALL(2), {1, 1, 1, 0}, ALL(8), 4, 4, 4, 8},
        {"zero ff",
         "feed_forward_length is missing or 0",
         ALL(2),
         ALL(1),
         {8, 8, 0, 8},
         4,
         4,
         4,
         8},
        {"negative", "head_count[2] is -2", {2, 2, (uint32_t)-2, 2}, ALL(1), ALL(8), 4, 4, 4, 8},
        {"large", "head_count[0] is 2147483647", {0x7fffffff, 2, 2, 2}, ALL(1), ALL(8), 4, 4, 4, 8},
        {"many", "head_count[3] is 1025", {2, 2, 2, 1025}, ALL(1), ALL(8), 4, 4, 4, 8},
        {"wide",
         "feed_forward_length[0] is 1048577",
         ALL(2),
         ALL(1),
         {1048577, 8, 8, 8},
         4,
         4,
         4,
         8},
        {"group",
         "no multiple of head_count_kv, 2, in layer 2",
         {2, 2, 3, 2},
         {2, 2, 2, 2},
         ALL(8),
         4,
         4,
         4,
         8},
        {"more KV",
         "head_count is 2, no multiple of head_count_kv, 4",
         ALL(2),
         ALL(4),
         ALL(8),
         0,
         4,
         4,
         8},
        {"no length", "key_length is missing", {2, 4, 2, 2}, ALL(1), ALL(8), 4, 4, 4, 0},
        {"uneven",
         "which does not divide embedding_length, 16",
         ALL(3),
         ALL(1),
         ALL(8),
         4,
         4,
         4,
         0},
    };
    static const struct arrays gaps[] = {
        {"nobody", "head_count is missing or 0", ALL(0), ALL(0), ALL(8), 4, 4, 4, 8},
        {"matrices alone", "no layer attends", ALL(2), ALL(0), ALL(8), 4, 4, 4, 8},
        {"zero as one value", "no layer attends", ALL(2), ALL(0), ALL(8), 4, 0, 4, 8},
        {"no feed-forward", "feed_forward_length is missing", ALL(2), ALL(1), ALL(0), 4, 4, 4, 8},
        {"negative", "head_count_kv[1] is -1", ALL(2), {1, (uint32_t)-1, 1, 1}, ALL(8), 4, 4, 4, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse("llama", &cases[i]);
    for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++)
        refuse("deci", &gaps[i]);
    /* heads that are of no layer, as all of them are recurrent */
    static const struct arrays recurrent = {
        "all recurrent", "no layer attends", ALL(2), ALL(0), ALL(8), 4, 4, 4, 8};
    refuse("lfm2", &recurrent);
    /* what passes ends where the tensors would begin */
    static const struct arrays fine = {
        "fine", "token_embd.weight is missing", {4, 2, 2, 6}, {1, 2, 1, 3}, ALL(8), 4, 4, 4, 8};
    refuse("llama", &fine);
}

/* Arrays of other kinds than integers. */
static void test_kinds(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {GGUF_F32, GGUF_BOOL, GGUF_U8};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct buf b = {0};
        put_header(&b, 3, 0, 6);
        put_key(&b, "general.architecture", GGUF_STRING);
        put_str(&b, "llama");
        put_kv_u32(&b, "llama.block_count", N_LAYERS);
        put_kv_u32(&b, "llama.context_length", 64);
        put_kv_u32(&b, "llama.embedding_length", 16);
        put_kv_u32(&b, "llama.feed_forward_length", 16);
        put_array(&b, "llama.attention.head_count", kinds[i], N_LAYERS);
        for (int j = 0; j < N_LAYERS; j++) {
            if (kinds[i] == GGUF_F32)
                put_u32(&b, 0x40000000);
            else
                buf_char(&b, 1);
        }
        put_padding(&b, 32);
        struct gguf *g;
        struct model *m;
        struct err_info e;
        assert_int_equal(gguf_open_memory(b.data, b.len, &g, &e), OK);
        assert_int_equal(model_from_gguf(g, "kinds", &m, &e), ERR_FORMAT);
        const char *want = kinds[i] == GGUF_U8 ? "token_embd.weight" : "must hold integers";
        if (!strstr(e.text, want))
            fail_msg("kind %u: %s", kinds[i], e.text);
        buf_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_borrowing),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
