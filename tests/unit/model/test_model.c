/* Plans: golden models load and have the ops their architecture says; broken ones say what is
 * wrong. */
#include "model/model.h"

#include "../gguf/file_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARCHS TEST_DATA "/golden/architectures/"
#define VARIANTS TEST_DATA "/golden/variants/"
#define FAMILIES TEST_DATA "/golden/families/"
#define RECURRENT TEST_DATA "/golden/recurrent/"

static uint32_t count_ops(const struct model *m, enum op_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_ops; i++)
        n += m->ops[i].kind == kind;
    return n;
}

static struct model *load(const char *path)
{
    struct model *m;
    struct err_info e;
    if (model_load(path, &m, &e) != OK)
        fail_msg("%s: %s", path, e.text);
    return m;
}

static void test_plans(void **state)
{
    (void)state;
    struct model *m = load(ARCHS "qwen3.f32.gguf");
    assert_string_equal(m->arch, "qwen3");
    assert_int_equal(m->rope, ROPE_HALVES);
    assert_int_equal(m->hp.head_dim, 32);
    assert_int_equal(m->buf_width[BUF_Q], m->hp.n_head * 32);
    assert_int_equal(count_ops(m, OP_HEAD_NORM), 2 * m->hp.n_layer);
    assert_int_equal(count_ops(m, OP_LINEAR), 7 * m->hp.n_layer);
    assert_int_equal(m->ops[0].kind, OP_EMBED);
    assert_int_equal(m->ops[m->n_ops - 2].kind, OP_LOGITS);
    assert_int_equal(m->ops[m->n_ops - 1].kind, OP_HIDDEN);
    model_destroy(m);

    m = load(ARCHS "qwen2.f32.gguf");
    uint32_t n_bias = 0;
    for (uint32_t i = 0; i < m->n_ops; i++)
        n_bias += m->ops[i].bias != NULL;
    assert_int_equal(n_bias, 3 * m->hp.n_layer);
    model_destroy(m);
}

/* The llama3 file has a table of factors: frequencies are divided by them. */
static void test_rope_factors(void **state)
{
    (void)state;
    struct model *m = load(ARCHS "llama3.f32.gguf");
    const struct gguf_tensor *t = gguf_find_tensor(m->gguf, "rope_freqs.weight");
    assert_non_null(t);
    for (uint32_t i = 0; i < m->hp.rope_dims / 2; i++) {
        float f;
        memcpy(&f, t->data + i * sizeof f, sizeof f);
        double want = pow(m->hp.rope_freq_base, -2.0 * i / m->hp.rope_dims) / f;
        assert_true(fabs(m->ropes[ROPE_FULL].inv_freq[i] - want) < 1e-12);
    }
    model_destroy(m);
}

static const struct op *find_op(const struct model *m, enum op_kind kind, uint32_t layer)
{
    for (uint32_t i = 0; i < m->n_ops; i++) {
        if (m->ops[i].kind == kind && m->ops[i].layer == layer)
            return &m->ops[i];
    }
    fail_msg("no op of kind %d in layer %u", (int)kind, layer);
    return NULL;
}

/* Which layers see only a window, and which angles they rotate by. */
static void test_windows(void **state)
{
    (void)state;
    struct model *m = load(ARCHS "gemma3.f32.gguf");
    assert_int_equal(m->hp.n_layer, 7);
    for (uint32_t l = 0; l < 7; l++) { /* five of six */
        assert_int_equal(find_op(m, OP_ATTENTION, l)->window, l == 5 ? 0 : 32);
        assert_int_equal(find_op(m, OP_ROPE_STORE, l)->rope, l == 5 ? ROPE_FULL : ROPE_WINDOW);
    }
    assert_true(fabs(m->ropes[ROPE_FULL].inv_freq[1] - pow(1e6, -2.0 / 32)) < 1e-12);
    assert_true(fabs(m->ropes[ROPE_WINDOW].inv_freq[1] - pow(1e4, -2.0 / 32)) < 1e-12);
    assert_true(fabsf(m->ops[0].scale - 8.0f) < 1e-6f); /* the root of 64 */
    model_destroy(m);

    m = load(VARIANTS "gemma2.f32.gguf");
    for (uint32_t l = 0; l < 4; l++) {
        assert_int_equal(find_op(m, OP_ATTENTION, l)->window, l % 2 ? 0 : 24);
        assert_true(find_op(m, OP_ATTENTION, l)->cap == 5.0f);
        assert_int_equal(find_op(m, OP_ROPE_STORE, l)->rope, ROPE_FULL);
    }
    assert_true(m->ops[m->n_ops - 2].cap == 4.0f);
    model_destroy(m);

    m = load(VARIANTS "smollm3.f32.gguf");
    for (uint32_t l = 0; l < 4; l++)
        assert_int_equal(find_op(m, OP_ROPE_STORE, l)->rope, l == 3 ? ROPE_NONE : ROPE_FULL);
    model_destroy(m);
}

