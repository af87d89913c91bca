/* Rows: each op against the same in double, over odd widths; rows beyond the step's stay as they
 * are; a row's bits depend on nothing but the row. */
#include "on_device.h"

#include "model/model.h"

static_assert(GATE_SILU == 0 && GATE_GELU == 1 && GATE_CLAMPED == 2 && GATE_SIGMOID == 3 &&
                  GATE_PLAIN == 4 && GATE_SILU_CAPPED == 5 && GATE_SILU_BOUNDED == 6 &&
                  GATE_SITU == 7 && UNARY_RELU == 4 && UNARY_SIGMOID == 5 && UNARY_SOFTPLUS == 6 &&
                  UNARY_EXP == 7 && UNARY_XIELU == 8,
              "as rows.cu numbers them");

enum { ROWS = 5, MORE = 3 };
static const uint32_t widths[] = {1, 3, 31, 64, 100, 127, 130, 257, 1000, 1024, 2050, 5000};
#define BEYOND 12345.5f
#define GATE_CAP 1.5f
#define GATE_SCALE 2.5f

/* A buffer of ROWS and MORE rows, those beyond filled with what must stay. */
struct rows_buf {
    std::vector<float> host;
    device_array<float> dev;
    size_t stride;
    rows_buf(uint32_t n, size_t pad, float size = 1.0f) : stride(n + pad)
    {
        host = random_floats((ROWS + MORE) * stride, size);
        for (size_t i = 0; i < host.size(); i++)
            if (i / stride >= ROWS || i % stride >= n)
                host[i] = BEYOND;
        dev.put(host);
    }
    cuda_buf buf() const
    {
        cuda_buf b = {dev.p, stride};
        return b;
    }
    const float *row(uint32_t r) const
    {
        return host.data() + r * stride;
    }
};

static step_on_device *new_step(uint32_t rows)
{
    step_on_device *s = new step_on_device;
    s->counts.n_rows = rows;
    s->counts.n_seqs = 1;
    s->counts.n_logit_rows = 2;
    s->counts.n_hidden_rows = 3;
    for (uint32_t i = 0; i < rows; i++) {
        s->positions.push_back(7 + i);
        s->row_seq.push_back(0);
    }
    s->seqs.push_back(cuda_seq{0, rows, 7, 0, 0, 9, 0, 0, 0, 0}); /* its second text is from 9 on */
    s->logit_rows = {1, 3};
    s->hidden_rows = {0, 2, 4};
    return s;
}

/* got against want [n_rows][n]; all else as it was before. The error is of the sum of squares, or
 * of as many ones where that is less: a short row may be all of values in which something
 * cancelled, or which an f32 does not hold. */
static void check(const char *what,
                  const rows_buf &b,
                  uint32_t n,
                  uint32_t n_rows,
                  const std::vector<double> &want,
                  double most)
{
    const std::vector<float> got = b.dev.get();
    for (size_t i = 0; i < got.size(); i++)
        if (i / b.stride >= n_rows || i % b.stride >= n)
            if (memcmp(&got[i], &b.host[i], sizeof(float)) != 0)
                fail_msg("%s, width %u: wrote to row %zu, value %zu",
                         what,
                         n,
                         i / b.stride,
                         i % b.stride);
    for (uint32_t r = 0; r < n_rows; r++) {
        double off = 0, all = 0;
        for (uint32_t i = 0; i < n; i++) {
            off += pow(got[r * b.stride + i] - want[(size_t)r * n + i], 2);
            all += pow(want[(size_t)r * n + i], 2);
        }
        const double e = off / fmax(all, n);
        if (!(e <= most))
            fail_msg("%s, width %u, row %u: error %g", what, n, r, e);
    }
}

static void ref_norm(const float *x, const float *w, uint32_t n, double eps, double *out)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] / sqrt(sum / n + eps) * w[i];
}

