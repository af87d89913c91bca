/* What is no number stays none on a device, too: of small models that have each op between them, a
 * tensor at a time is made NaN, and no logit is a number then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/models.h"
#include "unit/backend/cpu/no_numbers.h"

#include <math.h>
#include <unistd.h>

enum { ROWS = 7 };

#ifdef EVERY_ACCESS_CHECKED
enum { EACH = 3 }; /* of the models */
#else
enum { EACH = 1 };
#endif

static const char *const models[] = {"architectures/llama.f32",
                                     "architectures/qwen3moe.f32",
                                     "variants/gemma2.f32",
                                     "variants/gpt-oss.f32",
                                     "families/nemotron.f32",
                                     "families/olmo-clamped.f32",
                                     "families/llama4.f32",
                                     "families/deepseek2-v3.f32",
                                     "families/gemma3n.f32",
                                     "families/apertus.f32",
                                     "recurrent/qwen35.f32",
                                     "recurrent/nemotron_h_moe.f32",
                                     "recurrent/kimi-k3.f32",
                                     "quantised/llama.Q4_K_M",
                                     "quantised/llama.BF16"};

/* The last of some rows, all in one step or the last in one of its own. */
static uint32_t count_numbers(const struct model *m, uint32_t round)
{
    const uint32_t apart = round % 2, last = ROWS - 1;
    const struct backend_config cfg = {.n_threads = 1,
                                       .kv_type = (enum kv_type)(round / 2 % 4),
                                       .n_blocks = 2,
                                       .block_tokens = 4,
                                       .max_rows = ROWS,
                                       .max_seqs = 1,
                                       .max_logit_rows = 1,
                                       .n_states = 2};
    const uint32_t blocks[] = {1, 0}, row[] = {ROWS - 1 - apart, 0};
    uint32_t positions[ROWS], n = 0;
    struct backend *b;
    struct err_info e;
    float *logits;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    for (uint32_t i = 0; i < ROWS; i++)
        positions[i] = i;
    for (uint32_t i = 0; i <= apart; i++) {
        const uint32_t first = i ? last : 0, n_rows = i ? 1 : ROWS - apart;
        const struct batch_seq seq = {.n_rows = n_rows,
                                      .first_pos = first,
                                      .blocks = blocks,
                                      .panes = blocks,
                                      .state_from = 1,
                                      .state_to = 1};
        const struct batch batch = {.n_rows = n_rows,
                                    .tokens = golden_prompt + first,
                                    .positions = positions + first,
                                    .n_seqs = 1,
                                    .seqs = &seq,
                                    .n_logit_rows = 1,
                                    .logit_rows = &row[i]};
        assert_int_equal(b->ops->run(b, &batch, &logits, &e), OK);
    }
    for (uint32_t i = 0; i < m->hp.n_vocab; i++)
        n += isfinite(logits[i]) != 0;
    b->ops->destroy(b);
    return n;
}

static void nan_of_any_tensor_arrives(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-test-XXXXXX";
    const int fd = mkstemp(path);
    uint32_t round = 0;
    assert_true(fd >= 0);
    for (size_t i = 0; i < COUNT(models); i += EACH)
        no_logit_is_a_number(models[i], path, &round, count_numbers);
    close(fd);
    unlink(path);
    assert_true(round > (few_shapes() ? 14u : 200u) / EACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_of_any_tensor_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
