/* Launches that become one: what is done to a row between two products, and products of the same
 * rows. compile.c has put them behind each other; nothing is reordered here.
 *
 *      compiled   add  norm  pack  q  k  v  rope  attention  pack  out+  norm  pack  gate  up  ..
 *      launched   [add norm  pack][q  k  v] rope  attention  pack  out+ [norm  pack][gate  up] ..
 *
 * The first says how many that follow are done with it, and launch.c does so. All stay in the list:
 * what memory they need, and what they compute, is what it was, so the one is no more than a
 * shorter way to the bits of the others. */
#include "backend/cuda/cuda.h"

static bool is_norm(const struct launch *l)
{
    return (l->kind == LAUNCH_NORM && l->heads == 1) || l->kind == LAUNCH_LAYER_NORM;
}

static bool is_stage(const struct launch *l)
{
    return is_norm(l) || l->kind == LAUNCH_ADD || l->kind == LAUNCH_ADD_GATED ||
           l->kind == LAUNCH_GATED || l->kind == LAUNCH_UNARY || l->kind == LAUNCH_MIX;
}

/* Does it prepare what `last` puts out, for all that read it? */
static bool packs(const struct launch *l, const struct launch *last)
{
    if (l->in != last->out || l->n != last->n || l->rows != last->rows || l->in_step)
        return false;
    return last->places ? l->kind == LAUNCH_EXPERT_PACK && l->places : l->kind == LAUNCH_PACK;
}

/* Stages of the same rows, the last of which may be packed; cut where norms would have another
 * number of threads, or rows of other blocks are read. */
static uint32_t count_stages(const struct launch *l, uint32_t n)
{
    const struct launch *norm = NULL;
    uint32_t stages = 0;
    while (stages < n && stages < CUDA_MOST_STAGES && is_stage(&l[stages])) {
        const struct launch *s = &l[stages];
        if (stages > 0 && (s->gather || s->rows != l->rows || s->places != l->places))
            break;
        if (is_norm(s) && norm && !cuda_stages_fit(norm->n, s->n))
            break;
        norm = is_norm(s) ? s : norm;
        stages++;
    }
    return stages;
}

static uint32_t joined_stages(const struct launch *l, uint32_t n)
{
    const uint32_t stages = count_stages(l, n);
    if (stages == 0)
        return 0;
    return stages - 1 + (stages < n && packs(&l[stages], &l[stages - 1]));
}

/* Matrices that read the rows that were packed last, and each write a buffer of its own. */
static uint32_t joined_linears(const struct cuda_backend *b, const struct launch *l, uint32_t n)
{
    uint32_t group = 0;
    for (; group < n && group < CUDA_LINEAR_GROUP; group++) {
        const struct launch *s = &l[group];
        if (s->kind != l->kind || s->rows != l->rows || s->in_step || s->out_step ||
            s->forms != l->forms || b->matrices[s->matrix].m.n_in != b->matrices[l->matrix].m.n_in)
            break;
        for (uint32_t i = 0; i < group; i++) {
            if (l[i].out == s->out)
                return group - 1;
        }
    }
    return group > 0 ? group - 1 : 0;
}

void cuda_join(struct cuda_backend *b)
{
    for (uint32_t i = 0; i < b->n_launches; i += 1 + b->launches[i].joined) {
        struct launch *l = &b->launches[i];
        const uint32_t n = b->n_launches - i;
        if (l->kind == LAUNCH_LINEAR || l->kind == LAUNCH_EXPERT_LINEAR)
            l->joined = joined_linears(b, l, n);
        else
            l->joined = joined_stages(l, n);
    }
}