static void test_norm(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        for (uint32_t pad = 0; pad < 5; pad += 4 - pad % 2 * 3) {
            step_on_device *s = new_step(ROWS);
            rows_buf in(n, pad), out(n, pad + 1);
            const std::vector<float> w = random_floats(n);
            device_array<float> dw(w);
            std::vector<double> want(ROWS * n);
            for (uint32_t r = 0; r < ROWS; r++)
                ref_norm(in.row(r), w.data(), n, 1e-5, &want[r * n]);
            struct cuda_norm op = {in.buf(), out.buf(), n, 1, 1e-5f, 1.0f, dw.p, 0, 0, 0};
            cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
            cuda_norm(&at, &op);
            check("norm", out, n, ROWS, want, 1e-12);
            /* in place, each row by itself: the same bits */
            const std::vector<float> all = out.dev.get();
            delete s;
            s = new_step(1);
            for (uint32_t r = 0; r < ROWS; r++) {
                cuda_buf one = {in.dev.p + r * in.stride, in.stride};
                struct cuda_norm alone = {one, one, n, 1, 1e-5f, 1.0f, dw.p, 0, 0, 0};
                at = s->at(CUDA_ROWS_ALL);
                cuda_norm(&at, &alone);
            }
            const std::vector<float> each = in.dev.get();
            for (uint32_t r = 0; r < ROWS; r++)
                assert_memory_equal(&each[r * in.stride], &all[r * out.stride], n * sizeof(float));
            delete s;
        }
    }
}

/* Rows that the step names, gathered; with no weights a copy. */
static void test_gather(void **state)
{
    (void)state;
    step_on_device *s = new_step(ROWS);
    const uint32_t n = 130;
    for (int kind = CUDA_ROWS_LOGITS; kind <= CUDA_ROWS_HIDDEN; kind++) {
        const std::vector<uint32_t> &rows =
            kind == CUDA_ROWS_LOGITS ? s->logit_rows : s->hidden_rows;
        const uint32_t count = (uint32_t)rows.size();
        for (int copy = 0; copy < 2; copy++) {
            rows_buf in(n, 2), out(n, 0);
            const std::vector<float> w = random_floats(n);
            device_array<float> dw(w);
            std::vector<double> want(count * n);
            for (uint32_t r = 0; r < count; r++) {
                ref_norm(in.row(rows[r]), w.data(), n, 1e-6, &want[r * n]);
                for (uint32_t i = 0; copy && i < n; i++)
                    want[r * n + i] = in.row(rows[r])[i];
            }
            struct cuda_norm op = {
                in.buf(), out.buf(), n, 1, 1e-6f, 1.0f, copy ? NULL : dw.p, 0, 1, 0};
            cuda_at at = s->at((cuda_rows)kind, MORE);
            cuda_norm(&at, &op);
            check("gather", out, n, count, want, copy ? 0 : 1e-12);
        }
    }
    delete s;
}

static void test_head_norm(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{2, 64}, {9, 8}, {17, 100}, {32, 128}, {3, 256}, {2, 512}};
    for (const uint32_t(&shape)[2] : shapes) {
        const uint32_t heads = shape[0], dim = shape[1], n = heads * dim;
        step_on_device *s = new_step(ROWS);
        rows_buf buf(n, 4);
        const std::vector<float> w = random_floats(dim);
        device_array<float> dw(w);
        std::vector<double> want(ROWS * n);
        for (uint32_t i = 0; i < ROWS * heads; i++)
            ref_norm(buf.row(i / heads) + i % heads * dim, w.data(), dim, 1e-6, &want[i * dim]);
        struct cuda_norm op = {buf.buf(), buf.buf(), dim, heads, 1e-6f, 1.0f, dw.p, 0, 0, 0};
        cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
        cuda_norm(&at, &op);
        check("head norm", buf, n, ROWS, want, 1e-12);
        delete s;
    }
}

