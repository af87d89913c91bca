/* mma.cuh: products of the tensor cores and loads of their fragments, against plain loops. */
#include "emulated.h"

/* Fragments by ldmatrix from row-major A [16][K] and from B^T [8][K]. */
template <class T, int K> static __global__ void product(const T *a, const T *bt, float *d)
{
    CUDA_SHARED(T, s);
    int lane = static_cast<int>(threadIdx.x);
    for (int i = lane * 8; i < (16 + 8) * K; i += 256) {
        cp_async_16(&s[i], i < 16 * K ? &a[i] : &bt[i - 16 * K]);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    const T *sb = s + 16 * K;
    float sum[4] = {1, 2, 3, 4};
    for (int k = 0; k < K; k += 16) {
        uint32_t fa[4], fb[4]; /* fb: each twice */
        ldmatrix_x4(fa, &s[(lane % 16) * K + k + lane / 16 * 8]);
        ldmatrix_x4(fb, &sb[(lane % 8) * K + k + lane / 8 % 2 * 8]);
        if (sizeof(T) == 2 && __half(1.0f).bits == T(1.0f).bits) {
            mma_f16(sum, fa, fb);
        } else {
            mma_bf16(sum, fa, fb);
        }
    }
    for (int i = 0; i < 4; i++) {
        d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
    }
}

template <class T> static void check_product()
{
    constexpr int K = 48;
    random_bits r = {7};
    device_array<T> a(16 * K), bt(8 * K);
    device_array<float> d(128);
    for (T &v : a.host) {
        v = T(r.unit());
    }
    for (T &v : bt.host) {
        v = T(r.unit());
    }
    a.up();
    bt.up();
    CUDA_LAUNCH((product<T, K>), 1, 32, 24 * K * sizeof(T), 0, a.p, bt.p, d.p);
    d.down();
    for (size_t m = 0; m < 16; m++) {
        for (size_t n = 0; n < 8; n++) {
            double want = static_cast<double>(m / 8 * 2 + n % 2 + 1);
            for (size_t k = 0; k < K; k++) {
                want += static_cast<double>(float(a.host[m * K + k])) * float(bt.host[n * K + k]);
            }
            assert_true(fabs(want - d.host[m * 8 + n]) < 1e-4);
        }
    }
}

static void test_16_bits(void **)
{
    check_product<__half>();
    check_product<__nv_bfloat16>();
}

static __global__ void transposed(const uint16_t *in, uint32_t *out)
{
    CUDA_SHARED(uint16_t, s);
    int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < 8; i++) {
        s[lane * 8 + i] = in[lane * 8 + i];
    }
    __syncthreads();
    uint32_t r[4];
    ldmatrix_x4_trans(r, &s[lane * 8]);
    for (int i = 0; i < 4; i++) {
        out[i * 32 + lane] = r[i];
    }
}

static void test_transposed(void **)
{
    device_array<uint16_t> in(256);
    device_array<uint32_t> out(128);
    for (size_t i = 0; i < 256; i++) {
        in.host[i] = static_cast<uint16_t>(i);
    }
    in.up();
    CUDA_LAUNCH(transposed, 1, 32, 512, 0, in.p, out.p);
    out.down();
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t g = lane / 4, t = lane % 4 * 2;
            uint32_t low = i * 64 + t * 8 + g, high = i * 64 + (t + 1) * 8 + g;
            assert_int_equal(out.host[i * 32 + lane], low | high << 16);
        }
    }
}

/* What is on its way is not there before the wait; the older of two groups comes first. */
static __global__ void early(const uint4 *in, unsigned *out)
{
    CUDA_SHARED(uint4, s);
    s[0].x = s[1].x = s[2].y = 5;
    cp_async_16(&s[0], &in[0]);
    cp_async_commit();
    cp_async_16(&s[1], &in[1]);
    cp_async_16_fill(&s[2], &in[1], 0);
    cp_async_commit();
    out[0] = s[0].x;
    cp_async_wait<1>();
    out[1] = s[0].x;
    out[2] = s[1].x;
    cp_async_wait<0>();
    out[3] = s[1].x;
    out[4] = s[2].y;
}

static void test_copies_are_late(void **)
{
    device_array<uint4> in(2);
    device_array<unsigned> out(5);
    in.host[0] = uint4{11, 0, 0, 0};
    in.host[1] = uint4{12, 7, 0, 0};
    in.up();
    CUDA_LAUNCH(early, 1, 1, 48, 0, in.p, out.p);
    const unsigned want[] = {5, 11, 5, 12, 0};
    assert_memory_equal(out.down().data(), want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_16_bits),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_copies_are_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
