/* Requests that want one vector of a text: which rows' hidden states they need, and how these
 * become the vector. For engine/ only; the engine thread's, within a step.
 *
 *      mean     every row, summed in double in the order of positions, whatever the chunks
 *      cls      the first position's        last      the last position's
 *      none     no one vector: each row as it is
 *      scores   the head's, of the first position; of the last where the model is causal
 *
 * A text that was preempted begins again, and so does its sum. */
#ifndef WEIR_ENGINE_EMBED_H
#define WEIR_ENGINE_EMBED_H

#include "engine/step.h"

/* One item's hidden rows. */
struct embed_job {
    uint32_t item;               /* of the step */
    uint32_t hidden_row, n_rows; /* into batch.hidden_rows */
    uint32_t first;              /* the position of the first of them, where all are wanted */
    bool begins;                 /* with position 0, */
    bool ends;                   /* with the last one: the vector is complete */
};

/* Does the vector need rows that come before the last? Then prefixes cannot be reused. */
bool embed_needs_all(const struct engine *eng, enum request_output output);
/* Is it a vector of each position? */
bool embed_each(const struct engine *eng, enum request_output output);

/* The item's wanted rows into the batch, before its n_rows is raised by the item, the newest of the
 * step's. Nothing for requests that want tokens. */
void embed_fill(struct engine *eng, struct step_batch *s, const struct sched_item *item);

/* After the run: take in what came, and end the requests whose text is complete. */
void embed_finish(struct engine *eng, struct step_batch *s);

#endif
