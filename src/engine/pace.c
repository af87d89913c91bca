/* The filter of pace.h, and the rows that follow from it.
 *
 * Why a filter of three numbers: one average a row is wrong for small chunks when it was learnt
 * from large ones. A table of times by rows would have to be filled again for each number of
 * decodes, would have no place for attention, and after a change of speed be right only where it
 * was visited since. Steps with decodes are of two kinds, quiet ones and those at the target, and
 * through two points a line goes exactly, however the curve bends between. */
#include "engine/pace.h"

#include <math.h>
#include <string.h>

/* A step without decodes to hold up still ends often enough for newcomers to join; nor do newcomers
 * make one with decodes longer. */
#define ALONE_STEP_US 400000.0
#define ALONE_LEAST_ROWS 64
/* Of a step without prefill, as long as one with it is to be at most; so that what is foreseen
 * wrongly, and what else the machine does, leaves no gap of two and a half. */
#define AUTOMATIC 1.75
/* The same where several are at short prompts, of the step in which they decode: rows beside few
 * decodes are dear, and the sooner all decode, the fewer steps there are. Short is one whose rows,
 * all of them, take no longer than this; beside a longer one the gaps would last. */
#define AUTOMATIC_SHORT 2.5
#define SHORT_PROMPT_US 400000.0
/* Nobody sees a gap this short; an automatic target is never below it. */
#define MIN_TARGET_US 20000.0
#define LEAST_ROWS 4

/* Shares of a step's time: */
#define NOISE 0.08           /* by which equal steps differ */
#define DRIFT_ALL 0.02       /* by which the machine gets faster or slower from step to step */
#define DRIFT_ONE 0.002      /* by which one of the costs does so alone, */
#define FADED 0.05           /* up to which what was not seen for long is forgotten */
#define ATTENTION_GUESS 0.05 /* that 1024 attended positions may take, when nothing is known */
/* A step that takes half as long again as it should, and cannot be explained by what is uncertain,
 * was disturbed; so many in a row, and it is the machine that has changed. */
#define STRANGE 0.5
#define N_STRANGE 3

enum { BASE, PER_ROW, PER_ATTENDED };

static double max_double(double a, double b)
{
    return a > b ? a : b;
}

static void terms_of(const struct pace_step *s, double x[PACE_TERMS])
{
    x[BASE] = 1.0;
    x[PER_ROW] = (double)(s->n_decodes + s->n_prefill);
    x[PER_ATTENDED] = (double)(s->decodes_attend + s->prefill_attends) / 1024.0;
}

static double dot(const double a[PACE_TERMS], const double b[PACE_TERMS])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

void pace_init(struct pace *p, uint32_t itl_target_ms)
{
    *p = (struct pace){.target_us = itl_target_ms * 1000.0};
}

double pace_predict(const struct pace *p, const struct pace_step *s)
{
    double x[PACE_TERMS];
    terms_of(s, x);
    return dot(p->cost, x);
}

/* The first step with decodes: half of it was reading weights, or anything else. */
static void guess(struct pace *p, const double x[PACE_TERMS], double us)
{
    double sd[PACE_TERMS] = {us / 2.0, us / 2.0 / x[PER_ROW], ATTENTION_GUESS * us};
    memset(p->doubt, 0, sizeof p->doubt);
    for (int i = 0; i < PACE_TERMS; i++) {
        p->cost[i] = i == PER_ATTENDED ? 0.0 : sd[i];
        p->doubt[i][i] = sd[i] * sd[i];
    }
}

/* Time passes: the machine gets faster or slower, which every step tells; and a cost changes alone,
 * which steps that hardly have it do not tell, so that uncertainty ends at FADED. */
static void drift(struct pace *p, const double x[PACE_TERMS], double us)
{
    for (int i = 0; i < PACE_TERMS; i++) {
        double part = us / max_double(x[i], 1.0), faded = FADED * part;
        for (int k = 0; k < PACE_TERMS; k++)
            p->doubt[i][k] += DRIFT_ALL * DRIFT_ALL * p->cost[i] * p->cost[k];
        if (p->doubt[i][i] < faded * faded)
            p->doubt[i][i] += DRIFT_ONE * DRIFT_ONE * part * part;
    }
}

/* Is a step that was off by `over` of what was expected, where `sd` is likely, one to learn from?
 * One may take longer for any reason, but only many in a row have the same; and none is ever
 * shorter than it should be. If so, all costs may have changed by as much. */
static bool believe(struct pace *p, double over, double expected, double sd)
{
    double ratio = over / expected < 100.0 ? over / expected : 100.0; /* or precision is lost */
    bool strange = fabs(over) > 3.0 * sd && (ratio > STRANGE || ratio < -STRANGE / 2.0);
    p->n_slow = strange && ratio > 0.0 ? p->n_slow + 1 : 0;
    if (p->n_slow > 0 && p->n_slow < N_STRANGE)
        return false;
    for (int i = 0; strange && i < PACE_TERMS; i++)
        for (int k = 0; k < PACE_TERMS; k++)
            p->doubt[i][k] += ratio * ratio * p->cost[i] * p->cost[k];
    return true;
}

/* No cost is negative; what would be, is 0, and the others are what they are likely to be then. */
static void bring_to_zero(struct pace *p, int i)
{
    double by = p->doubt[i][i] > 0.0 ? p->cost[i] / p->doubt[i][i] : 0.0;
    for (int k = 0; k < PACE_TERMS; k++)
        p->cost[k] = k == i ? 0.0 : max_double(p->cost[k] - p->doubt[i][k] * by, 0.0);
}

