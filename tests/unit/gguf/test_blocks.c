/* Block formats: the exact value of every f16 and bf16, and golden blocks dequantised by an
 * independent implementation (tests/data/blocks/make.py). */
#include "gguf/blocks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits(float f)
{
    uint32_t x;
    memcpy(&x, &f, sizeof x);
    return x;
}

/* A 16-bit float by the definition of IEEE 754, in double arithmetic. */
static double by_definition(uint16_t h, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (h >> mantissa_bits) & ((1 << exponent_bits) - 1);
    int mantissa = h & ((1 << mantissa_bits) - 1);
    double sign = h & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void check_all(int exponent_bits, float (*widen)(uint16_t), uint16_t (*narrow)(float))
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = widen(h);
        double want = by_definition(h, exponent_bits);
        if (isnan(want)) {
            assert_true(isnan(f));
            assert_true(isnan(by_definition(narrow(f), exponent_bits)));
            continue;
        }
        assert_int_equal(bits(f), bits((float)want));
        assert_int_equal(narrow(f), h);
    }
}

static void test_f16_all(void **state)
{
    (void)state;
    check_all(5, f16_to_f32, f32_to_f16);
}

static void test_bf16_all(void **state)
{
    (void)state;
    check_all(8, bf16_to_f32, f32_to_bf16);
}

/* Rounding, for every pair of neighbours: below the midpoint, at it (to even), above it. */
static void check_rounding(float (*widen)(uint16_t), uint16_t (*narrow)(float), uint16_t infinity)
{
    for (uint16_t h = 0; h < infinity; h++) {
        /* what follows the largest finite number is where infinity would lie on the same grid */
        double lo = (double)widen(h);
        double step = h + 1 < infinity ? (double)widen((uint16_t)(h + 1)) - lo
                                       : lo - (double)widen((uint16_t)(h - 1));
        float middle = (float)(lo + step / 2);
        uint16_t even = h % 2 == 0 ? h : (uint16_t)(h + 1);
        if ((double)middle != lo + step / 2)
            continue; /* bf16 subnormals end where f32's do */
        assert_int_equal(narrow(middle), even);
        assert_int_equal(narrow(nextafterf(middle, 0)), h);
        assert_int_equal(narrow(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(narrow(-middle), even | 0x8000);
    }
}

static void test_rounding(void **state)
{
    (void)state;
    check_rounding(f16_to_f32, f32_to_f16, 0x7c00);
    check_rounding(bf16_to_f32, f32_to_bf16, 0x7f80);
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(1e-30f), 0);
    assert_int_equal(f32_to_bf16(3.4e38f), 0x7f80);
}

static void *read_golden(const char *name, const char *ext, size_t *n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/blocks/%s.%s", TEST_DATA, name, ext);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    char *data = malloc(1 << 20);
    *n = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static void check_golden(enum gguf_type type)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    size_t n_raw, n_want;
    uint8_t *raw = read_golden(info->name, "blocks", &n_raw);
    float *want = read_golden(info->name, "f32", &n_want);
    size_t n = n_raw / info->block_bytes * info->block_values;
    assert_true(n > 0);
    assert_int_equal(n * sizeof(float), n_want);
    uint8_t *odd = malloc(n_raw + 1); /* at an odd address: rows lie anywhere */
    memcpy(odd + 1, raw, n_raw);
    float *got = malloc(n_want);
    gguf_dequantize(type, odd + 1, got, n);
    for (size_t i = 0; i < n; i++)
        if (bits(got[i]) != bits(want[i]))
            fail_msg("%s value %zu: %a, want %a", info->name, i, (double)got[i], (double)want[i]);
    free(raw);
    free(want);
    free(odd);
    free(got);
}

static void test_golden(void **state)
{
    (void)state;
    const enum gguf_type types[] = {
        GGUF_TYPE_F16,     GGUF_TYPE_BF16,  GGUF_TYPE_Q4_0,    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,
        GGUF_TYPE_Q5_1,    GGUF_TYPE_Q8_0,  GGUF_TYPE_Q2_K,    GGUF_TYPE_Q3_K,   GGUF_TYPE_Q4_K,
        GGUF_TYPE_Q5_K,    GGUF_TYPE_Q6_K,  GGUF_TYPE_IQ4_NL,  GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4,
        GGUF_TYPE_IQ1_S,   GGUF_TYPE_IQ1_M, GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS, GGUF_TYPE_IQ2_S,
        GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S, GGUF_TYPE_TQ1_0,   GGUF_TYPE_TQ2_0,  GGUF_TYPE_Q1_0,
        GGUF_TYPE_Q2_0,    GGUF_TYPE_NVFP4};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        check_golden(types[i]);
}

static void test_f32_is_copied(void **state)
{
    (void)state;
    const float in[3] = {1.5f, -0.0f, 1e-40f};
    float out[3];
    gguf_dequantize(GGUF_TYPE_F32, in, out, 3);
    assert_memory_equal(in, out, sizeof in);
}

/* The packing written the other way round: store known 6-bit numbers, then read them. */
static void test_q4_k_scales(void **state)
{
    (void)state;
    struct block_q4_k b = {0};
    uint8_t scale[8], min[8];
    for (int i = 0; i < 8; i++) {
        scale[i] = (uint8_t)((i * 23 + 5) & 63);
        min[i] = (uint8_t)((i * 37 + 42) & 63);
    }
    for (int i = 0; i < 4; i++) {
        b.scales[i] = (uint8_t)(scale[i] | (scale[i + 4] >> 4) << 6);
        b.scales[i + 4] = (uint8_t)(min[i] | (min[i + 4] >> 4) << 6);
        b.scales[i + 8] = (uint8_t)((scale[i + 4] & 15) | (min[i + 4] & 15) << 4);
    }
    for (int i = 0; i < 8; i++) {
        uint8_t s, m;
        block_k_scale_min(b.scales, i, &s, &m);
        assert_int_equal(s, scale[i]);
        assert_int_equal(m, min[i]);
    }
}

static void test_types(void **state)
{
    (void)state;
    uint32_t n_computed = 0;
    for (uint32_t i = 0; i < 100; i++) {
        const struct gguf_type_info *info = gguf_type_info((enum gguf_type)i);
        assert_string_equal(gguf_type_name(i), info ? info->name : "unknown");
        if (info)
            assert_true(info->block_values > 0 && info->block_bytes > 0);
        n_computed += gguf_type_is_computed((enum gguf_type)i);
    }
    assert_int_equal(n_computed, 28);
    assert_string_equal(gguf_type_name(9), "Q8_1");
    assert_false(gguf_type_is_computed((enum gguf_type)9));
    assert_null(gguf_type_info((enum gguf_type)4));
    assert_null(gguf_type_info((enum gguf_type)UINT32_MAX));
    assert_int_equal(gguf_type_info(GGUF_TYPE_Q6_K)->block_bytes, sizeof(struct block_q6_k));

    float out[256];
    uint8_t q8_1[8 * 36] = {0};
    gguf_dequantize((enum gguf_type)9, q8_1, out, 256);
    assert_true(isnan(out[0]) && isnan(out[255]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_all),
        cmocka_unit_test(test_bf16_all),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_f32_is_copied),
        cmocka_unit_test(test_q4_k_scales),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
