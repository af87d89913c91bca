/* Limits of control groups, of both versions, and physical cores, by files as Linux has them. */
#include "base/machine.h"
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/weir-machine-XXXXXX";

/* A file under the root, and the folders it lies in. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *s = full + strlen(root) + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        (void)mkdir(full, 0700);
        *s = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int begin(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command); /* NOLINT(cert-env33-c) */
}

static void test_none(void **state)
{
    (void)state;
    assert_true(machine_group_memory(root) == UINT64_MAX); /* no /proc */
    put("proc/self/cgroup", "0::/a\n");
    assert_true(machine_group_memory(root) == UINT64_MAX);
    put("sys/fs/cgroup/a/memory.max", "max\n");
    put("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    assert_true(machine_group_memory(root) == UINT64_MAX);
    assert_true(machine_group_cpus(root) == UINT64_MAX);
    put("proc/self/cgroup", "\n0\n7:\n:::\n");
    assert_true(machine_group_cpus(root) == UINT64_MAX);
}

/* The least of a group and those around it; a quota is rounded up. */
static void test_unified(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/system.slice/weir.service\n");
    put("sys/fs/cgroup/system.slice/weir.service/memory.max", "8589934592\n");
    put("sys/fs/cgroup/system.slice/weir.service/cpu.max", "1650000 100000\n");
    assert_true(machine_group_memory(root) == 8589934592);
    assert_true(machine_group_cpus(root) == 17);
    put("sys/fs/cgroup/system.slice/memory.max", "4096\n");
    put("sys/fs/cgroup/system.slice/cpu.max", "200000 100000\n");
    assert_true(machine_group_memory(root) == 4096);
    assert_true(machine_group_cpus(root) == 2);
}

/* In a container the path may not be there; its own limit is at the root. */
static void test_only_the_root_is_seen(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/../../docker/abc\n");
    put("sys/fs/cgroup/memory.max", "12345\n");
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_true(machine_group_memory(root) == 12345);
    assert_true(machine_group_cpus(root) == 1);
}

static void test_version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup",
        "12:cpuset:/\n5:cpu,cpuacct:/u\n4:memory:/u/v\n1:name=systemd:/\n0::/\n");
    put("sys/fs/cgroup/cpu,cpuacct/u/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/u/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/u/v/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(machine_group_cpus(root) == UINT64_MAX);
    assert_true(machine_group_memory(root) == 9223372036854771712u); /* how it says none */
    put("sys/fs/cgroup/cpu,cpuacct/u/cpu.cfs_quota_us", "300000\n");
    put("sys/fs/cgroup/memory/u/memory.limit_in_bytes", "777\n");
    assert_true(machine_group_cpus(root) == 3);
    assert_true(machine_group_memory(root) == 777);
}

static void test_cores(void **state)
{
    (void)state;
    static const struct {
        uint32_t cpu;
        const char *siblings;
    } told[] = {{0, "0,8"},
                {8, "0,8\n"},
                {1, "1-2\n"},
                {2, "1-2\n"},
                {3, "1-1,3-4,9\n"},
                {9, "1-1,3-4,9\n"},
                {12, "12\n"},
                {13, "x"},
                {14, "14-"}};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char path[96];
        snprintf(path,
                 sizeof path,
                 "sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                 told[i].cpu);
        put(path, told[i].siblings);
    }
    uint32_t cpus[] = {0, 1, 2, 3, 8, 9, 12, 13, 14, 15};
    const uint32_t want[] = {0, 1, 12, 13, 14, 15};
    assert_int_equal(machine_cores(root, cpus, 10), 6);
    assert_memory_equal(cpus, want, sizeof want);
    uint32_t few[] = {2, 8, 9}; /* the first that may be used, not the first that there is */
    assert_int_equal(machine_cores(root, few, 3), 3);
    assert_int_equal(machine_cores(root, few, 0), 0);
}

static void *where(void *arg)
{
    uint32_t *cpus;
    for (int ms = 0; machine_cpus(&cpus) != 1 && ms < 30000; ms++) { /* until it is kept to one */
        free(cpus);
        usleep(1000);
    }
    *(uint32_t *)arg = cpus[0];
    free(cpus);
    return NULL;
}

static void test_a_thread_keeps_to_a_cpu(void **state)
{
    (void)state;
    uint32_t *cpus, n = machine_cpus(&cpus), seen = UINT32_MAX;
    pthread_t thread;
    assert_true(n > 0);
    assert_int_equal(thread_start(&thread, where, &seen), 0);
    thread_keep_to(thread, (const uint32_t[]){1 << 19}, 1); /* there is none such: as it was */
    thread_keep_to(thread, &cpus[n - 1], 1);
    pthread_join(thread, NULL);
    assert_int_equal(seen, cpus[n - 1]);
    free(cpus);
}

static void test_this_machine(void **state)
{
    (void)state;
    uint32_t *cpus, n = machine_cpus(&cpus);
    assert_true(n > 0);
    for (uint32_t i = 1; i < n; i++)
        assert_true(cpus[i] > cpus[i - 1]);
    free(cpus);
    assert_true(machine_memory() > 1 << 20);
    assert_true(machine_cpu_quota() > 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_none),
        TEST(test_unified),
        TEST(test_only_the_root_is_seen),
        TEST(test_version_1),
        TEST(test_cores),
        cmocka_unit_test(test_a_thread_keeps_to_a_cpu),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