/* One step of the filter: each cost takes the part of the error that its uncertainty explains. */
static void correct(struct pace *p, const double x[PACE_TERMS], double us)
{
    double expected = max_double(dot(p->cost, x), 1.0), noise = NOISE * expected;
    double px[PACE_TERMS];
    for (int i = 0; i < PACE_TERMS; i++)
        px[i] = dot(p->doubt[i], x);
    if (!believe(p, us - expected, expected, sqrt(dot(x, px) + noise * noise)))
        return;
    for (int i = 0; i < PACE_TERMS; i++)
        px[i] = dot(p->doubt[i], x); /* again, for believe() may have added to it */
    double var = dot(x, px) + noise * noise;
    for (int i = 0; i < PACE_TERMS; i++) {
        p->cost[i] += px[i] / var * (us - expected);
        for (int k = 0; k < PACE_TERMS; k++)
            p->doubt[i][k] -= px[i] * px[k] / var;
    }
    for (int i = 0; i < PACE_TERMS; i++)
        if (p->cost[i] < 0.0)
            bring_to_zero(p, i);
    drift(p, x, us);
}

/* An average that one disturbed step cannot move far. */
static void average(double *a, double sample, double weight)
{
    if (*a == 0.0)
        *a = sample;
    else
        *a += weight * ((sample < 2.0 * *a ? sample : 2.0 * *a) - *a);
}

/* The more rows, the less each: what fewer came to says only how much it is at most. */
static void learn_alone(struct pace *p, uint32_t n_rows, double row_us, double weight)
{
    if (n_rows > p->widest_alone && (p->alone_us == 0.0 || row_us < p->alone_us))
        p->alone_us = row_us;
    else
        average(&p->alone_us, row_us, weight);
    p->widest_alone = n_rows > p->widest_alone ? n_rows : p->widest_alone;
}

void pace_learn(struct pace *p, const struct pace_step *s, double us)
{
    uint32_t n_rows = s->n_decodes + s->n_prefill;
    double x[PACE_TERMS], rest = us;
    if (n_rows == 0 || us <= 0.0)
        return;
    if (s->n_decodes > 0) {
        terms_of(s, x);
        if (p->widest == 0)
            guess(p, x, us);
        correct(p, x, us);
        p->widest = n_rows > p->widest ? n_rows : p->widest;
        rest -= pace_predict(
            p, &(struct pace_step){.n_decodes = s->n_decodes, .decodes_attend = s->decodes_attend});
    }
    if (s->n_prefill == 0 || rest <= 0.0)
        return;
    double weight = s->n_prefill >= 64 ? 0.2 : 0.2 * s->n_prefill / 64.0;
    if (s->n_decodes == 0)
        learn_alone(p, s->n_prefill, us / s->n_prefill, weight);
    average(&p->us_per_row, rest / s->n_prefill, weight);
}

static double foresee(const struct pace *p, const struct pace_load *load, uint64_t n_prefill)
{
    return pace_predict(p,
                        &(struct pace_step){.n_decodes = load->n_decodes,
                                            .n_prefill = (uint32_t)n_prefill,
                                            .decodes_attend = load->decodes_attend,
                                            .prefill_attends = n_prefill * load->depth +
                                                               n_prefill * (n_prefill + 1) / 2});
}

/* As above, but well beyond the rows that were ever seen no less than it may come to: n times as
 * many rows may take n times as long, wherever the curve bends. */
static double expect(const struct pace *p, const struct pace_load *load, uint32_t n_prefill)
{
    double us = foresee(p, load, n_prefill);
    uint32_t n_rows = load->n_decodes + n_prefill;
    if (n_rows <= p->widest + 4)
        return us;
    uint32_t seen = p->widest > load->n_decodes ? p->widest - load->n_decodes : 0;
    return max_double(us, foresee(p, load, seen) * n_rows / (load->n_decodes + seen));
}

static double automatic_target(const struct pace *p, const struct pace_load *load)
{
    const double target = max_double(AUTOMATIC * foresee(p, load, 0), MIN_TARGET_US);
    if (load->n_prompts < 2)
        return target;
    const uint32_t more = load->n_prompts - 1;
    struct pace_load soon = *load;
    soon.n_decodes += more;
    soon.decodes_attend += load->prompts_attend / load->n_prompts * more;
    const bool are_short = p->cost[PER_ROW] * load->longest_prompt <= SHORT_PROMPT_US;
    const double by = are_short ? AUTOMATIC_SHORT : AUTOMATIC;
    const double then = by * foresee(p, &soon, 0);
    return max_double(target, then < ALONE_STEP_US ? then : ALONE_STEP_US);
}

uint32_t pace_rows(const struct pace *p, const struct pace_load *load, uint32_t max_rows)
{
    if (load->n_decodes == 0) {
        double rows = p->alone_us > 0.0 ? ALONE_STEP_US / p->alone_us : ALONE_LEAST_ROWS;
        rows = max_double(rows, ALONE_LEAST_ROWS);
        return rows < max_rows ? (uint32_t)rows : max_rows;
    }
    const double target = p->target_us > 0.0 ? p->target_us : automatic_target(p, load);
    uint32_t rows = load->n_decodes + LEAST_ROWS;
    bool sure = p->widest > 0 && p->n_slow == 0;
    while (sure && rows < max_rows) {
        uint32_t more = rows / 4 * 4 + 4; /* as kernels take them */
        if (!(expect(p, load, more - load->n_decodes) <= target))
            break;
        rows = more;
    }
    return rows < max_rows ? rows : max_rows;
}
