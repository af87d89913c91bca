/* The device's table of hashes answers as a plain list does, after any puts and removals, with what
 * was changed uploaded and no more. */
#include "backend/cuda/prefix_mirror.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { MOST = 300, QUERIES = 500, ROUNDS = 200 };

static uint64_t rng;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rng >> 33) % n);
}

/* Few homes, so that probes run into each other and around the end of the table. */
static uint64_t make_hash(void)
{
    return ((uint64_t)below(40) << 32) | (1023 - below(24));
}

struct list {
    uint64_t hash[MOST];
    int32_t value[MOST];
    uint32_t n;
};

static uint32_t find(const struct list *l, uint64_t hash)
{
    uint32_t i = 0;
    while (i < l->n && l->hash[i] != hash)
        i++;
    return i;
}

static void change(struct list *l, struct cuda_prefix_mirror *m)
{
    const uint64_t hash = make_hash();
    const uint32_t i = find(l, hash);
    if (below(3) == 0) {
        cuda_prefix_mirror_remove(m, hash);
        if (i < l->n) {
            l->n--;
            l->hash[i] = l->hash[l->n];
            l->value[i] = l->value[l->n];
        }
        return;
    }
    if (i == MOST)
        return;
    l->hash[i] = hash;
    l->value[i] = (int32_t)below(1000000);
    l->n += i == l->n;
    cuda_prefix_mirror_put(m, hash, l->value[i]);
}

/* The bytes that were uploaded. */
static size_t sync(struct cuda_prefix_mirror *m, cudaStream_t stream)
{
    size_t bytes = SIZE_MAX;
    assert_int_equal(cuda_prefix_mirror_sync(m, stream, &bytes), cudaSuccess);
    return bytes;
}

static void compare(const struct list *l, struct cuda_prefix_mirror *m, cudaStream_t stream)
{
    uint64_t hashes[QUERIES];
    int32_t values[QUERIES];
    const uint32_t n = 1 + below(QUERIES);
    for (uint32_t i = 0; i < n; i++)
        hashes[i] = l->n > 0 && below(2) ? l->hash[below(l->n)] : make_hash();
    assert_int_equal(cuda_prefix_mirror_lookup(m, hashes, n, values, stream), cudaSuccess);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = find(l, hashes[i]);
        const int32_t want = at < l->n ? l->value[at] : -1;
        assert_int_equal(values[i], want);
        assert_int_equal(cuda_prefix_mirror_find(m, hashes[i]), want);
    }
}

static void test_answers_as_a_list(void **state)
{
    struct list *l = calloc(1, sizeof *l);
    cudaStream_t stream;
    (void)state;
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    struct cuda_prefix_mirror *m = cuda_prefix_mirror_create(MOST, QUERIES);
    assert_non_null(m);
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = below(60); i > 0; i--)
            change(l, m);
        assert_int_equal(cuda_prefix_mirror_n(m), l->n);
        (void)sync(m, stream);
        compare(l, m, stream);
    }
    cuda_prefix_mirror_destroy(m);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    free(l);
}

/* One answer on either side of the crossover, with what was changed since the last upload. */
static void test_the_crossover_changes_no_answer(void **state)
{
    static const uint32_t from[] = {1, 7, CUDA_PREFIX_DEVICE_FROM};
    struct list *l = calloc(1, sizeof *l);
    uint64_t hashes[40];
    int32_t values[40];
    cudaStream_t stream;
    (void)state;
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    struct cuda_prefix_mirror *m = cuda_prefix_mirror_create(MOST, QUERIES);
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t n = 1 + below(40);
        change(l, m);
        for (uint32_t i = 0; i < n; i++)
            hashes[i] = make_hash();
        assert_int_equal(cuda_prefix_mirror_answer(m, hashes, n, values, from[round % 3], stream),
                         cudaSuccess);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t at = find(l, hashes[i]);
            assert_int_equal(values[i], at < l->n ? l->value[at] : -1);
        }
        if (from[round % 3] <= n) /* it was the device that answered: it has all of it */
            assert_int_equal(sync(m, stream), 0);
    }
    cuda_prefix_mirror_destroy(m);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    free(l);
}

static void test_uploads_what_changed(void **state)
{
    cudaStream_t stream;
    (void)state;
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    struct cuda_prefix_mirror *m = cuda_prefix_mirror_create(4096, 1);
    assert_int_equal(sync(m, stream), 8192 * 16); /* the first: all of it */
    assert_int_equal(sync(m, stream), 0);
    cuda_prefix_mirror_put(m, 7, 1);
    cuda_prefix_mirror_put(m, 5000, 2);
    assert_int_equal(sync(m, stream), 2 * 64 * 16);
    cuda_prefix_mirror_remove(m, 6); /* is not there */
    assert_int_equal(sync(m, stream), 0);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    cuda_prefix_mirror_destroy(m);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_as_a_list),
        cmocka_unit_test(test_uploads_what_changed),
        cmocka_unit_test(test_the_crossover_changes_no_answer),
    };
    rng = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)rng);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
