/* bulk.cuh: a ring that one warp fills and others read, in all orders of threads, and what the
 * emulation must say of rings that are wrong. */
#include "emulated.h"

#include "backend/cuda/bulk.cuh"

static constexpr uint32_t READERS = 3, SLOTS = 2, CHUNK = 512, STEPS = 7;
static constexpr uint32_t RING_BYTES = SLOTS * CHUNK + SLOTS * 2 * sizeof(bulk_barrier);

enum fault {
    NONE,
    NO_WAIT_FOR_FULL,  /* a warp reads what may not be there yet */
    NO_WAIT_FOR_EMPTY, /* brings over what is still read */
    NO_SYNCWARP,       /* a lane arrives for others, which may still read */
    TOO_FEW_BYTES,
    TOO_MANY_BYTES,
    NO_COPY,
    NO_ARRIVAL,
    NOT_ALIGNED,
    NOT_MADE,
    ENDS_TOO_SOON, /* before the bytes have come */
};

/* sum[block][reader][lane] = of all steps' 16 bytes of the lane; warp 0 brings. */
static __global__ void ring(const uint32_t *in, uint32_t *sum, int fault)
{
    CUDA_SHARED(uint8_t, shared);
    bulk_barrier *full = reinterpret_cast<bulk_barrier *>(shared + SLOTS * CHUNK);
    bulk_barrier *empty = full + SLOTS;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0 && fault != NOT_MADE) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            bulk_init(&full[i], 1);
            bulk_init(&empty[i], READERS);
        }
    }
    __syncthreads();
    const uint32_t steps = fault == ENDS_TOO_SOON ? SLOTS : STEPS;
    uint32_t total = 0;
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t slot = step % SLOTS, turn = step / SLOTS % 2;
        uint8_t *chunk = shared + slot * CHUNK;
        if (warp > 0) {
            if ((fault != NO_WAIT_FOR_FULL || warp != 2) && fault != ENDS_TOO_SOON) {
                bulk_wait(&full[slot], turn);
            }
            const uint4 v = *reinterpret_cast<uint4 *>(chunk + lane * 16);
            total = total * 3 + v.x + v.y + v.z + v.w;
            if (fault != NO_SYNCWARP) {
                __syncwarp();
            }
            if (lane == 0 && fault != NO_ARRIVAL) {
                bulk_arrive(&empty[slot]);
            }
        } else if (lane == 0) {
            if (fault != NO_WAIT_FOR_EMPTY) {
                bulk_wait(&empty[slot], turn ^ 1);
            }
            const uint32_t bytes = fault == TOO_MANY_BYTES  ? CHUNK + 16
                                   : fault == TOO_FEW_BYTES ? CHUNK - 16
                                                            : CHUNK;
            const uint32_t at = fault == NOT_ALIGNED ? 4 : 0;
            bulk_expect(&full[slot], bytes);
            for (uint32_t i = 0; i < CHUNK && fault != NO_COPY; i += CHUNK / 2) {
                bulk_copy(chunk + i, in + (step * CHUNK + i + at) / 4, CHUNK / 2, &full[slot]);
            }
        }
    }
    if (warp > 0) {
        sum[(blockIdx.x * READERS + warp - 1) * 32 + lane] = total;
    }
}

static void run(int fault)
{
    device_array<uint32_t> in(STEPS * CHUNK / 4 + 4), sum(2 * READERS * 32);
    for (size_t i = 0; i < in.host.size(); i++) {
        in.host[i] = static_cast<uint32_t>(i * i);
    }
    in.up();
    CUDA_LAUNCH(ring, 2, 32 * (1 + READERS), RING_BYTES, 0, in.p, sum.p, fault);
    if (fault != NONE) {
        return;
    }
    sum.down();
    for (size_t i = 0; i < sum.host.size(); i++) {
        uint32_t want = 0;
        for (size_t step = 0; step < STEPS; step++) {
            const uint32_t *v = &in.host[step * CHUNK / 4 + i % 32 * 4];
            want = want * 3 + v[0] + v[1] + v[2] + v[3];
        }
        assert_int_equal(sum.host[i], want);
    }
}

static void test_ring(void **)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        emu_set_seed(seed);
        run(NONE);
    }
    emu_set_seed(0);
}

#ifndef EMU_RACES
/* Bytes move when they are waited for: who does not wait has none of them. */
static __global__ void too_early(const uint32_t *in, uint32_t *out)
{
    CUDA_SHARED(uint32_t, shared);
    bulk_barrier *b = reinterpret_cast<bulk_barrier *>(shared + 4);
    bulk_init(b, 1);
    bulk_expect(b, 16);
    bulk_copy(shared, in, 16, b);
    out[0] = shared[0];
    bulk_wait(b, 0);
    out[1] = shared[0];
}

static void test_bytes_come_late(void **)
{
    device_array<uint32_t> in(4, 7), out(2);
    CUDA_LAUNCH(too_early, 1, 1, 24, 0, in.p, out.p);
    out.down();
    assert_int_equal(out.host[0], UINT32_MAX);
    assert_int_equal(out.host[1], 7);
}
#endif

static void test_reports(void **)
{
    must_report("threads wait for each other", [] { run(TOO_MANY_BYTES); });
    must_report("threads wait for each other", [] { run(NO_COPY); });
    must_report("threads wait for each other", [] { run(NO_ARRIVAL); });
    must_report("more bytes than their barrier expects", [] { run(TOO_FEW_BYTES); });
    must_report("its bytes were not waited for", [] { run(NO_WAIT_FOR_EMPTY); });
    must_report("that are not aligned", [] { run(NOT_ALIGNED); });
    must_report("no barrier was made there", [] { run(NOT_MADE); });
    must_report("copies that nobody waited for", [] { run(ENDS_TOO_SOON); });
#ifdef EMU_RACES
    must_report("race: a", [] { run(NO_WAIT_FOR_FULL); });
    must_report("race: a write after a read", [] { run(NO_SYNCWARP); });
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
#ifndef EMU_RACES /* it is one */
        cmocka_unit_test(test_bytes_come_late),
#endif
        cmocka_unit_test(test_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
