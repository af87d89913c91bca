/* Attention: rotation and storing, then attention over blocks in random order, against the same in
 * double from what is stored; and a row's bits whoever shares its step, its tile and its launch.
 *
 * What nobody has stored is NaN throughout, and block tables hold no valid id where nothing may be
 * read. */
#include "../few.h"
#include "on_device.h"

#include "backend/cuda/attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#include "backend/backend.h"
#include "model/model.h"
}

static_assert(KV_F32 == 0 && KV_F16 == 1 && KV_BF16 == 2 && KV_Q8_0 == 3, "as attention.cuh does");

enum { NO_BLOCK = 0x3fffffff };

struct shape {
    kv_type type;
    uint32_t n_head, n_head_kv, dim, block_tokens, window;
    float cap;
    bool causal, sinks, panes;
    window_kind kind = WINDOW_LAST;
    uint32_t latent = 0; /* 0: V is stored */
    float alibi = 0;     /* exponent of slopes */
    uint32_t n_value() const
    {
        return latent ? latent : dim;
    }
    /* What a row at pos of a sequence of so many sees. */
    uint32_t from(uint32_t pos) const
    {
        const uint32_t behind = kind == WINDOW_AROUND ? window / 2 : window - 1;
        if (window && kind == WINDOW_CHUNK)
            return pos / window * window;
        return window && pos > behind ? pos - behind : 0;
    }
    uint32_t end(uint32_t pos, uint32_t all) const
    {
        if (causal)
            return pos + 1;
        return window && kind == WINDOW_AROUND && pos + window / 2 < all ? pos + window / 2 + 1
                                                                         : all;
    }
};

/* Rows of one sequence, in a step. */
struct run {
    uint32_t seq, first_pos, n_rows;
};

