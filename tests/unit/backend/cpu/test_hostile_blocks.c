/* Matrices of every block format whose bytes are anything at all: scales that are no numbers,
 * points of grids and digits that no quantiser writes. Nothing but the values may be wrong: every
 * instruction set packs and multiplies them, for few rows and for many, within its memory. */
#include "../../gguf/file_builder.h"
#include "backend/backend.h"
#include "gguf/blocks.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_EMBD = 256, N_VOCAB = 40, N_ROWS = 19, MAX_TYPE = 64 };

static const char *const matrices[] = {"token_embd.weight",
                                       "blk.0.attn_q.weight",
                                       "blk.0.attn_k.weight",
                                       "blk.0.attn_v.weight",
                                       "blk.0.attn_output.weight",
                                       "blk.0.ffn_gate.weight",
                                       "blk.0.ffn_up.weight",
                                       "blk.0.ffn_down.weight"};
static const char *const norms[] = {
    "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"};

#define N_MATRICES (sizeof matrices / sizeof matrices[0])
#define N_NORMS (sizeof norms / sizeof norms[0])

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* The bytes of blocks: all the same, or any. */
static void put_blocks(struct buf *b, size_t n, int fill, uint64_t *random)
{
    for (size_t i = 0; i < n; i++)
        buf_char(b, (char)(fill >= 0 ? fill : (int)(next_random(random) & 255)));
}

static void put_llama(struct buf *b, enum gguf_type type, int fill, uint64_t *random)
{
    static const char *const keys[] = {"llama.block_count",
                                       "llama.context_length",
                                       "llama.embedding_length",
                                       "llama.feed_forward_length",
                                       "llama.attention.head_count"};
    static const uint32_t values[] = {1, 64, N_EMBD, N_EMBD, 8};
    const struct gguf_type_info *info = gguf_type_info(type);
    const size_t row_bytes = N_EMBD / info->block_values * (size_t)info->block_bytes;
    size_t at = 0;
    put_header(b, 3, N_MATRICES + N_NORMS, 6);
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, "llama");
    for (size_t i = 0; i < 5; i++)
        put_kv_u32(b, keys[i], values[i]);
    for (size_t i = 0; i < N_MATRICES; i++) {
        const uint64_t rows = i ? N_EMBD : N_VOCAB;
        put_tensor(b, matrices[i], type, N_EMBD, rows, at);
        at += (rows * row_bytes + 31) / 32 * 32;
    }
    for (size_t i = 0; i < N_NORMS; i++, at += N_EMBD * sizeof(float))
        put_tensor(b, norms[i], GGUF_TYPE_F32, N_EMBD, 1, at);
    put_padding(b, 32);
    for (size_t i = 0; i < N_MATRICES; i++) {
        put_blocks(b, (i ? N_EMBD : N_VOCAB) * row_bytes, fill, random);
        put_padding(b, 32);
    }
    const float one = 1.0f;
    for (size_t i = 0; i < N_NORMS * N_EMBD; i++)
        buf_add(b, &one, sizeof one);
}

/* A prompt of n rows. */
static void run(struct backend *backend, uint32_t n)
{
    int32_t tokens[N_ROWS];
    uint32_t positions[N_ROWS];
    const uint32_t blocks[] = {1, 0}, last = n - 1;
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(i * 7 % N_VOCAB);
        positions[i] = i;
    }
    const struct batch_seq seq = {.n_rows = n, .blocks = blocks};
    const struct batch batch = {.n_rows = n,
                                .tokens = tokens,
                                .positions = positions,
                                .n_seqs = 1,
                                .seqs = &seq,
                                .n_logit_rows = 1,
                                .logit_rows = &last};
    float *logits = NULL;
    assert_int_equal(backend->ops->run(backend, &batch, &logits, NULL), OK);
    assert_non_null(logits);
}

static void check(enum gguf_type type, int fill, uint64_t seed)
{
    static const char *const isas[] = {
        "reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"};
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        const struct backend_config cfg = {.n_threads = 1,
                                           .kv_type = KV_F32,
                                           .n_blocks = 2,
                                           .block_tokens = 16,
                                           .max_rows = N_ROWS,
                                           .max_seqs = 1,
                                           .max_logit_rows = 1};
        struct buf b = {0};
        struct gguf *g;
        struct model *m;
        struct backend *backend;
        struct err_info e = {0};
        uint64_t random = seed;
        put_llama(&b, type, fill, &random);
        assert_int_equal(gguf_open_memory(b.data, b.len, &g, &e), OK);
        if (model_from_gguf(g, "hostile", &m, &e) != OK)
            fail_msg("%s: %s", gguf_type_name(type), e.text);
        setenv("WEIR_ISA", isas[i], 1);
        if (cpu_backend_create(m, &cfg, &backend, &e) == OK) {
            run(backend, N_ROWS);
            run(backend, 1);
            backend->ops->destroy(backend);
        } else if (e.code != ERR_INVALID) { /* which says that this machine lacks it */
            fail_msg("%s, %s: %s", gguf_type_name(type), isas[i], e.text);
        }
        model_destroy(m);
        buf_deinit(&b);
    }
}

static void test_any_bytes(void **state)
{
    (void)state;
    const char *fixed = getenv("WEIR_TEST_SEED");
    const uint64_t seed = fixed ? strtoull(fixed, NULL, 10) : 20;
    int n_types = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint32_t type = 0; type < MAX_TYPE; type++) {
        if (!gguf_type_is_computed((enum gguf_type)type))
            continue;
        n_types++;
        check((enum gguf_type)type, 0x00, seed);
        check((enum gguf_type)type, 0xff, seed);
        check((enum gguf_type)type, 0x7b, seed); /* of halves, large and finite */
        for (uint64_t i = 0; i < 3; i++)
            check((enum gguf_type)type, -1, seed + i);
    }
    assert_true(n_types >= 27);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_bytes)};
    return cmocka_run_group_tests_name("hostile_blocks", tests, NULL, NULL);
}