/* Without weights; of length 1; with weights of each head's own; and with a mean taken off. */
static void test_head_norms_of_other_kinds(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 40}, {9, 8}, {17, 100}, {32, 128}, {3, 260}};
    for (const uint32_t(&shape)[2] : shapes) {
        const uint32_t heads = shape[0], dim = shape[1], n = heads * dim;
        step_on_device *s = new_step(ROWS);
        cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
        rows_buf bare(n, 4), own(n, 3), biased(n, 3);
        const std::vector<float> w = random_floats(n), ones(dim, 1.0f);
        device_array<float> dw(w);
        std::vector<double> want(ROWS * n);
        for (uint32_t i = 0; i < ROWS * heads; i++)
            ref_norm(bare.row(i / heads) + i % heads * dim, ones.data(), dim, 1e-6, &want[i * dim]);
        struct cuda_norm op = {bare.buf(), bare.buf(), dim, heads, 1e-6f, 1.0f, NULL, 0, 0, 1};
        cuda_norm(&at, &op);
        check("head norm without weights", bare, n, ROWS, want, 1e-12);
        rows_buf unit(n, 2), each(n, 5);
        for (uint32_t i = 0; i < ROWS * heads; i++) {
            const float *x = unit.row(i / heads) + i % heads * dim;
            double sum = 1e-6;
            for (uint32_t d = 0; d < dim; d++)
                sum += (double)x[d] * x[d];
            for (uint32_t d = 0; d < dim; d++)
                want[i * dim + d] = x[d] / sqrt(sum);
        }
        const float eps = 1e-6f / (float)dim, size = 1.0f / sqrtf((float)dim);
        op = {unit.buf(), unit.buf(), dim, heads, eps, size, NULL, 0, 0, 1};
        cuda_norm(&at, &op);
        check("heads of length 1", unit, n, ROWS, want, 1e-12);
        for (uint32_t i = 0; i < ROWS * heads; i++)
            ref_norm(each.row(i / heads) + i % heads * dim,
                     w.data() + i % heads * dim,
                     dim,
                     1e-6,
                     &want[i * dim]);
        op = {each.buf(), each.buf(), dim, heads, 1e-6f, 1.0f, dw.p, dim, 0, 0};
        cuda_norm(&at, &op);
        check("head norm with weights of its own", each, n, ROWS, want, 1e-12);
        for (uint32_t i = 0; i < ROWS * heads; i++) {
            const float *x = own.row(i / heads) + i % heads * dim;
            double mean = 0, var = 0;
            for (uint32_t d = 0; d < dim; d++)
                mean += (double)x[d] / dim;
            for (uint32_t d = 0; d < dim; d++)
                var += (x[d] - mean) * (x[d] - mean) / dim;
            for (uint32_t d = 0; d < dim; d++)
                want[i * dim + d] = (x[d] - mean) / sqrt(var + 1e-5) * w[i % heads * dim + d];
        }
        cuda_head_layer_norm(&at, own.buf(), heads, dim, 1e-5f, dw.p, NULL);
        check("head layer norm", own, n, ROWS, want, 1e-12);
        const std::vector<float> bias = random_floats(n);
        device_array<float> dbias(bias);
        for (uint32_t i = 0; i < ROWS * n; i++)
            want[i] += bias[i % n];
        biased.host = own.host;
        biased.dev.put(biased.host);
        cuda_head_layer_norm(&at, biased.buf(), heads, dim, 1e-5f, dw.p, dbias.p);
        check("head layer norm with a bias", biased, n, ROWS, want, 1e-12);
        delete s;
    }
}

static void test_head_copy(void **state)
{
    (void)state;
    const uint32_t HEADS = 5, N = 24, IN = 40, OUT = 64;
    step_on_device *s = new_step(ROWS);
    cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
    for (int i = 0; i < 4; i++) {
        const int front = i % 2, zero = i / 2;
        rows_buf in(HEADS * IN, 1), out(HEADS * OUT, 3);
        std::vector<double> want;
        for (uint32_t i = 0; i < ROWS * HEADS * OUT; i++) {
            const uint32_t r = i / (HEADS * OUT), h = i / OUT % HEADS, d = i % OUT;
            const float *x = in.row(r) + h * IN + (front ? 0 : IN - N);
            want.push_back(d >= OUT - N ? x[d - (OUT - N)] : zero ? 0 : out.row(r)[h * OUT + d]);
        }
        const struct cuda_head_copy op = {in.buf(), out.buf(), HEADS, N, IN, OUT, front, zero};
        cuda_head_copy(&at, &op);
        check("head copy", out, HEADS * OUT, ROWS, want, 0);
    }
    delete s;
}

static void test_head_scale(void **state)
{
    (void)state;
    for (uint32_t n : {2u, 24u, 129u}) {
        const uint32_t HEADS = 5;
        step_on_device *s = new_step(ROWS);
        cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
        rows_buf in(HEADS, 2), out(HEADS * n, 3);
        std::vector<double> want;
        for (uint32_t i = 0; i < ROWS * HEADS * n; i++) {
            const uint32_t r = i / (HEADS * n), k = i % (HEADS * n);
            want.push_back(static_cast<double>(out.row(r)[k]) * in.row(r)[k / n]);
        }
        cuda_head_scale(&at, in.buf(), out.buf(), HEADS, n);
        check("head scale", out, HEADS * n, ROWS, want, 1e-13);
        delete s;
    }
}

