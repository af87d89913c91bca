/* The two slots: who waits for whom, what is counted, and that nothing is overwritten. Over the
 * emulation, whose streams do nothing before somebody waits, and on a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/queue.h"

#include <string.h>

enum { N_BYTES = 4096, N_STEPS = 40 };

struct fixture {
    cudaStream_t stream;
    struct cuda_queue q;
    uint8_t *pinned[CUDA_SLOTS], *device;
};

static void open_queue(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cuda_queue_init(&f->q, f->stream, NULL), OK);
    for (int i = 0; i < CUDA_SLOTS; i++) {
        void *p;
        assert_int_equal(cudaMallocHost(&p, 2 * N_BYTES), cudaSuccess);
        f->pinned[i] = p;
    }
    void *p;
    assert_int_equal(cudaMalloc(&p, N_BYTES), cudaSuccess);
    f->device = p;
}

static void close_queue(struct fixture *f)
{
    assert_int_equal(cudaStreamSynchronize(f->stream), cudaSuccess);
    cuda_queue_deinit(&f->q);
    for (int i = 0; i < CUDA_SLOTS; i++)
        cudaFreeHost(f->pinned[i]);
    cudaFree(f->device);
    cudaStreamDestroy(f->stream);
}

/* A step that brings the slot's bytes to the device and back behind them. */
static void submit(struct fixture *f, uint8_t value, bool follows)
{
    uint32_t i;
    assert_int_equal(cuda_queue_prepare(&f->q, &i, NULL), OK);
    memset(f->pinned[i], value, N_BYTES);
    memset(f->pinned[i] + N_BYTES, 0xee, N_BYTES);
    assert_int_equal(cuda_queue_mark(&f->q, i, NULL), OK);
    assert_int_equal(
        cudaMemcpyAsync(f->device, f->pinned[i], N_BYTES, cudaMemcpyHostToDevice, f->stream),
        cudaSuccess);
    assert_int_equal(
        cudaMemcpyAsync(
            f->pinned[i] + N_BYTES, f->device, N_BYTES, cudaMemcpyDeviceToHost, f->stream),
        cudaSuccess);
    assert_int_equal(cuda_queue_submit(&f->q, i, follows, NULL), OK);
}

static void collect(struct fixture *f, uint8_t value)
{
    uint32_t i;
    assert_int_equal(cuda_queue_collect(&f->q, &i, NULL), OK);
    for (int k = 0; k < N_BYTES; k++)
        assert_int_equal(f->pinned[i][N_BYTES + k], value);
    cuda_queue_release(&f->q, i);
}

static void steps_overlap_and_come_back_in_order(void **state)
{
    struct fixture f;
    (void)state;
    open_queue(&f);
    for (uint32_t n = 0; n < N_STEPS; n++) {
        submit(&f, (uint8_t)n, n > 0);
        assert_int_equal(cuda_queue_stats(&f.q).in_flight, n > 0 ? 2 : 1);
        if (n > 0)
            collect(&f, (uint8_t)(n - 1));
    }
    collect(&f, N_STEPS - 1);
    const struct gpu_queue_stats s = cuda_queue_stats(&f.q);
    assert_int_equal(s.slots, CUDA_SLOTS);
    assert_int_equal(s.submitted, N_STEPS);
    assert_int_equal(s.completed, N_STEPS);
    assert_int_equal(s.in_flight, 0);
    assert_true(s.stalls <= N_STEPS - 1);
    assert_true(s.busy_us >= 0 && s.idle_us >= 0 && s.stall_us >= 0);
    close_queue(&f);
}

/* Both slots are busy: the third step waits for the first, which is a stall, and is refused as long
 * as the first one's results are there to be read. */
static void nothing_is_overwritten(void **state)
{
    struct fixture f;
    struct err_info e;
    uint32_t i;
    (void)state;
    open_queue(&f);
    submit(&f, 1, false);
    submit(&f, 2, true);
    assert_int_equal(cuda_queue_prepare(&f.q, &i, &e), ERR_QUEUE_FULL);
    assert_int_equal(cudaEventQuery(f.q.spans[0].end), cudaSuccess); /* it was waited for */
    assert_true(cuda_queue_stats(&f.q).stalls <= 1);
    assert_int_equal(f.q.states[0], CUDA_SLOT_SUBMITTED);
    assert_int_equal(cuda_queue_collect(&f.q, &i, NULL), OK);
    assert_int_equal(i, 0);
    assert_int_equal(cuda_queue_prepare(&f.q, &i, &e), ERR_QUEUE_FULL); /* not released */
    for (int k = 0; k < N_BYTES; k++)
        assert_int_equal(f.pinned[0][N_BYTES + k], 1);
    cuda_queue_release(&f.q, 0);
    submit(&f, 3, true);
    collect(&f, 2);
    collect(&f, 3);
    assert_int_equal(cuda_queue_collect(&f.q, &i, &e), ERR_INTERNAL);
    close_queue(&f);
}

/* Work that lasts makes the wait a stall for certain. */
static void stalls_are_counted(void **state)
{
    struct fixture f;
    uint32_t i;
    (void)state;
    open_queue(&f);
    void *big, *host;
    const size_t n = (size_t)64 << 20;
    assert_int_equal(cudaMalloc(&big, n), cudaSuccess);
    assert_int_equal(cudaMallocHost(&host, n), cudaSuccess);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(cuda_queue_prepare(&f.q, &i, NULL), OK);
        assert_int_equal(cuda_queue_mark(&f.q, i, NULL), OK);
        for (int c = 0; c < 4; c++)
            assert_int_equal(cudaMemcpyAsync(big, host, n, cudaMemcpyHostToDevice, f.stream),
                             cudaSuccess);
        assert_int_equal(cuda_queue_submit(&f.q, i, k > 0, NULL), OK);
    }
    struct err_info e;
    assert_int_equal(cuda_queue_prepare(&f.q, &i, &e), ERR_QUEUE_FULL);
    struct gpu_queue_stats s = cuda_queue_stats(&f.q);
    assert_int_equal(s.stalls, 1);
    assert_true(s.stall_us > 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(cuda_queue_collect(&f.q, &i, NULL), OK);
        cuda_queue_release(&f.q, i);
    }
    s = cuda_queue_stats(&f.q);
    assert_true(s.busy_us > 0);
    cudaFree(big);
    cudaFreeHost(host);
    close_queue(&f);
}

static void an_abandoned_slot_is_empty(void **state)
{
    struct fixture f;
    uint32_t i;
    (void)state;
    open_queue(&f);
    assert_int_equal(cuda_queue_prepare(&f.q, &i, NULL), OK);
    assert_int_equal(cuda_queue_mark(&f.q, i, NULL), OK);
    cuda_queue_abandon(&f.q, i);
    assert_int_equal(cuda_queue_stats(&f.q).submitted, 0);
    submit(&f, 7, false);
    collect(&f, 7);
    close_queue(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_overlap_and_come_back_in_order),
        cmocka_unit_test(nothing_is_overwritten),
        cmocka_unit_test(stalls_are_counted),
        cmocka_unit_test(an_abandoned_slot_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
