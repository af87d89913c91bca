/* The pool: every item once, phases in order, sleep and wake, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/limits.h"
#include "backend/cpu/threads.h"
#include "base/clock.h"
#include "base/machine.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_ITEMS = 257, N_PHASES = 20 };

struct work {
    struct pool *pool;
    uint32_t value[N_PHASES + 1][N_ITEMS];
};

/* Phase p item i is one more than its neighbour in phase p - 1, which another worker may have
 * written: if phases overlapped, or an item were done twice, the numbers would not come out. */
static void add_one(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    struct work *w = ctx;
    (void)worker;
    w->value[phase + 1][item] += w->value[phase][(item + 1) % N_ITEMS] + 1;
}

static void phases_see_each_other(void **state)
{
    (void)state;
    struct work *w = malloc(sizeof *w);
    uint32_t n_items[N_PHASES];
    for (uint32_t i = 0; i < N_PHASES; i++)
        n_items[i] = N_ITEMS;
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(pool_create(n, N_PHASES, &w->pool, NULL), OK);
        assert_int_equal(pool_size(w->pool), n);
        for (int run = 0; run < 20; run++) {
            memset(w->value, 0, sizeof w->value);
            if (run % 8 == 7)
                usleep(20000); /* the workers have gone to sleep */
            pool_walk(w->pool, n_items, N_PHASES, add_one, w);
            for (uint32_t i = 0; i < N_ITEMS; i++)
                assert_int_equal(w->value[N_PHASES][i], N_PHASES);
        }
        pool_destroy(w->pool);
    }
    free(w);
}

static void count(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    uint32_t *seen = ctx;
    (void)item;
    (void)worker;
    __atomic_fetch_add(&seen[phase], 1, __ATOMIC_RELAXED);
}

/* Short walks back to back, more workers than cores, phases without items at any place. */
static void empty_phases_and_crowds(void **state)
{
    (void)state;
    static const uint32_t n_items[] = {0, 3, 0, 0, 1, 50, 0};
    struct pool *p;
    assert_int_equal(pool_create(8, 7, &p, NULL), OK);
    for (int run = 0; run < 3000; run++) {
        uint32_t seen[7] = {0};
        pool_walk(p, n_items, 7, count, seen);
        for (int i = 0; i < 7; i++)
            assert_int_equal(seen[i], n_items[i]);
        pool_walk(p, n_items, run % 2, count, seen); /* nothing at all, or only an empty phase */
    }
    pool_destroy(p);
}

/* Memory is read in whole slices, and not behind its end. */
static void reading_is_timed(void **state)
{
    (void)state;
    const size_t n = ((size_t)256 << 20) + 4096, page = 4096;
    uint8_t *memory =
        mmap(NULL, n + page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + n, page, PROT_NONE), 0);
    struct err_info e;
    struct pool *pool;
    assert_int_equal(pool_create(2, 1, &pool, &e), OK);
    const struct cpu_kernels *kernels = cpu_kernels_select(NULL);
    assert_true(cpu_read_rate(pool, kernels, memory, n) > 0);
    assert_true(cpu_read_rate(pool, kernels, memory, ((size_t)256 << 20) - 1) == 0);
    pool_destroy(pool);
    munmap(memory, n + page);
}