static void test_layer_norm(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        step_on_device *s = new_step(ROWS);
        rows_buf in(n, n % 4), out(n, 4);
        for (float &x : in.host)
            x += x == BEYOND ? 0 : 100; /* a large mean */
        in.dev.put(in.host);
        const std::vector<float> w = random_floats(n), bias = random_floats(n);
        device_array<float> dw(w), db(bias);
        std::vector<double> want(ROWS * n);
        double least =
            1; /* a mean of 100 is off by some 1e-5, and more counts the less rows deviate */
        for (uint32_t r = 0; r < ROWS; r++) {
            double mean = 0, var = 0;
            for (uint32_t i = 0; i < n; i++)
                mean += (double)in.row(r)[i] / n;
            for (uint32_t i = 0; i < n; i++)
                var += (in.row(r)[i] - mean) * (in.row(r)[i] - mean) / n;
            least = fmin(least, var + 1e-5);
            for (uint32_t i = 0; i < n; i++)
                want[r * n + i] = (in.row(r)[i] - mean) / sqrt(var + 1e-5) * w[i] + bias[i];
        }
        struct cuda_layer_norm op = {in.buf(), out.buf(), n, 1e-5f, dw.p, db.p, 0};
        cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
        cuda_layer_norm(&at, &op);
        check("layer norm", out, n, ROWS, want, 1e-9 / least);
        for (uint32_t i = 0; i < ROWS * n; i++)
            want[i] = (want[i] - bias[i % n]) / (double)w[i % n];
        rows_buf plain(n, 1);
        op = {in.buf(), plain.buf(), n, 1e-5f, NULL, NULL, 0};
        cuda_layer_norm(&at, &op);
        check("layer norm without weights", plain, n, ROWS, want, 1e-9 / least);
        delete s;
    }
}

static void test_tables(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        for (uint32_t types = 0; types <= 2; types++) {
            step_on_device *s = new_step(ROWS);
            rows_buf buf(n, 3);
            const std::vector<float> w = random_floats((types ? types : 7 + ROWS) * n);
            device_array<float> dw(w);
            std::vector<double> want(ROWS * n);
            for (uint32_t i = 0; i < ROWS * n; i++) {
                const uint32_t r = i / n, pos = s->positions[r];
                const uint32_t from = types == 0 ? pos : types == 2 && pos >= 9;
                want[i] = (double)buf.row(r)[i % n] + w[from * n + i % n];
            }
            cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
            if (types)
                cuda_add_type(&at, buf.buf(), dw.p, n, types);
            else
                cuda_add_position(&at, buf.buf(), dw.p, n);
            check("add table", buf, n, ROWS, want, 1e-13);
            delete s;
        }
    }
}

