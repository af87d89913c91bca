/* The emulation of the CUDA model: threads and what they do together. */
#include "emulated.h"

static const uint64_t seeds[] = {0, 1, 2, 3, 99};

/* --- geometry --- */

static __global__ void mark(unsigned *seen)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    atomicAdd(&seen[block * blockDim.x * blockDim.y * blockDim.z + thread], 1u);
}

static void test_every_thread_runs_once(void **)
{
    for (uint64_t seed : seeds) {
        emu_set_seed(seed);
        device_array<unsigned> seen(7 * 3 * 2 * 5 * 9 * 3);
        CUDA_LAUNCH(mark, dim3(7, 3, 2), dim3(5, 9, 3), 0, 0, seen.p);
        for (unsigned s : seen.down()) {
            assert_int_equal(s, 1);
        }
    }
    emu_set_seed(0);
}

/* --- warps --- */

static __global__ void shuffles(int *out)
{
    int lane = static_cast<int>(threadIdx.x % 32), v = lane * 3;
    int *o = out + threadIdx.x * 6;
    o[0] = __shfl_sync(0xffffffffu, v, 5);
    o[1] = __shfl_sync(0xffffffffu, v, 3, 8);
    o[2] = __shfl_up_sync(0xffffffffu, v, 2);
    o[3] = __shfl_up_sync(0xffffffffu, v, 3, 8);
    o[4] = __shfl_xor_sync(0xffffffffu, v, 9);
    if (lane < 16) {
        o[5] = __shfl_xor_sync(0xffffu, v, 1, 16);
    } else {
        o[5] = __shfl_sync(0xffff0000u, v, 31);
    }
}

static void test_shuffles(void **)
{
    for (uint64_t seed : seeds) {
        emu_set_seed(seed);
        device_array<int> out(64 * 6);
        CUDA_LAUNCH(shuffles, 1, 64, 0, 0, out.p);
        out.down();
        for (int i = 0; i < 64; i++) {
            int lane = i % 32;
            const int *o = &out.host[static_cast<size_t>(i) * 6];
            assert_int_equal(o[0], 15);
            assert_int_equal(o[1], (lane / 8 * 8 + 3) * 3);
            assert_int_equal(o[2], (lane < 2 ? lane : lane - 2) * 3);
            assert_int_equal(o[3], (lane % 8 < 3 ? lane : lane - 3) * 3);
            assert_int_equal(o[4], (lane ^ 9) * 3);
            assert_int_equal(o[5], (lane < 16 ? lane ^ 1 : 31) * 3);
        }
    }
    emu_set_seed(0);
}

static __global__ void votes(unsigned *out)
{
    out[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x % 3 == 0);
    __syncwarp();
}

static void test_votes(void **)
{
    device_array<unsigned> out(32);
    CUDA_LAUNCH(votes, 1, 32, 0, 0, out.p);
    for (unsigned v : out.down()) {
        assert_int_equal(v, 0x49249249u);
    }
}

/* --- blocks --- */

static __global__ void barriers(int *out, int n)
{
    CUDA_SHARED(int, s);
    int t = static_cast<int>(threadIdx.x), sum = 0;
    for (int i = 0; i < 5; i++) {
        s[t] = t + i;
        __syncthreads();
        sum += s[n - 1 - t];
        __syncthreads();
    }
    out[t] = sum;
}

static void test_barriers(void **)
{
    for (uint64_t seed : seeds) {
        emu_set_seed(seed);
        int n = 70;
        device_array<int> out(70);
        CUDA_LAUNCH(barriers, 1, 70, 280, 0, out.p, n);
        out.down();
        for (int t = 0; t < n; t++) {
            assert_int_equal(out.host[static_cast<size_t>(t)], 5 * (n - 1 - t) + 10);
        }
    }
    emu_set_seed(0);
}

/* A static array must not be what the block before left; each block writes what it reads. */
static __global__ void static_shared(int *out)
{
    __shared__ int s[32];
    s[threadIdx.x] = static_cast<int>(blockIdx.x * 100 + threadIdx.x);
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
}

static void test_static_shared(void **)
{
    device_array<int> out(96);
    CUDA_LAUNCH(static_shared, 3, 32, 0, 0, out.p);
    out.down();
    for (int i = 0; i < 96; i++) {
        assert_int_equal(out.host[static_cast<size_t>(i)], i / 32 * 100 + 31 - i % 32);
    }
}

