/* The emulation's streams, events and graphs: what is ordered is, and what is not comes in some
 * seed the other way round. */
#include "emulated.h"

static __global__ void set(int *p, int v)
{
    *p = v;
}
static __global__ void times_ten_plus(int *p, int v)
{
    *p = *p * 10 + v;
}

struct two {
    cudaStream_t a, b;
    cudaEvent_t e;
    int *p, *host;
    two()
    {
        OK_CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        OK_CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        OK_CUDA(cudaEventCreate(&e));
        OK_CUDA(cudaMalloc(&p, sizeof *p));
        OK_CUDA(cudaMallocHost(&host, sizeof *host));
        OK_CUDA(cudaMemset(p, 0, sizeof *p));
        OK_CUDA(cudaDeviceSynchronize());
    }
    ~two()
    {
        cudaStreamDestroy(a);
        cudaStreamDestroy(b);
        cudaEventDestroy(e);
        cudaFree(p);
        cudaFreeHost(host);
    }
    int value()
    {
        OK_CUDA(cudaDeviceSynchronize());
        int v;
        OK_CUDA(cudaMemcpy(&v, p, sizeof v, cudaMemcpyDeviceToHost));
        return v;
    }
};

static void test_events_order(void **)
{
    unsigned seen = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        emu_set_seed(seed);
        two t;
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, t.a, t.p, 1);
        OK_CUDA(cudaEventRecord(t.e, t.a));
        OK_CUDA(cudaStreamWaitEvent(t.b, t.e, 0));
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, t.b, t.p, 2);
        assert_int_equal(t.value(), 12);

        OK_CUDA(cudaMemset(t.p, 0, sizeof(int)));
        OK_CUDA(cudaDeviceSynchronize());
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, t.a, t.p, 1); /* and nothing says what comes first */
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, t.b, t.p, 2);
        int v = t.value();
        assert_true(v == 12 || v == 21);
        seen |= v == 12 ? 1 : 2;
    }
    assert_int_equal(seen, 3);
    emu_set_seed(0);
}

static void test_work_is_late(void **)
{
    two t;
    *t.host = 1;
    OK_CUDA(cudaMemcpyAsync(t.p, t.host, sizeof(int), cudaMemcpyHostToDevice, t.a));
    *t.host = 2; /* too early: the copy reads it when it runs */
    assert_int_equal(t.value(), 2);
    int plain = 3;
    OK_CUDA(cudaMemcpyAsync(t.p, &plain, sizeof(int), cudaMemcpyHostToDevice, t.a));
    plain = 4; /* memory that is not pinned was staged */
    assert_int_equal(t.value(), 3);
    CUDA_LAUNCH(set, 1, 1, 0, t.a, t.p, 9);
    OK_CUDA(cudaEventRecord(t.e, t.a));
    unsigned polls = 0;
    while (cudaEventQuery(t.e) == cudaErrorNotReady) {
        polls++;
    }
    assert_true(polls > 0);
    assert_int_equal(t.value(), 9);
    float ms = -1;
    OK_CUDA(cudaEventElapsedTime(&ms, t.e, t.e));
    assert_true(ms == 0);
}

/* The legacy stream and streams that block wait for each other; others do not. */
static void test_legacy_stream(void **)
{
    bool wiped = false;
    for (uint64_t seed = 0; seed < 12; seed++) {
        emu_set_seed(seed);
        two t;
        cudaStream_t blocking;
        OK_CUDA(cudaStreamCreate(&blocking));
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, blocking, t.p, 1);
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, 0, t.p, 2);
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, blocking, t.p, 3);
        assert_int_equal(t.value(), 123);
        OK_CUDA(cudaMemset(t.p, 0, sizeof(int)));
        CUDA_LAUNCH(set, 1, 1, 0, t.a, t.p, 5); /* of a stream that does not wait for it */
        wiped |= t.value() == 0;
        cudaStreamDestroy(blocking);
    }
    assert_true(wiped);
    emu_set_seed(0);
}

