/* Quantising: never a larger error than that of llama.cpp's quantiser over the same tensors, a
 * value alone as among others, and blocks of zeros, of one value and of extremes; which tensor gets
 * which type; and files written and read back. */
#include "file_builder.h"
#include "gguf/quantize.h"
#include "gguf/recipe.h"
#include "gguf/write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const enum gguf_type types[] = {GGUF_TYPE_F16,
                                       GGUF_TYPE_Q4_0,
                                       GGUF_TYPE_Q5_0,
                                       GGUF_TYPE_Q5_1,
                                       GGUF_TYPE_Q8_0,
                                       GGUF_TYPE_Q4_K,
                                       GGUF_TYPE_Q5_K,
                                       GGUF_TYPE_Q6_K};
static uint64_t random_state;

static int start(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

static float rnd_float(void) /* -1..1 */
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 40) / (1 << 23) - 1);
}

static struct gguf *open_golden(const char *name)
{
    char path[512];
    struct gguf *g;
    struct err_info e = {0};
    snprintf(path, sizeof path, "%s/golden/quantised/llama.%s.gguf", TEST_DATA, name);
    if (gguf_open(path, &g, &e))
        fail_msg("%s", e.text);
    return g;
}

static double squared_error(enum gguf_type type, const void *blocks, const float *x, size_t n)
{
    double sum = 0;
    float *y = malloc(n * sizeof *y);
    gguf_dequantize(type, blocks, y, n);
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    free(y);
    return sum;
}

/* Of a tensor in both files: ours from the floats, and theirs. */
static void check_tensor(const struct gguf_tensor *from, const struct gguf_tensor *theirs)
{
    const size_t n = (size_t)(from->ne[0] * from->ne[1]);
    float *x = malloc(n * sizeof *x);
    uint8_t *ours = malloc(theirs->n_bytes);
    gguf_dequantize(from->type, from->data, x, n);
    gguf_quantize(theirs->type, x, ours, n);
    const double a = squared_error(theirs->type, ours, x, n);
    const double b = squared_error(theirs->type, theirs->data, x, n);
    if (!(a <= b))
        fail_msg("%s: squared error %g, theirs %g", gguf_type_name(theirs->type), a, b);
    free(x);
    free(ours);
}

static void errors_are_no_larger(void **state)
{
    (void)state;
    static const char *const names[] = {"Q4_0", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K"};
    struct gguf *floats = open_golden("F16");
    uint32_t n_checked = 0;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct gguf *theirs = open_golden(names[i]);
        for (uint64_t t = 0; t < gguf_n_tensors(theirs); t++) {
            const struct gguf_tensor *to = gguf_tensor_at(theirs, t);
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)to->name.len, to->name.data);
            if (gguf_quantize_limit(to->type) > 0) {
                check_tensor(gguf_find_tensor(floats, name), to);
                n_checked++;
            }
        }
        gguf_close(theirs);
    }
    assert_true(n_checked > 50);
    gguf_close(floats);
}

/* Blocks of all kinds of values: the same bytes alone as among others, and close to the values. */
static void blocks_stand_alone(void **state)
{
    (void)state;
    enum { N_BLOCKS = 40, N = N_BLOCKS * 256 };
    static float x[N], y[N];
    static uint8_t all[N * 2], one[512];
    for (int i = 0; i < N; i++) {
        const int kind = i / 256 % 8;
        x[i] = rnd_float() * ldexpf(1, i / 256 % 20 - 6);
        x[i] = kind == 1 ? fabsf(x[i]) : kind == 2 ? -fabsf(x[i]) : kind == 3 ? 0 : x[i];
        x[i] = kind == 4 ? 0.75f : kind == 5 ? -0.75f : x[i];
        x[i] = kind == 6 && i % 32 ? 0 : x[i];
    }
    for (size_t t = 0; t < COUNT(types); t++) {
        const struct gguf_type_info *info = gguf_type_info(types[t]);
        gguf_quantize(types[t], x, all, N);
        for (size_t b = 0; b < N / info->block_values; b++) {
            gguf_quantize(types[t], x + b * info->block_values, one, info->block_values);
            assert_memory_equal(one, all + b * info->block_bytes, info->block_bytes);
        }
        gguf_dequantize(types[t], all, y, N);
        for (int b = 0; b < N_BLOCKS; b++) {
            float top = 0;
            for (int i = b * 256; i < b * 256 + 256; i++)
                top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
            for (int i = b * 256; i < b * 256 + 256; i++) {
                /* some more than a step of four bits over both signs */
                if (!(fabsf(x[i] - y[i]) <= top / 6))
                    fail_msg("%s: %g became %g", info->name, (double)x[i], (double)y[i]);
            }
        }
    }
}