static float rounded(kv_type type, float x)
{
    if (type == KV_F16 || type == KV_Q8_0)
        return __half2float(__float2half_rn(x));
    return type == KV_BF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

/* Sequences with everything stored. */
struct world {
    shape s;
    std::vector<uint32_t> lengths;
    std::vector<std::vector<float>> q, k, v;   /* [seq][pos][heads][dim] */
    std::vector<std::vector<double>> kd, vd;   /* as stored */
    std::vector<std::vector<uint32_t>> blocks; /* [seq][..] */
    std::vector<float> sinks;
    device_array<uint8_t> pool;
    device_array<float> d_sinks;
    cuda_kv kv;
    float scale;

    world(const shape &shape, const std::vector<uint32_t> &len) : s(shape), lengths(len)
    {
        uint32_t n_blocks = 1;
        scale = 1.0f / sqrtf((float)s.dim);
        sinks = random_floats(s.n_head);
        d_sinks.put(sinks);
        for (uint32_t n : len) {
            q.push_back(random_floats((size_t)n * s.n_head * s.dim, 1.5f));
            k.push_back(random_floats((size_t)n * s.n_head_kv * s.dim, 1.5f));
            v.push_back(random_floats((size_t)n * s.n_head_kv * s.dim));
            blocks.push_back(std::vector<uint32_t>((n + s.block_tokens - 1) / s.block_tokens));
            n_blocks += (uint32_t)blocks.back().size();
        }
        std::vector<uint32_t> ids(n_blocks);
        for (uint32_t i = 0; i < n_blocks; i++) {
            ids[i] = i;
            std::swap(ids[i], ids[random_below(i + 1)]);
        }
        for (std::vector<uint32_t> &table : blocks)
            for (uint32_t &id : table) {
                id = ids.back();
                ids.pop_back();
            }
        memset(&kv, 0, sizeof kv);
        kv.type = s.type;
        kv.in_panes = s.panes;
        kv.n_head_kv = s.n_head_kv;
        kv.head_dim = s.dim;
        kv.block_tokens = s.block_tokens;
        kv.row_bytes = kv_row_bytes(s.type, s.dim);
        kv.half_bytes = kv.row_bytes * s.block_tokens;
        kv.block_stride = kv.half_bytes * (s.latent ? 1 : 2) * s.n_head_kv;
        kv.block_stride += 16 * random_below(9); /* of other layers */
        kv.latent = s.latent;
        pool.put(std::vector<uint8_t>(kv.block_stride * n_blocks, 0xff)); /* NaN of any type */
        kv.base = pool.p;
        store();
        read();
    }

    /* The step of some runs, with tables that name only what may be read. */
    void fill(step_on_device *st, const std::vector<run> &runs) const
    {
        for (const run &r : runs) {
            const uint32_t from = s.from(r.first_pos);
            std::vector<uint32_t> table = blocks[r.seq];
            for (uint32_t i = 0; i < from / s.block_tokens; i++)
                table[i] = NO_BLOCK;
            const uint32_t at = (uint32_t)st->tables.size();
            cuda_seq seq = {st->counts.n_rows, r.n_rows, r.first_pos, at, at, 0, 0, 0, 0, 0};
            if (s.panes)
                seq.blocks = NO_BLOCK;
            else
                seq.panes = NO_BLOCK;
            st->tables.insert(st->tables.end(), table.begin(), table.end());
            st->seqs.push_back(seq);
            for (uint32_t i = 0; i < r.n_rows; i++) {
                st->positions.push_back(r.first_pos + i);
                st->row_seq.push_back(st->counts.n_seqs);
            }
            st->counts.n_rows += r.n_rows;
            st->counts.n_seqs++;
        }
        const cuda_attention_shape shape = {s.n_head, s.n_head_kv, s.dim};
        st->tiles.resize(st->counts.n_rows);
        st->counts.n_tiles =
            cuda_attention_tiles(&shape, st->seqs.data(), st->counts.n_seqs, st->tiles.data());
    }

    static std::vector<float> rows_of(const std::vector<std::vector<float>> &x,
                                      const std::vector<run> &runs,
                                      size_t width)
    {
        std::vector<float> v;
        for (const run &r : runs)
            v.insert(v.end(),
                     x[r.seq].begin() + (size_t)r.first_pos * width,
                     x[r.seq].begin() + (size_t)(r.first_pos + r.n_rows) * width);
        return v;
    }

    void store()
    {
        std::vector<run> all;
        step_on_device st;
        const size_t wq = (size_t)s.n_head * s.dim, wk = (size_t)s.n_head_kv * s.dim;
        for (uint32_t i = 0; i < lengths.size(); i++)
            all.push_back(run{i, 0, lengths[i]});
        fill(&st, all);
        device_array<float> dq(rows_of(q, all, wq)), dk(rows_of(k, all, wk)),
            dv(rows_of(v, all, wk));
        struct cuda_rope_store op = {};
        op.q = cuda_buf{dq.p, wq};
        op.k = cuda_buf{dk.p, wk};
        op.v = cuda_buf{dv.p, wk};
        op.n_head = s.n_head;
        op.kv = kv;
        cuda_at at = st.at(CUDA_ROWS_ALL, 2);
        at.processors = st.counts.n_rows / 2; /* of three KV heads two a block, and one */
        cuda_rope_store(&at, &op);
        on_device_ok(cudaDeviceSynchronize());
    }

    double stored(const uint8_t *row, uint32_t d) const
    {
        uint16_t half;
        float f;
        switch (s.type) {
        case KV_F32:
            memcpy(&f, row + d * 4, sizeof f);
            return f;
        case KV_Q8_0:
            memcpy(&f, row + s.dim + d / 32 * 4, sizeof f);
            return (double)f * (int8_t)row[d];
        default:
            memcpy(&half, row + d * 2, sizeof half);
            if (s.type == KV_F16) {
                __half h;
                memcpy(&h, &half, sizeof h);
                return __half2float(h);
            }
            const uint32_t u = (uint32_t)half << 16;
            memcpy(&f, &u, sizeof f);
            return f;
        }
    }

    void read()
    {
        const std::vector<uint8_t> bytes = pool.get();
        for (size_t i = 0; i < lengths.size(); i++) {
            const size_t n = k[i].size();
            kd.push_back(std::vector<double>(n));
            vd.push_back(std::vector<double>(n));
            for (size_t j = 0; j < n; j++) {
                const uint32_t d = (uint32_t)(j % s.dim), h = (uint32_t)(j / s.dim % s.n_head_kv);
                const uint32_t pos = (uint32_t)(j / s.dim / s.n_head_kv);
                const uint8_t *row = bytes.data() +
                                     blocks[i][pos / s.block_tokens] * kv.block_stride +
                                     h * 2 * kv.half_bytes + pos % s.block_tokens * kv.row_bytes;
                kd[i][j] = stored(row, d);
                vd[i][j] = s.latent ? kd[i][j] : stored(row + kv.half_bytes, d);
            }
        }
    }

    /* Of one row, from K and V as given; `like`: q and weights rounded to this type. */
    template <class T>
    std::vector<double> reference(const std::vector<T> &ks,
                                  const std::vector<T> &vs,
                                  uint32_t seq,
                                  uint32_t pos,
                                  kv_type like) const
    {
        const uint32_t group = s.n_head / s.n_head_kv, n_value = s.n_value();
        const uint32_t from = s.from(pos), end = s.end(pos, lengths[seq]);
        std::vector<double> out(s.n_head * n_value), w(lengths[seq]), x(s.dim);
        for (uint32_t h = 0; h < s.n_head; h++) {
            const double slope = s.alibi > 0 ? model_alibi_slope(s.alibi, s.n_head, h) : 0;
            for (uint32_t d = 0; d < s.dim; d++)
                x[d] = rounded(like, q[seq][((size_t)pos * s.n_head + h) * s.dim + d]);
            double top = s.sinks ? sinks[h] : -INFINITY, sum = 0;
            for (uint32_t p = from; p < end; p++) {
                const T *y = &ks[((size_t)p * s.n_head_kv + h / group) * s.dim];
                w[p] = 0;
                for (uint32_t d = 0; d < s.dim; d++)
                    w[p] += x[d] * y[d];
                w[p] *= scale;
                w[p] = s.cap > 0 ? s.cap * tanh(w[p] / s.cap) : w[p];
                if (s.alibi > 0)
                    w[p] -= slope * fabs((double)pos - p);
                top = fmax(top, w[p]);
            }
            for (uint32_t p = from; p < end; p++) {
                w[p] = exp(w[p] - top);
                sum += w[p];
            }
            sum += s.sinks ? exp(sinks[h] - top) : 0;
            for (uint32_t p = from; p < end; p++) {
                const double weight = rounded(like, (float)(w[p] / sum));
                for (uint32_t d = 0; d < n_value; d++)
                    out[h * n_value + d] +=
                        weight * (double)vs[((size_t)p * s.n_head_kv + h / group) * s.dim + d];
            }
        }
        return out;
    }

    /* Rows of the runs, [n_rows][n_head * n_value]. more: by how much the bounds are beyond;
     * ranges: 0 for what is needed; processors: of the device, which say whether a tile's ranges
     * have blocks of their own; 0 as of a large one. */
    std::vector<float> attend(const std::vector<run> &runs,
                              uint32_t more,
                              uint32_t ranges,
                              uint32_t processors = 0) const
    {
        step_on_device st;
        const size_t wq = (size_t)s.n_head * s.dim, width = (size_t)s.n_head * s.n_value();
        uint32_t longest = 1;
        fill(&st, runs);
        for (const run &r : runs) {
            const uint32_t end = s.causal ? r.first_pos + r.n_rows : lengths[r.seq];
            longest = end > longest ? end : longest;
        }
        const uint32_t needed = (longest - 1) / CUDA_ATTN_RANGE + 1;
        cuda_at at = st.at(CUDA_ROWS_ALL, more, ranges > needed ? ranges : needed);
        if (random_below(2)) /* what all devices have, and no more */
            at.block_shared = CUDA_SHARED_LEAST;
        at.processors = processors;
        const cuda_attention_shape shape = {s.n_head, s.n_head_kv, s.dim};
        std::vector<float> held((st.counts.n_rows + 1) * width, NAN);
        device_array<float> dq(rows_of(q, runs, wq)), out(held);
        std::vector<uint8_t> bytes(cuda_attention_scratch(&shape, &at.bounds) + 16, 0xff);
        device_array<uint8_t> scratch(bytes);
        struct cuda_attention op = {};
        op.q = cuda_buf{dq.p, wq};
        op.out = cuda_buf{out.p, width};
        op.kv = kv;
        op.n_head = s.n_head;
        op.scale = scale;
        op.cap = s.cap;
        op.window = s.window;
        op.window_kind = s.kind;
        op.causal = s.causal;
        op.sinks = s.sinks ? d_sinks.p : NULL;
        op.alibi = s.alibi;
        op.scratch = scratch.p;
        cuda_attention(&at, &op);
        std::vector<float> got = out.get();
        for (size_t i = 0; i < width; i++)
            assert_true(isnan(got[st.counts.n_rows * width + i])); /* no row there */
        got.resize(st.counts.n_rows * width);
        return got;
    }
};

static const char *name_of(const shape &s)
{
    static char text[128];
    snprintf(text,
             sizeof text,
             "%s %u/%u heads of %u, blocks of %u, window %u%s, cap %g%s%s%s%s",
             kv_type_name(s.type),
             s.n_head,
             s.n_head_kv,
             s.dim,
             s.block_tokens,
             s.window,
             s.kind == WINDOW_CHUNK    ? " (chunks)"
             : s.kind == WINDOW_AROUND ? " (around)"
                                       : "",
             s.cap,
             s.causal ? "" : ", all seen",
             s.sinks ? ", sinks" : "",
             s.latent ? ", latent" : "",
             s.alibi > 0 ? ", slopes" : "");
    return text;
}

/* --- rotation and storing ------------------------------------------------------------------ */

static void test_rotate(void **state)
{
    (void)state;
    enum { HEADS = 6, KV = 2, DIM = 40, ROWS = 4, BLOCK = 5 };
    for (int form = 0; form < 3; form++) { /* halves, adjacent, not at all */
        const uint32_t dims = form == 1 ? DIM : 24;
        step_on_device st;
        st.counts.n_rows = ROWS;
        st.counts.n_seqs = 2;
        st.positions = {3, 4, 5, 123457};
        st.row_seq = {0, 0, 0, 1};
        st.tables = {2, 0};
        st.tables.resize(2 + 123457 / BLOCK, NO_BLOCK);
        st.tables.push_back(1);
        st.seqs = {cuda_seq{0, 3, 3, 0, NO_BLOCK, 0, 0, 0, 0, 0},
                   cuda_seq{3, 1, 123457, 2, NO_BLOCK, 0, 0, 0, 0, 0}};
        std::vector<double> freq(dims / 2);
        for (uint32_t i = 0; i < dims / 2; i++)
            freq[i] = pow(10000, -2.0 * i / dims);
        const std::vector<float> q = random_floats(ROWS * (HEADS * DIM + 1));
        const std::vector<float> k = random_floats(ROWS * KV * DIM);
        const std::vector<float> v = random_floats(ROWS * KV * DIM);
        device_array<float> dq(q), dk(k), dv(v), angles(std::vector<float>((ROWS + 1) * dims, 7));
        device_array<double> df(freq);
        const size_t half = (size_t)DIM * 4 * BLOCK;
        device_array<uint8_t> pool(std::vector<uint8_t>(3 * 2 * KV * half, 0xff));
        struct cuda_rope_store op = {};
        op.q = cuda_buf{dq.p, HEADS * DIM + 1};
        op.k = cuda_buf{dk.p, KV * DIM};
        op.v = cuda_buf{dv.p, KV * DIM};
        op.angles = form == 2 ? NULL : angles.p;
        op.n_head = HEADS;
        op.dims = dims;
        op.adjacent = form == 1;
        op.kv = cuda_kv{pool.p, KV_F32, 0, KV, DIM, BLOCK, DIM * 4, half, 2 * KV * half, 0};
        cuda_at at = st.at(CUDA_ROWS_ALL, 1);
        at.processors = form == 1 ? 0 : 1; /* a KV head a block; both */
        cuda_angles(&at, df.p, dims, 1.25, angles.p);
        cuda_rope_store(&at, &op);
        const std::vector<float> a = angles.get(), gq = dq.get(), gk = dk.get();
        const std::vector<uint8_t> bytes = pool.get();
        for (uint32_t i = 0; i < dims; i++)
            assert_true(a[ROWS * dims + i] == 7);
        for (uint32_t r = 0; r < ROWS; r++) {
            for (uint32_t i = 0; i < dims / 2; i++) {
                const double angle = st.positions[r] * freq[i];
                assert_true(fabs(a[r * dims + i] - cos(angle) * 1.25) < 1e-7);
                assert_true(fabs(a[r * dims + dims / 2 + i] - sin(angle) * 1.25) < 1e-7);
            }
            for (uint32_t h = 0; h < HEADS + KV; h++) {
                const bool is_q = h < HEADS;
                const size_t from =
                    is_q ? r * (HEADS * DIM + 1) + h * DIM : r * KV * DIM + (h - HEADS) * DIM;
                const float *x = (is_q ? q : k).data() + from;
                const float *got = (is_q ? gq : gk).data() + from;
                for (uint32_t d = 0; d < DIM; d++) {
                    double want = x[d];
                    const uint32_t i = form == 1 ? d / 2 : d % (dims / 2);
                    const bool second = form == 1 ? d % 2 : d >= dims / 2;
                    const uint32_t other = form == 1 ? d ^ 1 : second ? d - dims / 2 : d + dims / 2;
                    if (form < 2 && d < dims) {
                        const double c = cos(st.positions[r] * freq[i]) * 1.25;
                        const double s = sin(st.positions[r] * freq[i]) * 1.25;
                        want = second ? x[other] * s + x[d] * c : x[d] * c - x[other] * s;
                    }
                    assert_true(fabs(got[d] - want) < 2e-6);
                }
                if (!is_q) { /* and it lies where it should, with V beside it */
                    const uint32_t block = r < 3 ? st.tables[st.positions[r] / BLOCK] : 1;
                    const uint8_t *to = bytes.data() + block * 2 * KV * half +
                                        (h - HEADS) * 2 * half + st.positions[r] % BLOCK * DIM * 4;
                    assert_memory_equal(to, got, DIM * 4);
                    assert_memory_equal(to + half, &v[from], DIM * 4);
                }
            }
        }
    }
}

/* What is stored is what was given, to the type's precision. */
static void test_store(void **state)
{
    (void)state;
    static const double most[] = {0, 2e-7, 1e-5, 1e-4};
    for (int type = KV_F32; type <= KV_Q8_0; type++) {
        for (uint32_t dim : {8u, 40u, 64u, 80u, 128u, 264u}) {
            const shape s = {(kv_type)type, 4, 2, dim, 3, 0, 0, true, false, type % 2 == 0};
            const world w(s, {7, 2});
            for (size_t i = 0; i < 2; i++) {
                std::vector<float> got(w.kd[i].begin(), w.kd[i].end());
                const std::vector<double> k(w.k[i].begin(), w.k[i].end());
                assert_true(squared_error(k.data(), got.data(), k.size()) <= most[type]);
                got.assign(w.vd[i].begin(), w.vd[i].end());
                const std::vector<double> v(w.v[i].begin(), w.v[i].end());
                assert_true(squared_error(v.data(), got.data(), v.size()) <= most[type]);
            }
        }
    }
}

/* --- values -------------------------------------------------------------------------------- */

static void check_values(const shape &s, const std::vector<uint32_t> &lengths)
{
    const world w(s, lengths);
    const size_t width = (size_t)s.n_head * s.n_value();
    const uint32_t most_rows = few_shapes() ? 6 : 40;
    std::vector<run> runs;
    for (uint32_t i = 0; i < lengths.size(); i++) {
        const uint32_t n = s.causal
                               ? random_below(lengths[i] < most_rows ? lengths[i] : most_rows) + 1
                               : lengths[i];
        runs.push_back(run{i, lengths[i] - n, n});
    }
    const std::vector<float> got = w.attend(runs, random_below(3), 0);
    if (few_shapes()) {          /* of which only the launches count: what they give is known */
        w.attend(runs, 0, 0, 1); /* one block for all ranges of a tile */
        if (s.causal) {          /* and a row alone, as others decode, and more than a tile has */
            w.attend({run{0, lengths[0] - 1, 1}}, 0, 0);
            if (lengths[1] > 17)
                w.attend({run{1, lengths[1] - 17, 17}}, 0, 0);
        }
        return;
    }
    double worst = 0, ours = 0, theirs = 0, all = 0;
    size_t row = 0;
    for (const run &r : runs) {
        for (uint32_t i = 0; i < r.n_rows; i++, row++) {
            if (i % 7 && i + 1 < r.n_rows)
                continue;
            const uint32_t pos = r.first_pos + i;
            const std::vector<double> want =
                w.reference(w.kd[r.seq], w.vd[r.seq], r.seq, pos, KV_F32);
            const double e = squared_error(want.data(), &got[row * width], width);
            worst = e > worst || e != e ? e : worst;
            /* against what was never rounded, beside a product whose inputs all are */
            const std::vector<double> exact =
                w.reference(w.k[r.seq], s.latent ? w.k[r.seq] : w.v[r.seq], r.seq, pos, KV_F32);
            const std::vector<double> half =
                w.reference(w.kd[r.seq], w.vd[r.seq], r.seq, pos, s.type);
            for (size_t d = 0; d < width; d++) {
                ours += pow(got[row * width + d] - exact[d], 2);
                theirs += pow(half[d] - exact[d], 2);
                all += exact[d] * exact[d];
            }
        }
    }
    static const double most[] = {1e-11, 2e-7, 8e-6, 8e-7};
    print_message("%s: error %.1e; of what was never rounded %.2e, %.2e with all rounded\n",
                  name_of(s),
                  worst,
                  ours / all,
                  theirs / all);
    if (!(worst <= most[s.type]))
        fail_msg("%s: error %g", name_of(s), worst);
    if (s.type != KV_F32 && !(ours <= theirs * (s.type == KV_Q8_0 ? 1.03 : 1)))
        fail_msg("%s: error %g, more than %g", name_of(s), ours / all, theirs / all);
}

static void test_values(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {KV_F32, 4, 2, 64, 16, 0, 0, true, false, false},
        {KV_F32, 3, 1, 40, 5, 0, 30, true, true, true},
        {KV_F32, 2, 2, 200, 16, 70, 0, true, false, false},
        {KV_F32, 4, 1, 16, 16, 0, 0, false, false, false},
        {KV_F16, 4, 2, 64, 16, 0, 0, true, false, false},
        {KV_F16, 7, 1, 128, 16, 0, 0, true, true, true},
        {KV_F16, 4, 4, 80, 7, 100, 0, true, false, true},
        {KV_F16, 8, 2, 96, 32, 0, 50, true, false, false},
        {KV_F16, 2, 1, 112, 16, 0, 0, false, false, false},
        {KV_F16, 2, 1, 256, 16, 33, 0, true, true, false},
        {KV_F16, 3, 1, 512, 16, 0, 0, true, false, false},
        {KV_F16, 71, 1, 64, 16, 0, 0, true, false, false},
        {KV_BF16, 6, 3, 64, 16, 0, 0, true, false, false},
        {KV_BF16, 4, 1, 192, 16, 0, 0, true, true, false},
        {KV_BF16, 2, 2, 8, 1, 64, 20, true, false, true},
        {KV_Q8_0, 4, 2, 64, 16, 0, 0, true, false, false},
        {KV_Q8_0, 4, 1, 128, 16, 0, 0, true, true, false},
        {KV_Q8_0, 2, 1, 80, 3, 40, 0, true, false, true},
        {KV_Q8_0, 2, 2, 264, 16, 0, 0, true, false, false},
        /* chunks, and windows to either side */
        {KV_F32, 4, 2, 40, 16, 70, 0, true, false, true, WINDOW_CHUNK},
        {KV_F16, 5, 1, 64, 16, 96, 0, true, false, true, WINDOW_CHUNK},
        {KV_Q8_0, 2, 1, 128, 16, 300, 0, true, false, false, WINDOW_CHUNK},
        {KV_F32, 4, 2, 40, 16, 22, 0, false, false, false, WINDOW_AROUND},
        {KV_F16, 3, 1, 64, 16, 9, 0, false, false, false, WINDOW_AROUND},
        /* a latent, as DeepSeek-V2's and smaller */
        {KV_F32, 4, 1, 40, 16, 0, 0, true, false, false, WINDOW_LAST, 32},
        {KV_F16, 9, 1, 576, 16, 0, 0, true, false, false, WINDOW_LAST, 512},
        {KV_BF16, 3, 1, 320, 7, 0, 0, true, false, false, WINDOW_LAST, 256},
        {KV_Q8_0, 17, 1, 576, 16, 0, 0, true, false, false, WINDOW_LAST, 512},
        {KV_F16, 5, 1, 48, 16, 0, 0, true, false, false, WINDOW_LAST, 40},
        /* longer heads */
        {KV_F32, 2, 1, 512, 16, 0, 0, true, false, false},
        {KV_F16, 8, 2, 264, 9, 90, 30, true, true, true},
        {KV_BF16, 20, 1, 392, 16, 0, 0, false, false, false},
        /* slopes, of heads that are no power of two, too */
        {KV_F32, 6, 3, 40, 16, 0, 0, true, false, false, WINDOW_LAST, 0, 8},
        {KV_F32, 2, 1, 264, 16, 0, 0, false, false, false, WINDOW_LAST, 0, 6},
        {KV_F16, 12, 2, 64, 16, 0, 0, true, false, false, WINDOW_LAST, 0, 8},
        {KV_F16, 4, 4, 128, 16, 100, 30, true, true, true, WINDOW_LAST, 0, 6},
        {KV_BF16, 3, 1, 200, 16, 0, 0, false, false, false, WINDOW_LAST, 0, 8},
        {KV_Q8_0, 5, 1, 128, 16, 0, 0, true, false, false, WINDOW_LAST, 0, 8},
        {KV_F16, 6, 1, 272, 16, 0, 0, true, false, false, WINDOW_LAST, 0, 8},
    };
    for (const shape &s : shapes) {
        if (few_shapes())
            check_values(s, {s.causal ? 270u : 70u, 65});
        else
            check_values(s, {s.causal ? 333u : 70u, 1, 64, 65, 130});
    }
}

