/* Recurrent layers on a device, or its emulation: convolutions, rates, heads and channels against
 * the same in double, over sizes that no tile divides; three sequences of a step at once, with
 * states between, behind and before their rows; what is nobody's stays as it is; and the same bits
 * in parts, alone, within larger bounds, and with whatever states kept. */
#include "../few.h"
#include "on_device.h"

#include "backend/cuda/recurrent.h"

enum { N_SEQS = 3, N_STATES = 12, MORE = 2 };
#define BEYOND 12345.5f

/* A sequence's rows in a step: n of them from position pos on; states kept behind some of them. */
struct part {
    uint32_t n, pos, from, to;
    std::vector<cuda_kept> kept;
};

/* Sequence after sequence; the step's rows are theirs. */
static void put_parts(step_on_device *s, const std::vector<part> &parts)
{
    for (const part &p : parts) {
        cuda_seq q = {};
        q.first_row = s->counts.n_rows;
        q.n_rows = p.n;
        q.first_pos = p.pos;
        q.state_from = p.from;
        q.state_to = p.to;
        q.kept = (uint32_t)s->tables.size();
        q.n_kept = (uint32_t)p.kept.size();
        for (const cuda_kept &k : p.kept) {
            s->tables.push_back(k.n_rows);
            s->tables.push_back(k.state);
        }
        s->seqs.push_back(q);
        s->counts.n_rows += p.n;
        s->counts.n_seqs++;
    }
    if (s->tables.empty())
        s->tables.push_back(UINT32_MAX);
}

/* Three sequences: from the first position on; in place; and from a state that stays as it is. */
static std::vector<part> three_parts(const uint32_t *n)
{
    std::vector<part> parts(N_SEQS);
    parts[0] = part{n[0], 0, 11, 1, {}};
    parts[1] = part{n[1], 40, 2, 2, {}};
    parts[2] = part{n[2], 7, 3, 4, {}};
    if (n[0] > 2)
        parts[0].kept = {cuda_kept{1, 5}, cuda_kept{n[0] - 1, 6}};
    parts[2].kept = {cuda_kept{n[2], 7}}; /* behind the last row, beside its own */
    return parts;
}

/* The same rows, cut: each sequence in place, part after part, from a state of its own. */
static std::vector<std::vector<part>> in_steps(const std::vector<part> &whole, uint32_t cut)
{
    std::vector<std::vector<part>> steps;
    for (size_t i = 0; i < whole.size(); i++) {
        const part &w = whole[i];
        for (uint32_t done = 0; done < w.n; done += cut) {
            const uint32_t n = w.n - done < cut ? w.n - done : cut;
            steps.push_back({part{n, w.pos + done, done ? w.to : w.from, w.to, {}}});
        }
    }
    return steps;
}

struct rows {
    std::vector<float> host;
    device_array<float> dev;
    uint32_t n;
    size_t stride;
    rows(uint32_t n_rows, uint32_t width, size_t pad, float size = 1.0f)
        : n(width), stride(width + pad)
    {
        host = random_floats(n_rows * stride, size);
        for (size_t i = 0; i < host.size(); i++)
            if (i % stride >= n)
                host[i] = BEYOND;
        dev.put(host);
    }
    const float *row(uint32_t r) const
    {
        return host.data() + r * stride;
    }
    cuda_buf buf(uint32_t first = 0) const
    {
        return cuda_buf{dev.p + first * stride, stride};
    }
};

static void check_near(const char *what,
                       uint32_t shape,
                       const std::vector<double> &want,
                       const std::vector<float> &got,
                       double most)
{
    assert_int_equal(want.size(), got.size());
    const double e = squared_error(want.data(), got.data(), want.size());
    if (!(e <= most))
        fail_msg("%s of %u: error %g", what, shape, e);
}

/* got[n_rows][n] without what lies between rows, which is as it was. */
static std::vector<float> values(const rows &b, uint32_t n_rows, const char *what)
{
    const std::vector<float> now = b.dev.get();
    std::vector<float> out;
    for (size_t i = 0; i < now.size(); i++) {
        if (i / b.stride < n_rows && i % b.stride < b.n)
            out.push_back(now[i]);
        else if (now[i] != b.host[i])
            fail_msg("%s: wrote to row %zu, value %zu", what, i / b.stride, i % b.stride);
    }
    return out;
}

