/* The tables of architectures: each row is found by its name, and stands with its kind. */
#include "model/arch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

static const struct arch_table *kind_of(const struct arch *a)
{
    return a->recurrence                ? &arch_recurrent
           : a->encoder || a->both_ways ? &arch_encoders
           : a->experts == REQUIRED     ? &arch_experts
                                        : &arch_dense;
}

static void test_rows(void **state)
{
    (void)state;
    const struct arch_table *const tables[] = {
        &arch_dense, &arch_experts, &arch_recurrent, &arch_encoders};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        assert_true(tables[t]->n > 0);
        for (size_t i = 0; i < tables[t]->n; i++) {
            const struct arch *a = &tables[t]->rows[i];
            if (arch_find(a->name, strlen(a->name)) != a)
                fail_msg("%s: not found, or in two rows", a->name);
            if (kind_of(a) != tables[t])
                fail_msg("%s: in another table than its kind", a->name);
        }
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_non_null(arch_find("qwen3moe", 8));
    assert_string_equal(arch_find("qwen3moe", 5)->name, "qwen3");
    assert_null(arch_find("qwen3moe", 7));
    assert_null(arch_find("qwen3", 6)); /* its NUL is no part of a name */
    assert_null(arch_find("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