static void extremes_stay_finite(void **state)
{
    (void)state;
    static const float values[] = {3e38f, -3e38f, 1e-45f, 1e-38f, 0, -0.0f, 65504, 1e6f, -1e-20f};
    static float x[256], y[256];
    static uint8_t out[512];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 256; i++) {
            random_state = random_state * 6364136223846793005u + 1442695040888963407u;
            x[i] = values[(random_state >> 33) % COUNT(values)];
        }
        for (size_t t = 0; t < COUNT(types); t++) {
            gguf_quantize(types[t], x, out, 256);
            gguf_dequantize(types[t], out, y, 256);
            for (int i = 0; i < 256; i++)
                assert_true(isfinite(y[i]));
        }
    }
}

/* Up to the limit nothing is cut off: errors are those of rounding. Of 4 bits, -8 to 7, that is an
 * eighth where the other end is the largest value, and somewhat more where the least squares of a
 * block want a smaller step: 7 of the 8.9 that are tried at most. */
static void limits_are_kept(void **state)
{
    (void)state;
    static float x[256], y[256];
    static uint8_t out[512];
    for (size_t t = 0; t < COUNT(types); t++) {
        const float limit = gguf_quantize_limit(types[t]);
        assert_true(limit >= 65504.0f);
        for (int i = 0; i < 256; i++) {
            random_state = random_state * 6364136223846793005u + 1442695040888963407u;
            x[i] = ((float)(random_state >> 40) / (1 << 23) - 1) * limit;
        }
        x[0] = x[100] = limit;
        x[33] = x[200] = -limit;
        gguf_quantize(types[t], x, out, 256);
        gguf_dequantize(types[t], out, y, 256);
        for (int i = 0; i < 256; i++) {
            if (!(fabsf(y[i] - x[i]) <= 0.22f * limit))
                fail_msg("type %d: %g became %g", (int)types[t], (double)x[i], (double)y[i]);
        }
    }
    assert_true(gguf_quantize_limit(GGUF_TYPE_F32) == 0.0f);
}

/* A file of F32 matrices of two rows; of nanbeige one that goes through its layers twice. */
struct file {
    const char *arch;
    uint32_t n_layers, n_experts;
    struct {
        const char *name;
        uint64_t ne0;
    } tensors[16];
};

static void build(struct buf *b, const struct file *f)
{
    const bool loops = strcmp(f->arch, "nanbeige") == 0;
    uint64_t n = 0, offset = 0;
    char key[64];
    while (n < COUNT(f->tensors) && f->tensors[n].name)
        n++;
    put_header(b, 3, n, loops ? 4 : 3);
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, f->arch);
    snprintf(key, sizeof key, "%s.block_count", f->arch);
    put_kv_u32(b, key, f->n_layers);
    snprintf(key, sizeof key, "%s.expert_count", f->arch);
    put_kv_u32(b, key, f->n_experts);
    snprintf(key, sizeof key, "%s.num_loops", f->arch);
    if (loops)
        put_kv_u32(b, key, 2);
    for (uint64_t i = 0; i < n; i++) {
        put_tensor(b, f->tensors[i].name, GGUF_TYPE_F32, f->tensors[i].ne0, 2, offset);
        offset += (f->tensors[i].ne0 * 8 + 31) / 32 * 32;
    }
    put_padding(b, 32);
    put_data(b, offset);
}

/* `want` holds the names of the types, as llama.cpp's quantiser gives them. */
static void check_types(const char *recipe, const struct file *f, const char *const *want)
{
    struct buf b = {0};
    struct gguf *g;
    struct err_info e = {0};
    enum gguf_type got[COUNT(f->tensors)];
    build(&b, f);
    if (gguf_open_memory(b.data, b.len, &g, &e) ||
        gguf_recipe_types(gguf_find_recipe(recipe), g, got, &e))
        fail_msg("%s", e.text);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        if (strcmp(gguf_type_name((uint32_t)got[i]), want[i]) != 0)
            fail_msg("%s of %s: %s is %s, not %s",
                     recipe,
                     f->arch,
                     f->tensors[i].name,
                     gguf_type_name((uint32_t)got[i]),
                     want[i]);
    }
    gguf_close(g);
    buf_deinit(&b);
}

