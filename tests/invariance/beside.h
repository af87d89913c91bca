/* The CPU backend as if it were a device: steps run on a thread of its own, in order, each after a
 * while, and the host hears of them when it asks. It is as strict as a device is not:
 *
 *      it keeps nothing but copies of what a step was given
 *      results are garbage until the step is ended, and again from the next begin on
 *      a block that a step under way was given must not be written, nor read while it writes it
 *      copies of blocks wait among the steps
 *
 * What breaks a rule of backend/async.h ends the program with a line. */
#ifndef WEIR_TESTS_INVARIANCE_BESIDE_H
#define WEIR_TESTS_INVARIANCE_BESIDE_H

#include "backend/async.h"

struct beside_options {
    uint64_t seed;          /* of the delays */
    uint32_t most_delay_us; /* before a step or a copy; 0: none */
    uint32_t most_biases;   /* of a job; the host chooses for those who want more */
    uint64_t fails_at;      /* the step of this number fails, from 1 on; 0: none */
    bool fails_to_begin;    /* it does not even begin */
};
/* Of backends made from now on. */
void beside_set(const struct beside_options *o);

/* engine_config.make_backend */
enum err beside_create(const struct model *m,
                       const struct backend_config *cfg,
                       struct backend **out,
                       struct err_info *e) WEIR_MUST_USE;

#endif
