/* The engine over a device (or its emulation), whose steps run beside the host: a random crowd
 * gives what each of it gives when one runs at a time, to the bit, whatever else is in the batch,
 * in a memory that is too small, with pinned RAM for what it has no place for. Nothing is allocated
 * in a step, by the host or on the device.
 *
 *      cuda_test_engine [SEED]     prints the seed; one that failed can be given again */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/cuda.h"
#include "base/clock.h"
#include "invariance/crowd.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_REQUESTS = 16, MOST = 12 };

#define LLAMA TEST_DATA "/golden/quantised/llama.Q8_0.gguf"
#define WINDOWS TEST_DATA "/golden/variants/gemma2.f32.gguf"

static struct engine_config make_config(const char *model, bool small)
{
    struct engine_config cfg = engine_config_default();
    struct model *m;
    assert_int_equal(model_load(model, &m, NULL), OK);
    cfg.n_threads = 1;
    cfg.n_ctx = 112;
    cfg.batch_tokens = 16 + crowd_below(40);
    cfg.max_running = small ? 4 + crowd_below(8) : 1;
    cfg.max_queue = 4 * MOST_REQUESTS;
    const uint32_t n_blocks = small ? 10 + crowd_below(12) : 200;
    cfg.kv_bytes = n_blocks * backend_kv_block_bytes(m, cfg.kv_type, 16);
    cfg.overcommit = 1.0;
    cfg.make_backend = cuda_backend_create;
    cfg.check_always = true;
    model_destroy(m);
    return cfg;
}

static void check(const char *model)
{
    struct engine_config cfg = make_config(model, false);
    struct crowd *c = crowd_create(model, &cfg, N_REQUESTS, MOST);
    cfg = make_config(model, true);
    cfg.host_cache_bytes = 4 * cfg.kv_bytes;
    const struct engine_stats st = crowd_run(model, &cfg, c, false);
    print_message("%llu blocks to RAM, %llu back\n",
                  (unsigned long long)st.tiers[0].stats.stored,
                  (unsigned long long)st.tiers[0].stats.fetched);
    print_message("%llu steps, %llu begun ahead, %llu rows dropped, %llu preemptions; "
                  "%llu stalls, %.0f us busy, %.0f us idle\n",
                  (unsigned long long)st.steps,
                  (unsigned long long)st.steps_ahead,
                  (unsigned long long)st.rows_dropped,
                  (unsigned long long)st.preemptions,
                  (unsigned long long)st.gpu.queue.stalls,
                  st.gpu.queue.busy_us,
                  st.gpu.queue.idle_us);
    assert_int_equal(st.gpu.queue.submitted, st.steps);
    assert_int_equal(st.gpu.queue.completed, st.gpu.queue.submitted);
    assert_int_equal(st.gpu.queue.in_flight, 0);
    assert_true(st.gpu.queue.busy_us > 0);
    assert_int_equal(st.n_tiers, 1);
    assert_true(st.tiers[0].stats.stored > 0);
    assert_true(st.gpu.pinned_bytes > st.tiers[0].stats.max_bytes); /* and so pinned */
    for (int class = 0; class < N_GPU_CLASSES; class ++)
        assert_int_equal(st.gpu.classes[class].allocations, 0);
    assert_true(st.steps_ahead > 0);
    crowd_destroy(c);
}

static void test_crowd(void **state)
{
    (void)state;
    check(LLAMA);
}

static void test_crowd_with_windows(void **state)
{
    (void)state;
    check(WINDOWS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crowd_with_windows),
    };
    const uint64_t seed =
        argc > 1 ? strtoull(argv[1], NULL, 10) : clock_us() ^ (uint64_t)clock_unix() << 20;
    crowd_seed(seed);
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
