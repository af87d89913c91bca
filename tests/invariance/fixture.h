/* The cases and what each gave alone, and ways to see that an engine gives the same. */
#ifndef WEIR_TESTS_INVARIANCE_FIXTURE_H
#define WEIR_TESTS_INVARIANCE_FIXTURE_H

#include "invariance/cases.h"

struct fixture {
    const char *model;
    enum kv_type kv;
    uint32_t n_threads; /* of the engines that are looked at */
    struct test_case cases[N_CASES];
    struct buf want[N_CASES];
};

/* Run each case alone in an engine that has computed nothing. */
void prepare(struct fixture *f, const char *model, enum kv_type kv, uint32_t n_threads);
void forget(struct fixture *f);

/* When nothing runs: steps have allocated nothing, and nothing is left in use. */
struct engine_stats stats_of(const struct harness *h);
/* The whole of the KV memory and the scheduler, compared with themselves. */
void assert_sound(struct harness *h);
/* What a request of case i gave is what was wanted. */
void assert_same(const struct request *r, const struct buf *want, uint32_t i);
/* Run the cases, together with n_mates others; the answers must be the same. Returns how many
 * prompt tokens were found. */
uint32_t run_cases(struct harness *h, const struct fixture *f, uint32_t n_mates);

#endif