static __global__ void atomics(unsigned *u)
{
    atomicAdd(&u[0], 2u);
    atomicOr(&u[1], 1u << (threadIdx.x % 32));
}

static void test_atomics(void **)
{
    device_array<unsigned> u(2);
    CUDA_LAUNCH(atomics, 3, 64, 0, 0, u.p);
    u.down();
    assert_int_equal(u.host[0], 384);
    assert_int_equal(u.host[1], 0xffffffffu);
}

/* --- arithmetic --- */

static void test_integers(void **)
{
    random_bits r = {1};
    for (int i = 0; i < 20000; i++) {
        unsigned a = static_cast<unsigned>(r.next()), b = static_cast<unsigned>(r.next());
        unsigned perm = 0, selector = static_cast<unsigned>(r.next()) & 0x7777;
        for (int k = 0; k < 4; k++) {
            unsigned from = selector >> 4 * k & 7;
            perm |= ((from < 4 ? a >> 8 * from : b >> 8 * (from - 4)) & 255) << 8 * k;
        }
        assert_int_equal(__byte_perm(a, b, selector), perm);
    }
    assert_int_equal(__clz(0), 32);
    assert_int_equal(__clz(1), 31);
    assert_int_equal(__float2int_rn(2.5f), 2);
    assert_int_equal(__float2int_rn(3.5f), 4);
    assert_int_equal(__float2int_rn(1e30f), 0x7fffffff);
    assert_int_equal(__float2int_rn(-1e30f), -0x7fffffff - 1);
    assert_int_equal(__float2int_rn(NAN), 0);
}

/* v, rounded to h, must lie nearer to it than to its neighbours, or as near and h be even. */
template <class H> static void check_nearest(long double v, H h, uint16_t infinity)
{
    auto value = [infinity](uint16_t bits) -> long double {
        /* one step beyond the largest is where infinity begins to be nearer */
        if ((bits & 0x7fff) == infinity) {
            H most = H(of_bits<H>(static_cast<uint16_t>(infinity - 1)));
            H next = H(of_bits<H>(static_cast<uint16_t>(infinity - 2)));
            long double m = float(most), step = m - static_cast<long double>(float(next));
            return bits & 0x8000 ? -(m + step) : m + step;
        }
        return float(of_bits<H>(bits));
    };
    uint16_t bits = h.bits, magnitude = bits & 0x7fff, sign = bits & 0x8000;
    long double here = fabsl(v - value(bits));
    if (magnitude == infinity && fabsl(v) > fabsl(value(bits))) {
        here = 0;
    }
    if (magnitude > 0) {
        long double d = fabsl(v - value(static_cast<uint16_t>(sign | (magnitude - 1))));
        assert_true(here < d || (here == d && !(bits & 1)));
    }
    if (magnitude < infinity) {
        long double d = fabsl(v - value(static_cast<uint16_t>(sign | (magnitude + 1))));
        assert_true(here < d || (here == d && !(bits & 1)));
    }
}

template <class H> static void check_type(uint16_t infinity, int exponents)
{
    for (unsigned i = 0; i < 65536; i++) {
        uint16_t bits = static_cast<uint16_t>(i);
        H h = of_bits<H>(bits);
        if ((bits & 0x7fff) > infinity) {
            assert_true(isnan(float(h)));
        } else {
            assert_int_equal(H(float(h)).bits, bits);
        }
    }
    random_bits r = {2};
    for (int i = 0; i < 200000; i++) {
        float v = ldexpf(r.unit(),
                         static_cast<int>(r.next() % static_cast<unsigned>(exponents)) -
                             exponents * 2 / 3);
        check_nearest(v, H(v), infinity);
        H a = of_bits<H>(static_cast<uint16_t>(r.next())),
          b = of_bits<H>(static_cast<uint16_t>(r.next())),
          c = of_bits<H>(static_cast<uint16_t>(r.next()));
        /* what 64 bits of mantissa hold exactly */
        long double p = static_cast<long double>(float(a)) * float(b);
        long double s = p + static_cast<long double>(float(c));
        if (isfinite(p) && isfinite(float(c)) && p != 0 && float(c) != 0 &&
            abs(ilogbl(p) - ilogbl(float(c))) < 30) {
            check_nearest(s, __hfma(a, b, c), infinity);
            check_nearest(static_cast<long double>(float(a)) * float(b), __hmul(a, b), infinity);
        }
        if (isfinite(float(a)) && isfinite(float(b)) && float(a) != 0 && float(b) != 0 &&
            abs(ilogbf(a) - ilogbf(b)) < 40) {
            check_nearest(static_cast<long double>(float(a)) + float(b), __hadd(a, b), infinity);
            check_nearest(static_cast<long double>(float(a)) - float(b), __hsub(a, b), infinity);
        }
    }
}

