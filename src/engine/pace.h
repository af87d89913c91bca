/* How long steps take, learnt from those that ran, and so how many rows the next one may have.
 *
 * A step of R rows that attend to A positions in all is thought to take
 *
 *      base               +  per_row * R  +  per_attended * A
 *      read all weights      multiply        read keys and values: what makes the later chunks of
 *                                            a long prompt dearer
 *
 * A row counts as one whatever is wanted of it. Where many layers borrow others' keys and values, a
 * prompt all of whose rows are wanted (its log-probabilities) costs more than was learnt: for some
 * steps the target is passed, then there are fewer rows.
 *
 * The three are states of a Kalman filter, so every step corrects each of them as far as it says
 * something of it: steps of decodes alone and steps with a chunk beside them tell base from
 * per_row, growing prompts tell per_attended. Steps without decodes are apart, in an average:
 * their rows are many and cheap, and nobody waits for them.
 *
 * Pure: no clock, no I/O; allocates nothing. Thread: the engine's. */
#ifndef WEIR_ENGINE_PACE_H
#define WEIR_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { PACE_TERMS = 3 };

/* A step, as far as its time depends on it. */
struct pace_step {
    uint32_t n_decodes, n_prefill; /* rows */
    /* positions, summed over the rows, each with its own */
    uint64_t decodes_attend, prefill_attends;
};

/* What the next step has to hold, and what may be added to it. */
struct pace_load {
    uint32_t n_decodes;
    uint64_t decodes_attend;
    uint32_t depth; /* positions before a prompt's next row */
    /* who is at a prompt and will decode then; the positions that they will attend to; the most
     * rows of one of them, from its first on */
    uint32_t n_prompts;
    uint64_t prompts_attend;
    uint32_t longest_prompt;
};

struct pace {
    double target_us;                     /* of a step with decodes; 0: automatic */
    double cost[PACE_TERMS];              /* us: base, per_row, per_attended (1024 of them); >= 0 */
    double doubt[PACE_TERMS][PACE_TERMS]; /* their covariance: how uncertain they are */
    uint32_t widest;       /* rows of the largest step with decodes; 0: there was none */
    uint32_t n_slow;       /* steps in a row that took far longer than they should */
    double alone_us;       /* a prefill row in a step without decodes; 0: unknown */
    uint32_t widest_alone; /* rows of the largest of those */
    double us_per_row;     /* a prefill row on top of what else is in its step; 0: unknown */
};

void pace_init(struct pace *p, uint32_t itl_target_ms);

/* What a step is thought to take, in microseconds; of use once a step with decodes was learnt. */
double pace_predict(const struct pace *p, const struct pace_step *s);

/* Rows the next step may have, <= max_rows. With decodes: a multiple of 4 that keeps it within the
 * target; but 4 beside the decodes always, or prompts would not get on, and no more than that while
 * steps take strangely long. The target is automatically 1.75 times the step without prefill, or
 * 20 ms; where several are at their prompts, of the step in which all but one of them decode as
 * well, and 2.5 times that if all the prompts are short, up to 400 ms: the sooner they decode, the
 * more share a pass over the weights. Without decodes: as many as let newcomers in soon enough. */
uint32_t pace_rows(const struct pace *p, const struct pace_load *load, uint32_t max_rows);

/* A step ran, and took so long. */
void pace_learn(struct pace *p, const struct pace_step *s, double us);

#endif
