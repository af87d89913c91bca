/* The sums of a tensor core's product as devices add them (Li et al. 2025, "MMA-Sim", who compared
 * theirs with devices to the bit). Terms and the sum so far are aligned to the largest exponent
 * among them, that of a product being the sum of its factors' own, which is one and the same for
 * all subnormals; of each is cut off what lies below a last bit; the rest is added exactly, and of
 * the result again what does not fit. WEIR_EMU_SUMS=hopper: 16 terms at a time, 25 bits behind the
 * point; ampere: 8 at a time, 24. */
#include "emu_internal.h"

#include "emu_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

namespace
{
struct tensor_core {
    int bits, terms; /* 0: WEIR_EMU_SUMS does not say */
};
} // namespace

static tensor_core tensor_core_now(void)
{
    static const tensor_core core = [] {
        const char *text = getenv("WEIR_EMU_SUMS");
        if (text && strcmp(text, "hopper") == 0) {
            return tensor_core{25, 16};
        }
        return text && strcmp(text, "ampere") == 0 ? tensor_core{24, 8} : tensor_core{0, 0};
    }();
    return core;
}

int emu_cuts_off(void)
{
    return tensor_core_now().bits;
}

static int exponent_of(float v, int least)
{
    return v == 0 || ilogbf(v) < least ? least : ilogbf(v);
}

/* v without what lies below 2^last. */
static double cut(double v, int last)
{
    return ldexp(trunc(ldexp(v, -last)), last);
}

static float sum_of(
    float c, const float *a, size_t a_step, const float *b, size_t b_step, int n, int least)
{
    double whole = c, sum;
    int top = exponent_of(c, -126);
    for (int i = 0; i < n; i++) {
        const float x = a[i * a_step], y = b[i * b_step];
        const int e = exponent_of(x, least) + exponent_of(y, least);
        whole += static_cast<double>(x) * y;
        top = e > top ? e : top;
    }
    if (!isfinite(whole)) {
        return static_cast<float>(whole);
    }
    const int last = top - tensor_core_now().bits;
    sum = cut(c, last);
    for (int i = 0; i < n; i++) {
        sum += cut(static_cast<double>(a[i * a_step]) * b[i * b_step], last);
    }
    const int e = sum == 0 || ilogb(sum) < -126 ? -126 : ilogb(sum);
    return static_cast<float>(cut(sum, e - 23));
}

float emu_tensor_sum(
    float c, const float *a, size_t a_step, const float *b, size_t b_step, int n, int least)
{
    const int terms = tensor_core_now().terms < n ? tensor_core_now().terms : n;
    for (int i = 0; i < n; i += terms) {
        c = sum_of(c, a + i * a_step, a_step, b + i * b_step, b_step, terms, least);
    }
    return c;
}
