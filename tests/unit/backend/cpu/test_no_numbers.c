/* What is no number stays none on its whole way: of each small model, a tensor at a time is made
 * NaN, and no logit is a number then, whatever the instruction set, the KV type and the division
 * into steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gguf/gguf.h"
#include "unit/backend/cpu/drive.h"
#include "unit/backend/cpu/isas.h"

#include <fnmatch.h>
#include <glob.h>
#include <math.h>
#include <unistd.h>

/* Tensors that nothing is computed from: of layers that use another's keys and values, of
 * predictions further ahead, for texts of another length. */
static const char *const unused[] = {"families/gemma3n.f32:blk.[23].attn_[kv]*",
                                     "families/glm4moe.f32:blk.*.nextn.*",
                                     "*:rope_factors_*"};

static bool is_unused(const char *model, const struct gguf_str *tensor)
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

static struct copy read_copy(const char *path)
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
static void write_with_nan(const struct copy *c, const struct gguf_tensor *t, const char *path)
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

/* The logits behind the prompt that are numbers; the last position is one of many rows, or a row by
 * itself. */
static uint32_t count_numbers(const struct model *m, uint32_t round)
{
    const uint32_t apart = round % 2;
    const int32_t *tokens = golden_prompt;
    struct drive d;
    drive_open(&d, m, isas[round % COUNT(isas)], (enum kv_type)(round / 2 % 4), 2, 16, 0);
    float *out = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof *out);
    const float *last = out + (size_t)(N_PROMPT - 1) * d.n_vocab;
    uint32_t n = 0;
    drive_run(&d, &(struct part){0, 0, N_PROMPT - apart}, 1, &tokens, &out);
    if (apart)
        drive_run(&d, &(struct part){0, N_PROMPT - 1, 1}, 1, &tokens, &out);
    for (uint32_t i = 0; i < d.n_vocab; i++)
        n += isfinite(last[i]) != 0;
    free(out);
    drive_close(&d);
    return n;
}

static void no_logit_is_a_number(const char *name, const char *path, uint32_t *round)
{
    char whole[512];
    struct model *m;
    struct err_info e;
    snprintf(whole, sizeof whole, "%s/golden/%s.gguf", TEST_DATA, name);
    load_prompt(name);
    struct copy c = read_copy(whole);
    for (uint64_t i = 0; i < gguf_n_tensors(c.gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(c.gguf, i);
        if (is_unused(name, &t->name))
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

static void nan_of_any_tensor_arrives(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "architectures", "families", "variants", "recurrent", "quantised", "grids"};
    char path[] = "/tmp/weir-test-XXXXXX";
    const int fd = mkstemp(path);
    uint32_t round = (uint32_t)(rnd() % 1000), n_models = 0;
    assert_true(fd >= 0);
    for (size_t i = 0; i < COUNT(folders); i++) {
        char pattern[512];
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/golden/%s/*.gguf", TEST_DATA, folders[i]);
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
        for (size_t k = 0; k < found.gl_pathc; k++) {
            char name[256];
            const char *file = strrchr(found.gl_pathv[k], '/') + 1;
            if (strstr(file, "nvfp4")) /* has scales without NaN */
                continue;
            snprintf(name, sizeof name, "%s/%.*s", folders[i], (int)strlen(file) - 5, file);
            no_logit_is_a_number(name, path, &round);
            n_models++;
        }
        globfree(&found);
    }
    close(fd);
    unlink(path);
    assert_true(n_models > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_of_any_tensor_arrives),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
