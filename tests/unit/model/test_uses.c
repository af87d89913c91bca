/* Who reads what in the plans of all golden models. */
#include "model/uses.h"

#include "golden_models.h"

#include <glob.h>

static bool needs_all_rows(const struct op *op)
{
    return op->kind == OP_EMBED || op->kind == OP_ADD_POSITION || op->kind == OP_ADD_TYPE ||
           op->kind == OP_ROPE_STORE || op->kind == OP_CONV || op->kind == OP_RECUR;
}

static uint32_t count_behind(const struct model *m, uint32_t i, enum op_kind kind)
{
    uint32_t n = 0;
    while (++i < m->n_ops)
        n += m->ops[i].kind == kind;
    return n;
}

/* Behind the last op that needs all rows there is none, and no choice of experts made before. */
static void check_plan(const char *path)
{
    struct model *m = load(path);
    const uint32_t last = plan_last_storing(m);
    bool selected = false;
    if (!needs_all_rows(&m->ops[last]) && m->ops[last].kind != OP_MIX)
        fail_msg("%s: op %u is of kind %d", path, last, m->ops[last].kind);
    for (uint32_t i = last + 1; i < m->n_ops; i++) {
        selected = selected || m->ops[i].kind == OP_SELECT;
        if (needs_all_rows(&m->ops[i]) || (m->ops[i].kind == OP_MIX && !selected))
            fail_msg("%s: op %u of kind %d behind %u", path, i, m->ops[i].kind, last);
    }
    for (uint32_t i = 0; i < m->n_ops; i++) /* what is written is read, or given out */
        if (m->ops[i].kind == OP_LINEAR && m->ops[i].out < BUF_HIDDEN &&
            !plan_reads_later(m, i, m->ops[i].out))
            fail_msg("%s: nobody reads what op %u writes", path, i);
    model_destroy(m);
}

static void no_op_behind_the_last_needs_all_rows(void **state)
{
    (void)state;
    glob_t found;
    assert_int_equal(glob(TEST_DATA "/golden/*/*.gguf", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        check_plan(found.gl_pathv[i]);
    assert_true(found.gl_pathc > 100);
    globfree(&found);
}

/* Attention of the last layer, and of each that borrows its keys and values, is for wanted rows. */
static void wanted_rows_alone_attend_behind_the_last_keys(void **state)
{
    (void)state;
    struct model *m = load(TEST_DATA "/golden/quantised/llama.Q8_0.gguf");
    assert_int_equal(m->ops[plan_last_storing(m)].kind, OP_ROPE_STORE);
    assert_int_equal(count_behind(m, plan_last_storing(m), OP_ATTENTION), 1);
    model_destroy(m);
    m = load(TEST_DATA "/golden/families/gemma3n.f32.gguf");
    uint32_t n_borrow = 0;
    for (uint32_t i = 0; i < m->n_ops; i++)
        n_borrow += m->ops[i].kind == OP_ATTENTION && m->ops[i].borrowed;
    assert_true(n_borrow > 1);
    assert_int_equal(count_behind(m, plan_last_storing(m), OP_ATTENTION), n_borrow + 1);
    model_destroy(m);
}

static void set_op(struct op *op, enum op_kind kind, enum model_buf in, enum model_buf out)
{
    *op = (struct op){.kind = kind, .in = in, .in2 = in, .out = out};
}

static void a_buffer_is_read_until_all_of_it_is_written(void **state)
{
    (void)state;
    struct op ops[3];
    const struct model m = {.ops = ops, .n_ops = 3};
    set_op(&ops[0], OP_NORM, BUF_X, BUF_H);
    set_op(&ops[1], OP_LINEAR, BUF_H, BUF_OUT);
    set_op(&ops[2], OP_ADD, BUF_OUT, BUF_X);
    assert_true(plan_reads_later(&m, 0, BUF_H));
    assert_false(plan_reads_later(&m, 1, BUF_H));   /* nobody */
    assert_false(plan_reads_later(&m, 0, BUF_OUT)); /* written whole, then read */
    assert_true(plan_reads_later(&m, 1, BUF_OUT));
    assert_true(plan_reads_later(&m, 1, BUF_X)); /* added to */
    static const enum op_kind in_place[] = {
        OP_SCALE, OP_CLAMP, OP_SPARSE, OP_UNARY, OP_TANH, OP_CONV, OP_ROPE, OP_SELECT, OP_ADD_TYPE};
    for (size_t i = 0; i < sizeof in_place / sizeof *in_place; i++) {
        set_op(&ops[2], in_place[i], BUF_OUT, BUF_X);
        assert_true(plan_reads_later(&m, 1, BUF_X));
    }
    set_op(&ops[2], OP_GATED, BUF_OUT, BUF_X);
    ops[2].in2 = BUF_UP;
    assert_true(plan_reads_later(&m, 1, BUF_UP));
    assert_false(plan_reads_later(&m, 1, BUF_X));
    set_op(&ops[2], OP_RECUR, BUF_MIX, BUF_REC);
    assert_true(plan_reads_later(&m, 1, BUF_BETA) && plan_reads_later(&m, 1, BUF_RATE));
    assert_true(plan_reads_later(&m, 1, BUF_REC_KEY) && plan_reads_later(&m, 1, BUF_REC_QUERY));
}

static void an_add_joins_the_linear_that_alone_feeds_it(void **state)
{
    (void)state;
    struct op ops[3];
    struct model m = {.ops = ops, .n_ops = 3};
    set_op(&ops[0], OP_LINEAR, BUF_H, BUF_OUT);
    set_op(&ops[1], OP_ADD, BUF_OUT, BUF_X);
    set_op(&ops[2], OP_NORM, BUF_X, BUF_H);
    ops[1].scale = 1.0f;
    assert_ptr_equal(plan_joined_add(&m, 0), &ops[1]);
    ops[1].scale = 0.5f;
    assert_null(plan_joined_add(&m, 0));
    ops[1].scale = 1.0f;
    ops[2].in = BUF_OUT; /* somebody else reads it */
    assert_null(plan_joined_add(&m, 0));
    ops[2].in = BUF_X;
    ops[1].in = BUF_UP;
    assert_null(plan_joined_add(&m, 0));
    ops[1].in = BUF_OUT;
    ops[1].out = BUF_H; /* what the linear still reads */
    assert_null(plan_joined_add(&m, 0));
    ops[1].out = BUF_X;
    m.n_ops = 1;
    assert_null(plan_joined_add(&m, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_op_behind_the_last_needs_all_rows),
        cmocka_unit_test(wanted_rows_alone_attend_behind_the_last_keys),
        cmocka_unit_test(a_buffer_is_read_until_all_of_it_is_written),
        cmocka_unit_test(an_add_joins_the_linear_that_alone_feeds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
