/* Rows through several stages in one launch: the bits of a launch each, in all that is written, and
 * nothing else is. Over odd widths, all kinds of stages and forms, and numbers that are none. */
#include "on_device.h"

#include "../few.h"
#include "backend/cuda/rows_pack.h"
#include "model/model.h"

/* What a trial reads and writes: once for launches that are one, once for launches each. */
enum { X, OUT, H, GATE, UP, EXPERTS, ONE_VALUE, N_BUFS };
static const uint32_t widths[] = {1, 5, 16, 63, 130, 257, 1000, 2049, 4100};
enum { N_EXPERT = 5, N_USED = 2, MOST_ROWS = 13 };

struct world {
    device_array<float> bufs[N_BUFS];
    device_array<uint8_t> act;
    device_array<float> sizes; /* of slices; nothing for those that are not so wide */
};

struct trial {
    uint32_t n, rows, more, n_places;
    cuda_rows of;
    size_t stride[N_BUFS];
    std::vector<float> begin[N_BUFS];
    world w[2];
    device_array<float> weights, bias, place_weight, expert_weights;
    device_array<uint32_t> chosen, places, place_row, first;
    cuda_experts x;
    step_on_device step;
    cuda_at at;

    cuda_buf buf(int which, int i) const
    {
        return cuda_buf{w[which].bufs[i].p, stride[i]};
    }
};

/* Mostly plain; now and then none, or larger than anything. */
static void spoil(std::vector<float> &v)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, 1e-42f, 0.0f};
    for (uint32_t i = random_below(4); i > 0; i--)
        v[random_below((uint32_t)v.size())] = odd[random_below(6)];
}

static void make_places(trial &t)
{
    std::vector<uint32_t> chosen(MOST_ROWS * N_USED);
    for (uint32_t r = 0; r < MOST_ROWS; r++) {
        chosen[r * N_USED] = random_below(N_EXPERT);
        chosen[r * N_USED + 1] = (chosen[r * N_USED] + 1 + random_below(N_EXPERT - 1)) % N_EXPERT;
    }
    const uint32_t most = cuda_experts_most_places(N_EXPERT, N_USED, MOST_ROWS);
    t.chosen.put(chosen);
    t.expert_weights.put(random_floats(MOST_ROWS * N_USED));
    t.places.put(std::vector<uint32_t>(MOST_ROWS * N_USED));
    t.place_row.put(std::vector<uint32_t>(most));
    t.place_weight.put(random_floats(most));
    t.first.put(std::vector<uint32_t>(N_EXPERT + 1));
    t.x = {};
    t.x.n_expert = N_EXPERT;
    t.x.n_used = N_USED;
    t.x.chosen = t.chosen.p;
    t.x.weights = t.expert_weights.p;
    t.x.places = t.places.p;
    t.x.place_row = t.place_row.p;
    t.x.first = t.first.p;
    t.x.most_places = most;
    t.n_places = most;
    cuda_experts_sort(&t.at, &t.x);
    t.x.place_weight = random_below(2) ? t.place_weight.p : NULL;
}

static trial *new_trial(uint32_t n, bool whole)
{
    trial *t = new trial;
    t->n = n;
    t->rows = 1 + random_below(MOST_ROWS - 4);
    t->more = random_below(4);
    t->of = static_cast<cuda_rows>(random_below(3));
    t->step.counts.n_rows = t->step.counts.n_logit_rows = t->step.counts.n_hidden_rows = t->rows;
    for (uint32_t r = 0; r < t->rows; r++) { /* whom a norm gathers */
        t->step.logit_rows.push_back(random_below(MOST_ROWS));
        t->step.hidden_rows.push_back(random_below(MOST_ROWS));
    }
    t->at = t->step.at(t->of, t->more);
    make_places(*t);
    for (int i = 0; i < N_BUFS; i++) {
        t->stride[i] = (i == ONE_VALUE ? 1 : n) + random_below(5);
        t->stride[i] += whole && t->stride[i] % 4 ? 4 - t->stride[i] % 4 : 0;
        t->begin[i] = random_floats(t->n_places * t->stride[i], i == GATE ? 6.0f : 1.0f);
        if (i != EXPERTS)
            spoil(t->begin[i]);
    }
    t->weights.put(random_floats(n));
    t->bias.put(random_floats(n));
    return t;
}

/* --- stages --- */

static cuda_stage stage(cuda_stage_kind kind)
{
    cuda_stage s;
    memset(&s, 0, sizeof s);
    s.kind = kind;
    return s;
}