/* States of one layer, floats each; which of them a step may write to. */
struct states_buf {
    std::vector<float> host;
    device_array<float> dev;
    size_t floats, heads;
    states_buf(size_t n, size_t first) : floats(n), heads(first)
    {
        host = random_floats(N_STATES * floats);
        dev.put(host);
    }
    cuda_states get() const
    {
        return cuda_states{dev.p, floats, heads};
    }
    const float *at(uint32_t state) const
    {
        return host.data() + state * floats;
    }
    /* Of state i now, [first, first + n); all that no part names is as it was. */
    std::vector<float> state(uint32_t i, size_t first, size_t n) const
    {
        const std::vector<float> now = dev.get();
        const float *p = now.data() + i * floats + first;
        return std::vector<float>(p, p + n);
    }
    void check_others(const std::vector<part> &parts, size_t first, size_t n) const
    {
        const std::vector<float> now = dev.get();
        std::vector<bool> written(N_STATES);
        for (const part &p : parts) {
            written[p.to] = true;
            for (const cuda_kept &k : p.kept)
                written[k.state] = true;
        }
        for (size_t i = 0; i < now.size(); i++) {
            const size_t at = i % floats;
            if (!(written[i / floats] && at >= first && at < first + n) && now[i] != host[i])
                fail_msg("wrote to state %zu, value %zu", i / floats, at);
        }
    }
};

/* --- convolutions --- */

static double conv_row(const float *from, /* [width - 1][n], or zeros */
                       const rows &x,
                       uint32_t first,
                       uint32_t r,
                       uint32_t c,
                       uint32_t i,
                       uint32_t width)
{
    const uint32_t at = r + i, before = width - 1; /* counted from the state's first row */
    if (at >= before)
        return x.row(first + at - before)[c];
    return from ? from[at * x.n + c] : 0;
}

static void check_conv(uint32_t width, uint32_t n, bool gated)
{
    static const uint32_t counts[N_SEQS] = {13, 1, 20};
    const uint32_t before = width - 1;
    const std::vector<part> parts = three_parts(counts);
    step_on_device s;
    put_parts(&s, parts);
    const uint32_t n_rows = s.counts.n_rows;
    rows x(n_rows + MORE, n, 3), again(n_rows, n, 1);
    states_buf states((size_t)before * n + 5, (size_t)before * n), alone(1, 0);
    const std::vector<float> w = random_floats((size_t)n * width), bias = random_floats(n);
    const device_array<float> dw(w), db(bias);
    const cuda_at at = s.at(CUDA_ROWS_ALL, MORE);
    struct cuda_conv op = {x.buf(), states.get(), dw.p, gated ? db.p : NULL, n, width, gated, 0, 0};
    cuda_conv(&at, &op);
    const std::vector<float> got = values(x, n_rows, "convolution");
    std::vector<double> want;
    for (size_t i = 0; i < parts.size(); i++) {
        const part &p = parts[i];
        const float *from = p.pos ? states.at(p.from) : NULL;
        const uint32_t first = s.seqs[i].first_row;
        for (uint32_t r = 0; r < p.n; r++) {
            for (uint32_t c = 0; c < n; c++) {
                double sum = gated ? bias[c] : 0;
                for (uint32_t k = 0; k < width; k++)
                    sum += (double)w[c * width + k] * conv_row(from, x, first, r, c, k, width);
                want.push_back(gated ? sum / (1 + exp(-sum)) : sum);
            }
        }
        std::vector<cuda_kept> kept = p.kept;
        kept.push_back(cuda_kept{p.n, p.to});
        for (const cuda_kept &k : kept) { /* states are rows, to the bit */
            const std::vector<float> now = states.state(k.state, 0, (size_t)before * n);
            for (uint32_t v = 0; v < before * n; v++)
                assert_true(now[v] ==
                            (float)conv_row(from, x, first, k.n_rows, v % n, v / n, width));
        }
    }
    check_near("convolution", width, want, got, 1e-12);
    states.check_others(parts, 0, (size_t)before * n);
    /* in parts of 3 rows, each alone in its step: the same bits */
    alone.floats = states.floats;
    alone.host = states.host;
    alone.dev.put(alone.host);
    for (uint32_t r = 0; r < n_rows; r++)
        memcpy(&again.host[r * again.stride], x.row(r), n * sizeof(float));
    again.dev.put(again.host);
    uint32_t first = 0;
    for (const std::vector<part> &step : in_steps(parts, 3)) {
        step_on_device one;
        put_parts(&one, step);
        const cuda_at here = one.at(CUDA_ROWS_ALL);
        op.x = again.buf(first);
        op.states = alone.get();
        cuda_conv(&here, &op);
        first += step[0].n;
        on_device_ok(cudaDeviceSynchronize());
    }
    assert_true(values(again, n_rows, "in parts") == got);
    for (const part &p : parts)
        assert_true(alone.state(p.to, 0, (size_t)before * n) ==
                    states.state(p.to, 0, (size_t)before * n));
}

