/* What happens to one row at a time: norms, activations, packing for the linears. */

/* Squares are summed in two vectors of lanes, then lanes in one fixed tree. */
static void run_norm(const float *x, const float *w, float *out, uint32_t n, float eps)
{
    vf s0 = vf_zero(), s1 = vf_zero();
    uint32_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        vf a = vf_load(x + i), b = vf_load(x + i + VL);
        s0 = vf_fma(a, a, s0);
        s1 = vf_fma(b, b, s1);
    }
    for (; i < n; i += VL) {
        vf a = n - i >= VL ? vf_load(x + i) : vf_load_n(x + i, n - i);
        s0 = vf_fma(a, a, s0);
    }
    vf scale = vf_set1(1.0f / sqrtf(vf_sum(vf_add(s0, s1)) / (float)n + eps));
    for (i = 0; i + VL <= n; i += VL)
        vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), scale), vf_load(w + i)));
    if (i < n) {
        vf a = vf_mul(vf_mul(vf_load_n(x + i, n - i), scale), vf_load_n(w + i, n - i));
        vf_store_n(out + i, a, n - i);
    }
}

/* The sum of x[i], or of (x[i] - mean)^2, in two vectors of lanes, then lanes in one fixed tree. */
INLINE float sum_of(const float *x, uint32_t n, float mean, const bool squares)
{
    const vf shift = vf_set1(mean);
    vf s[2] = {vf_zero(), vf_zero()};
    for (uint32_t i = 0, at = 0; i < n; i += VL, at ^= 1) {
        const uint32_t left = n - i < VL ? n - i : VL;
        vf a = vf_load_n(x + i, left);
        if (squares) {
            a = vf_first_n(vf_sub(a, shift), vf_zero(), left);
            s[at] = vf_fma(a, a, s[at]);
        } else {
            s[at] = vf_add(s[at], a);
        }
    }
    return vf_sum(vf_add(s[0], s[1]));
}

/* The mean first, then squares of what is left, so that a large mean costs no digits. */
static void run_layer_norm(
    const float *x, const float *w, const float *bias, float *out, uint32_t n, float eps)
{
    const float mean = sum_of(x, n, 0.0f, false) / (float)n;
    const float variance = sum_of(x, n, mean, true) / (float)n;
    const vf shift = vf_set1(mean), scale = vf_set1(1.0f / sqrtf(variance + eps));
    for (uint32_t i = 0; i < n; i += VL) {
        const uint32_t left = n - i < VL ? n - i : VL;
        const vf a = vf_mul(vf_sub(vf_load_n(x + i, left), shift), scale);
        vf_store_n(out + i, vf_fma(a, vf_load_n(w + i, left), vf_load_n(bias + i, left)), left);
    }
}

/* silu(g) * u = g / (1 + e^-g) * u */
INLINE vf silu_mul(vf g, vf u)
{
    vf e = vf_exp(vf_sub(vf_zero(), g));
    return vf_mul(vf_div(g, vf_add(vf_set1(1.0f), e)), u);
}

static void run_silu_mul(const float *gate, const float *up, float *out, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store(out + i, silu_mul(vf_load(gate + i), vf_load(up + i)));
    if (i < n)
        vf_store_n(out + i, silu_mul(vf_load_n(gate + i, n - i), vf_load_n(up + i, n - i)), n - i);
}

static void run_add(const float *x, float *out, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store(out + i, vf_add(vf_load(out + i), vf_load(x + i)));
    if (i < n)
        vf_store_n(out + i, vf_add(vf_load_n(out + i, n - i), vf_load_n(x + i, n - i)), n - i);
}

/* Each of n dims times its cosine and the one that it turns with times its sine, which is negative
 * for the first of a pair. No fused sums: a rotation is the same on every instruction set. */
static void run_rotate(float *x, const float *angles, uint32_t n, enum rope_kind kind)
{
    const float *c = angles, *s = angles + n;
    const uint32_t half = n / 2;
    if (kind == ROPE_ADJACENT) {
        for (uint32_t i = 0; i < n; i += VL) {
            const uint32_t left = n - i < VL ? n - i : VL;
            const vf a = vf_load_n(x + i, left), b = vf_swap_pairs(a);
            const vf turned = vf_mul(b, vf_load_n(s + i, left));
            vf_store_n(x + i, vf_add(vf_mul(a, vf_load_n(c + i, left)), turned), left);
        }
        return;
    }
    for (uint32_t i = 0; i < half; i += VL) {
        const uint32_t left = half - i < VL ? half - i : VL, h = half + i;
        const vf a = vf_load_n(x + i, left), b = vf_load_n(x + h, left);
        const vf a_turned = vf_mul(a, vf_load_n(s + h, left));
        const vf b_turned = vf_mul(b, vf_load_n(s + i, left));
        vf_store_n(x + i, vf_add(vf_mul(a, vf_load_n(c + i, left)), b_turned), left);
        vf_store_n(x + h, vf_add(vf_mul(b, vf_load_n(c + h, left)), a_turned), left);
    }
}

static void run_exp(const float *x, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += VL) {
        uint32_t left = n - i < VL ? n - i : VL;
        vf_store_n(out + i, vf_exp(vf_load_n(x + i, left)), left);
    }
}