static void test_experts(void **state)
{
    (void)state;
    struct model *m = load(VARIANTS "qwen2moe.f32.gguf");
    assert_int_equal(m->hp.n_expert, 8);
    assert_int_equal(m->hp.n_expert_used, 3);
    assert_int_equal(m->hp.n_ff_expert, 24);
    assert_int_equal(m->hp.n_ff_shared, 40);
    assert_false(m->hp.expert_norm);
    assert_int_equal(m->buf_width[BUF_EXPERT_GATE], 3 * 24);
    assert_int_equal(m->buf_width[BUF_EXPERT_OUT], 3 * m->hp.n_embd);
    assert_int_equal(count_ops(m, OP_EXPERTS), 3 * m->hp.n_layer);
    assert_int_equal(count_ops(m, OP_ADD_GATED), m->hp.n_layer);
    model_destroy(m);

    m = load(VARIANTS "mixtral.f32.gguf");
    assert_true(m->hp.expert_norm);
    assert_int_equal(m->hp.n_ff_expert, 40);
    model_destroy(m);

    /* of each layer as many and as long as its values say */
    m = load(RECURRENT "nemotron_h_moe-puzzle.f32.gguf");
    static const uint32_t widths[][3] = {{1, 3, 24}, {3, 1, 16}, {4, 2, 40}};
    assert_int_equal(m->hp.n_expert_used, 3);
    assert_int_equal(m->hp.n_ff_expert, 40);
    for (size_t i = 0; i < 3; i++) {
        const uint32_t layer = widths[i][0];
        assert_int_equal(find_op(m, OP_SELECT, layer)->n_head, widths[i][1]);
        assert_int_equal(find_op(m, OP_EXPERTS, layer)->n_head, widths[i][1]);
        assert_int_equal(find_op(m, OP_EXPERTS, layer)->n_out, widths[i][2]);
        assert_int_equal(find_op(m, OP_MIX, layer)->n_head, widths[i][1]);
    }
    model_destroy(m);

    /* gate and up of each expert are one tensor, of which each op has its rows */
    m = load(FAMILIES "mistral4.f32.gguf");
    size_t all = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(m->gguf); i++)
        all += gguf_tensor_at(m->gguf, i)->n_bytes;
    assert_int_equal(m->weight_bytes, all);
    const struct op *gate = find_op(m, OP_EXPERTS, 0);
    assert_ptr_equal(gate[0].w, gate[1].w);
    assert_int_equal(gate[0].first_row, 0);
    assert_int_equal(gate[1].first_row, m->hp.n_ff_expert);
    model_destroy(m);
}

/* Positions of which an index would pick fewer are refused. */
static void test_indexed(void **state)
{
    (void)state;
    struct err_info e = {0};
    struct model *m = load(FAMILIES "glm-dsa.f32.gguf");
    assert_true(m->hp.indexed);
    assert_int_equal(m->hp.n_positions, 96);
    assert_int_equal(model_set_context(m, 96, &e), OK);
    assert_int_equal(model_set_context(m, 97, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "sparse attention is not supported, takes up to 96 positions"));
    model_destroy(m);
    m = load(FAMILIES "minimax-m3.f32.gguf"); /* 16 blocks of 32 */
    assert_true(m->hp.indexed);
    assert_int_equal(m->hp.n_positions, 512);
    model_destroy(m);
    m = load(FAMILIES "deepseek2-v3.f32.gguf");
    assert_false(m->hp.indexed);
    assert_int_equal(m->hp.n_positions, 0);
    model_destroy(m);
}

