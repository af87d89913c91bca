/* Answers kept by id: bounds in number and bytes, the order in which they go, and many threads. */
#include "api/store.h"

#include "unit/api/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool put(struct api_store *s, const char *id, const char *response, const char *messages)
{
    struct buf r = {0}, m = {0}, none = {0};
    buf_str(&r, response);
    buf_str(&m, messages);
    bool kept = api_store_put(s, 1, id, (const struct buf *[]){&r, &m, &none});
    buf_deinit(&r);
    buf_deinit(&m);
    return kept;
}

static bool has(struct api_store *s, uint32_t owner, const char *id)
{
    return api_store_get(s, owner, id, (struct buf *[N_KEPT]){NULL});
}

static void check(struct api_store *s, const char *id, const char *response, const char *messages)
{
    struct buf r = {0}, m = {0};
    assert_true(api_store_get(s, 1, id, (struct buf *[]){&r, &m, NULL}));
    assert_string_equal(buf_cstr(&r), response);
    assert_string_equal(buf_cstr(&m), messages);
    assert_true(has(s, 1, id));
    buf_deinit(&r);
    buf_deinit(&m);
}

static void test_count(void **state)
{
    (void)state;
    struct api_store *s = api_store_create(3, 1000);
    assert_true(put(s, "a", "A", "1"));
    assert_true(put(s, "b", "B", ""));
    assert_true(put(s, "c", "", "3"));
    check(s, "a", "A", "1");
    check(s, "b", "B", "");
    assert_false(has(s, 2, "b")); /* another's */
    assert_false(api_store_remove(s, 0, "b"));
    assert_true(put(s, "d", "D", "4")); /* reading does not make younger */
    assert_false(has(s, 1, "a"));
    check(s, "c", "", "3");
    assert_true(api_store_remove(s, 1, "c"));
    assert_false(api_store_remove(s, 1, "c"));
    assert_true(put(s, "e", "E", "5")); /* into the place of c */
    check(s, "b", "B", "");
    assert_true(api_store_remove(s, 1, "e")); /* the newest */
    assert_true(put(s, "f", "F", "6"));
    check(s, "d", "D", "4");
    check(s, "f", "F", "6");
    api_store_destroy(s);
}

static void test_bytes(void **state)
{
    (void)state;
    struct api_store *s = api_store_create(100, 10);
    assert_true(put(s, "a", "1234", "5"));
    assert_true(put(s, "b", "12345", ""));
    check(s, "a", "1234", "5");
    assert_true(put(s, "c", "1", "")); /* one byte too many: a goes */
    assert_false(has(s, 1, "a"));
    check(s, "b", "12345", "");
    assert_false(put(s, "d", "123456", "78901")); /* alone too much: nothing goes for it */
    check(s, "b", "12345", "");
    assert_true(put(s, "e", "12345", "67890")); /* all of the room */
    assert_false(has(s, 1, "b"));
    assert_false(has(s, 1, "c"));
    check(s, "e", "12345", "67890");
    api_store_destroy(s);
}

/* Each text by itself, and all of them counted. */
static void test_texts(void **state)
{
    (void)state;
    struct api_store *s = api_store_create(100, 10);
    struct buf in[N_KEPT] = {{0}}, out[N_KEPT] = {{0}};
    static const char *const said[N_KEPT] = {"123", "4567", "890"};
    for (size_t i = 0; i < N_KEPT; i++)
        buf_str(&in[i], said[i]);
    assert_true(api_store_put(s, 1, "a", (const struct buf *[]){&in[0], &in[1], &in[2]}));
    assert_true(api_store_get(s, 1, "a", (struct buf *[]){&out[0], &out[1], &out[2]}));
    for (size_t i = 0; i < N_KEPT; i++)
        assert_string_equal(buf_cstr(&out[i]), said[i]);
    buf_clear(&out[2]);
    assert_true(api_store_get(s, 1, "a", (struct buf *[]){NULL, NULL, &out[2]}));
    assert_string_equal(buf_cstr(&out[2]), said[2]);
    buf_char(&in[2], 'x'); /* one byte too many, in the last */
    assert_false(api_store_put(s, 1, "b", (const struct buf *[]){&in[0], &in[1], &in[2]}));
    assert_true(has(s, 1, "a"));
    for (size_t i = 0; i < N_KEPT; i++) {
        buf_deinit(&in[i]);
        buf_deinit(&out[i]);
    }
    api_store_destroy(s);
}

static bool put_as(struct api_store *s, uint32_t owner, const char *id, const char *response)
{
    struct buf r = {0}, m = {0};
    buf_str(&r, response);
    bool kept = api_store_put(s, owner, id, (const struct buf *[]){&r, &m, &m});
    buf_deinit(&r);
    return kept;
}

/* Who has most lets go, so that one who keeps a lot does not push out those who keep little. */
static void test_shares(void **state)
{
    (void)state;
    char id[16];
    struct api_store *s = api_store_create(10, 1000);
    assert_true(put_as(s, 7, "mine", "a"));
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "t%d", i);
        assert_true(put_as(s, 8, id, "b"));
    }
    assert_true(has(s, 7, "mine"));
    assert_true(has(s, 8, "t91"));
    assert_false(has(s, 8, "t90"));
    for (int i = 0; i < 100; i++) { /* and those who come late have their share */
        snprintf(id, sizeof id, "n%d", i);
        assert_true(put_as(s, 9, id, "c"));
    }
    assert_true(has(s, 7, "mine"));
    assert_true(has(s, 8, "t99"));
    assert_true(has(s, 9, "n96"));
    api_store_destroy(s);
    s = api_store_create(100, 10);
    assert_true(put_as(s, 1, "a", "123"));
    assert_true(put_as(s, 2, "b", "1234"));
    assert_true(put_as(s, 2, "c", "123"));
    assert_true(put_as(s, 1, "d", "1234")); /* of bytes 2 has most */
    assert_false(has(s, 2, "b"));
    assert_true(has(s, 1, "a"));
    api_store_destroy(s);
}

static void test_bad_names(void **state)
{
    (void)state;
    char id[100];
    struct api_store *s = api_store_create(2, 10), *none = api_store_create(0, 10);
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    assert_false(put(s, id, "a", ""));
    assert_false(has(s, 1, id));
    assert_false(put(none, "a", "a", ""));
    api_store_destroy(s);
    api_store_destroy(none);
    api_store_destroy(NULL);
}

static void *worker(void *arg)
{
    struct api_store *s = arg;
    unsigned seed = (unsigned)(size_t)pthread_self();
    for (int i = 0; i < 4000; i++) {
        char id[8];
        struct buf r = {0};
        snprintf(id, sizeof id, "%d", rand_r(&seed) % 40);
        if (rand_r(&seed) % 2)
            (void)put(s, id, id, id);
        else if (api_store_get(s, 1, id, (struct buf *[]){&r, &r, NULL})) /* whole, or not there */
            assert_int_equal(r.len, 2 * strlen(id));
        if (rand_r(&seed) % 4 == 0)
            (void)api_store_remove(s, 1, id);
        buf_deinit(&r);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    struct api_store *s = api_store_create(20, 60);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker, s), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    api_store_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