static void recipes_choose(void **state)
{
    (void)state;
    static const struct file f = {"llama",
                                  1,
                                  0,
                                  {{"output.weight", 256},
                                   {"token_embd.weight", 256},
                                   {"blk.0.attn_q.weight", 256},
                                   {"blk.0.ffn_down.weight", 256},
                                   {"blk.0.attn_k.weight", 288},
                                   {"blk.0.attn_output.weight", 40},
                                   {"blk.0.attn_q.bias", 256},
                                   {"blk.0.attn_norm.weight", 256},
                                   {"blk.0.ffn_gate_inp.weight", 256}}};
    static const struct {
        const char *recipe, *want[9];
    } cases[] = {
        {"q4_k_m", {"Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q5_0", "F16", "F32", "F32", "F32"}},
        {"Q5_K_M", {"Q6_K", "Q5_K", "Q5_K", "Q6_K", "Q5_1", "F16", "F32", "F32", "F32"}},
        {"Q6_K", {"Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q8_0", "F16", "F32", "F32", "F32"}},
        {"Q8_0", {"Q8_0", "Q8_0", "Q8_0", "Q8_0", "Q8_0", "F16", "F32", "F32", "F32"}},
        {"Q4_0", {"Q6_K", "Q4_0", "Q4_0", "Q4_0", "Q4_0", "F16", "F32", "F32", "F32"}},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_types(cases[i].recipe, &f, cases[i].want);
    assert_null(gguf_find_recipe("Q9"));

    struct gguf *g = open_golden("Q4_0"); /* quantised already */
    enum gguf_type out[64];
    struct err_info e = {0};
    assert_int_equal(gguf_recipe_types(gguf_find_recipe("Q8_0"), g, out, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, " is Q4_0: "));
    gguf_close(g);
}

/* What is kept; embeddings that are the output too, Falcon's of fewer bits in ffn_down; and
 * matrices that are counted, where some layers have none, but ffn_down with experts. */
static void families_have_their_own(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        struct file f;
        const char *want[16];
    } cases[] = {
        {"Q4_K_M",
         {"gemma3n",
          1,
          0,
          {{"token_embd.weight", 256},
           {"per_layer_token_embd.weight", 256},
           {"per_layer_model_proj.weight", 256},
           {"altup_proj.weight", 256},
           {"blk.0.altup_router.weight", 256},
           {"blk.0.laurel_l.weight", 256},
           {"blk.0.inp_gate.weight", 256}}},
         {"Q6_K", "Q6_K", "F32", "F32", "F32", "F32", "Q4_K"}},
        {"Q8_0",
         {"gemma4",
          1,
          0,
          {{"per_layer_model_proj.weight", 256}, {"per_layer_token_embd.weight", 256}}},
         {"F32", "Q8_0"}},
        {"Q4_K_M",
         {"falcon",
          2,
          0,
          {{"token_embd.weight", 256},
           {"blk.0.attn_qkv.weight", 256},
           {"blk.0.ffn_down.weight", 256},
           {"blk.1.attn_qkv.weight", 256},
           {"blk.1.ffn_down.weight", 256}}},
         {"Q8_0", "Q4_K", "Q4_K", "Q6_K", "Q5_K"}},
        {"Q5_K_M",
         {"falcon", 1, 0, {{"output.weight", 256}, {"blk.0.ffn_down.weight", 256}}},
         {"Q8_0", "Q6_K"}},
        {"Q4_K_M",
         {"nemotron_h",
          5,
          0,
          {{"output.weight", 256},
           {"blk.4.ffn_down.weight", 256},
           {"blk.1.attn_v.weight", 256},
           {"blk.2.ffn_down.weight", 256},
           {"blk.3.attn_v.weight", 256}}},
         {"Q6_K", "Q4_K", "Q4_K", "Q4_K", "Q6_K"}},
        {"Q4_K_M",
         {"glm4moe",
          3,
          4,
          {{"blk.0.attn_v.weight", 256},
           {"blk.0.ffn_down.weight", 256},
           {"blk.1.attn_v.weight", 256},
           {"blk.1.ffn_down_exps.weight", 256},
           {"blk.1.ffn_down_shexp.weight", 256},
           {"blk.2.ffn_down_exps.weight", 256}}},
         {"Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q6_K"}},
        {"Q4_0",
         {"llama",
          2,
          8,
          {{"blk.0.attn_v.weight", 256},
           {"blk.0.attn_k.weight", 256},
           {"blk.0.attn_output.weight", 256}}},
         {"Q8_0", "Q8_0", "Q4_0"}},
        {"Q4_K_M",
         {"qwen2", 80, 0, {{"blk.0.attn_v.weight", 256}, {"blk.1.attn_v.weight", 256}}},
         {"Q5_K", "Q6_K"}},
        {"Q4_K_M",
         {"rwkv7",
          1,
          0,
          {{"blk.0.time_mix_lerp_fused.weight", 256},
           {"blk.0.time_mix_w1.weight", 256},
           {"blk.0.time_mix_a2.weight", 256},
           {"blk.0.time_mix_v1.weight", 256},
           {"blk.0.time_mix_g2.weight", 256},
           {"blk.0.time_mix_key.weight", 256},
           {"blk.0.channel_mix_value.weight", 256}}},
         {"F32", "F32", "F32", "F32", "F32", "Q4_K", "Q4_K"}},
        {"Q8_0",
         {"rwkv6",
          1,
          0,
          {{"blk.0.time_mix_first.weight", 256},
           {"blk.0.time_mix_decay_w1.weight", 256},
           {"blk.0.time_mix_decay_w2.weight", 256},
           {"blk.0.time_mix_gate.weight", 256}}},
         {"F32", "F32", "F32", "Q8_0"}},
        {"Q8_0",
         {"minimax-m3",
          1,
          4,
          {{"blk.0.indexer.q_proj.weight", 256},
           {"blk.0.indexer.k_proj.weight", 256},
           {"blk.0.attn_q.weight", 256}}},
         {"F32", "F32", "Q8_0"}},
        {"Q4_K_M", /* layers count as often as they are gone through */
         {"nanbeige",
          4,
          0,
          {{"blk.0.ffn_down.weight", 256},
           {"blk.1.ffn_down.weight", 256},
           {"blk.2.ffn_down.weight", 256},
           {"blk.3.ffn_down.weight", 256}}},
         {"Q6_K", "Q4_K", "Q4_K", "Q6_K"}},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_types(cases[i].recipe, &cases[i].f, cases[i].want);
}

/* A file rewritten with the same types holds the same tensors and metadata. */
static void files_are_copied(void **state)
{
    (void)state;
    struct gguf *g = open_golden("F16"), *copy;
    struct err_info e = {0};
    struct gguf_writer *w;
    enum gguf_type all[64];
    char path[64] = "/tmp/test_quantize.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++)
        all[i] = gguf_tensor_at(g, i)->type;
    assert_int_equal(gguf_write_begin(path, g, all, 77, &w, &e), OK);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const size_t half = t->n_bytes / 2;
        assert_int_equal(gguf_write_data(w, t->data, half, &e), OK);
        assert_int_equal(gguf_write_data(w, t->data + half, t->n_bytes - half, &e), OK);
    }
    assert_int_equal(gguf_write_end(w, &e), OK);
    if (gguf_open(path, &copy, &e))
        fail_msg("%s", e.text);
    uint32_t file_type = 0, version = 0;
    assert_int_equal(gguf_get_u32(copy, "general.file_type", &file_type, &e), OK);
    assert_int_equal(gguf_get_u32(copy, "general.quantization_version", &version, &e), OK);
    assert_int_equal(file_type, 77);
    assert_int_equal(version, 2);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(g, i), *b = gguf_tensor_at(copy, i);
        assert_int_equal(a->name.len, b->name.len);
        assert_memory_equal(a->name.data, b->name.data, a->name.len);
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_memory_equal(a->data, b->data, a->n_bytes);
    }
    gguf_close(copy);
    assert_int_equal(gguf_write_begin(path, g, all, 1, &w, &e), OK);
    gguf_write_abort(w); /* the file before is untouched */
    assert_int_equal(gguf_open(path, &copy, &e), OK);
    gguf_close(copy);
    assert_int_equal(gguf_write_begin("/nonexistent/x", g, all, 1, &w, &e), ERR_IO);
    assert_null(w);
    unlink(path);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_no_larger),
        cmocka_unit_test(blocks_stand_alone),
        cmocka_unit_test(extremes_stay_finite),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(recipes_choose),
        cmocka_unit_test(families_have_their_own),
        cmocka_unit_test(files_are_copied),
    };
    return cmocka_run_group_tests_name("quantize", tests, start, NULL);
}