/* Short values beside the longest keys, on a device with the least shared memory. */
static void test_long_keys(void **state)
{
    (void)state;
    setenv("WEIR_EMU_SHARED_KIB", "99", 1); /* a real device has what it has */
    check_values({KV_F32, 9, 1, 592, 16, 0, 0, true, false, false, WINDOW_LAST, 256}, {70, 1});
    check_values({KV_F16, 3, 1, 520, 16, 0, 0, true, false, false, WINDOW_LAST, 8}, {40, 7});
    unsetenv("WEIR_EMU_SHARED_KIB");
}

/* --- the same bits ------------------------------------------------------------------------- */

static void check_bits(const shape &s)
{
    const uint32_t length = s.causal ? 780 : 90;
    const world w(s, {length, 37, 200});
    const size_t width = (size_t)s.n_head * s.n_value();
    const uint32_t tail = s.causal ? 90 : length, first = length - tail;
    /* of one chunk, by itself */
    const std::vector<float> want = w.attend({run{0, first, tail}}, 0, 0);
    /* one block for all ranges of a tile, where each had its own */
    assert_memory_equal(
        w.attend({run{0, first, tail}}, 0, 0, 1).data(), want.data(), want.size() * sizeof(float));
    /* other bounds; other mates */
    assert_memory_equal(
        w.attend({run{0, first, tail}}, 5, 9).data(), want.data(), want.size() * sizeof(float));
    const std::vector<float> mates = w.attend(
        {run{1, 0, 37}, run{0, first, tail}, run{2, s.causal ? 199u : 0u, s.causal ? 1u : 200u}},
        0,
        0);
    assert_memory_equal(&mates[37 * width], want.data(), want.size() * sizeof(float));
    if (!s.causal)
        return;
    /* chunks of any size */
    for (uint32_t at = 0; at < tail;) {
        const uint32_t n = random_below(random_below(2) ? 5 : 50) + 1;
        const uint32_t here = n < tail - at ? n : tail - at;
        const std::vector<float> got = w.attend({run{0, first + at, here}}, at % 3, at % 2 * 4);
        if (memcmp(got.data(), &want[at * width], got.size() * sizeof(float)) != 0)
            fail_msg("%s: rows %u to %u differ in a chunk", name_of(s), at, at + here);
        at += here;
    }
    /* rows alone: in a step of their own, and with sequences that decode beside them; split over
     * many blocks and not */
    for (uint32_t i = 0; i < 9; i++) {
        const uint32_t r = i < 2 ? i * (tail - 1) : random_below(tail);
        const std::vector<float> got = w.attend({run{0, first + r, 1}}, 0, i % 3 * 3, i % 2);
        if (memcmp(got.data(), &want[r * width], got.size() * sizeof(float)) != 0)
            fail_msg("%s: row %u differs alone", name_of(s), r);
        const std::vector<float> beside =
            w.attend({run{1, 36, 1}, run{0, first + r, 1}, run{2, 150, 1}}, i % 3 * 160, 0);
        if (memcmp(&beside[width], &want[r * width], width * sizeof(float)) != 0)
            fail_msg("%s: row %u differs beside others", name_of(s), r);
    }
}

