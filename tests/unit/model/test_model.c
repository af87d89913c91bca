/* Plans: golden models load and have the ops their architecture says; broken ones say what is
 * wrong. */
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARCHS TEST_DATA "/golden/architectures/"

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
    assert_int_equal(m->ops[m->n_ops - 1].kind, OP_LOGITS);
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
    assert_int_equal(load_patched(path, "llama", "mamba", 5, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "mamba"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_rope_factors),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