static void test_graphs(void **)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        emu_set_seed(seed);
        two t;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaEvent_t back;
        int v = 1;
        size_t n = 0;
        OK_CUDA(cudaEventCreate(&back));
        OK_CUDA(cudaStreamBeginCapture(t.a, cudaStreamCaptureModeThreadLocal));
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, t.a, t.p, v);
        v = 7; /* the graph keeps what it was */
        OK_CUDA(cudaEventRecord(t.e, t.a));
        OK_CUDA(cudaStreamWaitEvent(t.b, t.e, 0));
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, t.b, t.p, 2);
        OK_CUDA(cudaEventRecord(back, t.b));
        OK_CUDA(cudaStreamWaitEvent(t.a, back, 0));
        CUDA_LAUNCH(times_ten_plus, 1, 1, 0, t.a, t.p, 3);
        OK_CUDA(cudaStreamEndCapture(t.a, &graph));
        OK_CUDA(cudaGraphGetNodes(graph, NULL, &n));
        assert_int_equal(n, 3);
        assert_int_equal(t.value(), 0); /* nothing has run */
        OK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
        OK_CUDA(cudaGraphDestroy(graph));
        OK_CUDA(cudaGraphLaunch(exec, t.a));
        OK_CUDA(cudaGraphLaunch(exec, t.a));
        assert_int_equal(t.value(), 123123);
        OK_CUDA(cudaGraphExecDestroy(exec));
        OK_CUDA(cudaEventDestroy(back));
    }
    emu_set_seed(0);
}

static void test_captures_that_fail(void **)
{
    two t;
    cudaGraph_t graph;
    OK_CUDA(cudaStreamBeginCapture(t.a, cudaStreamCaptureModeThreadLocal));
    OK_CUDA(cudaEventRecord(t.e, t.a));
    OK_CUDA(cudaStreamWaitEvent(t.b, t.e, 0));
    CUDA_LAUNCH(set, 1, 1, 0, t.b, t.p, 1);
    assert_int_equal(cudaStreamEndCapture(t.a, &graph), cudaErrorStreamCaptureUnjoined);

    OK_CUDA(cudaStreamBeginCapture(t.a, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamSynchronize(t.a), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(t.a, &graph), cudaErrorStreamCaptureInvalidated);

    OK_CUDA(cudaStreamBeginCapture(t.a, cudaStreamCaptureModeThreadLocal));
    void *p;
    assert_int_equal(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(t.a, &graph), cudaErrorStreamCaptureInvalidated);
    assert_int_equal(t.value(), 0);
    cudaGetLastError();
}

static void test_reports(void **)
{
    must_report("bytes from byte 8 of an allocation of 16", [] {
        device_array<char> a(16);
        char h[16] = {};
        cudaMemcpy(a.p + 8, h, 9, cudaMemcpyHostToDevice);
    });
    must_report("the direction is not", [] {
        device_array<char> a(16);
        char h[16] = {};
        cudaMemcpy(h, a.p, 16, cudaMemcpyHostToDevice);
    });
    must_report("memset", [] {
        device_array<char> a(16);
        cudaMemset(a.p, 0, 17);
    });
    must_report("which a queued copy reads or writes", [] {
        void *device, *pinned;
        cudaMalloc(&device, 16);
        cudaMallocHost(&pinned, 16);
        cudaMemcpyAsync(pinned, device, 16, cudaMemcpyDeviceToHost, 0);
        cudaFreeHost(pinned);
    });
    must_report("not an allocation of that kind", [] {
        int x;
        cudaFree(&x);
    });
}

static void test_memory_is_counted(void **)
{
    size_t before, after, total;
    void *p, *q;
    OK_CUDA(cudaMemGetInfo(&before, &total));
    OK_CUDA(cudaMalloc(&p, 1 << 20));
    OK_CUDA(cudaMemGetInfo(&after, &total));
    assert_int_equal(before - after, 1 << 20);
    assert_int_equal(cudaMalloc(&q, total), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK_CUDA(cudaGetLastError());
    OK_CUDA(cudaFree(p));
    OK_CUDA(cudaMemGetInfo(&after, &total));
    assert_int_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_order),
        cmocka_unit_test(test_work_is_late),
        cmocka_unit_test(test_legacy_stream),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_captures_that_fail),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_memory_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