static void test_convolutions(void **state)
{
    (void)state;
    static const uint32_t channels[] = {1, 64, 131};
    for (uint32_t width = 2; width <= MODEL_MAX_CONV_WIDTH; width++)
        for (uint32_t i = 0; i < 3; i++)
            check_conv(width, channels[i], (width + i) % 2);
}

/* --- rates --- */

static void test_rates(void **state)
{
    (void)state;
    static const uint32_t heads[] = {1, 6, 150}, ROWS = 4;
    for (uint32_t n : heads) {
        for (int i = 0; i < 4; i++) {
            const bool delta = i % 2;
            const uint32_t per = i < 2 ? 0 : n == 6 ? 3 : n;
            step_on_device s;
            s.counts.n_rows = ROWS;
            const cuda_at at = s.at(CUDA_ROWS_ALL, MORE);
            rows in(ROWS, 2 * n, 1, 6), rate(ROWS + MORE, n, 2, 6), beta(ROWS + MORE, n, 0, 6);
            const std::vector<float> a = random_floats(n), bias = random_floats(n);
            const device_array<float> da(a), db(bias);
            std::vector<double> want[2];
            for (uint32_t k = 0; k < ROWS * n; k++) {
                const uint32_t r = k / n, h = k % n, from = per ? h / per * 2 * per + h % per : 0;
                const double x = per ? in.row(r)[from + per] : rate.row(r)[h];
                const double y = per ? in.row(r)[from] : beta.row(r)[h];
                const double z = log1p(exp(x + bias[h]));
                want[0].push_back(exp(z * a[h]));
                want[1].push_back(delta ? 1 / (1 + exp(-y)) : z);
            }
            const struct cuda_rates op = {
                in.buf(), rate.buf(), beta.buf(), da.p, db.p, n, per, delta};
            cuda_rates(&at, &op);
            check_near("rate", n, want[0], values(rate, ROWS, "rate"), 1e-13);
            check_near("beta", n, want[1], values(beta, ROWS, "beta"), 1e-13);
        }
    }
}

/* --- heads --- */

struct heads_case {
    uint32_t n_head, n_group, n_key, n_value;
    bool delta, tiled, each, apart, first, fixed;
    uint32_t rates() const
    {
        return each ? n_head * n_key : fixed ? 2 * n_head : n_head;
    }
    uint32_t betas() const
    {
        return apart ? n_head * n_key : n_head;
    }
};

struct heads_rows {
    rows mix, rate, beta, unit, out;
    heads_rows(const heads_case &h, uint32_t n)
        : mix(n, 2 * h.n_group * h.n_key + h.n_head * h.n_value, 3, 0.5f), rate(n, h.rates(), 1),
          beta(n, h.betas(), 0, h.apart ? 0.3f : 1.0f),
          unit(n, h.n_head * h.n_key, 1, 1 / sqrtf((float)h.n_key)), out(n, h.n_head * h.n_value, 2)
    {
        for (uint32_t i = 0; i < n * rate.stride; i++)
            if (i % rate.stride < rate.n)
                rate.host[i] = (float)random_unit();
        rate.dev.put(rate.host);
    }
};

