/* Blocks that go to pinned RAM and come back while the host waits for nothing: no block is
 * overwritten before it was read, no slot of RAM before it was written from, nothing is read early.
 * Over the emulation, whose streams are late, with several orders of them; on a device as it
 * happens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"
#include "few.h"
#include "unit/backend/cpu/drive.h"

#ifdef EMU_CUDA_RUNTIME_API_H
#include "emu.h"

#include <pthread.h>
enum { N_ORDERS = 4 };
static void set_order(uint64_t seed)
{
    emu_set_seed(seed);
}
#else
enum { N_ORDERS = 3 };
static void set_order(uint64_t seed)
{
    (void)seed;
}
#endif

enum { N_HELD = 3, HELD = N_HELD * 16 }; /* full blocks, and their positions */

struct fixture {
    struct drive d;
    uint8_t *slots; /* [N_HELD] of pinned memory */
    size_t block_bytes, logits_bytes;
    int32_t other[N_PROMPT];
    float *want, *want_other, *got;
};

static struct backend_place place(const struct drive *d, uint32_t seq, uint32_t i)
{
    return (struct backend_place){d->tables[seq][i], d->panes[seq][i]};
}

static void read_all(struct fixture *f, uint32_t seq)
{
    for (uint32_t i = 0; i < N_HELD; i++)
        assert_true(
            f->d.b->ops->block_read(f->d.b, place(&f->d, seq, i), f->slots + i * f->block_bytes));
}

static void write_all(struct fixture *f, uint32_t seq)
{
    for (uint32_t i = 0; i < N_HELD; i++)
        f->d.b->ops->block_write(f->d.b, place(&f->d, seq, i), f->slots + i * f->block_bytes);
}

static void run_part(
    struct fixture *f, uint32_t seq, bool other, uint32_t from, uint32_t n, float *out)
{
    const int32_t *tokens = other ? f->other : golden_prompt;
    drive_run(&f->d, &(struct part){seq, from, n}, 1, &tokens, &out);
}

/* What follows on the blocks of seq is what follows on those that were computed. */
static void continue_on(struct fixture *f, uint32_t seq, bool other)
{
    const size_t at = (size_t)HELD * f->d.n_vocab;
    run_part(f, seq, other, HELD, N_PROMPT - HELD, f->got);
    assert_memory_equal(
        f->got + at, (other ? f->want_other : f->want) + at, f->logits_bytes - at * sizeof(float));
}

static struct fixture open_fixture(const struct model *m)
{
    struct fixture f = {0};
    drive_open_on(&f.d, m, cuda_backend_create, KV_F16, 1, 16, 0);
    f.block_bytes = backend_kv_block_bytes(m, KV_F16, 16);
    f.logits_bytes = (size_t)N_PROMPT * f.d.n_vocab * sizeof(float);
    f.slots = f.d.b->ops->pinned_alloc(f.d.b, N_HELD * f.block_bytes);
    assert_non_null(f.slots);
    f.want = mem_zalloc(1, f.logits_bytes);
    f.want_other = mem_zalloc(1, f.logits_bytes);
    f.got = mem_zalloc(1, f.logits_bytes);
    for (uint32_t i = 0; i < N_PROMPT; i++)
        f.other[i] = golden_prompt[N_PROMPT - 1 - i];
    for (uint32_t from = 0; from < N_PROMPT; from = HELD) { /* as the parts are that are compared */
        const uint32_t n = from == 0 ? HELD : N_PROMPT - HELD;
        run_part(&f, 6, false, from, n, f.want);
        run_part(&f, 7, true, from, n, f.want_other);
        if (from == HELD)
            break;
    }
    return f;
}

static void close_fixture(struct fixture *f)
{
    f->d.b->ops->pinned_free(f->d.b, f->slots);
    drive_close(&f->d);
    free(f->want);
    free(f->want_other);
    free(f->got);
}