static void creation_has_limits(void **state)
{
    (void)state;
    struct pool *p;
    struct err_info e;
    assert_int_equal(pool_create(1000000, 1, &p, &e), ERR_INVALID);
    assert_null(p);
    assert_int_equal(pool_create(0, 1, &p, &e), OK);
    assert_in_range(pool_size(p), 1, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
    pool_destroy(p);
    pool_destroy(NULL);
}

/* CPUs that have the same siblings are one core. */
static uint32_t count_cores(void)
{
    enum { LINE = 256 };
    uint32_t *cpus, n = 0;
    const uint32_t n_cpus = machine_cpus(&cpus), quota = machine_cpu_quota();
    char(*lines)[LINE] = calloc(n_cpus, LINE);
    for (uint32_t i = 0; i < n_cpus; i++) {
        char path[96];
        snprintf(path,
                 sizeof path,
                 "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                 cpus[i]);
        FILE *f = fopen(path, "r");
        if (!f || !fgets(lines[n], LINE, f))
            snprintf(lines[n], LINE, "cpu %u", cpus[i]);
        if (f)
            fclose(f);
        uint32_t same = 0;
        while (strcmp(lines[same], lines[n]) != 0)
            same++;
        n += same == n;
    }
    free(lines);
    free(cpus);
    return n < quota ? n : quota;
}

static void there_is_one_for_each_core(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(0, 1, &p, NULL), OK);
    print_message("%u cores\n", pool_size(p));
    assert_int_equal(pool_size(p), count_cores());
    pool_destroy(p);
}

/* Are all threads but this one asleep, and not on a CPU or waiting for one? */
static bool others_sleep(void)
{
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    bool asleep = true;
    for (struct dirent *d; (d = readdir(dir));) {
        char path[300], line[300] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", d->d_name);
        FILE *f = d->d_name[0] != '.' && atoi(d->d_name) != getpid() ? fopen(path, "r") : NULL;
        if (!f)
            continue;
        const char *name_end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        asleep = asleep && name_end && strncmp(name_end, ") S", 3) == 0;
        fclose(f);
    }
    closedir(dir);
    return asleep;
}

static void do_nothing(void *ctx, uint32_t item, uint32_t worker)
{
    (void)ctx;
    (void)item;
    (void)worker;
}

static void take_long(void *ctx, uint32_t item, uint32_t worker)
{
    (void)ctx;
    (void)item;
    (void)worker;
    usleep(20000);
}

/* As if the system put a waiting worker aside. */
static bool is_put_aside(void *ctx, uint32_t phase, uint32_t look, uint32_t worker)
{
    (void)ctx;
    (void)phase;
    (void)look;
    if (worker == 1)
        usleep(300000);
    return true;
}

static void who_is_put_aside_does_not_wait(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(2, 1, &p, NULL), OK);
    pool_on_idle(p, is_put_aside, NULL);
    for (int i = 0; i < 5; i++) { /* unless worker 1 was late, or did it itself */
        pool_each(p, 1, take_long, NULL);
        usleep(400000); /* it has come back, and counted */
        const struct pool_times t = pool_times(p);
        assert_true(t.waited_us <= t.walked_us);
    }
    pool_destroy(p);
}

static void idle_workers_sleep(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(8, 1, &p, NULL), OK);
    for (int i = 0; i < 3; i++) { /* woken, they go to sleep again */
        pool_each(p, 100, do_nothing, NULL);
        for (int ms = 0; !others_sleep(); ms++) {
            assert_true(ms < 30000);
            usleep(1000);
        }
    }
    pool_destroy(p);
}

static void take_a_moment(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    (void)ctx;
    (void)phase;
    (void)worker;
    const uint64_t until = clock_us() + (item == 0 ? 3000 : 100);
    while (clock_us() < until)
        ;
}

/* On a busy machine one worker may do all items, and nobody waits: then another time. */
enum { MAX_TIMES = 100 };

/* Item 0 takes long, so the other worker waits: most of the walk, never more than all of it. Times
 * only ever grow. */
static void waiting_is_counted(void **state)
{
    (void)state;
    struct pool *p;
    struct pool_times before = {0};
    const uint32_t n_items[2] = {2, 2};
    assert_int_equal(pool_create(2, 2, &p, NULL), OK);
    for (int i = 0; i < 20 || (i < 20 * MAX_TIMES && before.waited_us == 0); i++) {
        pool_walk(p, n_items, 2, take_a_moment, NULL);
        const struct pool_times t = pool_times(p);
        assert_true(t.walked_us >= before.walked_us + 2 * 5990);
        assert_true(t.waited_us >= before.waited_us && t.waited_us <= t.walked_us);
        before = t;
        assert_true(pool_times(p).walked_us == t.walked_us);
    }
    assert_true(before.waited_us > 0);
    pool_destroy(p);
}

struct looks {
    uint64_t n;
    uint32_t last, in_phase[2];
    bool out_of_turn;
} looks[2]; /* of each worker: its own writes only */

static bool look_on(void *ctx, uint32_t phase, uint32_t look, uint32_t worker)
{
    struct looks *l = (struct looks *)ctx + worker;
    l->out_of_turn |= phase > 1 || (look != 0 && look != l->last + 1);
    l->n++;
    l->last = look;
    l->in_phase[phase & 1]++;
    return look < 10;
}

/* Of 20 walks. */
static void look_for_a_while(void)
{
    struct pool *p;
    const uint32_t n_items[2] = {2, 2};
    assert_int_equal(pool_create(2, 2, &p, NULL), OK);
    pool_on_idle(p, look_on, looks); /* before a walk, of which a late worker might still wait */
    for (int i = 0; i < 20; i++)
        pool_walk(p, n_items, 2, take_a_moment, NULL);
    pool_destroy(p);
}