/* A row through a state [n_value][n_key] in double. */
static void pass_row(const heads_case &h,
                     const heads_rows &b,
                     uint32_t head,
                     uint32_t r,
                     float skip,
                     std::vector<double> *s,
                     double *out)
{
    const uint32_t keys = h.n_group * h.n_key, all = h.n_head * h.n_value;
    const uint32_t group = h.tiled ? head % h.n_group : head / (h.n_head / h.n_group);
    const float *mix = b.mix.row(r);
    const float *q = mix + (h.delta ? 0 : all + keys) + group * h.n_key;
    const float *k = mix + (h.delta ? keys : all) + group * h.n_key;
    const float *v = mix + (h.delta ? 2 * keys : 0) + head * h.n_value;
    const float *f =
        h.fixed ? b.rate.row(0) + head : b.rate.row(r) + (h.each ? head * h.n_key : head);
    const float *unit = b.unit.row(r) + head * h.n_key;
    const float *back = h.fixed ? f + h.n_head : b.beta.row(r) + (h.apart ? head * h.n_key : head);
    const double by = h.apart ? 1 : back[0];
    if (h.fixed) {
        q = mix + head * (2 * h.n_key + h.n_value);
        k = q + h.n_key;
        v = k + h.n_key;
    }
    for (uint32_t c = 0; c < h.n_value; c++) {
        double *col = &(*s)[(size_t)c * h.n_key], held = 0, y = 0;
        for (uint32_t i = 0; h.delta && i < h.n_key; i++)
            held += h.apart ? col[i] * unit[i] : (double)f[h.each ? i : 0] * col[i] * k[i];
        for (uint32_t i = 0; i < h.n_key; i++) {
            const double taken = h.first ? 0 : h.apart ? back[i] * held : k[i] * held * by;
            col[i] = col[i] * f[h.each ? i : 0] + (double)k[i] * v[c] * by - taken;
            y += col[i] * q[i];
        }
        out[c] = h.first ? held : h.apart || h.fixed ? y : h.delta ? y * 0.25 : y + skip * v[c];
    }
}

static struct cuda_recur recur_of(const heads_case &h,
                                  const heads_rows &b,
                                  uint32_t first,
                                  const states_buf &states,
                                  const float *skip)
{
    struct cuda_recur op = {};
    op.mix = b.mix.buf(first);
    if (h.fixed) {
        op.fixed = b.rate.dev.p;
    } else {
        op.rate = b.rate.buf(first);
        op.beta = b.beta.buf(first);
    }
    op.out = b.out.buf(first);
    op.states = states.get();
    op.skip = h.delta || h.fixed ? NULL : skip;
    op.n_head = h.n_head;
    op.n_group = h.n_group;
    op.n_key = h.n_key;
    op.n_value = h.n_value;
    op.scale = h.delta ? 0.25f : 1.0f;
    op.delta = h.delta;
    op.each = h.each;
    op.apart = h.apart;
    op.first = h.first;
    if (h.apart) { /* of the same rows */
        const uint32_t keys = h.n_head * h.n_key;
        op.k = cuda_buf{op.mix.p + keys, op.mix.stride};
        op.v = cuda_buf{op.k.p + keys, op.mix.stride};
        op.unit = b.unit.buf(first);
    }
    op.tiled = h.tiled;
    return op;
}

static void check_heads(const heads_case &h, const uint32_t *counts)
{
    const std::vector<part> parts = three_parts(counts);
    step_on_device s;
    put_parts(&s, parts);
    const uint32_t n_rows = s.counts.n_rows;
    const size_t one = (size_t)h.n_key * h.n_value, all = one * h.n_head, before = 4;
    heads_rows b(h, n_rows + MORE);
    states_buf states(before + all + 4, before), alone(1, before);
    const std::vector<float> skip = random_floats(h.n_head);
    const device_array<float> dskip(skip);
    const cuda_at at = s.at(CUDA_ROWS_ALL, MORE);
    struct cuda_recur op = recur_of(h, b, 0, states, dskip.p);
    cuda_recur(&at, &op);
    const std::vector<float> got = values(b.out, n_rows, "heads");
    std::vector<double> want(got.size());
    for (size_t i = 0; i < parts.size(); i++) {
        const part &p = parts[i];
        std::vector<cuda_kept> kept = p.kept;
        kept.push_back(cuda_kept{p.n, p.to});
        for (uint32_t head = 0; head < h.n_head; head++) {
            const float *from = states.at(p.from) + before + head * one;
            std::vector<double> m(one);
            for (size_t k = 0; k < one; k++)
                m[k] = p.pos ? from[k] : 0;
            for (uint32_t r = 0; r < p.n; r++) {
                const uint32_t row = s.seqs[i].first_row + r;
                double *out = &want[(size_t)row * h.n_head * h.n_value + head * h.n_value];
                pass_row(h, b, head, row, skip[head], &m, out);
                for (const cuda_kept &k : kept)
                    if (k.n_rows == r + 1)
                        check_near("state",
                                   h.n_key,
                                   m,
                                   states.state(k.state, before + head * one, one),
                                   1e-11);
            }
        }
    }
    check_near("heads", h.n_key, want, got, 1e-11);
    states.check_others(parts, before, all);
    /* in parts, each alone in its step, and none kept: the same bits */
    alone.floats = states.floats;
    alone.host = states.host;
    alone.dev.put(alone.host);
    std::vector<float> zeros(b.out.host.size(), BEYOND);
    b.out.dev.put(zeros);
    uint32_t first = 0;
    for (const std::vector<part> &step : in_steps(parts, 5)) {
        step_on_device in_part;
        put_parts(&in_part, step);
        const cuda_at here = in_part.at(CUDA_ROWS_ALL);
        op = recur_of(h, b, first, alone, dskip.p);
        cuda_recur(&here, &op);
        on_device_ok(cudaDeviceSynchronize());
        first += step[0].n;
    }
    const std::vector<float> now = b.out.dev.get();
    for (uint32_t r = 0; r < n_rows; r++)
        assert_memory_equal(&now[r * b.out.stride], &got[r * b.out.n], b.out.n * sizeof(float));
    for (const part &p : parts)
        assert_true(alone.state(p.to, before, all) == states.state(p.to, before, all));
}

