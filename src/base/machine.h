/* What this process may have of the machine: as much as its control groups leave of it. Any
 * thread; each call reads /proc and /sys anew. */
#ifndef WEIR_BASE_MACHINE_H
#define WEIR_BASE_MACHINE_H

#include <stdint.h>

/* Bytes of memory: all that there is, or the least limit of a group. */
uint64_t machine_memory(void);

/* CPUs' worth of time that the groups grant, rounded up; UINT32_MAX: no group says. */
uint32_t machine_cpu_quota(void);

/* The CPUs that threads may run on, ascending: *cpus, which the caller frees, and how many. 0 where
 * the system does not say. */
uint32_t machine_cpus(uint32_t **cpus);

/* Of those the first of each physical core, moved to the front, and how many. root "", or for tests
 * another, below which the system's files are. */
uint32_t machine_cores(const char *root, uint32_t *cpus, uint32_t n);

/* For tests: the same two limits by the files under another root; UINT64_MAX: none. */
uint64_t machine_group_memory(const char *root);
uint64_t machine_group_cpus(const char *root);

#endif