/* Who waits is called, in the phase whose items are under way, look by look. */
static void waiting_has_its_use(void **state)
{
    (void)state;
    memset(looks, 0, sizeof looks);
    for (int i = 0; i < MAX_TIMES; i++) {
        look_for_a_while();
        if (looks[0].n + looks[1].n > 20 && looks[0].in_phase[0] + looks[1].in_phase[0] > 0 &&
            looks[0].in_phase[1] + looks[1].in_phase[1] > 0)
            break;
    }
    assert_true(looks[0].n + looks[1].n > 20);
    assert_true(looks[0].in_phase[0] + looks[1].in_phase[0] > 0);
    assert_true(looks[0].in_phase[1] + looks[1].in_phase[1] > 0);
    assert_false(looks[0].out_of_turn || looks[1].out_of_turn);
}

/* However long a worker had waited for a walk: its first look is number 0 in each. */
static void looks_begin_anew(void **state)
{
    (void)state;
    struct pool *p;
    const uint32_t n_items = 1;
    memset(looks, 0, sizeof looks);
    for (int times = 0; times < MAX_TIMES && looks[0].n + looks[1].n == 0; times++) {
        assert_int_equal(pool_create(2, 1, &p, NULL), OK);
        pool_on_idle(p, look_on, looks);
        for (int i = 0; i < 60; i++) {
            usleep(i * 50);
            pool_walk(p, &n_items, 1, take_a_moment, NULL);
        }
        pool_destroy(p);
    }
    assert_true(looks[0].n + looks[1].n > 0);
    assert_false(looks[0].out_of_turn || looks[1].out_of_turn);
}

enum { SHORT_US = 2000, LONG_US = 100000 };

/* Phase 0: one short item; phase 1: an item for each worker until the same moment. */
static void work_until(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    const uint64_t *begin_us = ctx;
    (void)item;
    (void)worker;
    const uint64_t until = *begin_us + (phase == 0 ? SHORT_US : SHORT_US + LONG_US);
    while (clock_us() < until)
        ;
}

/* A wait ends when an item is found, not when it is done. The machine may hold up a worker in any
 * of the walks. */
static void work_is_no_waiting(void **state)
{
    (void)state;
    struct pool *p;
    const uint32_t n_items[2] = {1, 2};
    assert_int_equal(pool_create(2, 2, &p, NULL), OK);
    double least = 1e9;
    for (int i = 0; i < 5 || (i < MAX_TIMES && least >= LONG_US / 2.0); i++) {
        const struct pool_times before = pool_times(p);
        uint64_t begin_us = clock_us();
        pool_walk(p, n_items, 2, work_until, &begin_us);
        const double waited = pool_times(p).waited_us - before.waited_us;
        least = waited < least ? waited : least;
    }
    assert_true(least < LONG_US / 2.0);
    pool_destroy(p);
}

static void limits_are_plausible(void **state)
{
    (void)state;
    struct device_limits l;
    setenv("WEIR_ISA", "", 1);
    assert_int_equal(cpu_limits_measure(1, &l, NULL), OK);
    print_message("read %.1f GB/s, int8 %.0f, f32 %.0f Gop/s\n",
                  l.read_bytes_s * 1e-9,
                  l.ops_s[LIMIT_QUANT] * 1e-9,
                  l.ops_s[LIMIT_F32] * 1e-9);
    assert_true(l.read_bytes_s > 1e7 && l.read_bytes_s < 1e12);
    for (int i = 0; i < N_LIMIT_KINDS; i++)
        assert_true(l.ops_s[i] > 1e6 && l.ops_s[i] < (i == LIMIT_F32 ? 1e12 : 1e13));
    if (cpu_kernels_select("")->act_kinds[PANEL_F16] == ACT_TWO) { /* three products, two and one */
        assert_true(fabs(l.ops_s[LIMIT_F16] * 3 / (l.ops_s[LIMIT_BF16] * 2) - 1) < 1e-6);
        assert_true(fabs(l.ops_s[LIMIT_F16] * 3 / l.ops_s[LIMIT_Q8_0] - 1) < 1e-6);
    } else {
        assert_true(l.ops_s[LIMIT_F16] == l.ops_s[LIMIT_F32]);
        assert_true(l.ops_s[LIMIT_Q8_0] == l.ops_s[LIMIT_QUANT]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_see_each_other),
        cmocka_unit_test(empty_phases_and_crowds),
        cmocka_unit_test(creation_has_limits),
        cmocka_unit_test(there_is_one_for_each_core),
        cmocka_unit_test(who_is_put_aside_does_not_wait),
        cmocka_unit_test(idle_workers_sleep),
        cmocka_unit_test(reading_is_timed),
        cmocka_unit_test(waiting_is_counted),
        cmocka_unit_test(waiting_has_its_use),
        cmocka_unit_test(looks_begin_anew),
        cmocka_unit_test(work_is_no_waiting),
        cmocka_unit_test(limits_are_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
