/* Plans: golden models load and have the ops their architecture says. */
#include "golden_models.h"

#include <math.h>
#include <string.h>

static uint32_t count_ops(const struct model *m, enum op_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_ops; i++)
        n += m->ops[i].kind == kind;
    return n;
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

    m = load(ENCODERS "nomic-bert.f32.gguf");
    assert_int_equal(m->hp.n_positions, 0);
    assert_int_equal(count_ops(m, OP_GATED), m->hp.n_layer);
    assert_int_equal(find_op(m, OP_ROPE_STORE, 1)->rope, ROPE_FULL);
    assert_int_equal(model_set_context(m, 1000, &e), OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_rope_factors),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_indexed),
        cmocka_unit_test(test_long_rope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
