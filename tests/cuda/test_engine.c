/* The engine over a device (or its emulation), whose steps run beside the host: a random crowd
 * gives what each of it gives when one runs at a time, to the bit, whatever else is in the batch,
 * in a memory that is too small, with pinned RAM for what it has no place for and a disk below.
 * Nothing is allocated in a step, by the host or on the device; no step waits for a block. And a
 * device that is lost ends everybody once.
 *
 *      cuda_test_engine [SEED]     prints the seed; one that failed can be given again */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/cuda.h"
#include "base/clock.h"
#include "few.h"
#include "invariance/crowd.h"
#include "scratch.h"
#ifdef EMU_CUDA_RUNTIME_API_H
#include "emu.h"
#endif

#include <stdio.h>
#include <stdlib.h>

enum { N_REQUESTS = 16, MOST = 12 };

#define LLAMA TEST_DATA "/golden/quantised/llama.Q8_0.gguf"
#define WINDOWS TEST_DATA "/golden/variants/gemma2.f32.gguf"
#define RECURRENT TEST_DATA "/golden/recurrent/qwen35.f32.gguf"

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
    if (model_state_bytes(m)) /* of which half at most is for states */
        cfg.kv_bytes = 2 * n_blocks * (small ? 1 : 2) * model_state_bytes(m);
    cfg.overcommit = 1.0;
    cfg.make_backend = cuda_backend_create;
    cfg.check_always = true;
    model_destroy(m);
    return cfg;
}

/* `twice`: once more, with what the disk has. */
static void check(const char *model, bool twice)
{
    struct engine_config cfg = make_config(model, false);
    struct crowd *c = crowd_create(model, &cfg, N_REQUESTS, MOST);
    cfg = make_config(model, true);
    struct model *m;
    assert_int_equal(model_load(model, &m, NULL), OK);
    const size_t block_bytes = backend_kv_block_bytes(m, cfg.kv_type, 16);
    model_destroy(m);
    char dir[] = "/tmp/weir-cuda-XXXXXX"; /* and a disk that is written to on the way */
    assert_non_null(mkdtemp(dir));
    cfg.host_cache_bytes = cfg.kv_bytes;
    cfg.cache_dir = dir;
    const struct engine_stats st = crowd_run(model, &cfg, c, false);
    print_message("%llu blocks to RAM, %llu back\n",
                  (unsigned long long)st.tiers[0].stats.stored,
                  (unsigned long long)st.tiers[0].stats.fetched);
    print_message(
        "%llu blocks to disk, %llu back; %llu left the device, %llu came, %llu waited for\n",
        (unsigned long long)st.tiers[1].stats.stored,
        (unsigned long long)st.tiers[1].stats.fetched,
        (unsigned long long)st.gpu.moves.read,
        (unsigned long long)st.gpu.moves.written,
        (unsigned long long)st.gpu.moves.waits);
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
    assert_int_equal(st.n_tiers, 2);
    assert_true(st.tiers[0].stats.stored > 0);
    assert_true(st.gpu.moves.read >= st.tiers[0].stats.stored + st.tiers[1].stats.stored);
    assert_true(st.gpu.moves.written <= st.tiers[0].stats.fetched + st.tiers[1].stats.fetched);
    assert_int_equal(st.gpu.moves.bytes, (st.gpu.moves.read + st.gpu.moves.written) * block_bytes);
    assert_int_equal(st.gpu.moves.waits, 1); /* before anybody came: what names the disk's blocks */
    assert_true(st.gpu.pinned_bytes > st.tiers[0].stats.max_bytes); /* and so pinned */
    for (int class = 0; class < N_GPU_CLASSES; class ++)
        assert_int_equal(st.gpu.classes[class].allocations, 0);
    assert_true(st.steps_ahead > 0);
    if (twice) {
        const struct engine_stats again = crowd_run(model, &cfg, c, false);
        print_message("then %llu blocks from disk, %llu came to the device\n",
                      (unsigned long long)again.tiers[1].stats.fetched,
                      (unsigned long long)again.gpu.moves.written);
        assert_true(again.tiers[1].stats.entries > 0);
        /* none may be fetched where computing seemed to take less: cuda/test_tiers has it for sure
         */
        assert_true(again.gpu.moves.written > 0 || again.tiers[1].stats.fetched == 0);
        assert_int_equal(again.gpu.moves.waits, 1);
    }
    remove_folder(dir);
    crowd_destroy(c);
}