/* Each kernel; key and value sizes of models, and such as nothing divides. */
static void test_heads(void **state)
{
    (void)state;
    static const heads_case cases[] = {
        {2, 1, 128, 128, true, false, false, false, false, false},
        {3, 1, 128, 64, false, false, false, false, false, false},
        {4, 2, 16, 32, true, true, false, false, false, false},
        {4, 2, 5, 7, true, false, false, false, false, false},
        {4, 2, 33, 65, false, false, false, false, false, false},
        {6, 3, 64, 1, true, true, false, false, false, false},
        {2, 2, 256, 40, false, false, false, false, false, false},
        {2, 1, 130, 33, true, false, false, false, false, false},
        {1, 1, 1, 1, false, false, false, false, false, false},
        {2, 1, 300, 9, true, false, false, false, false, false},
        {1, 1, 1024, 3, false, false, false, false, false, false},
        {2, 2, 128, 128, true, false, true, false, false, false},
        {3, 3, 13, 13, true, false, true, false, false, false},
        {2, 2, 33, 7, true, false, true, false, false, false},
        {1, 1, 256, 32, true, false, true, false, false, false},
        {1, 1, 1024, 3, true, false, true, false, false, false},
        {2, 2, 64, 64, true, false, true, true, false, false},
        {3, 3, 26, 26, true, false, true, true, false, false},
        {2, 2, 64, 64, true, false, true, true, true, false},
        {3, 3, 26, 26, true, false, true, true, true, false},
        {1, 1, 128, 33, true, false, true, true, false, false},
        {2, 2, 200, 9, true, false, true, true, false, false},
        {1, 1, 1024, 3, true, false, true, true, false, false},
        {2, 2, 128, 128, false, false, false, false, false, true},
        {3, 3, 12, 12, false, false, false, false, false, true},
        {2, 2, 33, 65, false, false, false, false, false, true},
    };
    static const uint32_t many[N_SEQS] = {21, 1, 17}, few[N_SEQS] = {3, 1, 6};
    for (const heads_case &h : cases)
        check_heads(h, few_shapes() || h.n_key > 256 ? few : many);
}

/* --- channels --- */

struct channels_rows {
    rows x, step, k, q, out;
    channels_rows(uint32_t n, uint32_t n_key, uint32_t n_rows)
        : x(n_rows, n, 3), step(n_rows, n, 1), k(n_rows, n_key, 0), q(n_rows, n_key, 2),
          out(n_rows, n, 1)
    {
        for (uint32_t i = 0; i < n_rows * step.stride; i++)
            if (i % step.stride < n)
                step.host[i] = (float)random_unit();
        step.dev.put(step.host);
    }
};