static void check_order(struct fixture *f, uint64_t seed)
{
    set_order(seed);
    /* demoted, and overwritten by the step that comes next */
    run_part(f, 0, false, 0, HELD, f->got);
    read_all(f, 0);
    run_part(f, 0, true, 0, HELD, f->got);
    /* promoted, and the slots filled again at once; read by the next step */
    write_all(f, 1);
    read_all(f, 0);
    continue_on(f, 1, false);
    write_all(f, 2);
    continue_on(f, 2, true);
    continue_on(f, 0, true);
    /* demoted, and overwritten by a copy; promoted over what a copy has read, and copied on */
    read_all(f, 1);
    for (uint32_t i = 0; i < N_HELD; i++)
        f->d.b->ops->block_copy(f->d.b, place(&f->d, 2, i), place(&f->d, 1, i));
    write_all(f, 2);
    for (uint32_t i = 0; i < N_HELD; i++)
        f->d.b->ops->block_copy(f->d.b, place(&f->d, 2, i), place(&f->d, 3, i));
    continue_on(f, 1, true);
    continue_on(f, 2, false);
    continue_on(f, 3, false);
    /* through memory that is not pinned */
    uint8_t *bytes = mem_alloc(f->block_bytes);
    write_all(f, 4);
    for (uint32_t i = 0; i < N_HELD; i++) {
        assert_true(f->d.b->ops->block_read(f->d.b, place(&f->d, 4, i), bytes));
        f->d.b->ops->block_write(f->d.b, place(&f->d, 5, i), bytes);
    }
    continue_on(f, 5, false);
    free(bytes);
    assert_true(f->d.b->ops->block_us(f->d.b) > 0);
    set_order(0);
}

/* A step behind others that had nothing to wait for, while blocks are on their way: of each of
 * those, and of none; once over more moves than there are events for. */
static void check_bystanders(struct fixture *f, uint64_t seed, uint32_t n_rounds)
{
    set_order(seed);
    run_part(f, 0, false, 0, HELD, f->got);
    read_all(f, 0);
    for (uint32_t round = 0; round < n_rounds; round++) {
        const uint32_t to = 1 + round % 3, beside = 1 + (round + 1) % 3;
        write_all(f, to);
        run_part(f, 7, true, HELD, 1, f->got); /* has none of them: goes on */
        continue_on(f, to, false);
        read_all(f, to);
        run_part(f, 6, false, HELD, 1, f->got);
        run_part(f, beside, true, 0, HELD, f->got); /* over what may have been moved before */
        run_part(f, to, true, 0, HELD, f->got);     /* over what is being read */
        write_all(f, beside);
        continue_on(f, beside, false);
    }
    set_order(0);
}

/* Of model k. */
static uint64_t n_orders(size_t k)
{
    return k > 0 ? 1 : few_shapes() ? 2 : N_ORDERS;
}

static void steps_wait_for_their_own_blocks(void **state)
{
    (void)state;
    static const char *const names[] = {"quantised/llama.Q8_0", "variants/gemma2.f32"};
    for (size_t k = 0; k < 2; k++) {
        struct model *m = load_golden(names[k]);
        struct fixture f = open_fixture(m);
        for (uint64_t seed = 0; seed < n_orders(k); seed++)
            check_bystanders(&f, k == 0 ? seed : 3, seed == 1 ? CUDA_MOVES / 3 + 1 : 3);
        close_fixture(&f);
        model_destroy(m);
    }
}

/* A step that has nothing to do with a block ends before it has come, where the device does the one
 * first; a step that has, does not. */
static void others_do_not_wait(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct fixture f = open_fixture(m);
    unsigned late = 0;
    for (uint64_t seed = 0; seed < N_ORDERS; seed++) {
        set_order(seed);
        memset(f.slots, 0x5a, N_HELD * f.block_bytes);
        read_all(&f, 6);
        run_part(&f, 7, true, HELD, 1, f.got);
        const uint8_t *last = f.slots + N_HELD * f.block_bytes - 1;
        late += *last == 0x5a && last[-1] == 0x5a && last[-2] == 0x5a;
        run_part(&f, 6, false, HELD - 1, 1, f.got);
        assert_false(*last == 0x5a && last[-1] == 0x5a && last[-2] == 0x5a);
    }
    assert_true(late > 0);
    set_order(0);
    close_fixture(&f);
    model_destroy(m);
#else
    skip();
#endif
}

#ifdef EMU_CUDA_RUNTIME_API_H
/* Has the block's content come from bytes that were overwritten after they were sent for? Then they
 * were still in their slot. */
static bool is_late(struct fixture *f, uint32_t seq, uint8_t *bytes)
{
    struct backend *b = f->d.b;
    assert_true(b->ops->block_read(b, place(&f->d, seq, 0), bytes));
    bool late = true;
    for (size_t i = 0; i < f->block_bytes && late; i++)
        late = bytes[i] == 0x5a;
    return late;
}
#endif

