/* Attention, of a job: ranges of tiles, one after the other, folded from the first to the last; at
 * once, in parts, or as far as several jobs go together. */

/* How a job's queries are packed, and meet the tile at pos; last_pos: of all that is read. */
struct attn_way {
    void (*pack)(struct attn_state *s);
    void (*meet)(struct attn_state *s, uint32_t pos, uint32_t last_pos);
    uint32_t tile; /* positions */
};

/* The arrays of a part. */
static void attn_into(struct attn_state *s, float *part)
{
    s->m = part;
    s->sum = part + ATTN_QUERIES;
    s->acc = part + 2 * ATTN_QUERIES;
}

/* Nothing of a range has been met yet. */
static void attn_range_begin(struct attn_state *s, float *part)
{
    attn_into(s, part);
    const uint32_t n = (s->n_query + QB - 1) / QB * QB; /* with those of padding */
    memset(s->acc, 0, sizeof(float) * n * s->padded);
    memset(s->l, 0, sizeof(float) * s->n_query * KV_TILE);
    for (uint32_t i = 0; i < n; i++) {
        s->m[i] = -INFINITY;
        s->c[i] = 1.0f;
    }
}

/* Its tiles from the one at `pos` to before `stop`; last_pos: up to which the job's blocks may be
 * asked for. */
static void attn_range_meet(struct attn_state *s,
                            const struct attn_way *way,
                            uint32_t pos,
                            uint32_t stop,
                            uint32_t last_pos)
{
    for (; pos < stop; pos += s->tile)
        way->meet(s, pos, last_pos);
}

/* Queries that saw none of it have a sum of 0. */
static void attn_range_end(struct attn_state *s)
{
    for (uint32_t i = 0; i < s->n_query; i++) {
        vf l = vf_load(s->l + i * KV_TILE);
        for (int h = 1; h < PARTS; h++)
            l = vf_add(l, vf_load(s->l + i * KV_TILE + h * VL));
        s->sum[i] = vf_sum(l);
    }
}

/* The part of one range. */
static void attn_range(struct attn_state *s,
                       const struct attn_way *way,
                       uint32_t range,
                       float *part)
{
    const uint32_t end = attn_end(s->j), begin = range * ATTN_RANGE, edge = begin + ATTN_RANGE;
    const uint32_t seen = attn_first_pos(s->j, 0) / s->tile * s->tile;
    attn_range_begin(s, part);
    attn_range_meet(s, way, seen > begin ? seen : begin, end < edge ? end : edge, end - 1);
    attn_range_end(s);
}

/* total = total and the part after it; at: which of total's queries is the part's first. */
static void attn_fold(const struct attn_state *s, float *total, uint32_t at, const float *part)
{
    const float *acc = part + 2 * ATTN_QUERIES;
    float *largest = total + at, *sums = largest + ATTN_QUERIES;
    float *all = total + 2 * ATTN_QUERIES + (size_t)at * s->padded;
    for (uint32_t i = 0; i < s->n_query; i++) {
        const float m = part[i], before = largest[i], top = m > before ? m : before;
        if (part[ATTN_QUERIES + i] == 0.0f)
            continue;
        const vf old = vf_exp(vf_set1(before - top)), new = vf_exp(vf_set1(m - top));
        const vf sum = vf_set1(sums[i]), more = vf_set1(part[ATTN_QUERIES + i]);
        vf_store_n(&sums[i], vf_fma(more, new, vf_mul(sum, old)), 1);
        largest[i] = top;
        for (uint32_t d = i * s->padded; d < (i + 1) * s->padded; d += VL)
            vf_store(all + d, vf_fma(vf_load(acc + d), new, vf_mul(vf_load(all + d), old)));
    }
}

/* 1 / (the sum and the sink's part of it), both with m as the largest score, or the sink's own. */
INLINE vf attn_with_sink(float m, float sum, float sink)
{
    const float top = sink > m ? sink : m;
    const vf old = vf_exp(vf_set1(m - top)), more = vf_exp(vf_set1(sink - top));
    return vf_div(old, vf_fma(vf_set1(sum), old, more));
}

static void attn_put(const struct attn_state *s, const float *total)
{
    const struct attn_job *j = s->j;
    for (uint32_t i = 0; i < s->n_query; i++) {
        vf inverse = vf_set1(1.0f / total[ATTN_QUERIES + i]);
        if (j->sinks)
            inverse = attn_with_sink(total[i], total[ATTN_QUERIES + i], j->sinks[i % j->group]);
        float *out =
            j->out + j->rows[i / j->group].at * j->out_stride + (size_t)(i % j->group) * s->n_value;
        const float *acc = total + 2 * ATTN_QUERIES + (size_t)i * s->padded;
        for (uint32_t d = 0; d < s->n_value; d += VL) {
            /* a sum of nothing but -0 is 0, as it is with an unseen value in it */
            const vf x = vf_fma(vf_load(acc + d), inverse, vf_zero());
            vf_store_n(out + d, x, s->n_value - d < VL ? s->n_value - d : VL);
        }
    }
}