static double ref_gate(int kind, double g, double u, double cap)
{
    if (kind == GATE_SITU)
        return GATE_SCALE * tanh(g / GATE_SCALE) / (1 + exp(-g)) *
               (cap > 0 ? cap * tanh(u / cap) : u);
    if (kind == GATE_SILU)
        return g / (1 + exp(-g)) * u;
    if (kind == GATE_GELU)
        return g / (1 + exp(-2 * sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u; /* 1 + tanh */
    if (kind == GATE_SIGMOID)
        return u / (1 + exp(-g));
    if (kind == GATE_PLAIN)
        return g * u;
    if (kind == GATE_SILU_CAPPED)
        return fmin(g / (1 + exp(-g)), cap) * fmax(-cap, fmin(u, cap));
    if (kind == GATE_SILU_BOUNDED)
        return ref_gate(GATE_SILU, fmin(g, cap), fmax(-cap, fmin(u, cap)), cap);
    g = fmin(g, 7);
    u = fmax(-7, fmin(u, 7));
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

static void test_gated(void **state)
{
    (void)state;
    for (int kind = 0; kind <= GATE_SITU + 1; kind++) { /* the last: of no cap */
        const int of = kind > GATE_SITU ? GATE_SITU : kind;
        const float cap = kind > GATE_SITU ? 0.0f : GATE_CAP;
        for (uint32_t n : widths) {
            for (int places = 0; places < 3; places++) {         /* 2: weighed before */
                step_on_device *s = new_step(places ? 2 : ROWS); /* places say how many */
                rows_buf in(n, 1, 6), in2(n, 0, 6), out(n, 2);
                device_array<uint32_t> count(std::vector<uint32_t>(1, ROWS));
                const std::vector<float> weights = random_floats(ROWS);
                device_array<float> dw(weights);
                std::vector<double> want(ROWS * n);
                for (uint32_t i = 0; i < ROWS * n; i++) {
                    const double w = places == 2 ? weights[i / n] : 1;
                    want[i] =
                        ref_gate(of, in.row(i / n)[i % n] * w, in2.row(i / n)[i % n] * w, cap);
                }
                cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
                const struct cuda_gated op = {of,
                                              GATE_SCALE,
                                              cap,
                                              in.buf(),
                                              in2.buf(),
                                              out.buf(),
                                              n,
                                              places ? count.p : NULL,
                                              places ? ROWS + MORE : 0u,
                                              places == 2 ? dw.p : NULL};
                cuda_gated(&at, &op);
                check("gate", out, n, ROWS, want, 1e-11);
                delete s;
            }
        }
    }
}

static void test_in_place(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        step_on_device *s = new_step(ROWS);
        s->counts.n_logit_rows = ROWS;
        rows_buf b(n, 1, 40), c(n, 0, 4);
        std::vector<double> want(ROWS * n);
        cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
        const struct cuda_unary xielu = {UNARY_XIELU, 0.8f, 0.6f, 0.5f, -1e-6f, {}, n, NULL, 0};
        const device_array<uint32_t> count(std::vector<uint32_t>(1, ROWS));
        for (int i = 0; i < 2 * UNARY_XIELU;
             i++) { /* of rows, and of places, whose number is not the step's */
            const int kind = 1 + i / 2, places = i % 2; /* as enum unary_kind */
            cuda_at of = s->at(places ? CUDA_ROWS_HIDDEN : CUDA_ROWS_ALL, MORE);
            rows_buf u(n, 0, 4);
            for (uint32_t k = 0; k < ROWS * n; k++) {
                const double x = u.row(k / n)[k % n], above = x > 0 ? x : 0;
                want[k] =
                    kind == 1   ? 0.5 * x * erfc(-x / sqrt(2))
                    : kind == 2 ? x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
                    : kind == 3 ? above * above
                    : kind == 4 ? above
                    : kind == 5 ? 1 / (1 + exp(-x))
                    : kind == 6 ? above + log1p(exp(-fabs(x)))
                    : kind == 7 ? exp(x)
                    : x > 0     ? xielu.positive * x * x + xielu.beta * x
                                : xielu.negative * (expm1(fmin(x, xielu.eps)) - x) + xielu.beta * x;
            }
            struct cuda_unary op = xielu;
            op.kind = kind;
            op.buf = u.buf();
            op.n_places = places ? count.p : NULL;
            op.most_places = places ? ROWS + MORE : 0;
            cuda_unary(&of, &op);
            check("unary", u, n, ROWS, want, 1e-11);
        }
        for (uint32_t i = 0; i < ROWS * n; i++)
            want[i] = 30 * tanh(b.row(i / n)[i % n] * 0.5 / 30);
        at = s->at(CUDA_ROWS_LOGITS, MORE);
        cuda_tanh_cap(&at, b.buf(), n, 0.5f, 30.0f);
        check("cap", b, n, ROWS, want, 1e-12);
        for (uint32_t i = 0; i < ROWS * n; i++)
            want[i] = c.row(i / n)[i % n] * 0.25;
        at = s->at(CUDA_ROWS_ALL, MORE);
        cuda_tanh_cap(&at, c.buf(), n, 0.25f, 0.0f);
        check("scale", c, n, ROWS, want, 0);
        rows_buf d(n, 2, 4), e(n, 5), x(n, 0, 4);
        for (uint32_t i = 0; i < ROWS * n; i++)
            want[i] = fmin(fmax(d.row(i / n)[i % n], -1.5), 1.5);
        cuda_clamp(&at, d.buf(), n, 1.5f);
        check("clamp", d, n, ROWS, want, 0);
        const std::vector<float> w = random_floats(n);
        const device_array<float> dw(w);
        for (uint32_t i = 0; i < ROWS * n; i++)
            want[i] = x.row(i / n)[i % n] * w[i % n];
        cuda_mul(&at, x.buf(), e.buf(), dw.p, n);
        check("mul", e, n, ROWS, want, 1e-13);
        delete s;
    }
}

static void test_add(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        for (int gated = 0; gated < 2; gated++) {
            step_on_device *s = new_step(ROWS);
            rows_buf in(n, 3), out(n, 0), gate(1, 2);
            std::vector<double> want(ROWS * n);
            for (uint32_t i = 0; i < ROWS * n; i++) {
                const uint32_t r = i / n;
                const double by = gated ? 1 / (1 + exp(-(double)gate.row(r)[0])) : 0.75;
                want[i] = out.row(r)[i % n] + in.row(r)[i % n] * by;
            }
            cuda_at at = s->at(CUDA_ROWS_ALL, MORE);
            const struct cuda_add op = {
                in.buf(), out.buf(), gated ? gate.buf() : cuda_buf{}, n, 0.75f};
            cuda_add(&at, &op);
            check("add", out, n, ROWS, want, 1e-12);
            delete s;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_head_norm),
        cmocka_unit_test(test_head_norms_of_other_kinds),
        cmocka_unit_test(test_head_copy),
        cmocka_unit_test(test_head_scale),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_add),
    };
    random_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
