/* What tests of kernels share: arrays of the device, a step there, and random numbers.
 *
 * Everything goes through the CUDA interface, so the same tests run over the emulation and on a
 * device. Random numbers follow from WEIR_TEST_SEED, or a fixed seed; it is printed. */
#ifndef WEIR_TESTS_CUDA_ON_DEVICE_H
#define WEIR_TESTS_CUDA_ON_DEVICE_H

#include "backend/cuda/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

/* --- random numbers --- */

static uint64_t random_state;

static inline void random_begin()
{
    const char *s = getenv("WEIR_TEST_SEED");
    random_state = s ? strtoull(s, NULL, 10) : 20240817;
    printf("WEIR_TEST_SEED=%llu\n", (unsigned long long)random_state);
}
static inline uint64_t random_u64()
{
    uint64_t x = random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static inline double random_unit()
{
    return (double)(random_u64() >> 11) * 0x1p-53;
}
static inline uint32_t random_below(uint32_t n)
{
    return (uint32_t)(random_u64() % n);
}
static inline float random_normal()
{
    return (float)(sqrt(-2 * log(1 - random_unit())) * cos(6.283185307179586 * random_unit()));
}
static inline std::vector<float> random_floats(size_t n, float size = 1.0f)
{
    std::vector<float> v(n);
    for (float &x : v)
        x = random_normal() * size;
    return v;
}

/* --- arrays --- */

static inline void on_device_ok(cudaError_t err)
{
    if (err != cudaSuccess)
        fail_msg("%s", cudaGetErrorString(err));
}

template <class T> struct device_array {
    T *p = NULL;
    size_t n = 0;
    device_array()
    {
    }
    explicit device_array(const std::vector<T> &v)
    {
        put(v);
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;
    ~device_array()
    {
        if (p)
            cudaFree(p);
    }
    void put(const std::vector<T> &v)
    {
        if (n != v.size()) {
            if (p)
                cudaFree(p);
            p = NULL;
            n = v.size();
            if (n)
                on_device_ok(cudaMalloc((void **)&p, n * sizeof(T)));
        }
        if (n)
            on_device_ok(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        on_device_ok(cudaDeviceSynchronize());
        if (n)
            on_device_ok(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

/* --- a step --- */

struct step_on_device {
    /* filled by the test */
    cuda_counts counts = {};
    std::vector<uint32_t> positions, row_seq, tables, logit_rows, hidden_rows;
    std::vector<cuda_seq> seqs;
    std::vector<cuda_tile> tiles;

    device_array<cuda_counts> d_counts;
    device_array<uint32_t> d_positions, d_row_seq, d_tables, d_logit_rows, d_hidden_rows;
    device_array<cuda_seq> d_seqs;
    device_array<cuda_tile> d_tiles;

    /* Bounds are the counts, and `more` beyond them. */
    cuda_at at(cuda_rows rows, uint32_t more = 0, uint32_t ranges = 1)
    {
        d_counts.put(std::vector<cuda_counts>(1, counts));
        d_positions.put(positions);
        d_row_seq.put(row_seq);
        d_tables.put(tables);
        d_logit_rows.put(logit_rows);
        d_hidden_rows.put(hidden_rows);
        d_seqs.put(seqs);
        d_tiles.put(tiles);
        cuda_at a = {};
        a.step.counts = d_counts.p;
        a.step.positions = d_positions.p;
        a.step.row_seq = d_row_seq.p;
        a.step.seqs = d_seqs.p;
        a.step.tables = d_tables.p;
        a.step.logit_rows = d_logit_rows.p;
        a.step.hidden_rows = d_hidden_rows.p;
        a.step.tiles = d_tiles.p;
        a.bounds.rows = counts.n_rows + more;
        a.bounds.seqs = counts.n_seqs + more;
        a.bounds.logit_rows = counts.n_logit_rows + more;
        a.bounds.hidden_rows = counts.n_hidden_rows + more;
        a.bounds.tiles = counts.n_tiles + more;
        a.bounds.jobs = counts.n_jobs + more;
        a.bounds.ranges = ranges;
        int shared = 0;
        on_device_ok(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
        a.block_shared = static_cast<uint32_t>(shared);
        a.rows = rows;
        return a;
    }
};

/* Sum of squares of what differs, of the sum of squares. */
static inline double squared_error(const double *want, const float *got, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    return all > 0 ? off / all : off;
}

#endif