static void test_bits(void **state)
{
    (void)state;
    if (few_shapes())
        skip();
    static const shape shapes[] = {
        {KV_F32, 4, 2, 32, 16, 0, 0, true, false, false},
        {KV_F32, 2, 1, 40, 7, 90, 25, true, true, true},
        {KV_F32, 2, 1, 24, 16, 0, 0, false, false, false},
        {KV_F16, 4, 2, 64, 16, 0, 0, true, false, false},
        {KV_F16, 3, 1, 128, 16, 400, 0, true, true, true},
        {KV_F16, 4, 1, 200, 16, 0, 0, true, false, false},
        {KV_F16, 2, 1, 64, 16, 0, 0, false, false, false},
        {KV_BF16, 5, 1, 64, 9, 0, 30, true, false, false},
        {KV_Q8_0, 4, 2, 80, 16, 0, 0, true, false, false},
        {KV_Q8_0, 2, 1, 128, 16, 70, 0, true, true, false},
        {KV_F16, 3, 1, 64, 16, 300, 0, true, false, true, WINDOW_CHUNK},
        {KV_F32, 3, 1, 40, 16, 50, 0, true, false, false, WINDOW_CHUNK},
        {KV_F16, 3, 1, 64, 16, 24, 0, false, false, false, WINDOW_AROUND},
        {KV_F16, 9, 1, 96, 16, 0, 0, true, false, false, WINDOW_LAST, 64},
        {KV_F16, 2, 1, 272, 16, 300, 30, true, true, false},
        {KV_Q8_0, 1, 1, 288, 7, 70, 0, true, false, true},
        {KV_BF16, 17, 1, 144, 16, 0, 0, true, false, false, WINDOW_LAST, 136},
        {KV_F32, 6, 2, 40, 16, 0, 0, true, false, false, WINDOW_LAST, 0, 8},
        {KV_F16, 6, 1, 64, 16, 0, 0, true, false, false, WINDOW_LAST, 0, 8},
        {KV_Q8_0, 2, 1, 128, 16, 300, 30, true, true, false, WINDOW_LAST, 0, 6},
        {KV_F16, 3, 1, 64, 16, 0, 0, false, false, false, WINDOW_LAST, 0, 8},
        {KV_F16, 3, 1, 272, 16, 0, 0, true, false, false, WINDOW_LAST, 0, 8},
    };
    for (const shape &s : shapes)
        check_bits(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_long_keys),
        cmocka_unit_test(test_bits),
    };
    random_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
