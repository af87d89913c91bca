/* What files and batches have in common: order, owners, shares. */
#include "batches/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void test_order(void **state)
{
    (void)state;
    static const uint64_t serials[] = {5, 1, 9, 3, 7};
    struct entry entries[5];
    struct index x = {0};
    for (int i = 0; i < 5; i++) {
        entries[i] =
            (struct entry){.owner = i % 2 ? (char *)"b" : (char *)"a", .serial = serials[i]};
        snprintf(entries[i].id, sizeof entries[i].id, "id-%d", i);
        index_add(&x, &entries[i]);
    }
    for (uint32_t i = 1; i < x.n; i++)
        assert_true(x.entries[i - 1]->serial < x.entries[i]->serial);
    assert_ptr_equal(index_find(&x, "id-2", "a"), &entries[2]);
    assert_ptr_equal(index_find(&x, "id-2", NULL), &entries[2]);
    assert_null(index_find(&x, "id-2", "b"));
    assert_null(index_find(&x, "id-9", NULL));
    assert_int_equal(index_count(&x, "a"), 3);
    assert_int_equal(index_count(&x, "b"), 2);
    assert_int_equal(index_count(&x, "c"), 0);
    index_remove(&x, &entries[2]);
    assert_int_equal(x.n, 4);
    assert_int_equal(index_count(&x, "a"), 2);
    assert_null(index_find(&x, "id-2", NULL));
    assert_ptr_equal(index_find(&x, "id-4", NULL), &entries[4]);
    index_deinit(&x);
}

static bool is_odd(void *ctx, const struct entry *e)
{
    (void)ctx;
    return e->serial % 2;
}

static json_t *describe(void *ctx, const struct entry *e)
{
    (void)ctx;
    return json_pack("{s:s}", "id", e->id);
}

/* Pages of an owner's, filtered: the same as all at once, and `has_more` only where there is. */
static void test_pages(void **state)
{
    (void)state;
    enum { N = 50 };
    static struct entry entries[N];
    struct index x = {0};
    for (int i = 0; i < N; i++) {
        entries[i] =
            (struct entry){.owner = i % 3 ? (char *)"a" : (char *)"b", .serial = (uint64_t)i};
        snprintf(entries[i].id, sizeof entries[i].id, "id-%d", i);
        index_add(&x, &entries[i]);
    }
    const struct list_item item = {.wanted = is_odd, .describe = describe};
    for (int ascending = 0; ascending < 2; ascending++) {
        char after[BATCH_ID_BYTES] = "", query[128];
        int seen = 0;
        bool more = true;
        while (more) {
            struct api_reply out = {0};
            snprintf(query,
                     sizeof query,
                     "limit=4&order=%s&after=%s",
                     ascending ? "asc" : "desc",
                     after);
            struct api_input in = {.query = query, .owner = "a"};
            assert_int_equal(index_list(&x, &in, "thing", &item, &out, NULL), OK);
            json_t *page = json_loads(buf_cstr(&out.body), 0, NULL),
                   *data = json_object_get(page, "data");
            more = json_is_true(json_object_get(page, "has_more"));
            assert_true(json_array_size(data) > 0 && json_array_size(data) <= 4);
            assert_true(!more || json_array_size(data) == 4);
            for (size_t i = 0; i < json_array_size(data); i++, seen++) {
                const char *id = json_string_value(json_object_get(json_array_get(data, i), "id"));
                const struct entry *e = index_find(&x, id, "a");
                assert_true(e && e->serial % 2 == 1);
                snprintf(after, sizeof after, "%s", id);
            }
            json_decref(page);
            buf_deinit(&out.body);
        }
        assert_int_equal(seen, 17); /* of 0..49: odd, and no multiples of 3 */
    }
    struct api_reply out = {0};
    struct api_input in = {.query = "after=id-0", .owner = "a"}; /* another's */
    assert_int_equal(index_list(&x, &in, "thing", &item, &out, NULL), ERR_INVALID);
    index_deinit(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
