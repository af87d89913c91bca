/* A model, a tokenizer and ways to run requests through a real engine. */
#ifndef WEIR_TESTS_INVARIANCE_HARNESS_H
#define WEIR_TESTS_INVARIANCE_HARNESS_H

#include "base/buf.h"
#include "engine/engine.h"

struct harness {
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
};

/* Exits with a message when a file does not load. With WEIR_TEST_BESIDE in the environment (a seed)
 * the backend runs beside the host (beside.h), and all memory is checked after every step. */
void harness_open(struct harness *h, const char *model_path, const struct engine_config *cfg);
void harness_close(struct harness *h);

/* Submit all, wait for all; every request must end with its one terminal event. Their user pointer
 * is a bool, false at first. */
void harness_run(struct harness *h, struct request **rs, uint32_t n);

/* Wait until n of those that were submitted have ended. */
void harness_wait(struct harness *h, uint32_t n);

/* Append what must not change: ids, log-probabilities and their alternatives, to the bit. */
void harness_record(const struct request *r, uint32_t n_top, struct buf *out);

#endif
