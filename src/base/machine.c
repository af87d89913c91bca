/* A process is in a group of each kind: in one of all that are unified (version 2), or in one for
 * each controller (version 1), and every group around one may have a limit, too:
 *
 *      /proc/self/cgroup        0::/a/b          4:memory:/a/b
 *      version 2                /sys/fs/cgroup/a/b/memory.max, .../a/memory.max, ...
 *      version 1                /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes, ...
 *
 * In a container the path may be that of the host, while only its own group is to be seen, at the
 * root: so what is not there says nothing, and the root of the hierarchy is asked, too. */
#include "base/machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* The limit that the group of that folder has; UINT64_MAX: none. */
typedef uint64_t read_limit(const char *folder, bool unified);

static FILE *open_in(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* Numbers at the beginning of a file; how many of the two. */
static int read_two(const char *folder, const char *name, long long out[2])
{
    FILE *f = open_in(folder, name);
    const int n = f ? fscanf(f, "%lld %lld", &out[0], &out[1]) : 0;
    if (f)
        fclose(f);
    return n;
}

static uint64_t memory_of(const char *folder, bool unified)
{
    long long v[2];
    const char *name = unified ? "memory.max" : "memory.limit_in_bytes";
    return read_two(folder, name, v) > 0 && v[0] >= 0 ? (uint64_t)v[0] : UINT64_MAX;
}

static uint64_t cpus_of(const char *folder, bool unified)
{
    long long v[2], period[2];
    if (unified && read_two(folder, "cpu.max", v) != 2)
        return UINT64_MAX; /* "max" */
    if (!unified) {
        if (read_two(folder, "cpu.cfs_quota_us", v) < 1 ||
            read_two(folder, "cpu.cfs_period_us", period) < 1)
            return UINT64_MAX;
        v[1] = period[0];
    }
    if (v[0] <= 0 || v[1] <= 0)
        return UINT64_MAX;
    return ((uint64_t)v[0] + (uint64_t)v[1] - 1) / (uint64_t)v[1];
}

/* The least of the group `path` below `hierarchy`, which is used up, and those around it. */
static uint64_t least_around(const char *hierarchy, char *path, bool unified, read_limit *read)
{
    char folder[2 * PATH_BYTES];
    uint64_t least = UINT64_MAX;
    for (char *slash = path;; *slash = '\0') {
        snprintf(folder, sizeof folder, "%s%s", hierarchy, path);
        const uint64_t v = read(folder, unified);
        least = v < least ? v : least;
        slash = strrchr(path, '/');
        if (!slash)
            return least;
    }
}

/* Is `word` in the list "cpu,cpuacct"? */
static bool is_listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

static uint64_t least_limit(const char *root, const char *controller, read_limit *read)
{
    static const char *const unified_at[] = {"", "/unified"};
    char line[PATH_BYTES], hierarchy[PATH_BYTES], own[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    FILE *f = open_in(root, "proc/self/cgroup");
    while (f && fgets(line, sizeof line, f)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        const bool unified = *++list == '\0';
        if (!unified && !is_listed(list, controller))
            continue;
        for (int i = 0; i < 2; i++) { /* of version 1 one may be a link to the other */
            const char *at = unified ? unified_at[i] : i ? list : controller;
            snprintf(hierarchy,
                     sizeof hierarchy,
                     "%.2000s/sys/fs/cgroup%s%.1000s",
                     root,
                     unified ? "" : "/",
                     at);
            snprintf(own, sizeof own, "%s", path);
            const uint64_t v = least_around(hierarchy, own, unified, read);
            least = v < least ? v : least;
        }
    }
    if (f)
        fclose(f);
    return least;
}

uint64_t machine_group_memory(const char *root)
{
    return least_limit(root, "memory", memory_of);
}

uint64_t machine_group_cpus(const char *root)
{
    return least_limit(root, "cpu", cpus_of);
}

uint64_t machine_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    const uint64_t limit = machine_group_memory("");
    const uint64_t all =
        pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : (uint64_t)1 << 30;
    return limit < all ? limit : all;
}

uint32_t machine_cpu_quota(void)
{
    const uint64_t n = machine_group_cpus("");
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

uint32_t machine_cpus(uint32_t **cpus)
{
    enum { MOST = 1 << 20 };
    *cpus = NULL;
    for (int most = CPU_SETSIZE; most <= MOST; most *= 2) { /* too few: refused */
        cpu_set_t *set = CPU_ALLOC(most);
        const size_t size = CPU_ALLOC_SIZE(most);
        if (!set)
            return 0;
        const bool told = sched_getaffinity(0, size, set) == 0;
        const int n = told ? CPU_COUNT_S(size, set) : 0;
        uint32_t n_put = 0;
        *cpus = told ? malloc(((size_t)n + 1) * sizeof **cpus) : NULL;
        for (int cpu = 0; *cpus && cpu < most; cpu++)
            if (CPU_ISSET_S(cpu, size, set))
                (*cpus)[n_put++] = (uint32_t)cpu;
        CPU_FREE(set);
        if (told)
            return n_put;
    }
    return 0;
}

static bool has_cpu(const uint32_t *cpus, uint32_t n, long cpu)
{
    for (uint32_t i = 0; i < n; i++)
        if (cpus[i] == cpu)
            return true;
    return false;
}

/* Has one of these n the same core? By a list of its siblings, like "0-1,8". */
static bool has_sibling(const char *root, uint32_t cpu, const uint32_t *cpus, uint32_t n)
{
    char name[96];
    snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *f = open_in(root, name);
    bool has = false;
    long from, to;
    while (f && fscanf(f, "%ld", &from) == 1) {
        to = from;
        int c = fgetc(f);
        if (c == '-' && fscanf(f, "%ld", &to) == 1)
            c = fgetc(f);
        for (long s = from; s <= to && s < (long)cpu; s++)
            has = has || has_cpu(cpus, n, s);
        if (c != ',')
            break;
    }
    if (f)
        fclose(f);
    return has;
}

uint32_t machine_cores(const char *root, uint32_t *cpus, uint32_t n)
{
    uint32_t n_cores = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!has_sibling(root, cpus[i], cpus, n_cores))
            cpus[n_cores++] = cpus[i];
    return n_cores;
}
