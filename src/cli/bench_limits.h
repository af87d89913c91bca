/* The least time that a model's multiplications and bytes take on a device whose limits are known.
 * Nothing here allocates. */
#ifndef WEIR_CLI_BENCH_LIMITS_H
#define WEIR_CLI_BENCH_LIMITS_H

#include "backend/backend.h"

/* Seconds of a prompt of n tokens: its multiplications, two operations a weight and token. `last`:
 * rows that go on behind the last keys and values (on a CPU the last one alone, on a GPU the whole
 * last chunk, of which again the last alone has logits). */
double prefill_least_seconds(const struct model *m,
                             const struct device_limits *limits,
                             uint32_t n,
                             uint32_t last);

/* Seconds of a step of `batch` streams at position `at`: each weight (of experts those that are met
 * if all are as likely), and each stream's keys, values and states, read once at bytes_s, those of
 * the first `shared` positions once for all, or its multiplications if those take longer. */
double decode_least_seconds(const struct model *m,
                            const struct device_limits *limits,
                            enum kv_type type,
                            uint32_t batch,
                            double at,
                            double shared,
                            double bytes_s);

#endif