/* Nor does it wait for a prefix that comes back for another sequence: not where it needs the place
 * of a block that leaves behind it, nor one of its own that came before it. */
static void a_fetch_delays_who_reads_it(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct fixture f = open_fixture(m);
    struct backend *b = f.d.b;
    uint8_t *more = b->ops->pinned_alloc(b, 2 * f.block_bytes), *bytes = mem_alloc(f.block_bytes);
    unsigned late[3] = {0};
    assert_non_null(more);
    for (uint64_t seed = 0; seed < 3 * N_ORDERS; seed++) {
        const unsigned way = (unsigned)(seed % 3);
        set_order(seed / 3);
        read_all(&f, 6);
        assert_true(b->ops->block_read(b, place(&f.d, 7, 2), more + f.block_bytes));
        assert_true(b->ops->block_settle(b));
        if (way == 1) /* a block of its own, in front */
            b->ops->block_write(b, place(&f.d, 7, 2), more + f.block_bytes);
        for (int i = 0; i < (way == 1 ? CUDA_MOVES / N_HELD + 1 : 1); i++) /* more than events */
            write_all(&f, 1);
        if (way == 0) /* one that leaves, behind: the step has its place */
            assert_true(b->ops->block_read(b, place(&f.d, 7, 2), more));
        run_part(&f, way == 2 ? 1 : 7, way != 2, HELD, 1, f.got);
        memset(f.slots, 0x5a, N_HELD * f.block_bytes);
        late[way] += is_late(&f, 1, bytes);
    }
    assert_true(late[0] > 0);
    assert_true(late[1] > 0);
    assert_int_equal(late[2], 0); /* who reads it does wait */
    set_order(0);
    b->ops->pinned_free(b, more);
    free(bytes);
    close_fixture(&f);
    model_destroy(m);
#else
    skip();
#endif
}

/* A place that one block leaves and another comes into, and that leaves at once, each from memory
 * and to memory of its own. */
static void a_place_is_left_before_it_is_taken(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct fixture f = open_fixture(m);
    struct backend *b = f.d.b;
    uint8_t *bytes[3], *want[2] = {mem_alloc(f.block_bytes), mem_alloc(f.block_bytes)};
    for (uint32_t i = 0; i < 3; i++)
        bytes[i] = f.slots + i * f.block_bytes;
    for (uint32_t i = 0; i < 2; i++)
        assert_true(b->ops->block_read(b, place(&f.d, 6, i), want[i]));
    for (uint64_t seed = 0; seed < 2 * N_ORDERS; seed++) {
        set_order(seed);
        memcpy(bytes[1], want[(seed + 1) % 2], f.block_bytes);
        b->ops->block_write(b, place(&f.d, 5, 0), want[seed % 2]);
        assert_true(b->ops->block_read(b, place(&f.d, 5, 0), bytes[0]));
        b->ops->block_write(b, place(&f.d, 5, 0), bytes[1]);
        assert_true(b->ops->block_read(b, place(&f.d, 5, 0), bytes[2]));
        assert_true(b->ops->block_settle(b));
        assert_memory_equal(bytes[0], want[seed % 2], f.block_bytes);
        assert_memory_equal(bytes[2], want[(seed + 1) % 2], f.block_bytes);
    }
    set_order(0);
    free(want[0]);
    free(want[1]);
    close_fixture(&f);
    model_destroy(m);
}

/* Nor is a pane, whichever block it comes to next. */
static void a_pane_is_left_before_it_is_taken(void **state)
{
    (void)state;
    struct model *m = load_golden("variants/gemma2.f32");
    struct fixture f = open_fixture(m);
    struct backend *b = f.d.b;
    uint8_t *want[2] = {mem_alloc(f.block_bytes), mem_alloc(f.block_bytes)};
    const struct backend_place from = place(&f.d, 5, 0), to = {place(&f.d, 4, 0).block, from.pane};
    for (uint32_t i = 0; i < 2; i++)
        assert_true(b->ops->block_read(b, place(&f.d, 6, i), want[i]));
    for (uint64_t seed = 0; seed < 2 * N_ORDERS; seed++) {
        set_order(seed);
        b->ops->block_write(b, from, want[seed % 2]);
        assert_true(b->ops->block_read(b, from, f.slots));
        b->ops->block_write(b, to, want[(seed + 1) % 2]);
        assert_true(b->ops->block_settle(b));
        assert_memory_equal(f.slots, want[seed % 2], f.block_bytes);
    }
    set_order(0);
    free(want[0]);
    free(want[1]);
    close_fixture(&f);
    model_destroy(m);
}