/* Two tables of factors: the context that the model is used for decides. */
static void test_long_rope(void **state)
{
    (void)state;
    struct model *m = load(VARIANTS "phi3-long.f32.gguf");
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    static const uint32_t contexts[][2] = {{32, 0}, {33, 1}, {0, 1}, {2, 0}};
    for (size_t c = 0; c < sizeof contexts / sizeof contexts[0]; c++) {
        const struct gguf_tensor *t = gguf_find_tensor(m->gguf, names[contexts[c][1]]);
        assert_non_null(t);
        assert_int_equal(model_set_context(m, contexts[c][0], NULL), OK);
        for (uint32_t i = 0; i < m->hp.rope_dims / 2; i++) {
            float f;
            memcpy(&f, t->data + i * sizeof f, sizeof f);
            const double want = pow(10000, -2.0 * i / m->hp.rope_dims) / f;
            assert_true(fabs(m->ropes[ROPE_FULL].inv_freq[i] - want) < 1e-12);
        }
        assert_true(fabs(m->ropes[ROPE_FULL].scale - 1.19) < 1e-6);
    }
    model_destroy(m);
}

/* A copy of the file in memory with one occurrence of `from` overwritten by `to`. */
static enum err load_patched(
    const char *path, const char *from, const char *to, size_t n, struct err_info *e)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(size);
    assert_int_equal(fread(data, 1, size, f), size);
    fclose(f);
    char *at = memmem(data, size, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, n);
    struct gguf *g;
    struct model *m = NULL;
    enum err err = gguf_open_memory(data, size, &g, e);
    if (!err)
        err = model_from_gguf(g, "patched", &m, e);
    model_destroy(m);
    free(data);
    return err;
}

/* Encoders: what the rows say, and what is wrong with broken ones. */
#define BERT TEST_DATA "/golden/encoders/bert.f32.gguf"
#define BERT_RANK TEST_DATA "/golden/encoders/bert-rank.f32.gguf"

static void test_encoders(void **state)
{
    (void)state;
    struct err_info e = {0};
    struct model *m = load(BERT);
    assert_false(m->generates);
    assert_false(m->hp.causal);
    assert_int_equal(m->hp.pooling, POOLING_CLS);
    assert_int_equal(m->hp.n_positions, 96);
    assert_int_equal(m->hp.n_labels, 0);
    assert_int_equal(count_ops(m, OP_LAYER_NORM), 1 + 2 * m->hp.n_layer);
    assert_int_equal(count_ops(m, OP_UNARY), m->hp.n_layer);
    assert_int_equal(count_ops(m, OP_LOGITS), 0);
    assert_int_equal(find_op(m, OP_ROPE_STORE, 1)->rope, ROPE_NONE);
    assert_int_equal(model_set_context(m, 96, &e), OK);
    assert_int_equal(model_set_context(m, 97, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "97"));
    assert_int_equal(model_must_generate(m, &e), ERR_INVALID);
    model_destroy(m);

    m = load(BERT_RANK);
    assert_int_equal(m->hp.n_labels, 1);
    assert_int_equal(m->buf_width[BUF_SCORES], 1);
    assert_int_equal(count_ops(m, OP_TANH), 1);
    model_destroy(m);

    m = load(TEST_DATA "/golden/encoders/nomic-bert.f32.gguf");
    assert_int_equal(m->hp.n_positions, 0);
    assert_int_equal(count_ops(m, OP_GATED), m->hp.n_layer);
    assert_int_equal(find_op(m, OP_ROPE_STORE, 1)->rope, ROPE_FULL);
    assert_int_equal(model_set_context(m, 1000, &e), OK);
    model_destroy(m);

    assert_int_equal(load_patched(BERT, "position_embd", "position_embx", 13, &e), ERR_FORMAT);
    assert_int_equal(load_patched(BERT, "token_types", "token_typex", 11, &e), ERR_UNSUPPORTED);
    assert_int_equal(load_patched(BERT, "token_embd_norm.b", "token_embd_norm.x", 17, &e),
                     ERR_FORMAT);
    assert_int_equal(
        load_patched(BERT, "blk.1.layer_output_norm.b", "blk.1.layer_output_norm.c", 25, &e),
        ERR_FORMAT);
    assert_int_equal(load_patched(BERT_RANK, "cls.output.w", "cls.output.x", 12, &e),
                     ERR_UNSUPPORTED);
}

/* The file with the 4 bytes of key's value (an integer or a float) replaced; the key's name stands
 * before its kind and its value. */
