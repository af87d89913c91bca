/* Gates other than silu, caps and scaled sums: what some architectures do to a row besides. */

/* f(in, in2) of each of n values; in2 may be in. */
#define DEFINE_MAP2(name, f)                                                                       \
    static void name(const float *in, const float *in2, float *out, uint32_t n)                    \
    {                                                                                              \
        uint32_t i = 0;                                                                            \
        for (; i + VL <= n; i += VL)                                                               \
            vf_store(out + i, f(vf_load(in + i), vf_load(in2 + i)));                               \
        if (i < n)                                                                                 \
            vf_store_n(out + i, f(vf_load_n(in + i, n - i), vf_load_n(in2 + i, n - i)), n - i);    \
    }

/* gelu(g) u = g / 2 (1 + tanh y) u with y = sqrt(2 / pi) (g + 0.044715 g^3); since 1 + tanh y is
 * 2 / (1 + e^-2y), no digits cancel. */
INLINE vf gelu_mul(vf g, vf u)
{
    const vf inner = vf_fma(vf_mul(vf_mul(g, g), g), vf_set1(0.044715f), g);
    const vf e = vf_exp(vf_mul(inner, vf_set1(-1.5957691216057308f)));
    return vf_mul(vf_div(g, vf_add(vf_set1(1.0f), e)), u);
}

/* g' / (1 + e^(-1.702 g')) (u' + 1) with g' = min(g, 7), u' = u within -7..7. */
INLINE vf clamped_mul(vf g, vf u)
{
    const vf limit = vf_set1(7.0f), one = vf_set1(1.0f);
    g = vf_min(limit, g);
    u = vf_max(vf_set1(-7.0f), vf_min(limit, u));
    const vf e = vf_exp(vf_mul(g, vf_set1(-1.702f)));
    return vf_mul(vf_div(g, vf_add(one, e)), vf_add(u, one));
}

/* x Phi(x), with Phi(-|x|) = e^(-x^2 / 2) (a1 t + .. + a5 t^5) / 2 and t = 1 / (1 + p |x| / sqrt 2)
 * (Abramowitz and Stegun 7.1.26: Phi to 8e-8). The tail is computed on either side, so that nothing
 * cancels. */
INLINE vf gelu(vf x)
{
    const vf size = vf_abs(x);
    const vf t = vf_div(vf_set1(1.0f), vf_fma(size, vf_set1(0.231641888f), vf_set1(1.0f)));
    vf p = vf_set1(0.5307027145f);
    p = vf_fma(p, t, vf_set1(-0.7265760135f));
    p = vf_fma(p, t, vf_set1(0.7107068705f));
    p = vf_fma(p, t, vf_set1(-0.142248368f));
    p = vf_fma(p, t, vf_set1(0.127414796f));
    const vf tail = vf_mul(vf_mul(p, t), vf_exp(vf_mul(vf_mul(x, x), vf_set1(-0.5f))));
    return vf_sub(vf_max(x, vf_zero()), vf_mul(size, tail));
}

INLINE vf gelu_tanh(vf x)
{
    return gelu_mul(x, vf_set1(1.0f));
}

INLINE vf relu(vf x)
{
    return vf_max(vf_zero(), x);
}

INLINE vf relu_square(vf x)
{
    x = relu(x);
    return vf_mul(x, x);
}

INLINE vf sigmoid_mul(vf g, vf u)
{
    return vf_div(u, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), g))));
}

INLINE vf sigmoid(vf x)
{
    return sigmoid_mul(x, vf_set1(1.0f));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), of which log(1 + t) = 2 artanh z with z = t / (2 +
 * t), at most 1/3: by its series, to 3e-8 of it. */
