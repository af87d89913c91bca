#include "backend/cuda/mma.cuh"

#include <stdio.h>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

template <int n> static __global__ void scale(const float *in, float *out, float by, int len)
{
    CUDA_SHARED(float, s);
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = i < len ? in[i] : 0;
    __syncthreads();
    float v = s[blockDim.x - 1 - threadIdx.x] * by;
    for (int o = 16; o; o >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, o);
    }
    if (i < len) {
        out[i] = v + n;
    }
}

static void test_scale(void **state)
{
    (void)state;
    float *d, *e, h[128];
    assert_int_equal(cudaMalloc(&d, sizeof h), 0);
    assert_int_equal(cudaMalloc(&e, sizeof h), 0);
    for (int i = 0; i < 128; i++) {
        h[i] = (float)i;
    }
    assert_int_equal(cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice), 0);
    CUDA_LAUNCH((scale<3>), 2, 64, 64 * sizeof(float), 0, d, e, 2, 128);
    assert_int_equal(cudaMemcpy(h, e, sizeof h, cudaMemcpyDeviceToHost), 0);
    assert_true(h[0] == 2 * (32 * 63 - 16 * 31) + 3);
    cudaFree(d);
    cudaFree(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scale)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
