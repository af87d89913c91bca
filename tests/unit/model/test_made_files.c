/* Files made here, for what no golden model holds: how they are planned, or refused. */
#include "golden_models.h"

#include "../gguf/file_builder.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static void put_arch_u32(struct buf *b, const char *arch, const char *suffix, uint32_t v)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    put_kv_u32(b, key, v);
}

/* What llama.cpp writes of any model that it saves, where the model has no such thing. */
enum { N_SAVED = 8 };

static void put_saved(struct buf *b, const char *arch)
{
    static const struct {
        const char *suffix;
        float value;
    } floats[] = {{"attn_logit_softcapping", 50},
                  {"final_logit_softcapping", 30},
                  {"rope.scaling.yarn_ext_factor", -1}};
    char key[64];
    put_arch_u32(b, arch, "expert_feed_forward_length", 0);
    put_arch_u32(b, arch, "pooling_type", UINT32_MAX);
    snprintf(key, sizeof key, "%s.expert_weights_norm", arch);
    put_kv(b, key, GGUF_BOOL, "", 1);
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    put_key(b, key, GGUF_STRING);
    put_str(b, "yarn");
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, floats[i].suffix);
        put_kv(b, key, GGUF_F32, &floats[i].value, sizeof floats[i].value);
    }
    snprintf(key, sizeof key, "%s.rope.scaling.factor", arch);
    const float factor = 4;
    put_kv(b, key, GGUF_F32, &factor, sizeof factor);
}

/* One layer whose matrices lie in one where they can, with every bias there may be; it has no
 * experts, though other layers could, and says that it was not trained with rotation, and more. */
static struct model *load_stacked(struct buf *b, const char *arch)
{
    static const struct {
        const char *name;
        uint32_t cols, rows;
    } tensors[] = {{"token_embd.weight", 16, 4},
                   {"output_norm.weight", 16, 1},
                   {"blk.0.attn_norm.weight", 16, 1},
                   {"blk.0.attn_qkv.weight", 16, 48},
                   {"blk.0.attn_qkv.bias", 48, 1},
                   {"blk.0.attn_output.weight", 16, 16},
                   {"blk.0.attn_output.bias", 16, 1},
                   {"blk.0.ffn_norm.weight", 16, 1},
                   {"blk.0.ffn_up.weight", 16, 64},
                   {"blk.0.ffn_up.bias", 64, 1},
                   {"blk.0.ffn_down.weight", 32, 16},
                   {"blk.0.ffn_down.bias", 16, 1}};
    const size_t n = sizeof tensors / sizeof tensors[0];
    size_t at = 0;
    put_header(b, 3, n, 9 + N_SAVED);
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, arch);
    put_arch_u32(b, arch, "block_count", 1);
    put_arch_u32(b, arch, "context_length", 64);
    put_arch_u32(b, arch, "embedding_length", 16);
    put_arch_u32(b, arch, "feed_forward_length", 32);
    put_arch_u32(b, arch, "attention.head_count", 2);
    const bool dense = strcmp(arch, "granite") == 0; /* its row has no experts */
    put_arch_u32(b, arch, "expert_count", dense ? 0 : 2);
    put_arch_u32(b, arch, "expert_used_count", dense ? 0 : 1);
    char key[64];
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", arch);
    put_kv(b, key, GGUF_BOOL, "", 1);
    put_saved(b, arch);
    for (size_t i = 0; i < n; i++) {
        put_tensor(b, tensors[i].name, GGUF_TYPE_F32, tensors[i].cols, tensors[i].rows, at);
        at += (size_t)tensors[i].cols * tensors[i].rows * sizeof(float);
    }
    put_padding(b, 32);
    put_data(b, at);
    struct gguf *g;
    struct model *m;
    struct err_info e;
    if (gguf_open_memory(b->data, b->len, &g, &e) != OK ||
        model_from_gguf(g, "stacked", &m, &e) != OK)
        fail_msg("%s", e.text);
    return m;
}

/* Each linear gets its rows of the matrix and of the bias that it shares with others. */
static void test_stacked(void **state)
{
    (void)state;
    static const struct {
        const char *stem;
        uint32_t n_out, first;
    } want[] = {{"attn_qkv", 16, 0},
                {"attn_qkv", 16, 16},
                {"attn_qkv", 16, 32},
                {"attn_output", 16, 0},
                {"ffn_up", 32, 0},
                {"ffn_up", 32, 32},
                {"ffn_down", 16, 0}};
    struct buf b = {0};
    struct model *m = load_stacked(&b, "llama");
    size_t n = 0;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (op->kind != OP_LINEAR)
            continue;
        char weight[64], bias[64];
        snprintf(weight, sizeof weight, "blk.0.%s.weight", want[n].stem);
        snprintf(bias, sizeof bias, "blk.0.%s.bias", want[n].stem);
        const struct gguf_tensor *w = gguf_find_tensor(m->gguf, weight);
        const size_t row_bytes = w->n_bytes / w->ne[1];
        assert_int_equal(op->n_out, want[n].n_out);
        assert_int_equal(op->w->ne[1], want[n].n_out);
        assert_ptr_equal(op->w->data, w->data + want[n].first * row_bytes);
        assert_int_equal(op->w->n_bytes, want[n].n_out * row_bytes);
        assert_ptr_equal(op->bias->data,
                         gguf_find_tensor(m->gguf, bias)->data + want[n].first * sizeof(float));
        assert_int_equal(op->bias->n_bytes, want[n].n_out * sizeof(float));
        n++;
    }
    assert_int_equal(n, sizeof want / sizeof want[0]);
    model_destroy(m);
    buf_deinit(&b);
}

/* Granite's files switch rotation off by a key that says nothing in others, its experts' among
 * them.
 */
