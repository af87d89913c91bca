/* A small model with one thing wrong a case: what model_from_gguf, and then the backend, say of it.
 * What is wrong is written over the bytes of a seed of the fuzzer. */
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/backend/cpu/patched.h"

#include <math.h>

#define SEEDS TEST_DATA "/../fuzz/corpus/model/"

static struct bytes read_seed(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, SEEDS "%s.gguf", name);
    return read_file(path);
}

static void expect(const char *name, enum err want, const char *words, struct bytes b)
{
    struct err_info e;
    enum err err = load_all(b, &e);
    if (err != want || (err && (e.code != err || !strstr(e.text, words) || strchr(e.text, '\n'))))
        fail_msg("%s: want %d and '%s', got %d: %s", name, want, words, err, e.text);
    free(b.data);
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Integers that no key of a size or a count may hold. */
static void test_integers(void **state)
{
    (void)state;
    static const char *const keys[] = {"block_count",
                                       "context_length",
                                       "embedding_length",
                                       "feed_forward_length",
                                       "attention.head_count",
                                       "attention.head_count_kv",
                                       "attention.key_length",
                                       "attention.value_length",
                                       "rope.dimension_count"};
    static const struct {
        uint32_t kind, value;
        const char *what;
    } wrong[] = {
        {GGUF_U32, 0, ""},
        {GGUF_U32, 1u << 31, "2147483648"},
        {GGUF_U32, UINT32_MAX, "4294967295"},
        {GGUF_I32, UINT32_MAX, "negative"},
        {GGUF_F32, 0x3f800000, "must hold an integer"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t j = 0; j < sizeof wrong / sizeof wrong[0]; j++) {
            struct bytes b = read_seed("lengths");
            char key[64];
            snprintf(key, sizeof key, "llama.%s", keys[i]);
            uint8_t *at = behind(b, key);
            memcpy(at, &wrong[j].kind, 4);
            memcpy(at + 4, &wrong[j].value, 4);
            struct err_info e;
            enum err err = load_all(b, &e);
            if (err != ERR_FORMAT || !strstr(e.text, key) || !strstr(e.text, wrong[j].what))
                fail_msg("%s = %u: %d: %s", key, wrong[j].value, err, e.text);
            free(b.data);
        }
    }
}

/* One key given another value. */
static void test_values(void **state)
{
    (void)state;
    const struct {
        const char *seed, *key;
        uint32_t value;
        enum err code;
        const char *words;
    } cases[] = {
        {"llama", "llama.block_count", 2, ERR_FORMAT, "blk.1.attn_norm.weight is missing"},
        {"llama", "llama.embedding_length", 32, ERR_FORMAT, "token_embd.weight has shape"},
        {"llama", "llama.feed_forward_length", 17, ERR_FORMAT, "ffn_gate.weight has shape"},
        {"llama", "llama.attention.head_count", 3, ERR_FORMAT, "head_count is 3, which"},
        {"llama", "llama.attention.head_count", 1, ERR_FORMAT, "attn_k.weight has shape"},
        {"llama", "llama.attention.head_count_kv", 2, ERR_FORMAT, "attn_k.weight has shape"},
        {"llama", "llama.attention.head_count_kv", 3, ERR_FORMAT, "head_count_kv, 3"},
        {"lengths", "llama.attention.head_count", 3, ERR_FORMAT, "attn_q.weight has shape"},
        {"lengths", "llama.attention.key_length", 7, ERR_UNSUPPORTED, "keys of 7"},
        {"lengths",
         "llama.attention.value_length",
         4,
         ERR_UNSUPPORTED,
         "and attention.value_length of 4"},
        {"llama", "llama.rope.dimension_count", 7, ERR_FORMAT, "rope.dimension_count is odd"},
        {"llama", "llama.rope.dimension_count", 10, ERR_FORMAT, "rope.dimension_count is 10"},
        {"llama", "llama.rope.dimension_count", 4, OK, ""},
        {"llama", "llama.context_length", 1u << 26, OK, ""},
        {"llama", "llama.rope.freq_base", 0, ERR_FORMAT, "llama.rope.freq_base is 0"},
        {"llama", "llama.rope.freq_base", bits_of(-1), ERR_FORMAT, "llama.rope.freq_base is -1"},
        {"llama", "llama.rope.freq_base", bits_of(1e30f), ERR_FORMAT, "llama.rope.freq_base"},
        {"llama", "llama.rope.freq_base", bits_of(NAN), ERR_FORMAT, "llama.rope.freq_base"},
        {"llama", "llama.rope.freq_base", bits_of(INFINITY), ERR_FORMAT, "llama.rope.freq_base"},
        {"scaled", "llama.rope.scaling.factor", 0, OK, ""}, /* none, as in llama.cpp */
        {"scaled", "llama.rope.scaling.factor", bits_of(-2), ERR_FORMAT, "scaling.factor is -2"},
        {"scaled", "llama.rope.scaling.factor", bits_of(NAN), ERR_FORMAT, "scaling.factor"},
        {"scaled", "llama.rope.scaling.factor", bits_of(1e30f), ERR_FORMAT, "scaling.factor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = read_seed(cases[i].seed);
        memcpy(behind(b, cases[i].key) + 4, &cases[i].value, 4);
        expect(cases[i].key, cases[i].code, cases[i].words, b);
    }
    static const float eps[] = {-1e-5f, 1.0f, 1e10f, NAN, INFINITY, -INFINITY};
    const char *key = "llama.attention.layer_norm_rms_epsilon";
    for (size_t i = 0; i < sizeof eps / sizeof eps[0]; i++) {
        struct bytes b = read_seed("llama");
        memcpy(behind(b, key) + 4, &eps[i], 4);
        expect(key, ERR_FORMAT, key, b);
    }
}

/* Names: of the architecture, of keys and of tensors. */
static void test_names(void **state)
{
    (void)state;
    const struct {
        const char *seed, *from, *to;
        enum err code;
        const char *words;
    } cases[] = {
        {"llama", "general.architecture", "general.architecturf", ERR_FORMAT, "is missing"},
        {"llama", "llama", "ll\033[m", ERR_UNSUPPORTED, "'ll?[m' is not one"},
        {"llama", "llama.block_count", "llama.blocks_here", ERR_FORMAT, "block_count"},
        {"llama", "blk.0.attn_q.weight", "blk.0.attn_q.weighs", ERR_FORMAT, "attn_q.weight is"},
        {"qwen2", "blk.0.attn_q.bias", "blk.0.attn_q.bial", ERR_UNSUPPORTED, "has no place"},
        {"qwen3", "blk.0.attn_k_norm.weight", "blk.0.attn_k_norm.weighs", ERR_FORMAT, "k_norm"},
        {"qwen3", "output_norm.weight", "output_norm.weighs", ERR_FORMAT, "output_norm.weight is"},
        {"own_output", "output.weight", "other!.weight", ERR_UNSUPPORTED, "not supported"},
        {"factors", "rope_freqs.weight", "rope_freqs.weighs", ERR_UNSUPPORTED, "not supported"},
        {"scaled", "linear", "lin\033\n\"", ERR_UNSUPPORTED, "'lin\\x1b\\n\\\"'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = read_seed(cases[i].seed);
        size_t n = strlen(cases[i].from);
        assert_int_equal(strlen(cases[i].to), n);
        memcpy(behind(b, cases[i].from) - n, cases[i].to, n);
        expect(cases[i].to, cases[i].code, cases[i].words, b);
    }
}

static void check_shapes(const char *seed)
{
    struct bytes whole = read_seed(seed);
    struct gguf *g;
    assert_int_equal(gguf_open_memory(whole.data, whole.n, &g, NULL), OK);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        if (strstr(name, "nextn")) /* of a layer that is left alone */
            continue;
        for (int what = 0; what < 3; what++) {
            struct bytes b = read_seed(seed);
            uint8_t *at = behind(b, name);
            const uint64_t shorter = t->ne[0] - 1;
            const uint32_t other = what == 1 ? 26 : GGUF_TYPE_F16; /* I32 */
            if (what == 0)
                memcpy(at + 4, &shorter, 8);
            else
                memcpy(at + 4 + 8 * (size_t)t->n_dims, &other, 4);
            struct err_info e;
            enum err err = load_all(b, &e);
            bool matrix_of_f16 = what == 2 && t->n_dims >= 2 && !strstr(name, "norm");
            enum err want = what == 0 ? ERR_FORMAT : matrix_of_f16 ? OK : ERR_UNSUPPORTED;
            /* the vocabulary's size is that of the embeddings, so those of other sizes may be told
             */
            if (err != want || (err && !strstr(e.text, "tensor ")))
                fail_msg("%s: %s, %d: %d: %s", seed, name, what, err, e.text);
            if (err && !strstr(e.text, name))
                fail_msg("%s: %s, %d: not named in: %s", seed, name, what, e.text);
            free(b.data);
        }
    }
    gguf_close(g);
    free(whole.data);
}

/* Each tensor with its dimensions exchanged or shortened, or of another type. */
static void test_shapes(void **state)
{
    (void)state;
    static const char *const seeds[] = {"qwen3",
                                        "latent",
                                        "latent_old",
                                        "chunks",
                                        "each_head",
                                        "corrected",
                                        "tempered",
                                        "both_ways",
                                        "borrowing",
                                        "experts_beside",
                                        "streams"};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        check_shapes(seeds[i]);
}

/* What is made of attn_kv_b may find no memory. */
static void test_no_memory(void **state)
{
    (void)state;
    int n_named = 0;
    for (uint64_t nth = 1;; nth++) {
        struct bytes b = read_seed("latent_old");
        struct model *m = NULL;
        struct gguf *g;
        struct err_info e;
        assert_int_equal(gguf_open_memory(b.data, b.n, &g, &e), OK);
        mem_fail_nth(nth);
        enum err err = model_from_gguf(g, "short of memory", &m, &e);
        const bool failed = mem_fail_nth(0);
        assert_int_equal(err, failed ? ERR_NOMEM : OK);
        n_named += failed && strstr(e.text, "attn_kv_b") != NULL;
        model_destroy(m);
        free(b.data);
        if (!failed)
            break;
    }
    assert_true(n_named >= 2);
}

/* A rope table of numbers that cannot be divided by. */
static void test_factors(void **state)
{
    (void)state;
    static const float wrong[] = {0, -1, NAN, INFINITY, 1e32f};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct bytes b = read_seed("factors");
        struct gguf *g;
        assert_int_equal(gguf_open_memory(b.data, b.n, &g, NULL), OK);
        size_t at = gguf_tensor_offset(g, gguf_find_tensor(g, "rope_freqs.weight"));
        gguf_close(g);
        memcpy(b.data + at + 4, &wrong[i], 4);
        expect("rope_freqs", ERR_FORMAT, "rope_freqs.weight[1]", b);
    }
}

/* Every prefix of the file is refused, and nothing is read behind its end (ASan looks). */
static void test_prefixes(void **state)
{
    (void)state;
    struct bytes whole = read_seed("qwen2");
    for (size_t n = 0; n < whole.n; n += n < 3000 ? 1 : 97) {
        struct bytes b = {malloc(n ? n : 1), n};
        memcpy(b.data, whole.data, n);
        expect("prefix", ERR_FORMAT, "GGUF in memory: ", b);
    }
    expect("whole", OK, "", whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_prefixes),
    };
    return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
