/* What is no number stays none on its whole way: of each small model, a tensor at a time is made
 * NaN, and no logit is a number then, whatever the instruction set, the KV type and the division
 * into steps; nor one of the oracle's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "oracle/oracle.h"
#include "unit/backend/cpu/isas.h"
#include "unit/backend/cpu/no_numbers.h"

#include <glob.h>
#include <math.h>
#include <unistd.h>

static uint32_t count(const float *logits, uint32_t n)
{
    uint32_t n_numbers = 0;
    for (uint32_t i = 0; i < n; i++)
        n_numbers += isfinite(logits[i]) != 0;
    return n_numbers;
}

/* Of the evaluation that the backends are compared with, over a part of the prompt: it is slow. */
static uint32_t count_numbers_of_oracle(const struct model *m)
{
    enum { ROWS = 20 };
    const uint32_t n_vocab = m->hp.n_vocab;
    float *out = mem_zalloc((size_t)ROWS * n_vocab, sizeof *out);
    oracle_logits(m, golden_prompt, ROWS, out);
    const uint32_t n = count(out + (size_t)(ROWS - 1) * n_vocab, n_vocab);
    free(out);
    return n;
}

/* Of the backend; the last position is one of many rows, or a row by itself. */
static uint32_t count_numbers_of_backend(const struct model *m, uint32_t round)
{
    const uint32_t apart = round % 2;
    const int32_t *tokens = golden_prompt;
    struct drive d;
    drive_open(&d, m, isas[round % COUNT(isas)], (enum kv_type)(round / 2 % 4), 2, 16, 0);
    d.wanted_each = N_PROMPT - 1; /* the first and the last */
    float *out = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof *out);
    const float *last = out + (size_t)(N_PROMPT - 1) * d.n_vocab;
    drive_run(&d, &(struct part){0, 0, N_PROMPT - apart}, 1, &tokens, &out);
    if (apart)
        drive_run(&d, &(struct part){0, N_PROMPT - 1, 1}, 1, &tokens, &out);
    const uint32_t n = count(last, d.n_vocab);
    free(out);
    drive_close(&d);
    return n;
}

static uint32_t count_numbers(const struct model *m, uint32_t round)
{
    const uint32_t n = round % 4 == 0 ? count_numbers_of_oracle(m) : 0;
    return n + count_numbers_of_backend(m, round);
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
            no_logit_is_a_number(name, path, &round, count_numbers);
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