static void test_rope_switch(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        enum rope_table rope;
    } want[] = {{"llama", ROPE_FULL}, {"granite", ROPE_NONE}, {"granitemoe", ROPE_FULL}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct buf b = {0};
        struct model *m = load_stacked(&b, want[i].arch);
        assert_int_equal(find_op(m, OP_ROPE_STORE, 0)->rope, want[i].rope);
        model_destroy(m);
        buf_deinit(&b);
    }
}

/* Keys that llama.cpp gives to all models that it saves change those only that have what they name.
 */
static void test_saved(void **state)
{
    (void)state;
    struct buf b = {0};
    struct model *m = load_stacked(&b, "llama");
    assert_true(m->hp.attention_cap == 0 && m->hp.logit_cap == 0);
    assert_true(m->hp.expert_norm);
    assert_int_equal(m->hp.n_ff_expert, 32);
    assert_int_equal(m->hp.pooling, POOLING_UNSPECIFIED);
    /* YaRN as if nobody had said how much of it: scores grow, and the first pair keeps its speed */
    assert_true(m->ropes[ROPE_FULL].scale > 1.1);
    assert_true(m->ropes[ROPE_FULL].inv_freq[0] > 0.9);
    model_destroy(m);
    buf_deinit(&b);
}

/* Types of blocks that files may hold and Weir does not compute: named, with their tensor. */
static void test_types(void **state)
{
    (void)state;
    uint32_t n_refused = 0;
    for (uint32_t type = 0; type < 64; type++) {
        const struct gguf_type_info *info = gguf_type_info((enum gguf_type)type);
        if (!info || gguf_type_is_computed((enum gguf_type)type))
            continue;
        struct buf b = {0};
        put_header(&b, 3, 1, 6);
        put_key(&b, "general.architecture", GGUF_STRING);
        put_str(&b, "llama");
        put_arch_u32(&b, "llama", "block_count", 1);
        put_arch_u32(&b, "llama", "context_length", 64);
        put_arch_u32(&b, "llama", "embedding_length", 256);
        put_arch_u32(&b, "llama", "feed_forward_length", 256);
        put_arch_u32(&b, "llama", "attention.head_count", 8);
        put_tensor(&b, "token_embd.weight", type, 256, 4, 0);
        put_padding(&b, 32);
        put_data(&b, 256 / info->block_values * info->block_bytes * 4);
        struct gguf *g;
        struct model *m;
        struct err_info e;
        assert_int_equal(gguf_open_memory(b.data, b.len, &g, &e), OK);
        assert_int_equal(model_from_gguf(g, "types", &m, &e), ERR_UNSUPPORTED);
        char want[96];
        snprintf(want,
                 sizeof want,
                 "tensor token_embd.weight has type %s, which is not supported",
                 gguf_type_name(type));
        assert_string_equal(e.text, want);
        n_refused++;
        buf_deinit(&b);
    }
    assert_int_equal(n_refused, 7); /* Q8_1, Q8_K, integers and F64 */
}

/* A model of one layer, with a vocabulary of n tokens; the file is in b. */
static struct model *chameleon_of(uint32_t n, struct buf *b)
{
    static const char *const vectors[] = {"output_norm.weight",
                                          "blk.0.attn_norm.weight",
                                          "blk.0.ffn_norm.weight",
                                          "blk.0.attn_q_norm.weight",
                                          "blk.0.attn_k_norm.weight"};
    static const char *const matrices[] = {"blk.0.attn_q.weight",
                                           "blk.0.attn_k.weight",
                                           "blk.0.attn_v.weight",
                                           "blk.0.attn_output.weight",
                                           "blk.0.ffn_gate.weight",
                                           "blk.0.ffn_up.weight",
                                           "blk.0.ffn_down.weight"};
    uint64_t at = (uint64_t)n * 32;
    put_header(b, 3, 13, 6);
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, "chameleon");
    put_arch_u32(b, "chameleon", "block_count", 1);
    put_arch_u32(b, "chameleon", "context_length", 64);
    put_arch_u32(b, "chameleon", "embedding_length", 8);
    put_arch_u32(b, "chameleon", "feed_forward_length", 8);
    put_arch_u32(b, "chameleon", "attention.head_count", 1);
    put_tensor(b, "token_embd.weight", GGUF_TYPE_F32, 8, n, 0);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++, at += 32)
        put_tensor(b, vectors[i], GGUF_TYPE_F32, 8, 1, at);
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++, at += 256)
        put_tensor(b, matrices[i], GGUF_TYPE_F32, 8, 8, at);
    put_padding(b, 32);
    put_data(b, (size_t)at);
    struct gguf *g;
    struct model *m = NULL;
    struct err_info e;
    assert_int_equal(gguf_open_memory(b->data, b->len, &g, &e), OK);
    if (model_from_gguf(g, "chameleon", &m, &e))
        fail_msg("%s", e.text);
    return m;
}

/* Tokens of pictures are below all others, where the vocabulary has them. */
static void test_unsaid(void **state)
{
    (void)state;
    for (uint32_t n = 8195; n < 8199; n++) {
        struct buf b = {0};
        struct model *m = chameleon_of(n, &b);
        const struct op *op = m->ops;
        while (op->kind != OP_LOGITS)
            op++;
        assert_int_equal(op->bias != NULL, n >= 8196);
        for (uint32_t i = 0; op->bias && i < n; i++) {
            float v;
            memcpy(&v, op->bias->data + i * sizeof v, sizeof v);
            assert_true(v == (i >= 4 && i < 8196 ? -FLT_MAX : 0.0f));
        }
        model_destroy(m);
        buf_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stacked),
        cmocka_unit_test(test_rope_switch),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_unsaid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
