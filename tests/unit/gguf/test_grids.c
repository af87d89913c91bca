/* The grids of the IQ formats, against hashes of another implementation's
 * (tests/data/blocks/make.py); and a block of each, written bit by bit, taken apart. */
#include "gguf/grids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *name;
    uint32_t n_points, n_dims;
    const uint32_t *points;
    int8_t values[8]; /* of digits */
} grids[] = {{"IQ1_S", 2048, 8, block_grids.iq1, {-1, 0, 1}},
             {"IQ2_XXS", 256, 8, block_grids.iq2_xxs, {8, 25, 43}},
             {"IQ2_XS", 512, 8, block_grids.iq2_xs, {8, 25, 43}},
             {"IQ2_S", 1024, 8, block_grids.iq2_s, {8, 25, 43}},
             {"IQ3_XXS", 256, 4, block_grids.iq3_xxs, {4, 12, 20, 28, 36, 44, 52, 62}},
             {"IQ3_S", 512, 4, block_grids.iq3_s, {1, 3, 5, 7, 9, 11, 13, 15}}};

static uint32_t digit_of(uint32_t point, uint32_t k)
{
    return point >> (k % 4 * 8 + k / 4 * 4) & 15;
}

static void grids_are_the_formats(void **state)
{
    (void)state;
    FILE *f = fopen(TEST_DATA "/blocks/grids.txt", "r");
    assert_non_null(f);
    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        char name[16];
        unsigned n_points, n_dims;
        unsigned long long want;
        assert_int_equal(fscanf(f, "%15s %u %u %llx", name, &n_points, &n_dims, &want), 4);
        assert_string_equal(name, grids[i].name);
        assert_int_equal(n_points, grids[i].n_points);
        assert_int_equal(n_dims, grids[i].n_dims);
        uint64_t hash = 0xcbf29ce484222325; /* FNV-1a of the values, as signed bytes */
        for (uint32_t j = 0; j < n_points * n_dims; j++) {
            const uint32_t digit = digit_of(grids[i].points[j / n_dims], j % n_dims);
            hash = (hash ^ (uint8_t)grids[i].values[digit]) * 0x100000001b3;
        }
        assert_true(hash == want);
    }
    fclose(f);
}

/* The sets are ordered: a point's number is its rank. */
static void grids_ascend(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        const uint32_t base = grids[i].n_dims == 8 ? 3 : 8;
        uint32_t before = 0;
        for (uint32_t j = 0; j < grids[i].n_points; j++) {
            uint32_t n = 0;
            for (uint32_t k = grids[i].n_dims; k-- > 0;) {
                assert_true(digit_of(grids[i].points[j], k) < base);
                n = n * base + digit_of(grids[i].points[j], k);
            }
            assert_true(j == 0 || n > before);
            before = n;
        }
    }
}

static void fields_are_found(void **state)
{
    (void)state;
    struct block_grid_codes c;
    struct block_iq1_m m = {.scales = {0x4000, 0x3007, 0x2000, 0x1e00}};
    m.qs[3] = 0xa5;
    m.qh[1] = 0xd0; /* of the fourth point: 0xd */
    block_grid_codes(GGUF_TYPE_IQ1_M, &m, &c);
    assert_int_equal(c.d, 0x1234);
    assert_int_equal(c.index[3], 0x5a5);
    assert_int_equal(c.signs[3], 1);
    assert_int_equal(c.signs[2], 0);
    assert_int_equal(c.scales[4], 7);
    assert_int_equal(c.scales[15], 7);

    struct block_iq2_xxs xxs = {.d = 0x5678};
    xxs.qs[4] = 0x2211; /* the second group's first points; signs 1 | 3 << 7, scale 9 */
    xxs.qs[6] = 0x0181;
    xxs.qs[7] = 0x9000;
    block_grid_codes(GGUF_TYPE_IQ2_XXS, &xxs, &c);
    assert_int_equal(c.d, 0x5678);
    assert_int_equal(c.index[4], 0x11);
    assert_int_equal(c.index[5], 0x22);
    assert_int_equal(c.signs[4], 0x81); /* an even number of them */
    assert_int_equal(c.signs[5], 0x03);
    assert_int_equal(c.scales[2], 9);
    assert_int_equal(c.scales[3], 9);

    struct block_iq3_s s = {.d = 0x1111};
    s.qs[9] = 0x42;
    s.qh[1] = 0x02;
    s.signs[4] = 0x5a;
    s.scales[0] = 0xb0;
    block_grid_codes(GGUF_TYPE_IQ3_S, &s, &c);
    assert_int_equal(c.index[9], 0x142);
    assert_int_equal(c.index[8], 0);
    assert_int_equal(c.signs[4], 0x5a);
    assert_int_equal(c.scales[1], 0);
    assert_int_equal(c.scales[2], 11);
}

int main(void)
{
    block_grids_fill();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids_are_the_formats),
        cmocka_unit_test(grids_ascend),
        cmocka_unit_test(fields_are_found),
    };
    return cmocka_run_group_tests_name("grids", tests, NULL, NULL);
}