static cuda_stage mix(const trial &t, int which)
{
    cuda_stage s = stage(CUDA_STAGE_MIX);
    s.mix = {t.buf(which, EXPERTS), t.buf(which, OUT), t.n};
    return s;
}

static cuda_stage add(const trial &t, int which, int in, int out, bool gated, float scale)
{
    cuda_stage s = stage(CUDA_STAGE_ADD);
    s.add = {t.buf(which, in),
             t.buf(which, out),
             gated ? t.buf(which, ONE_VALUE) : cuda_buf{},
             t.n,
             scale};
    return s;
}

static cuda_stage norm(const trial &t, int which, int in, int out, bool layer, int w, int gather)
{
    cuda_stage s = stage(layer ? CUDA_STAGE_LAYER_NORM : CUDA_STAGE_NORM);
    const float *of = w ? t.weights.p : NULL;
    if (layer)
        s.layer_norm = {
            t.buf(which, in), t.buf(which, out), t.n, 1e-5f, of, w > 1 ? t.bias.p : NULL, gather};
    else
        s.norm = {t.buf(which, in), t.buf(which, out), t.n, 1, 1e-6f, 1.0f, of, 0, gather, w > 1};
    return s;
}

static cuda_stage gate(const trial &t, int which, int kind, bool places)
{
    cuda_stage s = stage(CUDA_STAGE_GATED);
    s.gated = {kind,
               2.5f,
               1.5f,
               t.buf(which, GATE),
               t.buf(which, UP),
               t.buf(which, GATE),
               t.n,
               places ? t.x.first + N_EXPERT : NULL,
               places ? t.x.most_places : 0u,
               places ? t.x.place_weight : NULL};
    return s;
}

static cuda_stage unary(const trial &t, int which, int kind, bool places)
{
    cuda_stage s = stage(CUDA_STAGE_UNARY);
    s.unary = {kind,
               0.8f,
               0.6f,
               0.5f,
               -1e-6f,
               t.buf(which, GATE),
               t.n,
               places ? t.x.first + N_EXPERT : NULL,
               places ? t.x.most_places : 0u};
    return s;
}

/* What models have behind each other, with all that a draw may change; `packs`: the buffer that is
 * packed in the end, or N_BUFS. */
enum {
    NORM_PACK,
    SUM_NORM_PACK,
    AFTER_AND_BEFORE,
    GATE_PACK,
    PLACES_PACK,
    MIX_ADD,
    MIX_ALL,
    GATED_BY_SUM,
    N_CHAINS
};
struct draw {
    int chain, kind, unary, w, gather;
    bool layer, gated;
    float scale;
};

static draw draw_chain(int chain)
{
    draw d;
    d.chain = chain;
    d.kind = (int)random_below(GATE_SITU + 1); /* as enum gate_kind and enum unary_kind */
    d.unary = 1 + (int)random_below(7);
    d.w = (int)random_below(3);
    d.gather = (int)random_below(2);
    d.layer = random_below(2);
    d.gated = random_below(2);
    d.scale = random_below(2) ? 1.0f : 0.22f;
    return d;
}

/* The one value becomes a sum, gates a row, and becomes another. */
static std::vector<cuda_stage> gated_by_sum(const trial &t, const draw &d, int which)
{
    std::vector<cuda_stage> s;
    s.push_back(add(t, which, H, ONE_VALUE, false, -1.0f));
    s.back().add.n = 1;
    s.push_back(add(t, which, X, OUT, false, d.scale));
    s.push_back(add(t, which, OUT, X, true, 1.0f));
    if (d.gated) {
        s.push_back(unary(t, which, UNARY_SOFTPLUS, false));
        s.back().unary.buf = t.buf(which, ONE_VALUE);
        s.back().unary.n = 1;
    }
    s.push_back(norm(t, which, X, H, d.layer, d.w, 0));
    return s;
}