static void test_crowd(void **state)
{
    (void)state;
    check(LLAMA, true);
}

static void test_crowd_with_windows(void **state)
{
    (void)state;
    if (!few_shapes())
        check(WINDOWS, false);
}

/* States come and go in the order of the device's steps, of which one is begun before the other has
 * ended. No tiers: they are off for such models. */
static void test_crowd_of_recurrent(void **state)
{
    (void)state;
    struct engine_config cfg = make_config(RECURRENT, false);
    struct crowd *c = crowd_create(RECURRENT, &cfg, N_REQUESTS, MOST);
    cfg = make_config(RECURRENT, true);
    const struct engine_stats st = crowd_run(RECURRENT, &cfg, c, false);
    print_message(
        "%u states, %llu kept, %llu taken back, %u in use at most; %llu steps, %llu begun "
        "ahead, %llu preemptions\n",
        st.kv.states.total,
        (unsigned long long)st.kv.counts.states_kept,
        (unsigned long long)st.kv.counts.states_evicted,
        st.kv.states.peak_in_use,
        (unsigned long long)st.steps,
        (unsigned long long)st.steps_ahead,
        (unsigned long long)st.preemptions);
    assert_true(st.kv.counts.states_kept > 0 && st.steps_ahead > 0);
    assert_int_equal(st.gpu.queue.completed, st.steps);
    assert_int_equal(st.n_tiers, 0);
    assert_true(st.gpu.kv_bytes > st.kv.states.total * st.kv_state_bytes);
    for (int class = 0; class < N_GPU_CLASSES; class ++)
        assert_int_equal(st.gpu.classes[class].allocations, 0);
    crowd_destroy(c);
}

/* --- a device that is lost --- */

#ifdef EMU_CUDA_RUNTIME_API_H
static struct backend_ops losing;
static struct async_ops losing_steps;
static const struct async_ops *real_steps;
static uint32_t steps_left;

static enum err end_and_lose(struct backend *b, struct async_result *out, struct err_info *e)
{
    if (steps_left-- == 0)
        emu_lose_device();
    return real_steps->end(b, out, e);
}

static enum err create_losing(const struct model *m,
                              const struct backend_config *cfg,
                              struct backend **out,
                              struct err_info *e)
{
    const enum err err = cuda_backend_create(m, cfg, out, e);
    if (err)
        return err;
    losing = *(*out)->ops;
    real_steps = losing.async;
    losing_steps = *real_steps;
    losing_steps.end = end_and_lose;
    losing.async = &losing_steps;
    (*out)->ops = &losing;
    return OK;
}
#endif

/* Between two steps' ends, with others under way and blocks on theirs: everybody ends once, those
 * who come later too, and what was answered before is right. */
static void test_a_lost_device(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct engine_config cfg = make_config(LLAMA, false);
    struct crowd *c = crowd_create(LLAMA, &cfg, N_REQUESTS, MOST);
    cfg = make_config(LLAMA, true);
    char dir[] = "/tmp/weir-cuda-XXXXXX";
    assert_non_null(mkdtemp(dir));
    cfg.host_cache_bytes = cfg.kv_bytes;
    cfg.cache_dir = dir;
    cfg.make_backend = create_losing;
    steps_left = 8 + crowd_below(20);
    const struct engine_stats st = crowd_run(LLAMA, &cfg, c, true);
    assert_non_null(emu_take_report(NULL));
    print_message("%llu of %d ended with an error, %llu steps failed\n",
                  (unsigned long long)st.requests_by_finish[FINISH_ERROR],
                  N_REQUESTS,
                  (unsigned long long)st.steps_failed);
    assert_true(st.requests_by_finish[FINISH_ERROR] > 0 && st.steps_failed > 0);
    remove_folder(dir);
    crowd_destroy(c);
#else
    skip();
#endif
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crowd_with_windows),
        cmocka_unit_test(test_crowd_of_recurrent),
        cmocka_unit_test(test_a_lost_device),
    };
    const uint64_t seed =
        argc > 1 ? strtoull(argv[1], NULL, 10) : clock_us() ^ (uint64_t)clock_unix() << 20;
    crowd_seed(seed);
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