/* Who has waited may change the bytes of a slot that a block comes from, as the disk's thread does.
 */
static void a_slot_is_free_when_settled(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct fixture f = open_fixture(m);
    struct backend *b = f.d.b;
    uint8_t *want = mem_alloc(f.block_bytes), *bytes = mem_alloc(f.block_bytes);
    assert_true(b->ops->block_read(b, place(&f.d, 6, 0), want));
    for (uint64_t seed = 0; seed < N_ORDERS; seed++) {
        set_order(seed);
        memcpy(f.slots, want, f.block_bytes);
        b->ops->block_write(b, place(&f.d, 5, 0), f.slots);
        assert_true(b->ops->block_settle(b));
        memset(f.slots, 0x5a, f.block_bytes);
        assert_true(b->ops->block_read(b, place(&f.d, 5, 0), bytes));
        assert_memory_equal(bytes, want, f.block_bytes);
    }
    set_order(0);
    free(want);
    free(bytes);
    close_fixture(&f);
    model_destroy(m);
}

/* What a copy put into a block leaves with it, though the copy has only been asked for. */
static void a_copy_is_there_before_its_block_leaves(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct fixture f = open_fixture(m);
    struct backend *b = f.d.b;
    uint8_t *want[2] = {mem_alloc(f.block_bytes), mem_alloc(f.block_bytes)};
    for (uint32_t i = 0; i < 2; i++)
        assert_true(b->ops->block_read(b, place(&f.d, 6, i), want[i]));
    for (uint64_t seed = 0; seed < 2 * N_ORDERS; seed++) {
        set_order(seed);
        b->ops->block_copy(b, place(&f.d, 6, seed % 2), place(&f.d, 5, 0));
        assert_true(b->ops->block_read(b, place(&f.d, 5, 0), f.slots));
        assert_true(b->ops->block_settle(b));
        assert_memory_equal(f.slots, want[seed % 2], f.block_bytes);
    }
    set_order(0);
    free(want[0]);
    free(want[1]);
    close_fixture(&f);
    model_destroy(m);
}

static void nothing_is_early_or_overwritten(void **state)
{
    (void)state;
    static const char *const names[] = {"quantised/llama.Q8_0", "variants/gemma2.f32"};
    for (size_t k = 0; k < 2; k++) {
        struct model *m = load_golden(names[k]);
        struct fixture f = open_fixture(m);
        for (uint64_t seed = 0; seed < n_orders(k); seed++)
            check_order(&f, k == 0 ? seed : 3);
        close_fixture(&f);
        model_destroy(m);
    }
}

/* A call that queues a copy only queues it: over the emulation nothing has moved when it returns.
 */
static void the_host_waits_for_no_copy(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct fixture f = open_fixture(m);
    memset(f.slots, 0x5a, f.block_bytes);
    assert_true(f.d.b->ops->block_read(f.d.b, place(&f.d, 6, 0), f.slots));
    for (size_t i = 0; i < f.block_bytes; i++)
        assert_int_equal(f.slots[i], 0x5a);
    close_fixture(&f); /* which waits, as the copy still writes there */
    model_destroy(m);
#else
    skip();
#endif
}

/* Pinned memory is given back behind what reads and writes it; the emulation reports it otherwise.
 */
static void pinned_memory_is_freed_behind_its_copies(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct drive d;
    drive_open_on(&d, m, cuda_backend_create, KV_F16, 1, 16, 0);
    const size_t bytes = backend_kv_block_bytes(m, KV_F16, 16);
    for (int write = 0; write < 2; write++) {
        uint8_t *slot = d.b->ops->pinned_alloc(d.b, bytes);
        assert_non_null(slot);
        memset(slot, 0, bytes);
        if (write)
            d.b->ops->block_write(d.b, place(&d, 5, 0), slot);
        else
            assert_true(d.b->ops->block_read(d.b, place(&d, 6, 0), slot));
        d.b->ops->pinned_free(d.b, slot);
    }
#ifdef EMU_CUDA_RUNTIME_API_H
    assert_null(emu_take_report(NULL));
#endif
    drive_close(&d);
    model_destroy(m);
}

static void *look_at_it(void *backend)
{
    struct backend *b = backend;
    return b->ops->block_settle(b) ? b : NULL;
}