static std::vector<cuda_stage> chain(const trial &t, const draw &d, int which, int *packs)
{
    std::vector<cuda_stage> s;
    *packs = H;
    switch (d.chain) {
    case NORM_PACK:
        s.push_back(norm(t, which, X, H, d.layer, d.w, d.gather));
        break;
    case SUM_NORM_PACK:
        s.push_back(add(t, which, OUT, X, d.gated, d.scale));
        s.push_back(norm(t, which, X, H, d.layer, d.w, 0));
        break;
    case AFTER_AND_BEFORE:
        s.push_back(norm(t, which, OUT, OUT, !d.layer, 1, 0));
        s.push_back(add(t, which, OUT, X, false, d.scale));
        s.push_back(norm(t, which, X, H, d.layer, d.w, 0));
        break;
    case GATE_PACK:
    case PLACES_PACK:
        if (d.gated)
            s.push_back(unary(t, which, d.unary, d.chain == PLACES_PACK));
        if (d.w > 0 || !d.gated)
            s.push_back(gate(t, which, d.kind, d.chain == PLACES_PACK));
        *packs = GATE;
        break;
    case MIX_ADD:
        s.push_back(mix(t, which));
        s.push_back(add(t, which, OUT, X, false, d.scale));
        *packs = d.layer ? X : N_BUFS; /* a router may read the stream itself */
        break;
    case GATED_BY_SUM:
        s = gated_by_sum(t, d, which);
        break;
    default: /* MIX_ALL: a shared expert beside them, norms before and after */
        s.push_back(mix(t, which));
        s.push_back(add(t, which, UP, OUT, d.gated, 1.0f));
        s.push_back(norm(t, which, OUT, OUT, false, 1, 0));
        s.push_back(add(t, which, OUT, X, false, d.scale));
        s.push_back(norm(t, which, X, H, d.layer, d.w, 0));
        break;
    }
    return s;
}

static void one_by_one(const trial &t, const std::vector<cuda_stage> &stages)
{
    for (const cuda_stage &s : stages) {
        switch (s.kind) {
        case CUDA_STAGE_MIX:
            cuda_experts_mix(&t.at, &t.x, &s.mix);
            break;
        case CUDA_STAGE_ADD:
            cuda_add(&t.at, &s.add);
            break;
        case CUDA_STAGE_NORM:
            cuda_norm(&t.at, &s.norm);
            break;
        case CUDA_STAGE_LAYER_NORM:
            cuda_layer_norm(&t.at, &s.layer_norm);
            break;
        case CUDA_STAGE_GATED:
            cuda_gated(&t.at, &s.gated);
            break;
        case CUDA_STAGE_UNARY:
            cuda_unary(&t.at, &s.unary);
            break;
        }
    }
}

/* --- trials --- */

static const char *const buf_names[] = {"x", "out", "h", "gate", "up", "experts", "one value"};

/* As bits, since NaN is a result too. */
static void compare(const trial &t, const draw &d, unsigned forms)
{
    for (int i = 0; i < N_BUFS; i++) {
        const std::vector<float> a = t.w[0].bufs[i].get(), b = t.w[1].bufs[i].get();
        for (size_t k = 0; k < a.size(); k++) {
            if (memcmp(&a[k], &b[k], sizeof a[k]) != 0)
                fail_msg("chain %d, %u rows of %u: value %zu of row %zu of %s is %a, apart %a",
                         d.chain,
                         t.rows,
                         t.n,
                         k % t.stride[i],
                         k / t.stride[i],
                         buf_names[i],
                         (double)a[k],
                         (double)b[k]);
        }
    }
    const std::vector<uint8_t> a = t.w[0].act.get(), b = t.w[1].act.get();
    for (size_t k = 0; k < a.size(); k++) {
        if (a[k] != b[k])
            fail_msg("chain %d, %u rows of %u, forms %u: byte %zu of the operands differs",
                     d.chain,
                     t.rows,
                     t.n,
                     forms,
                     k);
    }
}

/* Two launches over slices, of one map of wide rows? What they leave of sizes says so. */
static bool in_slices(const trial &t, const draw &d)
{
    const uint32_t rows = t.rows + t.more;
    return t.n >= 2048 && d.chain == GATE_PACK && !(d.gated && d.w > 0) && rows <= 64;
}

