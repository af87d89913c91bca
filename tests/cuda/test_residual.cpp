/* Several residual streams: each op against the same in double, over odd widths and numbers of
 * streams; what is not a row's stays as it is. */
#include "on_device.h"

#include "backend/cuda/streams.h"

enum { ROWS = 3, MORE = 2 };
static const uint32_t widths[] = {1, 5, 31, 64, 130, 257, 1000, 2049};
#define BEYOND 12345.5f

struct rows_buf {
    std::vector<float> host;
    device_array<float> dev;
    uint32_t n;
    size_t stride;
    rows_buf(uint32_t width, size_t pad, float size = 1.0f) : n(width), stride(width + pad)
    {
        host = random_floats((ROWS + MORE) * stride, size);
        for (size_t i = 0; i < host.size(); i++)
            if (i / stride >= ROWS || i % stride >= n)
                host[i] = BEYOND;
        dev.put(host);
    }
    cuda_buf buf() const
    {
        return cuda_buf{dev.p, stride};
    }
    const float *row(uint32_t r) const
    {
        return host.data() + r * stride;
    }
    /* What is there now, [ROWS][n]; all else is as it was. */
    std::vector<float> get(const char *what) const
    {
        const std::vector<float> now = dev.get();
        std::vector<float> out;
        for (size_t i = 0; i < now.size(); i++) {
            if (i / stride < ROWS && i % stride < n)
                out.push_back(now[i]);
            else if (now[i] != host[i])
                fail_msg("%s: wrote to row %zu, value %zu", what, i / stride, i % stride);
        }
        return out;
    }
};

static void check(const char *what, const rows_buf &b, const std::vector<double> &want, double most)
{
    const std::vector<float> got = b.get(what);
    const double e = squared_error(want.data(), got.data(), want.size());
    if (!(e <= most))
        fail_msg("%s, %u values: error %g", what, b.n, e);
}

static cuda_at at_rows(step_on_device *s)
{
    s->counts.n_rows = ROWS;
    return s->at(CUDA_ROWS_ALL, MORE);
}

/* Where value i of stream j lies: the first is last. */
static uint32_t at_stream(uint32_t j, uint32_t i, uint32_t n_part, uint32_t n)
{
    return (j + n_part - 1) % n_part * n + i;
}

static double mean_square(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i] / n;
    return sum;
}

static void test_match_and_fold(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        for (uint32_t parts = 1; parts <= 7; parts += 3) {
            step_on_device s;
            const cuda_at at = at_rows(&s);
            rows_buf in(n, 3, 5), out(parts * n, 1), sum(n, 2);
            std::vector<double> want(ROWS * parts * n), folded(ROWS * n);
            for (uint32_t i = 0; i < ROWS * parts * n; i++) {
                const uint32_t r = i / (parts * n), p = i % (parts * n) / n;
                const double by = sqrt(mean_square(in.row(r), n) /
                                       fmax(mean_square(out.row(r) + p * n, n), 1e-5));
                want[i] = out.row(r)[i % (parts * n)] * by;
            }
            for (uint32_t i = 0; i < ROWS * n; i++) {
                folded[i] = sum.row(i / n)[i % n];
                for (uint32_t p = 0; p < parts; p++)
                    folded[i] += want[(i / n * parts + p) * n + i % n];
                folded[i] *= 0.25;
            }
            struct cuda_streams op = {in.buf(), {}, out.buf(), parts, n, 1.0f};
            cuda_streams_match(&at, &op);
            check("match", out, want, 1e-12);
            op = {out.buf(), {}, sum.buf(), parts, n, 0.25f};
            cuda_streams_fold(&at, &op);
            check("fold", sum, folded, 1e-11);
        }
    }
}

static void test_streams(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        for (uint32_t parts = 2; parts <= CUDA_MOST_STREAMS; parts += 2) {
            step_on_device s;
            const cuda_at at = at_rows(&s);
            rows_buf in(n, 0), coefs(parts * parts, 2), out(parts * n, 4);
            std::vector<double> x(ROWS * parts * n), was;
            for (size_t i = 0; i < x.size(); i++)
                x[i] = out.row((uint32_t)(i / (parts * n)))[i % (parts * n)];
            struct cuda_streams op = {in.buf(), coefs.buf(), out.buf(), parts, n, 1.0f};
            for (int what = 0; what < 3; what++) {
                was = x;
                for (uint32_t r = 0; r < ROWS; r++) {
                    const float *c = coefs.row(r), *y = in.row(r);
                    for (uint32_t k = 0; k < parts * n; k++) {
                        const uint32_t j = k / n, i = k % n;
                        const double *old = &was[(size_t)r * parts * n];
                        double *to = &x[(size_t)r * parts * n + at_stream(j, i, parts, n)];
                        for (uint32_t l = 0; what == 0 && l < parts; l++)
                            *to += c[j * parts + l] * old[at_stream(l, i, parts, n)];
                        if (what == 1)
                            *to += (y[i] - old[at_stream(0, i, parts, n)]) * (1 + c[j]);
                        if (what == 2 && j > 0)
                            *to += y[i];
                    }
                }
                what == 0   ? cuda_streams_predict(&at, &op)
                : what == 1 ? cuda_streams_correct(&at, &op)
                            : cuda_streams_spread(&at, &op);
                check("streams", out, x, 1e-11);
            }
        }
    }
}

static void test_sparse(void **state)
{
    (void)state;
    for (uint32_t n : widths) {
        for (float scale : {-1.0f, 0.0f, 1.6448534f}) {
            step_on_device s;
            const cuda_at at = at_rows(&s);
            rows_buf b(n, 1, 3);
            std::vector<double> want(ROWS * n);
            for (uint32_t r = 0; r < ROWS; r++) {
                double mean = 0, square = 0;
                for (uint32_t i = 0; i < n; i++)
                    mean += (double)b.row(r)[i] / n;
                for (uint32_t i = 0; i < n; i++)
                    square += pow(b.row(r)[i] - mean, 2);
                const double cut = mean + scale * sqrt(square / n);
                for (uint32_t i = 0; i < n; i++)
                    want[(size_t)r * n + i] = fmax(b.row(r)[i] - cut, 0);
            }
            cuda_sparse(&at, b.buf(), n, scale);
            const double most = n == 1 ? 1 : n < 31 ? 1e-10 : 1e-11; /* of a few little is left */
            check("sparse", b, want, most);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match_and_fold),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_sparse),
    };
    random_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
