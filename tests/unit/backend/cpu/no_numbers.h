/* Models of which one tensor after the other is made NaN, for tests that look for a number behind
 * it on a backend. Needs cmocka.h first. */
#ifndef WEIR_TESTS_CPU_NO_NUMBERS_H
#define WEIR_TESTS_CPU_NO_NUMBERS_H

#include "base/mem.h"
#include "few.h"
#include "gguf/gguf.h"
#include "unit/backend/cpu/drive.h"

#include <fnmatch.h>

/* Tensors that nothing is computed from: of layers that use another's keys and values, of
 * predictions further ahead, of an index that has all positions to pick, for texts of another
 * length, for pictures, of what a first layer would recall. */
static const char *const unused[] = {"families/gemma3n.f32:blk.[23].attn_[kv]*",
                                     "families/glm4moe.f32:blk.*.nextn.*",
                                     "families/deepseek32.f32:blk.*.nextn.*",
                                     "families/*:blk.*.indexer.*",
                                     "families/step35.f32:blk.*.nextn.*",
                                     "families/mimo2.f32:blk.*.nextn.*",
                                     "recurrent/bailingmoe3.f32:blk.*.nextn.*",
                                     "recurrent/rwkv7*:blk.0.time_mix_v[012].*",
                                     "recurrent/arwkv7*:blk.0.time_mix_v[012].*",
                                     "recurrent/kimi-k3*:blk.0.attn_res_score.weight",
                                     "families/cogvlm.f32:blk.*.vis_*",
                                     "*:rope_factors_*"};

static inline bool is_unused(const char *model, const struct gguf_str *tensor)
{
    char name[512];
    snprintf(name, sizeof name, "%s:%.*s", model, (int)tensor->len, tensor->data);
    for (size_t i = 0; i < COUNT(unused); i++) {
        if (fnmatch(unused[i], name, 0) == 0)
            return true;
    }
    return false;
}

/* A small model's file in memory. */
struct copy {
    struct gguf *gguf;
    uint8_t *bytes;
    size_t n_bytes;
    uint8_t *first;            /* where the data of the first tensor is in bytes, */
    const uint8_t *first_data; /* and in the file as it is mapped */
};

static inline struct copy read_copy(const char *path)
{
    struct copy c = {0};
    struct err_info e;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(gguf_open(path, &c.gguf, &e), OK);
    fseek(f, 0, SEEK_END);
    c.n_bytes = (size_t)ftell(f);
    rewind(f);
    c.bytes = mem_alloc(c.n_bytes);
    assert_int_equal(fread(c.bytes, 1, c.n_bytes, f), c.n_bytes);
    fclose(f);
    const struct gguf_tensor *first = gguf_tensor_at(c.gguf, 0);
    for (uint64_t i = 1; i < gguf_n_tensors(c.gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(c.gguf, i);
        first = t->data < first->data ? t : first;
    }
    c.first_data = first->data;
    c.first = memmem(c.bytes, c.n_bytes, first->data, first->n_bytes);
    assert_non_null(c.first);
    return c;
}

/* All bits set are NaN as f32, f16 and bf16, and so as the scales of blocks; MXFP4's are infinite.
 */
static inline void write_with_nan(const struct copy *c,
                                  const struct gguf_tensor *t,
                                  const char *path)
{
    uint8_t *at = c->first + (t->data - c->first_data), *was = mem_alloc(t->n_bytes);
    memcpy(was, at, t->n_bytes);
    memset(at, 0xff, t->n_bytes);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(c->bytes, 1, c->n_bytes, f), c->n_bytes);
    assert_int_equal(fclose(f), 0);
    memcpy(at, was, t->n_bytes);
    free(was);
}

/* Logits behind the golden prompt that are numbers. */
typedef uint32_t (*count_numbers_fn)(const struct model *m, uint32_t round);

/* path: of a file for the copies. */
static inline void no_logit_is_a_number(const char *name,
                                        const char *path,
                                        uint32_t *round,
                                        count_numbers_fn count_numbers)
{
    static size_t n_seen;
    char whole[512];
    struct model *m;
    struct err_info e;
    snprintf(whole, sizeof whole, "%s/golden/%s.gguf", TEST_DATA, name);
    load_prompt(name);
    struct copy c = read_copy(whole);
    for (uint64_t i = 0; i < gguf_n_tensors(c.gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(c.gguf, i);
        if (is_unused(name, &t->name) || few_leave_out(n_seen++, 11))
            continue;
        write_with_nan(&c, t, path);
        if (model_load(path, &m, &e) != OK) {
            assert_non_null(strstr(e.text, "tensor ")); /* looked at when it is loaded */
            continue;
        }
        const uint32_t n = count_numbers(m, (*round)++);
        if (n > 0)
            fail_msg("%s, %.*s: %u numbers", name, (int)t->name.len, t->name.data, n);
        model_destroy(m);
    }
    gguf_close(c.gguf);
    free(c.bytes);
}

#endif
