/* That races.cpp sees the races that there are, and no others. Compiled in that mode alone. */
#include "emulated.h"

#if !defined(EMU_RACES)
#error "compiled without -fsanitize=thread"
#endif

/* --- within a block --- */

static __global__ void reverse(int *out, int with_barrier)
{
    CUDA_SHARED(int, s);
    s[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (with_barrier) {
        __syncthreads();
    }
    out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
static __global__ void reverse_static(int *out, int with_barrier)
{
    __shared__ int s[64];
    for (int i = 0; i < 2; i++) {
        s[threadIdx.x] = static_cast<int>(threadIdx.x);
        __syncthreads();
        out[threadIdx.x] = s[63 - threadIdx.x];
        if (with_barrier) {
            __syncthreads();
        }
    }
}
static __global__ void one_warp(int *out, int with_meeting)
{
    CUDA_SHARED(int, s);
    s[threadIdx.x] = 1;
    if (with_meeting) {
        __syncwarp();
    }
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}
/* A warp's meeting does not order it with another warp. */
static __global__ void two_warps(int *out)
{
    CUDA_SHARED(int, s);
    s[threadIdx.x] = 1;
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 32];
}
static __global__ void bytes(uint8_t *out)
{
    out[threadIdx.x] = static_cast<uint8_t>(threadIdx.x); /* neighbours are not the same */
}
static __global__ void copy_without_barrier(const uint4 *in, uint4 *out, int with_barrier)
{
    CUDA_SHARED(uint4, s);
    cp_async_16(&s[threadIdx.x], &in[threadIdx.x]);
    cp_async_commit();
    cp_async_wait<0>();
    if (with_barrier) {
        __syncthreads();
    }
    out[threadIdx.x] = s[threadIdx.x ^ 32];
}

/* --- between blocks --- */

static __global__ void count(unsigned *sum, int atomic)
{
    if (threadIdx.x == 0) {
        if (atomic) {
            atomicAdd(sum, 1u);
        } else {
            *sum = *sum + 1;
        }
    }
}
static __global__ void neighbour(int *p, int *out)
{
    p[blockIdx.x] = 1;
    out[blockIdx.x] = p[(blockIdx.x + 1) % gridDim.x];
}

/* --- before the wait --- */

enum { READS = 1, WRITES = 2 };
static __global__ void early(int *p, int *out, int what)
{
    int seen = 0;
    if (what & READS) {
        seen = p[threadIdx.x];
    }
    if (what & WRITES) {
        out[threadIdx.x] = seen;
    }
    cuda_wait_before();
    out[threadIdx.x] = seen + p[threadIdx.x];
}
static __global__ void before_it(int *p)
{
    p[threadIdx.x] = 1;
}

/* What was copied there may be read early, what a kernel wrote not. */
static void test_what_is_too_early(void **)
{
    device_array<int> p(32), out(32);
    CUDA_LAUNCH_NEXT(early, 1, 32, 0, 0, p.p, out.p, READS);
    CUDA_LAUNCH(before_it, 1, 32, 0, 0, p.p);
    CUDA_LAUNCH_NEXT(early, 1, 32, 0, 0, p.p, out.p, 0);
    CUDA_LAUNCH(early, 1, 32, 0, 0, p.p, out.p, READS | WRITES); /* it does not begin early */
    OK_CUDA(cudaDeviceSynchronize());
    must_report("a read before cuda_wait_before", [] {
        device_array<int> p(32), out(32);
        CUDA_LAUNCH(before_it, 1, 32, 0, 0, p.p);
        CUDA_LAUNCH_NEXT(early, 1, 32, 0, 0, p.p, out.p, READS);
    });
    must_report("a write before cuda_wait_before", [] {
        device_array<int> p(32), out(32);
        CUDA_LAUNCH_NEXT(early, 1, 32, 0, 0, p.p, out.p, WRITES);
    });
}

static void test_what_is_a_race(void **)
{
    must_report("in reverse, block 0", [] {
        device_array<int> out(64);
        CUDA_LAUNCH(reverse, 1, 64, 256, 0, out.p, 0);
    });
    must_report("in reverse_static, block 0", [] {
        device_array<int> out(64);
        CUDA_LAUNCH(reverse_static, 1, 64, 0, 0, out.p, 0);
    });
    must_report("race: ", [] {
        device_array<int> out(32);
        CUDA_LAUNCH(one_warp, 1, 32, 128, 0, out.p, 0);
    });
    must_report("in two_warps, block 0", [] {
        device_array<int> out(64);
        CUDA_LAUNCH(two_warps, 1, 64, 256, 0, out.p);
    });
    must_report("race: ", [] {
        device_array<uint4> in(64), out(64);
        CUDA_LAUNCH(copy_without_barrier, 1, 64, 1024, 0, in.p, out.p, 0);
    });
    must_report("race: ", [] {
        device_array<unsigned> sum(1);
        CUDA_LAUNCH(count, 3, 32, 0, 0, sum.p, 0);
    });
    must_report("race: ", [] {
        device_array<int> p(3), out(3);
        CUDA_LAUNCH(neighbour, 3, 1, 0, 0, p.p, out.p);
    });
}

static void test_what_is_none(void **)
{
    device_array<int> out(64);
    device_array<uint8_t> small(64);
    device_array<unsigned> sum(1);
    device_array<uint4> in(64), copied(64);
    for (uint64_t seed = 0; seed < 4; seed++) {
        emu_set_seed(seed);
        CUDA_LAUNCH(reverse, 1, 64, 256, 0, out.p, 1);
        OK_CUDA(cudaDeviceSynchronize());
        CUDA_LAUNCH(reverse_static, 1, 64, 0, 0, out.p, 1);
        CUDA_LAUNCH(one_warp, 1, 32, 128, 0, out.p, 1);
        CUDA_LAUNCH(bytes, 1, 64, 0, 0, small.p);
        CUDA_LAUNCH(count, 9, 32, 0, 0, sum.p, 1);
        CUDA_LAUNCH(copy_without_barrier, 1, 64, 1024, 0, in.p, copied.p, 1);
        OK_CUDA(cudaDeviceSynchronize());
    }
    emu_set_seed(0);
}

/* --- between streams --- */

static __global__ void fill(int *p, int v)
{
    p[threadIdx.x] = v;
}

/* Two streams over one array: how the second is made to wait. */
enum ordering { NOT_AT_ALL, BY_EVENT, BY_HOST, WRONG_EVENT };

static void two_streams(ordering how)
{
    int *p, *host;
    cudaStream_t a, b;
    cudaEvent_t e;
    OK_CUDA(cudaMalloc(&p, 32 * sizeof *p));
    OK_CUDA(cudaMallocHost(&host, 32 * sizeof *host));
    OK_CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK_CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK_CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    if (how == WRONG_EVENT) {
        OK_CUDA(cudaEventRecord(e, a));
    }
    CUDA_LAUNCH(fill, 1, 32, 0, a, p, 1);
    if (how == BY_EVENT) {
        OK_CUDA(cudaEventRecord(e, a));
    }
    if (how == BY_EVENT || how == WRONG_EVENT) {
        OK_CUDA(cudaStreamWaitEvent(b, e, 0));
    }
    if (how == BY_HOST) {
        OK_CUDA(cudaStreamSynchronize(a));
    }
    OK_CUDA(cudaMemcpyAsync(host, p, 32 * sizeof *p, cudaMemcpyDeviceToHost, b));
    OK_CUDA(cudaStreamSynchronize(b));
    cudaStreamSynchronize(a);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaEventDestroy(e);
    cudaFree(p);
    cudaFreeHost(host);
}

static void test_streams(void **)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        emu_set_seed(seed);
        two_streams(BY_EVENT);
        two_streams(BY_HOST);
        must_report("race: ", [] { two_streams(NOT_AT_ALL); });
        must_report("race: ", [] { two_streams(WRONG_EVENT); });
    }
    emu_set_seed(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_a_race),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_what_is_too_early),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
