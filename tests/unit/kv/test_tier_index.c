/* The index of segments against a plain list: random operations, and growing meanwhile. */
#include "disk_help.h"
#include "kv/tier_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N_KEYS = 300 };

/* What the index must say: entries from the least recently used on. */
struct expected {
    struct kv_tier_entry list[N_KEYS];
    uint32_t n, n_cold; /* the first */
};

static struct kv_tier_entry name_of(uint64_t i)
{
    struct kv_tier_entry name = {.model = i % 3};
    random_fill(i / 3, name.key.bytes, sizeof name.key.bytes);
    return name;
}

static uint32_t position(const struct expected *x, const struct kv_tier_entry *name)
{
    uint32_t at = 0;
    while (at < x->n &&
           (x->list[at].model != name->model || !kv_key_equal(&x->list[at].key, &name->key)))
        at++;
    return at;
}

static void drop(struct expected *x, uint32_t at)
{
    memmove(x->list + at, x->list + at + 1, (--x->n - at) * sizeof *x->list);
    x->n_cold -= at < x->n_cold;
}

static void put(struct expected *x, struct kv_tier_entry entry)
{
    uint32_t at = position(x, &entry);
    if (at < x->n)
        drop(x, at);
    x->list[x->n++] = entry;
}

static void cool(struct expected *x, struct kv_tier_entry entry)
{
    drop(x, position(x, &entry));
    memmove(x->list + x->n_cold + 1, x->list + x->n_cold, (x->n++ - x->n_cold) * sizeof *x->list);
    x->list[x->n_cold++] = entry;
}

static void follow(struct expected *x, struct kv_tier_entry entry, struct kv_tier_entry newer)
{
    drop(x, position(x, &entry));
    const uint32_t at = position(x, &newer);
    memmove(x->list + at + 1, x->list + at, (x->n++ - at) * sizeof *x->list);
    x->list[at] = entry;
    x->n_cold += at < x->n_cold;
}

static void assert_same(const struct kv_tier_index *ix, const struct expected *x)
{
    const struct kv_tier_entry *entry = kv_tier_index_oldest(ix);
    assert_int_equal(ix->n, x->n);
    for (uint32_t i = 0; i < x->n; i++) {
        assert_non_null(entry);
        assert_true(entry == kv_tier_index_find(ix, x->list[i].model, &x->list[i].key));
        assert_int_equal(entry->value, x->list[i].value);
        entry = kv_tier_index_newer(ix, entry);
    }
    assert_null(entry);
    for (uint64_t i = 0; i < N_KEYS; i++) {
        struct kv_tier_entry name = name_of(i);
        assert_int_equal(kv_tier_index_find(ix, name.model, &name.key) != NULL,
                         position(x, &name) < x->n);
    }
}

static void grow(struct kv_tier_index *ix)
{
    struct kv_tier_index larger;
    assert_int_equal(kv_tier_index_copy(ix, ix->cap + 1 + ix->cap / 2, &larger, NULL), OK);
    kv_tier_index_deinit(ix);
    *ix = larger;
}

static void test_random_operations(void **state)
{
    struct kv_tier_index ix;
    struct expected x = {.n = 0};
    uint64_t seed = test_seed();
    (void)state;
    assert_int_equal(kv_tier_index_init(&ix, 0, NULL), OK);
    for (int i = 0; i < 20000; i++) {
        uint64_t r = random_next(&seed);
        struct kv_tier_entry name = name_of((r >> 8) % N_KEYS);
        struct kv_tier_entry *entry = kv_tier_index_find(&ix, name.model, &name.key);
        const struct kv_tier_entry other = name_of((r >> 40) % N_KEYS);
        const struct kv_tier_entry *newer = kv_tier_index_find(&ix, other.model, &other.key);
        name.value = r >> 20;
        if (entry && r % 16 == 0) {
            name.value = entry->value;
            kv_tier_index_cool(&ix, entry);
            cool(&x, name);
        } else if (entry && newer && newer != entry && r % 16 == 4) {
            name.value = entry->value;
            kv_tier_index_follow(&ix, entry, newer);
            follow(&x, name, other);
        } else if (r % 4 < 2) {
            if (ix.n == ix.cap)
                grow(&ix);
            kv_tier_index_put(&ix, name.model, &name.key, name.value);
            put(&x, name);
        } else if (entry && r % 4 == 2) {
            name.value = entry->value;
            kv_tier_index_touch(&ix, entry);
            put(&x, name);
        } else if (entry) {
            drop(&x, position(&x, &name));
            kv_tier_index_remove(&ix, entry);
        }
        if (i % 100 == 0)
            assert_same(&ix, &x);
    }
    while (x.n > 0) {
        assert_same(&ix, &x);
        kv_tier_index_remove(&ix, kv_tier_index_oldest(&ix));
        drop(&x, 0);
    }
    assert_same(&ix, &x);
    kv_tier_index_deinit(&ix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