static void test_half(void **)
{
    check_type<__half>(0x7c00, 45);
    assert_int_equal(__float2half(65519.0f).bits, 0x7bff);
    assert_int_equal(__float2half(65520.0f).bits, 0x7c00);
    assert_int_equal(__float2half(5.9604645e-8f).bits, 1);
    assert_int_equal(__float2half(2.9802322e-8f).bits, 0);
    assert_int_equal(__half(static_cast<double>(1.0009765625 / 2 + 0.5)).bits, 0x3c00);
}

static void test_bfloat16(void **)
{
    check_type<__nv_bfloat16>(0x7f80, 200);
}

/* --- reports --- */

static __global__ void touch(const int *p, long at, int *out)
{
    *out = p[at];
}
static __global__ void put(char *p, long at)
{
    p[at] = 1;
}
static __global__ void beyond_shared(int *out)
{
    CUDA_SHARED(int, s);
    s[threadIdx.x + 4] = 1;
    *out = s[0];
}
static __global__ void some_at_barrier(int *out)
{
    if (threadIdx.x < 40) {
        __syncthreads();
    }
    *out = 1;
}
static __global__ void ended_before_barrier(int *out)
{
    if (threadIdx.x == 5) {
        return;
    }
    __syncthreads();
    *out = 1;
}
static __global__ void shuffle_with_ended(int *out)
{
    if (threadIdx.x < 8) {
        *out = __shfl_xor_sync(0xffffffffu, 1, 1);
    }
}
static __global__ void shuffle_alone(int *out)
{
    if (threadIdx.x < 8) {
        *out = __shfl_xor_sync(0xffffffffu, 1, 1);
    } else {
        __syncthreads();
    }
}
static __global__ void two_meetings(int *out)
{
    if (threadIdx.x < 8) {
        *out = __shfl_xor_sync(0xffffffffu, 1, 1);
    } else {
        *out = static_cast<int>(__ballot_sync(0xffffffffu, 1));
    }
}
static __global__ void from_outside(int *out)
{
    if (threadIdx.x < 16) {
        *out = __shfl_sync(0xffffu, 1, 20);
    }
}
static __global__ void no_wait(const uint4 *in)
{
    CUDA_SHARED(uint4, s);
    cp_async_16(s, in);
    cp_async_commit();
}
static __global__ void nothing()
{
}
static __global__ void waits_but_one(unsigned one)
{
    if (threadIdx.x == one) {
        return;
    }
    cuda_wait_before();
}
static __global__ void deep(volatile char *out)
{
    char large[1 << 20];
    for (size_t i = 0; i < sizeof large; i += 512) {
        const_cast<volatile char *>(large)[i] = *out;
    }
}