/* Whoever wants to see the bytes, on a thread of their own, waits for what was begun before; the
 * engine waits only where memory is not pinned. What is counted is so. */
static void another_thread_waits(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct fixture f = open_fixture(m);
    struct backend *b = f.d.b;
    uint8_t *more = b->ops->pinned_alloc(b, f.block_bytes), *want = mem_alloc(f.block_bytes);
    assert_non_null(more);
    assert_null(b->ops->pinned_alloc(b, f.block_bytes)); /* BACKEND_PINNED */
    assert_true(b->ops->block_read(b, place(&f.d, 6, 1), want));
    for (uint64_t seed = 0; seed < N_ORDERS; seed++) {
        set_order(seed);
        memset(more, 0x5a, f.block_bytes);
        b->ops->block_write(b, place(&f.d, 5, 0), f.slots);
        assert_true(b->ops->block_read(b, place(&f.d, 6, 1), more));
        pthread_t thread;
        void *settled;
        assert_int_equal(pthread_create(&thread, NULL, look_at_it, b), 0);
        assert_int_equal(pthread_join(thread, &settled), 0);
        assert_non_null(settled);
        assert_memory_equal(more, want, f.block_bytes);
    }
    set_order(0);
    struct gpu_stats st;
    b->ops->gpu_stats(b, &st);
    assert_int_equal(st.moves.read, 1 + N_ORDERS);
    assert_int_equal(st.moves.written, N_ORDERS);
    assert_int_equal(st.moves.bytes, (1 + 2 * N_ORDERS) * f.block_bytes);
    assert_int_equal(st.moves.waits, 1);
    assert_true(st.moves.wait_us > 0);
    b->ops->pinned_free(b, more);
    free(want);
    close_fixture(&f);
    model_destroy(m);
}

/* Where a block could not be moved, no tier gets bytes that are not a block's, and no step is run
 * on memory that nobody knows; though the device goes on. */
static void a_lost_block_ends_it(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct model *m = load_golden("quantised/llama.Q8_0");
    for (int pinned = 0; pinned < 2; pinned++) {
        struct fixture f = open_fixture(m);
        struct backend *b = f.d.b;
        uint8_t *bytes = pinned ? f.slots : mem_alloc(f.block_bytes);
        const struct backend_place nowhere = {.block = 1u << 20};
        const uint32_t zero = 0;
        const struct batch_seq seq = {.n_rows = 1, .blocks = &zero, .panes = &zero};
        const struct batch batch = {
            .n_rows = 1, .tokens = golden_prompt, .positions = &zero, .n_seqs = 1, .seqs = &seq};
        float *logits;
        struct err_info e;
        unsigned n;
        assert_true(b->ops->block_read(b, place(&f.d, 6, 0), bytes));
        assert_true(b->ops->block_settle(b));
        assert_int_equal(b->ops->run(b, &batch, &logits, &e), OK);
        memset(bytes, 0x5a, f.block_bytes);
        if (pinned)
            b->ops->block_write(b, nowhere, bytes);
        else
            assert_false(b->ops->block_read(b, nowhere, bytes));
        emu_take_report(&n); /* the device is well again */
        assert_false(b->ops->block_read(b, place(&f.d, 6, 0), bytes));
        for (size_t i = 0; i < f.block_bytes; i++)
            assert_int_equal(bytes[i], 0x5a);
        assert_false(b->ops->block_settle(b)); /* nor does another thread believe what it has */
        assert_int_equal(b->ops->run(b, &batch, &logits, &e), ERR_INTERNAL);
        if (!pinned)
            free(bytes);
        close_fixture(&f);
    }
    model_destroy(m);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_waits_for_no_copy),
        cmocka_unit_test(another_thread_waits),
        cmocka_unit_test(pinned_memory_is_freed_behind_its_copies),
        cmocka_unit_test(a_lost_block_ends_it),
        cmocka_unit_test(a_place_is_left_before_it_is_taken),
        cmocka_unit_test(a_pane_is_left_before_it_is_taken),
        cmocka_unit_test(a_slot_is_free_when_settled),
        cmocka_unit_test(a_copy_is_there_before_its_block_leaves),
        cmocka_unit_test(nothing_is_early_or_overwritten),
        cmocka_unit_test(steps_wait_for_their_own_blocks),
        cmocka_unit_test(others_do_not_wait),
        cmocka_unit_test(a_fetch_delays_who_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