static enum err load_with(const char *path, const char *key, const void *value, struct err_info *e)
{
    char text[128];
    const size_t n = strlen(key);
    FILE *f = fopen(path, "rb");
    char head[8192];
    assert_non_null(f);
    assert_true(fread(head, 1, sizeof head, f) > n);
    fclose(f);
    const char *at = memmem(head, sizeof head, key, n);
    assert_non_null(at);
    memcpy(text, at, n + 4);
    memcpy(text + n + 4, value, 4);
    return load_patched(path, key, text, n + 8, e);
}

/* What is absurd is refused by the name of its key. */
static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *file, *key;
        uint32_t value;
    } integers[] = {
        {VARIANTS "mixtral.f32.gguf", "llama.expert_count", 0xffffffff},
        {VARIANTS "mixtral.f32.gguf", "llama.expert_used_count", 5},
        {VARIANTS "mixtral.f32.gguf", "llama.expert_used_count", 0},
        {VARIANTS "gpt-oss.f32.gguf", "gpt-oss.expert_count", 0},
        {VARIANTS "gpt-oss.f32.gguf", "gpt-oss.expert_feed_forward_length", 1u << 31},
        {VARIANTS "gpt-oss.f32.gguf", "gpt-oss.attention.value_length", 24},
        {VARIANTS "qwen2moe.f32.gguf", "qwen2moe.expert_shared_feed_forward_length", 1u << 30},
        {VARIANTS "phi3-long.f32.gguf", "phi3.rope.dimension_count", 11},
        {VARIANTS "phi3-long.f32.gguf", "phi3.rope.scaling.original_context_length", 0},
        {FAMILIES "deepseek.f32.gguf", "deepseek.expert_shared_count", 1025},
        {FAMILIES "deepseek.f32.gguf", "deepseek.expert_shared_count", 1u << 31},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.kv_lora_rank", 0},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.kv_lora_rank", 1u << 16},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.q_lora_rank", UINT32_MAX},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.key_length_mla", 8},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.value_length_mla", 0},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.rope.dimension_count", 7},
        {FAMILIES "deepseek2-lite.f32.gguf", "deepseek2.attention.key_length", 8},
        {FAMILIES "deepseek2-lite.f32.gguf", "deepseek2.attention.value_length", 1u << 31},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_count", 5},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_count", 13},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_used_count", 0},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_used_count", 5},
        {FAMILIES "bailingmoe2.f32.gguf", "bailingmoe2.expert_group_count", UINT32_MAX},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_gating_func", 3}, /* and a bias */
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_gating_func", 4},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.temperature_length", 0},
        {FAMILIES "glm4moe.f32.gguf", "glm4moe.nextn_predict_layers", 3},
        {FAMILIES "glm4moe.f32.gguf", "glm4moe.nextn_predict_layers", UINT32_MAX},
        {FAMILIES "minimax-m3.f32.gguf", "minimax-m3.attention.indexer.top_k", 0},
        {FAMILIES "minimax-m3.f32.gguf", "minimax-m3.attention.indexer.block_size", 0},
        {FAMILIES "minimax-m3.f32.gguf", "minimax-m3.attention.indexer.block_size", UINT32_MAX},
        {FAMILIES "arcee.f32.gguf", "arcee.attention.head_count", 0},
        {FAMILIES "nanbeige.f32.gguf", "nanbeige.num_loops", 0},
        {FAMILIES "nanbeige.f32.gguf", "nanbeige.num_loops", 513}, /* of 2 layers */
        {FAMILIES "nanbeige.f32.gguf", "nanbeige.num_loops", UINT32_MAX},
    };
    static const struct {
        const char *file, *key;
        float value;
    } floats[] = {
        {VARIANTS "gemma2.f32.gguf", "gemma2.attn_logit_softcapping", -3.0f},
        {VARIANTS "gemma2.f32.gguf", "gemma2.final_logit_softcapping", NAN},
        {VARIANTS "llama-yarn.f32.gguf", "llama.rope.scaling.factor", -1.0f},
        {VARIANTS "llama-linear.f32.gguf", "llama.rope.scaling.factor", INFINITY},
        {VARIANTS "phi3-long.f32.gguf", "phi3.rope.scaling.attn_factor", 0.0f},
        {VARIANTS "granitemoe.f32.gguf", "granitemoe.residual_scale", INFINITY},
        {VARIANTS "granitemoe.f32.gguf", "granitemoe.logit_scale", 1e-40f}, /* divides */
        {FAMILIES "minicpm.f32.gguf", "minicpm.embedding_scale", NAN},
        {FAMILIES "mistral3.f32.gguf", "mistral3.attention.temperature_scale", NAN},
        {FAMILIES "mistral3.f32.gguf", "mistral3.attention.temperature_scale", -1.0f},
        {FAMILIES "mistral3.f32.gguf", "mistral3.rope.scaling.yarn_log_multiplier", -1.0f},
        {FAMILIES "deepseek2-lite.f32.gguf",
         "deepseek2.rope.scaling.yarn_log_multiplier",
         INFINITY},
        {FAMILIES "command-r.f32.gguf", "command-r.logit_scale", -INFINITY},
        {FAMILIES "gpt2.f32.gguf", "gpt2.attention.layer_norm_epsilon", 2.0f},
        {FAMILIES "phimoe.f32.gguf", "phimoe.attention.layer_norm_rms_epsilon", NAN},
        {FAMILIES "hunyuan_vl.f32.gguf", "hunyuan_vl.rope.scaling.alpha", -1.0f},
        {FAMILIES "hunyuan_vl.f32.gguf", "hunyuan_vl.rope.scaling.alpha", NAN},
        {FAMILIES "hunyuan_vl.f32.gguf",
         "hunyuan_vl.rope.scaling.alpha",
         1e-20f}, /* base below 1 */
        {FAMILIES "muse-glimmer.f32.gguf", "muse-glimmer.logit_scale", INFINITY},
        {FAMILIES "talkie.f32.gguf", "talkie.logit_scale", NAN},
        {FAMILIES "grok-2.f32.gguf", "grok.attention.output_scale", NAN},
        {FAMILIES "grok-2.f32.gguf", "grok.embedding_scale", INFINITY},
        {FAMILIES "grok-2.f32.gguf", "grok.logit_scale", NAN},
        {FAMILIES "grok-2.f32.gguf", "grok.attn_logit_softcapping", -1.0f},
        {FAMILIES "grok-2.f32.gguf", "grok.final_logit_softcapping", INFINITY},
        {RECURRENT "bailingmoe3.f32.gguf", "bailingmoe3.kda.gate_lower_bound", 0.0f},
        {RECURRENT "bailingmoe3.f32.gguf", "bailingmoe3.kda.gate_lower_bound", 1.0f},
        {RECURRENT "bailingmoe3.f32.gguf", "bailingmoe3.kda.gate_lower_bound", NAN},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.kda.gate_lower_bound", 1.0f},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.kda.gate_lower_bound", NAN},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.activation.situ_beta", 0.0f},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.activation.situ_beta", INFINITY},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.activation.situ_linear_beta", NAN},
        {RECURRENT "minimax-01.f32.gguf", "minimax-01.residual_scale", 0.0f},
        {RECURRENT "minimax-01.f32.gguf", "minimax-01.residual_scale", INFINITY},
        {RECURRENT "minimax-01.f32.gguf", "minimax-01.residual_scale", NAN},
    };
    struct err_info e;
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        if (load_with(integers[i].file, integers[i].key, &integers[i].value, &e) == OK)
            fail_msg("%s = %u was taken", integers[i].key, integers[i].value);
        if (!strstr(e.text, strchr(integers[i].key, '.') + 1))
            fail_msg("%s = %u: '%s'", integers[i].key, integers[i].value, e.text);
    }
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        if (load_with(floats[i].file, floats[i].key, &floats[i].value, &e) == OK)
            fail_msg("%s = %g was taken", floats[i].key, (double)floats[i].value);
        if (!strstr(e.text, strchr(floats[i].key, '.') + 1))
            fail_msg("%s = %g: '%s'", floats[i].key, (double)floats[i].value, e.text);
    }
    const uint32_t bytes = GGUF_U8; /* of an array: what its elements are, else bools */
    assert_int_equal(load_with(FAMILIES "exaone4-windows.f32.gguf",
                               "exaone4.attention.sliding_window_pattern",
                               &bytes,
                               &e),
                     OK);
    const uint32_t window = 0; /* none: fine */
    assert_int_equal(
        load_with(VARIANTS "mistral.f32.gguf", "llama.attention.sliding_window", &window, &e), OK);
}

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
    put_arch_u32(b, arch, "expert_count", 2);
    put_arch_u32(b, arch, "expert_used_count", 1);
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

