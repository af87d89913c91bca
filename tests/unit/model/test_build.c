/* What plans are built with: there is no way past the room that a plan has. */
#include "model/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROOM = 3 };

static void test_ops_stay_in_their_room(void **state)
{
    (void)state;
    struct model_layer layer = {.head_dim = 8};
    struct model m = {.arch = "llama", .layers = &layer, .ops = calloc(ROOM, sizeof *m.ops)};
    struct err_info e;
    struct builder b = {.m = &m, .most_ops = ROOM, .most_parts = 1, .n_named = 1, .e = &e};
    for (uint32_t i = 0; i < ROOM; i++)
        assert_ptr_equal(plan_add(&b, OP_ADD, BUF_OUT, BUF_X), &m.ops[i]);
    assert_int_equal(b.err, OK);
    for (uint32_t i = 0; i < 2 * ROOM; i++) { /* to be written to, as the first ones */
        assert_ptr_equal(plan_add(&b, OP_SCALE, BUF_X, BUF_X), &m.ops[ROOM - 1]);
        assert_int_equal(b.err, ERR_UNSUPPORTED);
    }
    assert_int_equal(m.n_ops, ROOM);
    assert_string_equal(e.text, "llama: layer 0 needs more operations than a plan has room for, 3");
    free(m.ops);
}

static void test_parts_stay_in_their_room(void **state)
{
    (void)state;
    struct model m = {.arch = "llama", .parts = calloc(ROOM, sizeof *m.parts)};
    struct err_info e;
    struct builder b = {
        .m = &m, .most_ops = 1, .most_parts = ROOM, .layer = 7, .n_named = 8, .e = &e};
    for (uint64_t i = 0; i < ROOM; i++) {
        const struct gguf_tensor t = {.n_bytes = i};
        assert_ptr_equal(plan_part(&b, &t), &m.parts[i]);
        assert_int_equal(m.parts[i].n_bytes, i);
    }
    assert_int_equal(b.err, OK);
    assert_ptr_equal(plan_part(&b, &m.parts[0]), &m.parts[ROOM - 1]);
    assert_ptr_equal(plan_part(&b, &m.parts[0]), &m.parts[ROOM - 1]);
    assert_int_equal(b.err, ERR_UNSUPPORTED);
    assert_int_equal(m.n_parts, ROOM);
    assert_string_equal(e.text,
                        "llama: layer 7 needs more parts of tensors than a plan has room for, 3");
    free(m.parts);
}

/* Where layers are gone through more than once, each time by the same names. */
static void test_names_begin_again(void **state)
{
    (void)state;
    struct builder b = {.layer = 7, .n_named = 3};
    assert_string_equal(plan_name(&b, "attn_q", "weight"), "blk.1.attn_q.weight");
    assert_string_equal(plan_bare_name(&b, "attn_q"), "blk.1.attn_q");
    static const uint32_t names[] = {0, 1, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3};
    b = (struct builder){.n_named = 2,
                         .n_low_pass = 2}; /* twice the first stack, once the second */
    for (b.layer = 0; b.layer < sizeof names / sizeof names[0]; b.layer++) {
        char want[16];
        snprintf(want, sizeof want, "blk.%u.attn_q", names[b.layer]);
        assert_string_equal(plan_bare_name(&b, "attn_q"), want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_stay_in_their_room),
        cmocka_unit_test(test_parts_stay_in_their_room),
        cmocka_unit_test(test_names_begin_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
