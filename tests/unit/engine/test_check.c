/* Looking after the KV memory (engine_want_check) takes its time from those who are served. */
#include "base/clock.h"
#include "engine/engine.h"
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include <unistd.h>

static _Atomic uint32_t check_us;

/* In the place of the scheduler's: as slow as that of a large memory. */
enum err sched_check(const struct sched *s, struct err_info *e)
{
    (void)s;
    (void)e;
    usleep(check_us);
    return OK;
}

/* Checks made while they are asked for again and again. */
static uint64_t n_checks(struct engine *eng, uint64_t us)
{
    struct engine_stats st;
    engine_stats_get(eng, &st);
    const uint64_t before = st.checks;
    for (const uint64_t end_us = clock_us() + us; clock_us() < end_us;) {
        engine_want_check(eng);
        usleep(10000);
    }
    engine_stats_get(eng, &st);
    return st.checks - before;
}

static void test_checks_take_a_small_part_of_the_time(void **state)
{
    struct engine_config cfg = engine_config_default();
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *eng;
    struct err_info e;
    (void)state;
    assert_int_equal(model_load(WEIR_MODELS "/weir-nano.gguf", &model, &e), OK);
    assert_int_equal(tokenizer_create(model->gguf, &tokenizer, &e), OK);
    cfg.n_threads = 1;
    cfg.n_ctx = 512;
    assert_int_equal(engine_create(model, tokenizer, &cfg, &eng, &e), OK);
    uint64_t n = 0;
    for (int i = 0; i < 20 && n < 2; i++) /* one a second, or on a busy machine later */
        n += n_checks(eng, 1500000);
    assert_true(n >= 2);
    check_us = 200000;
    assert_in_range(n_checks(eng, 3000000), 0, 1);
    engine_destroy(eng);
    tokenizer_destroy(tokenizer);
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checks_take_a_small_part_of_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