static void test_reports(void **)
{
    /* of the device's memory */
    must_report("beyond an allocation of 1000", [] {
        device_array<char> a(1000);
        device_array<int> out(1);
        CUDA_LAUNCH(touch, 1, 1, 0, 0, reinterpret_cast<int *>(a.p), 260L, out.p);
    });
    must_report("before an allocation", [] {
        device_array<char> a(4096);
        device_array<int> out(1);
        CUDA_LAUNCH(touch, 1, 1, 0, 0, reinterpret_cast<int *>(a.p), -3L, out.p);
    });
    must_report("beside an allocation", [] {
        device_array<char> a(1000);
        CUDA_LAUNCH(put, 1, 1, 0, 0, a.p, 1003L);
        cudaDeviceSynchronize();
    });
    must_report("no allocation is near", [] {
        device_array<int> out(1);
        CUDA_LAUNCH(touch, 1, 1, 0, 0, static_cast<const int *>(nullptr), 0L, out.p);
    });
    must_report("beyond the end of dynamic shared memory", [] {
        device_array<int> out(1);
        CUDA_LAUNCH(beyond_shared, 1, 32, 128, 0, out.p);
    });
    must_report("no dynamic shared memory", [] {
        device_array<int> out(1);
        CUDA_LAUNCH(beyond_shared, 1, 32, 0, 0, out.p);
    });
    must_report("stack is too small", [] {
        device_array<char> out(1);
        CUDA_LAUNCH(deep, 1, 1, 0, 0, out.p);
    });
    /* of threads that should be together */
    must_report("threads wait for each other", [] {
        device_array<int> out(1);
        emu_set_seed(0);
        CUDA_LAUNCH(some_at_barrier, 1, 64, 0, 0, out.p);
    });
    must_report("after a thread of the block has ended", [] {
        device_array<int> out(1);
        CUDA_LAUNCH(ended_before_barrier, 1, 32, 0, 0, out.p);
    });
    must_report("lanes that have ended", [] {
        device_array<int> out(1);
        emu_set_seed(1);
        CUDA_LAUNCH(shuffle_with_ended, 1, 32, 0, 0, out.p);
    });
    must_report("lanes that have ended or never were", [] {
        device_array<int> out(64);
        CUDA_LAUNCH(shuffle_with_ended, 1, 20, 0, 0, out.p);
    });
    must_report("threads wait for each other", [] {
        device_array<int> out(1);
        CUDA_LAUNCH(shuffle_alone, 1, 32, 0, 0, out.p);
    });
    must_report("meets lane", [] {
        device_array<int> out(1);
        CUDA_LAUNCH(two_meetings, 1, 32, 0, 0, out.p);
    });
    must_report("which its mask", [] {
        device_array<int> out(1);
        CUDA_LAUNCH(from_outside, 1, 32, 0, 0, out.p);
    });
    must_report("asynchronous copies that it did not wait for", [] {
        device_array<uint4> in(1);
        CUDA_LAUNCH(no_wait, 1, 1, 16, 0, in.p);
    });
    must_report("thread (5, 0, 0): the thread ends without cuda_wait_before",
                [] { CUDA_LAUNCH_NEXT(waits_but_one, 2, 32, 0, 0, 5); });
    /* of launches */
    must_report("blocks of 2048 x 1", [] { CUDA_LAUNCH(nothing, 1, 2048, 0, 0); });
    must_report("a grid of 1 x 70000", [] { CUDA_LAUNCH(nothing, dim3(1, 70000), 1, 0, 0); });
    must_report("65536 bytes of dynamic shared", [] { CUDA_LAUNCH(nothing, 1, 1, 65536, 0); });
}

/* What the device holds cannot be had by following a pointer; and an error stays. */
static void test_host_cannot_touch(void **)
{
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) {
            _exit(3);
        }
        signal(SIGSEGV, SIG_DFL);
        device_array<int> a(4);
        volatile int *p = a.p;
        _exit(*p == 12345 ? 1 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 1));
}

static void test_error_stays(void **)
{
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) {
            _exit(3);
        }
        CUDA_LAUNCH(ended_before_barrier, 1, 32, 0, 0, static_cast<int *>(nullptr));
        bool ok = cudaDeviceSynchronize() == cudaErrorLaunchFailure &&
                  cudaGetLastError() == cudaErrorLaunchFailure &&
                  cudaDeviceSynchronize() == cudaErrorLaunchFailure;
        exit(ok ? 0 : 4); /* and the report that nobody took decides */
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EMU_EXIT);
}

static void test_limits_can_be_raised(void **)
{
    int value = 0, n = 0;
    OK_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    OK_CUDA(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, value));
    CUDA_LAUNCH(nothing, 1, 1, static_cast<size_t>(value), 0);
    OK_CUDA(cudaGetLastError());
    OK_CUDA(cudaDeviceSynchronize());
    OK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, nothing, 1024, 0));
    assert_int_equal(n, 2);
    assert_int_equal(
        cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, value + 1),
        cudaErrorInvalidValue);
    cudaGetLastError();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_runs_once),
        cmocka_unit_test(test_shuffles),
        cmocka_unit_test(test_votes),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_static_shared),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_bfloat16),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_host_cannot_touch),
        cmocka_unit_test(test_error_stays),
        cmocka_unit_test(test_limits_can_be_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