/* Granite's files switch rotation off by a key that says nothing in others. */
static void test_rope_switch(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        enum rope_table rope;
    } want[] = {{"llama", ROPE_FULL}, {"granitemoe", ROPE_NONE}};
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

/* Keys that files may go without, and what stands in for them: half of feed_forward_length for each
 * of two experts, and the context, in which a temperature begins to rise. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *path, *from, *to;
    } cases[] = {
        {RECURRENT "qwen35moe.f32.gguf",
         "qwen35moe.expert_feed_forward_length",
         "qwen35moe.expert_feed_forward_xxxxxx"},
        {FAMILIES "mistral3.f32.gguf",
         "mistral3.rope.scaling.original_context_length",
         "mistral3.rope.scaling.original_context_xxxxxx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err_info e = {0};
        const enum err err =
            load_patched(cases[i].path, cases[i].from, cases[i].to, strlen(cases[i].to), &e);
        if (err)
            fail_msg("%s: %s", cases[i].path, e.text);
    }
}

/* What only some layers of an architecture may have, or all must. */
static void test_second_norms(void **state)
{
    (void)state;
    static const struct {
        const char *file, *from, *to;
        enum err err;
        const char *words;
    } cases[] = {
        {"gptneox", "blk.1.ffn_norm.w", "blk.1.ffn_xxxx.w", ERR_FORMAT, "ffn_norm.weight is miss"},
        {"gptneox", "blk.1.ffn_norm.b", "blk.1.ffn_xxxx.b", ERR_FORMAT, "ffn_norm.bias is miss"},
        {"falcon-large", "blk.0.attn_norm_2.w", "blk.0.attn_norm_3.w", ERR_UNSUPPORTED, "norm_3"},
        {"falcon", "blk.0.attn_norm.w", "blk.0.attn_norn.w", ERR_FORMAT, "attn_norm.weight is"},
        {"stablelm", "blk.0.ffn_norm.w", "blk.0.ffn_morm.w", ERR_UNSUPPORTED, "no place"},
        {"smallthinker",
         "blk.1.ffn_gate_inp.w",
         "blk.1.ffn_gate_imp.w",
         ERR_FORMAT,
         "blk.1.ffn_gate.weight is missing"},
        {"phi2", "output.bias", "output.bia2", ERR_FORMAT, "output.bias is missing"},
        {"openelm", "blk.2.attn_qkv.w", "blk.2.attn_xkv.w", ERR_FORMAT, "blk.2.attn_q.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        struct err_info e;
        snprintf(path, sizeof path, FAMILIES "%s.f32.gguf", cases[i].file);
        enum err err = load_patched(path, cases[i].from, cases[i].to, strlen(cases[i].to), &e);
        if (err != cases[i].err || !strstr(e.text, cases[i].words))
            fail_msg("%s, %s: %d: %s", cases[i].file, cases[i].from, err, e.text);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct err_info e;
    const char *path = ARCHS "llama3.f32.gguf";
    assert_int_equal(load_patched(path, "blk.1.attn_q.weight", "blk.1.attn_x", 12, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "blk.1.attn_q.weight"));
    /* a tensor that nothing uses would silently change the model */
    assert_int_equal(load_patched(path, "rope_freqs", "rope_other", 10, &e), ERR_UNSUPPORTED);
    assert_int_equal(load_patched(path, "llama.block_count", "llama.block_cOunt", 17, &e),
                     ERR_FORMAT);
    assert_non_null(strstr(e.text, "block_count"));
    assert_int_equal(load_patched(path, "llama", "rwkv5", 5, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "rwkv5"));
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

/* Keys of encoders with values that cannot be. */
static void test_encoder_keys(void **state)
{
    (void)state;
    struct err_info e = {0};
    const uint32_t pooling = 5, positions = 97;
    assert_int_equal(load_with(BERT, "bert.pooling_type", &pooling, &e), ERR_FORMAT);
    assert_int_equal(load_with(BERT, "bert.context_length", &positions, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "position_embd"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_rope_factors),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_encoder_keys),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_indexed),
        cmocka_unit_test(test_long_rope),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_stacked),
        cmocka_unit_test(test_rope_switch),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_second_norms),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_unsaid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