/* whole: rows begin at 16 bytes. */
static void run_trial(uint32_t n,
                      const draw &d,
                      unsigned forms,
                      bool with_act,
                      uint32_t bound = 0,
                      bool whole = false)
{
    trial *t = new_trial(n, whole);
    if (bound) {
        t->more = bound - t->rows;
        t->at = t->step.at(t->of, t->more);
    }
    const bool places = d.chain == PLACES_PACK;
    const uint32_t rows = places ? t->n_places : t->rows + t->more;
    bool packed = false;
    for (int which = 0; which < 2; which++) {
        for (int i = 0; i < N_BUFS; i++)
            t->w[which].bufs[i].put(t->begin[i]);
        t->w[which].act.put(std::vector<uint8_t>(cuda_act_bytes(forms, rows, n), 0xa5));
        cuda_act act = {};
        act.data = t->w[which].act.p;
        act.k = n;
        act.forms = forms;
        t->w[which].sizes.put(std::vector<float>(cuda_slices_bytes(n) / sizeof(float), -1.0f));
        act.sizes = t->w[which].sizes.p;
        int packs;
        const std::vector<cuda_stage> stages = chain(*t, d, which, &packs);
        packed = with_act && packs != N_BUFS;
        if (which == 1) {
            one_by_one(*t, stages);
            if (packed && places)
                cuda_experts_pack(&t->at, &t->x, t->buf(1, packs), 1, &act);
            else if (packed)
                cuda_act_pack(&t->at, t->buf(1, packs), &act);
            continue;
        }
        cuda_stages s = {};
        for (const cuda_stage &one : stages)
            s.of[s.n++] = one;
        s.act = packed ? &act : NULL;
        s.experts = &t->x;
        const bool usual = d.chain == NORM_PACK && cuda_rows_norm(&t->at, &s);
        if (!usual)
            cuda_rows_stages(&t->at, &s);
        if (d.chain == NORM_PACK && whole)
            assert_int_equal(usual, packed && n % 4 == 0 && n <= 8192);
    }
    compare(*t, d, forms);
    const std::vector<uint8_t> act = t->w[0].act.get(); /* the scale of row 0 */
    assert_int_equal(packed, memcmp(act.data(), "\xa5\xa5\xa5\xa5", 4) != 0);
    const std::vector<float> sizes = t->w[0].sizes.get();
    assert_int_equal(packed && in_slices(*t, d), !sizes.empty() && sizes[0] >= 0);
    delete t;
}

static void stages_are_their_launches(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        if (few_shapes() && n > 300)
            continue;
        for (int c = 0; c < N_CHAINS; c++) {
            for (unsigned forms = 1; forms < 8; forms += few_shapes() ? 3 : 1)
                run_trial(n, draw_chain(c), forms, true);
            run_trial(n, draw_chain(c), CUDA_ACT_F16, false);
        }
    }
}

/* All kinds of gates, with each form by itself: a model has one of each. */
static void gates_of_all_kinds(void **state)
{
    (void)state;
    for (int kind = 0; kind <= GATE_SITU; kind++) {
        for (unsigned forms = 1; forms < 8; forms *= 2) {
            for (int c = GATE_PACK; c <= PLACES_PACK; c++) {
                draw d = draw_chain(c);
                d.kind = kind;
                run_trial(1 + random_below(700), d, forms, true);
            }
        }
    }
}

/* Few wide rows go to many blocks each; of others, and of more rows, a block has one. */
static void wide_rows_are_cut(void **state)
{
    (void)state;
    static const uint32_t wide[] = {2049, 2047, 2048, 3100, 9000};
    for (uint32_t n : wide) {
        for (uint32_t bound = 63; bound <= 65; bound++) {
            draw d = draw_chain(GATE_PACK);
            d.w = d.gated ? 0 : d.w;
            run_trial(n, d, 1 + random_below(7), true, bound);
            d.gated = !d.gated;
            run_trial(n, d, CUDA_ACT_F16, true, bound);
        }
        if (few_shapes())
            break;
    }
}

/* A norm alone of whole fours has a kernel of its own, if its rows begin at 16 bytes, with one or
 * two fours of each thread of the sum. */
static void usual_norms(void **state)
{
    (void)state;
    static const uint32_t of_fours[] = {100, 512, 2052, 4096, 4100, 8192, 8196};
    for (uint32_t n : of_fours) {
        if (few_shapes() && n > 512)
            break;
        for (int i = 0; i < 8; i++) {
            draw d = draw_chain(NORM_PACK);
            d.layer = false;
            d.gather = 0;
            d.w = 1;
            run_trial(n, d, 1 + (unsigned)i % 7, true, 0, i > 0);
        }
    }
}

/* As many threads as each norm has by itself: other numbers sum in another order. */
static void norms_that_do_not_fit(void **state)
{
    (void)state;
    assert_true(cuda_stages_fit(4096, 4096));
    assert_true(cuda_stages_fit(4095, 4096));
    assert_true(cuda_stages_fit(4096, 8192)); /* 1024 threads either way */
    assert_false(cuda_stages_fit(1024, 2048));
    assert_false(cuda_stages_fit(128, 129));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_their_launches),
        cmocka_unit_test(gates_of_all_kinds),
        cmocka_unit_test(wide_rows_are_cut),
        cmocka_unit_test(usual_norms),
        cmocka_unit_test(norms_that_do_not_fit),
    };
    random_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