INLINE vf softplus(vf x)
{
    const vf t = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    const vf z = vf_div(t, vf_add(vf_set1(2.0f), t)), square = vf_mul(z, z);
    vf p = vf_set1(2.0f / 13);
    p = vf_fma(p, square, vf_set1(2.0f / 11));
    p = vf_fma(p, square, vf_set1(2.0f / 9));
    p = vf_fma(p, square, vf_set1(2.0f / 7));
    p = vf_fma(p, square, vf_set1(2.0f / 5));
    p = vf_fma(p, square, vf_set1(2.0f / 3));
    p = vf_fma(p, square, vf_set1(2.0f));
    return vf_fma(p, z, vf_max(vf_zero(), x));
}

/* f(x) of each of n values. */
#define DEFINE_MAP1(name, f)                                                                       \
    static void name(const float *x, float *out, uint32_t n)                                       \
    {                                                                                              \
        for (uint32_t i = 0; i < n; i += VL) {                                                     \
            const uint32_t left = n - i < VL ? n - i : VL;                                         \
            vf_store_n(out + i, f(vf_load_n(x + i, left)), left);                                  \
        }                                                                                          \
    }

DEFINE_MAP1(run_gelu, gelu)
DEFINE_MAP1(run_gelu_tanh, gelu_tanh)
DEFINE_MAP1(run_relu_square, relu_square)
DEFINE_MAP1(run_relu, relu)
DEFINE_MAP1(run_sigmoid, sigmoid)
DEFINE_MAP1(run_softplus, softplus)

DEFINE_MAP2(run_gelu_mul, gelu_mul)
DEFINE_MAP2(run_clamped_mul, clamped_mul)
DEFINE_MAP2(run_sigmoid_mul, sigmoid_mul)
DEFINE_MAP2(run_mul, vf_mul)

/* min(silu(g), cap) u' with u' = u within -cap..cap. */
static void run_capped_mul(const float *gate, const float *up, float *out, uint32_t n, float cap)
{
    const vf limit = vf_set1(cap), least = vf_set1(-cap), one = vf_set1(1.0f);
    for (uint32_t i = 0; i < n; i += VL) {
        const uint32_t left = n - i < VL ? n - i : VL;
        const vf g = vf_min(limit, silu_mul(vf_load_n(gate + i, left), one));
        const vf u = vf_max(least, vf_min(limit, vf_load_n(up + i, left)));
        vf_store_n(out + i, vf_mul(g, u), left);
    }
}

/* Both sides are computed; of the one above 0 nothing is left below it, nor the other way round. */
static void run_xielu(float *x, const struct xielu *p, uint32_t n)
{
    const vf positive = vf_set1(p->positive), negative = vf_set1(p->negative);
    const vf beta = vf_set1(p->beta), eps = vf_set1(p->eps), one = vf_set1(1.0f);
    for (uint32_t i = 0; i < n; i += VL) {
        const uint32_t left = n - i < VL ? n - i : VL;
        const vf v = vf_load_n(x + i, left), above = vf_max(v, vf_zero());
        const vf below = vf_sub(vf_sub(vf_exp(vf_min(v, eps)), one), v);
        vf out = vf_mul(vf_zero_below(below, vf_sub(vf_zero(), v), 0.0f), negative);
        out = vf_fma(vf_mul(above, above), positive, out);
        vf_store_n(x + i, vf_fma(beta, v, out), left);
    }
}

static void run_add_scaled(const float *x, float scale, float *out, uint32_t n)
{
    const vf s = vf_set1(scale);
    uint32_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store(out + i, vf_fma(vf_load(x + i), s, vf_load(out + i)));
    if (i < n) {
        vf a = vf_fma(vf_load_n(x + i, n - i), s, vf_load_n(out + i, n - i));
        vf_store_n(out + i, a, n - i);
    }
}

/* cap tanh(x / cap) */
INLINE vf cap_of(vf x, float cap)
{
    return vf_mul(vf_tanh(vf_div(x, vf_set1(cap))), vf_set1(cap));
}

static void run_cap(float *x, float scale, float cap, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += VL) {
        const uint32_t left = n - i < VL ? n - i : VL;
        vf v = vf_mul(vf_load_n(x + i, left), vf_set1(scale));
        vf_store_n(x + i, cap > 0.0f ? cap_of(v, cap) : v, left);
    }
}