static void attn_attend(const struct attn_job *j, const struct attn_way *way)
{
    struct attn_state s;
    attn_begin(&s, j, way->tile);
    way->pack(&s);
    float *total = s.c + ATTN_QUERIES;
    float *part = total + attn_part_floats(s.dim);
    uint32_t r = attn_first_pos(j, 0) / ATTN_RANGE;
    attn_range(&s, way, r++, total);
    for (; r * ATTN_RANGE < attn_end(j); r++) {
        attn_range(&s, way, r, part);
        attn_fold(&s, total, 0, part);
    }
    attn_put(&s, total);
}

static void attn_attend_part(const struct attn_job *j,
                             const struct attn_way *way,
                             uint32_t range,
                             float *part)
{
    struct attn_state s;
    attn_begin(&s, j, way->tile);
    way->pack(&s);
    attn_range(&s, way, range, part);
}

/* The queries' parts of `from`, the first at from_at, to `to`, the first at to_at. */
static void attn_move(
    const struct attn_state *s, const float *from, uint32_t from_at, float *to, uint32_t to_at)
{
    const size_t n = s->n_query * sizeof *to, first = 2 * ATTN_QUERIES;
    memcpy(to + to_at, from + from_at, n);
    memcpy(to + ATTN_QUERIES + to_at, from + ATTN_QUERIES + from_at, n);
    memcpy(to + first + to_at * s->padded, from + first + from_at * s->padded, n * s->padded);
}

/* Positions from .. stop - 1 of one range. The job's blocks are the first row's, which goes on
 * behind what others share with it. */
static void attn_meet_some(struct attn_state *s,
                           const struct attn_way *way,
                           uint32_t from,
                           uint32_t stop,
                           const struct attn_sums *sums)
{
    const uint32_t first_end = attn_end_pos(s->j, 0);
    const uint32_t at = s->j->at, range = from / ATTN_RANGE;
    const size_t n_l = s->n_query * KV_TILE * sizeof(float);
    float *part = s->c + ATTN_QUERIES;
    float *l = sums->open + attn_part_floats(s->dim) + (size_t)at * KV_TILE;
    attn_range_begin(s, part);
    if (from > range * ATTN_RANGE) {
        attn_move(s, sums->open, at, part, 0);
        memcpy(s->l, l, n_l);
    }
    attn_range_meet(s, way, from, stop, (first_end > stop ? first_end : stop) - 1);
    attn_range_end(s);
    if (stop < (range + 1) * ATTN_RANGE && stop < attn_end(s->j)) {
        attn_move(s, part, 0, sums->open, at);
        memcpy(l, s->l, n_l);
    } else if (range == sums->first_range) {
        attn_move(s, part, 0, sums->total, at);
    } else {
        attn_fold(s, sums->total, at, part);
    }
}

static void attn_attend_some(const struct attn_job *j,
                             const struct attn_way *way,
                             uint32_t from,
                             uint32_t end,
                             const struct attn_sums *sums)
{
    struct attn_state s;
    attn_begin(&s, j, way->tile);
    way->pack(&s);
    for (uint32_t stop; from < end; from = stop) {
        const uint32_t edge = (from / ATTN_RANGE + 1) * ATTN_RANGE;
        stop = edge < end ? edge : end;
        attn_meet_some(&s, way, from, stop, sums);
    }
}

static const struct attn_way attn_vectors = {attn_pack, attn_tile, ATTN_TILE};

static void run_attend(const struct attn_job *j)
{
    attn_attend(j, &attn_vectors);
}

static void run_attend_part(const struct attn_job *j, uint32_t range, float *part)
{
    attn_attend_part(j, &attn_vectors, range, part);
}

static void run_attend_some(const struct attn_job *j,
                            uint32_t from,
                            uint32_t end,
                            const struct attn_sums *sums)
{
    attn_attend_some(j, &attn_vectors, from, end, sums);
}

static uint32_t run_attend_step(const struct attn_job *j)
{
    (void)j;
    return attn_vectors.tile;
}

static void run_attend_merge(const struct attn_job *j, const float *parts, uint32_t n_parts)
{
    struct attn_state s;
    attn_begin(&s, j, ATTN_TILE);
    float *total = s.c + ATTN_QUERIES;
    const size_t n = attn_part_floats(s.dim);
    memcpy(total, parts, n * sizeof *total);
    for (uint32_t r = 1; r < n_parts; r++)
        attn_fold(&s, total, 0, parts + r * n);
    attn_put(&s, total);
}
