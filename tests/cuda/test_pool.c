/* The pool of working buffers: what it lends, what it counts, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/pool.h"

#include <string.h>

enum { BYTES = 4096 };

static void open_pool(struct cuda_pool *p, bool zero)
{
    cuda_pool_init(p, zero);
    cuda_pool_plan(p, GPU_HIDDEN, BYTES, 3);
    cuda_pool_plan(p, GPU_ATTENTION, 2 * BYTES, 2);
    cuda_pool_plan(p, GPU_INTERMEDIATE, 0, 2); /* of nothing: none */
    cuda_pool_plan(p, GPU_STAGING, BYTES, 2);
}

static uint8_t *borrow(struct cuda_pool *p, enum gpu_class c)
{
    uint8_t *b;
    struct err_info e;
    if (cuda_pool_borrow(p, c, &b, &e) != OK)
        fail_msg("%s", e.text);
    return b;
}

static void give(struct cuda_pool *p, enum gpu_class c, uint8_t *b)
{
    struct err_info e;
    if (cuda_pool_return(p, c, b, 0, &e) != OK)
        fail_msg("%s", e.text);
}

static void warm_up_takes_what_was_planned_once(void **state)
{
    (void)state;
    struct gpu_class_stats s[N_GPU_CLASSES];
    struct cuda_pool p;
    size_t before, after, total;
    open_pool(&p, false);
    assert_int_equal(cuda_pool_device_bytes(&p), 3 * BYTES + 2 * 2 * BYTES);
    assert_int_equal(cuda_pool_pinned_bytes(&p), 2 * BYTES);
    assert_int_equal(cudaMemGetInfo(&before, &total), cudaSuccess);
    assert_int_equal(cuda_pool_warm_up(&p, NULL), OK);
    assert_int_equal(cudaMemGetInfo(&after, &total), cudaSuccess);
    assert_true(before - after >= 7 * BYTES);
    before = after;
    assert_int_equal(cuda_pool_warm_up(&p, NULL), OK);
    assert_int_equal(cudaMemGetInfo(&after, &total), cudaSuccess);
    assert_int_equal(before, after);
    cuda_pool_stats(&p, s);
    assert_int_equal(s[GPU_HIDDEN].held, 3);
    assert_int_equal(s[GPU_INTERMEDIATE].held, 0);
    assert_int_equal(s[GPU_STAGING].held, 2);
    assert_int_equal(s[GPU_HIDDEN].allocations, 0);
    cuda_pool_deinit(&p);
}

/* What came back last goes out first; so steps get the same addresses. */
static void borrowing_repeats(void **state)
{
    (void)state;
    struct gpu_class_stats s[N_GPU_CLASSES];
    struct cuda_pool p;
    uint8_t *first[3];
    open_pool(&p, false);
    assert_int_equal(cuda_pool_warm_up(&p, NULL), OK);
    for (int round = 0; round < 4; round++) {
        uint8_t *b[3];
        for (int i = 0; i < 3; i++) {
            b[i] = borrow(&p, GPU_HIDDEN);
            if (round == 0)
                first[i] = b[i];
            assert_ptr_equal(b[i], first[i]);
        }
        for (int i = 2; i >= 0; i--)
            give(&p, GPU_HIDDEN, b[i]);
    }
    cuda_pool_stats(&p, s);
    assert_int_equal(s[GPU_HIDDEN].borrows, 12);
    assert_int_equal(s[GPU_HIDDEN].returns, 12);
    assert_int_equal(s[GPU_HIDDEN].peak, 3);
    assert_int_equal(s[GPU_HIDDEN].lent, 0);
    assert_int_equal(s[GPU_HIDDEN].allocations, 0);
    cuda_pool_deinit(&p);
}

/* More than was planned: taken, and counted. */
static void growth_is_counted(void **state)
{
    (void)state;
    struct gpu_class_stats s[N_GPU_CLASSES];
    struct cuda_pool p;
    open_pool(&p, false);
    assert_int_equal(cuda_pool_warm_up(&p, NULL), OK);
    uint8_t *b[CUDA_POOL_MOST], *more;
    struct err_info e;
    for (int i = 0; i < CUDA_POOL_MOST; i++) {
        b[i] = borrow(&p, GPU_STAGING);
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(b[i], b[k]);
    }
    assert_int_equal(cuda_pool_borrow(&p, GPU_STAGING, &more, &e), ERR_NOMEM);
    assert_null(more);
    assert_non_null(strstr(e.text, "staging"));
    for (int i = 0; i < CUDA_POOL_MOST; i++)
        give(&p, GPU_STAGING, b[i]);
    cuda_pool_stats(&p, s);
    assert_int_equal(s[GPU_STAGING].allocations, CUDA_POOL_MOST - 2);
    assert_int_equal(s[GPU_STAGING].held, CUDA_POOL_MOST);
    cuda_pool_deinit(&p);
}

/* Twice, another class's, nobody's: refused, and nothing changes. */
static void wrong_returns_are_refused(void **state)
{
    (void)state;
    struct gpu_class_stats s[N_GPU_CLASSES];
    struct cuda_pool p;
    struct err_info e;
    uint8_t nobodys[16];
    open_pool(&p, false);
    assert_int_equal(cuda_pool_warm_up(&p, NULL), OK);
    uint8_t *a = borrow(&p, GPU_HIDDEN), *b = borrow(&p, GPU_ATTENTION);
    assert_int_equal(cuda_pool_return(&p, GPU_HIDDEN, b, 0, &e), ERR_INTERNAL);
    assert_int_equal(cuda_pool_return(&p, GPU_HIDDEN, nobodys, 0, &e), ERR_INTERNAL);
    give(&p, GPU_HIDDEN, a);
    assert_int_equal(cuda_pool_return(&p, GPU_HIDDEN, a, 0, &e), ERR_INTERNAL);
    cuda_pool_stats(&p, s);
    assert_int_equal(s[GPU_HIDDEN].returns, 1);
    assert_int_equal(s[GPU_HIDDEN].lent, 0);
    assert_int_equal(s[GPU_ATTENTION].lent, 1);
    cuda_pool_deinit(&p);
}

static void buffers_are_zeroed_where_asked_for(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        struct cuda_pool p;
        uint8_t host[BYTES];
        open_pool(&p, zero);
        assert_int_equal(cuda_pool_warm_up(&p, NULL), OK);
        uint8_t *d = borrow(&p, GPU_HIDDEN), *h = borrow(&p, GPU_STAGING);
        assert_int_equal(cudaMemset(d, 7, BYTES), cudaSuccess);
        memset(h, 7, BYTES);
        give(&p, GPU_HIDDEN, d);
        give(&p, GPU_STAGING, h);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        assert_int_equal(cudaMemcpy(host, d, BYTES, cudaMemcpyDeviceToHost), cudaSuccess);
        for (int i = 0; i < BYTES; i++) {
            assert_int_equal(host[i], zero ? 0 : 7);
            assert_int_equal(h[i], zero ? 0 : 7);
        }
        cuda_pool_deinit(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_takes_what_was_planned_once),
        cmocka_unit_test(borrowing_repeats),
        cmocka_unit_test(growth_is_counted),
        cmocka_unit_test(wrong_returns_are_refused),
        cmocka_unit_test(buffers_are_zeroed_where_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