static struct cuda_selective selective_of(const channels_rows &b,
                                          uint32_t first,
                                          const states_buf &states,
                                          const float *a,
                                          const float *skip)
{
    struct cuda_selective op = {};
    op.x = b.x.buf(first);
    op.step = b.step.buf(first);
    op.k = b.k.buf(first);
    op.q = b.q.buf(first);
    op.out = b.out.buf(first);
    op.states = states.get();
    op.a = a;
    op.skip = skip;
    op.n = b.x.n;
    op.n_key = b.k.n;
    return op;
}

/* A row through the states [n][n_key] in double. */
static void pass_channels(const channels_rows &b,
                          uint32_t r,
                          const std::vector<float> &a,
                          const std::vector<float> &skip,
                          std::vector<double> *s,
                          double *out)
{
    const uint32_t n_key = b.k.n;
    for (uint32_t c = 0; c < b.x.n; c++) {
        const double x = b.x.row(r)[c], step = b.step.row(r)[c];
        out[c] = skip[c] * x;
        for (uint32_t i = 0; i < n_key; i++) {
            double *at = &(*s)[c * n_key + i];
            *at = *at * exp(step * a[c * n_key + i]) + b.k.row(r)[i] * step * x;
            out[c] += *at * b.q.row(r)[i];
        }
    }
}

static void check_channels(uint32_t n, uint32_t n_key, const uint32_t *counts)
{
    const std::vector<part> parts = three_parts(counts);
    step_on_device s;
    put_parts(&s, parts);
    const uint32_t n_rows = s.counts.n_rows;
    const size_t all = (size_t)n_key * n, before = 4;
    channels_rows b(n, n_key, n_rows + MORE);
    states_buf states(before + all + 4, before), alone(1, before);
    std::vector<float> a = random_floats(all);
    const std::vector<float> skip = random_floats(n);
    for (float &v : a)
        v = -4.0f * fabsf(v);
    const device_array<float> da(a), dskip(skip);
    const cuda_at at = s.at(CUDA_ROWS_ALL, MORE);
    struct cuda_selective op = selective_of(b, 0, states, da.p, dskip.p);
    cuda_selective(&at, &op);
    const std::vector<float> got = values(b.out, n_rows, "channels");
    std::vector<double> want(got.size());
    for (size_t i = 0; i < parts.size(); i++) {
        const part &p = parts[i];
        const float *from = states.at(p.from) + before;
        std::vector<cuda_kept> kept = p.kept;
        std::vector<double> m(all);
        kept.push_back(cuda_kept{p.n, p.to});
        for (size_t k = 0; k < all; k++)
            m[k] = p.pos ? from[k] : 0;
        for (uint32_t r = 0; r < p.n; r++) {
            const uint32_t row = s.seqs[i].first_row + r;
            pass_channels(b, row, a, skip, &m, &want[(size_t)row * n]);
            for (const cuda_kept &k : kept)
                if (k.n_rows == r + 1)
                    check_near("state", n_key, m, states.state(k.state, before, all), 1e-11);
        }
    }
    check_near("channels", n_key, want, got, 1e-11);
    states.check_others(parts, before, all);
    /* in parts, each alone in its step, and none kept: the same bits */
    alone.floats = states.floats;
    alone.host = states.host;
    alone.dev.put(alone.host);
    b.out.dev.put(std::vector<float>(b.out.host.size(), BEYOND));
    uint32_t first = 0;
    for (const std::vector<part> &step : in_steps(parts, 5)) {
        step_on_device in_part;
        put_parts(&in_part, step);
        const cuda_at here = in_part.at(CUDA_ROWS_ALL);
        op = selective_of(b, first, alone, da.p, dskip.p);
        cuda_selective(&here, &op);
        on_device_ok(cudaDeviceSynchronize());
        first += step[0].n;
    }
    const std::vector<float> now = b.out.dev.get();
    for (uint32_t r = 0; r < n_rows; r++)
        assert_memory_equal(&now[r * b.out.stride], &got[r * n], n * sizeof(float));
    for (const part &p : parts)
        assert_true(alone.state(p.to, before, all) == states.state(p.to, before, all));
}

/* Each kernel; as models have it, and such as nothing divides. */
static void test_channels(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{128, 16}, {70, 10}, {1, 1}, {65, 33}, {9, 256}};
    static const uint32_t many[N_SEQS] = {21, 1, 17}, few[N_SEQS] = {3, 1, 6};
    for (const uint32_t *size : sizes)
        check_channels(size[0], size[1], few_shapes() || size[1] > 64 ? few : many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_channels),
    };
    random_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
