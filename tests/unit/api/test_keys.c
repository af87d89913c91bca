/* Keys without a server: files, who is let in, limits with a clock of our own. */
#include "api/keys.h"

#include "unit/api/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SECOND 1000000ull

static struct api_keys *load(const char *text)
{
    struct api_keys *k = api_keys_create();
    struct err_info e = {0};
    uint32_t n_plain;
    if (api_keys_load(k, text, strlen(text), 0, &n_plain, &e) != OK)
        fail_msg("%s", e.text);
    return k;
}

static struct api_key *who(struct api_keys *k, const char *credential)
{
    struct api_key *key;
    return api_keys_identify(k, credential, false, &key, NULL) == OK ? key : NULL;
}

static void test_who(void **state)
{
    (void)state;
    struct api_keys *k = api_keys_create();
    struct api_key *key;
    assert_int_equal(api_keys_identify(k, NULL, false, &key, NULL), OK); /* open */
    assert_null(key);
    assert_int_equal(api_keys_identify(k, "anything", true, &key, NULL), OK);
    api_keys_set_admin(k, "root");
    assert_int_equal(api_keys_identify(k, NULL, false, &key, NULL), OK);
    assert_int_equal(api_keys_identify(k, NULL, true, &key, NULL), ERR_AUTH);
    assert_int_equal(api_keys_identify(k, "root", true, &key, NULL), OK);
    assert_string_equal(api_key_name(key), "(admin)");
    api_keys_set_single(k, "single");
    assert_int_equal(api_keys_identify(k, NULL, false, &key, NULL), ERR_AUTH);
    assert_int_equal(api_keys_identify(k, "", false, &key, NULL), ERR_AUTH);
    assert_int_equal(api_keys_identify(k, "root", false, &key, NULL), ERR_FORBIDDEN);
    assert_int_equal(api_keys_identify(k, "single", true, &key, NULL), ERR_FORBIDDEN);
    assert_int_equal(api_keys_identify(k, "single", false, &key, NULL), OK);
    assert_string_equal(api_key_name(key), "default");
    assert_false(api_keys_terms(k, key).limits_priority);
    api_keys_destroy(k);
}

static void test_no_keys_let_nobody_in(void **state)
{
    (void)state;
    struct api_keys *k = load("{\"keys\": []}");
    struct api_key *key;
    assert_int_equal(api_keys_identify(k, NULL, false, &key, NULL), ERR_AUTH);
    assert_int_equal(api_keys_identify(k, "", false, &key, NULL), ERR_AUTH);
    api_keys_destroy(k);
}

static void test_a_broken_file_changes_nothing(void **state)
{
    (void)state;
    struct api_keys *k = load("{\"keys\": [{\"name\": \"a\", \"key\": \"ka\"}]}");
    const char *good = "{\"keys\": [{\"name\": \"b\", \"key\": \"kb\", \"priority\": 5}]}";
    uint32_t n_plain;
    for (size_t n = 0; n < strlen(good); n++) {
        assert_int_not_equal(api_keys_load(k, good, n, 0, &n_plain, NULL), OK);
        assert_non_null(who(k, "ka"));
        assert_null(who(k, "kb"));
    }
    assert_int_equal(api_keys_load(k, good, strlen(good), 0, &n_plain, NULL), OK);
    assert_int_equal(n_plain, 1);
    assert_null(who(k, "ka"));
    assert_non_null(who(k, "kb"));
    api_keys_destroy(k);
}

static void test_requests(void **state)
{
    (void)state;
    struct api_keys *k =
        load("{\"keys\": [{\"name\": \"a\", \"key\": \"ka\", \"requests_per_minute\": 2}]}");
    struct api_key *a = who(k, "ka");
    struct api_key_usage none = {0};
    uint32_t retry;
    for (int i = 0; i < 2; i++)
        assert_int_equal(api_keys_enter(k, a, false, 0, &retry, NULL), OK);
    assert_int_equal(api_keys_enter(k, a, false, 0, &retry, NULL), ERR_RATE_LIMIT);
    assert_int_equal(retry, 30);
    assert_int_equal(api_keys_enter(k, a, false, 10 * SECOND, &retry, NULL), ERR_RATE_LIMIT);
    assert_int_equal(retry, 20);
    assert_int_equal(api_keys_enter(k, a, false, 30 * SECOND, &retry, NULL), OK);
    api_keys_undo(k, a, 0, 30 * SECOND); /* as if it had not come */
    assert_int_equal(api_keys_state(k, a, 30 * SECOND).requests_left, 1);
    for (int i = 0; i < 2; i++)
        api_keys_leave(k, a, &none, 30 * SECOND);
    const struct api_key_usage refused = {.refused = true};
    api_keys_leave(k, a, &refused, 30 * SECOND);
    struct buf out = {0};
    api_keys_metrics(k, &out);
    assert_non_null(strstr(buf_cstr(&out), "weir_key_requests_total{key=\"a\"} 2\n"));
    assert_non_null(strstr(out.data, "weir_key_refused_total{key=\"a\",limit=\"requests\"} 2\n"));
    assert_non_null(strstr(out.data, "weir_key_requests_running{key=\"a\"} 0\n"));
    buf_deinit(&out);
    api_keys_destroy(k);
}

static void test_tokens(void **state)
{
    (void)state;
    struct api_keys *k =
        load("{\"keys\": [{\"name\": \"a\", \"key\": \"ka\", \"tokens_per_minute\": 60}]}");
    struct api_key *a = who(k, "ka");
    uint32_t retry;
    assert_int_equal(api_keys_enter(k, a, false, 0, &retry, NULL), OK);
    assert_int_equal(api_keys_take_prompt(k, a, false, 61, 0, &retry, NULL), ERR_TOO_LARGE);
    assert_int_equal(api_keys_take_prompt(k, a, false, 40, 0, &retry, NULL), OK);
    assert_int_equal(api_keys_take_prompt(k, a, false, 21, 0, &retry, NULL), ERR_RATE_LIMIT);
    assert_int_equal(retry, 1);
    struct api_key_usage u = {.n_prompt = 40, .n_cached = 16, .n_generated = 50};
    api_keys_leave(k, a, &u, 0);
    struct api_key_state s = api_keys_state(k, a, 0);
    assert_int_equal(s.tokens_left, 0);
    assert_int_equal(s.tokens_full_us, 90 * SECOND);
    assert_int_equal(s.requests, 0);
    assert_int_equal(api_keys_enter(k, a, false, 0, &retry, NULL), OK);
    assert_int_equal(api_keys_take_prompt(k, a, false, 1, 0, &retry, NULL), ERR_RATE_LIMIT);
    assert_int_equal(retry, 31); /* thirty of debt, and one */
    assert_int_equal(api_keys_take_prompt(k, a, false, 1, 31 * SECOND, &retry, NULL), OK);
    api_keys_undo(k, a, 1, 31 * SECOND);
    assert_int_equal(api_keys_state(k, a, 31 * SECOND).tokens_left, 1);
    api_keys_destroy(k);
}

/* Work of the background leaves half of each limit, and is not counted where it has to wait, nor is
 * what has not left. */
static void test_background(void **state)
{
    (void)state;
    struct api_keys *k =
        load("{\"keys\": [{\"name\": \"a\", \"key\": \"ka\", \"requests_per_minute\": 6, "
             "\"tokens_per_minute\": 60, \"concurrency\": 5}]}");
    struct api_key *a = who(k, "ka");
    struct api_key_usage none = {0};
    uint32_t retry;
    for (int i = 0; i < 3; i++)
        assert_int_equal(api_keys_enter(k, a, true, 0, &retry, NULL), OK);
    assert_int_equal(api_keys_enter(k, a, true, 0, &retry, NULL), ERR_RATE_LIMIT); /* places */
    assert_int_equal(retry, 0);
    api_keys_leave(k, a, &none, 0);
    assert_int_equal(api_keys_enter(k, a, true, 0, &retry, NULL), ERR_RATE_LIMIT); /* requests */
    assert_int_equal(retry, 10);
    assert_int_equal(api_keys_enter(k, a, true, 10 * SECOND, &retry, NULL), OK);
    api_keys_undo(k, a, 0, 10 * SECOND);
    assert_int_equal(api_keys_enter(k, a, false, 10 * SECOND, &retry, NULL), OK); /* clients may */
    assert_int_equal(api_keys_take_prompt(k, a, true, 30, 10 * SECOND, &retry, NULL), OK);
    assert_int_equal(api_keys_take_prompt(k, a, true, 1, 10 * SECOND, &retry, NULL),
                     ERR_RATE_LIMIT);
    assert_int_equal(retry, 1);
    assert_int_equal(api_keys_take_prompt(k, a, true, 50, 30 * SECOND, &retry, NULL),
                     ERR_RATE_LIMIT);
    assert_int_equal(retry, 10); /* more than half: when all are there */
    assert_int_equal(api_keys_take_prompt(k, a, true, 61, 30 * SECOND, &retry, NULL),
                     ERR_TOO_LARGE);
    assert_int_equal(api_keys_take_prompt(k, a, true, 60, 40 * SECOND, &retry, NULL), OK);
    struct buf out = {0};
    api_keys_metrics(k, &out);
    assert_non_null(strstr(buf_cstr(&out), "weir_key_requests_total{key=\"a\"} 1\n"));
    assert_non_null(strstr(out.data, "weir_key_refused_total{key=\"a\",limit=\"requests\"} 0\n"));
    assert_non_null(strstr(out.data, "weir_key_refused_total{key=\"a\",limit=\"tokens\"} 1\n"));
    assert_non_null(
        strstr(out.data, "weir_key_refused_total{key=\"a\",limit=\"concurrency\"} 0\n"));
    buf_deinit(&out);
    api_keys_destroy(k);
}

static void test_concurrency_and_names_across_files(void **state)
{
    (void)state;
    struct api_keys *k =
        load("{\"keys\": [{\"name\": \"a\", \"key\": \"ka\", \"concurrency\": 1}]}");
    struct api_key *a = who(k, "ka");
    struct api_key_usage none = {0};
    uint32_t retry, n_plain;
    assert_int_equal(api_keys_enter(k, a, false, 0, &retry, NULL), OK);
    assert_int_equal(api_keys_enter(k, a, false, 0, &retry, NULL), ERR_RATE_LIMIT);
    assert_int_equal(retry, 0); /* nobody knows */
    const char *without = "{\"keys\": [{\"name\": \"b\", \"key\": \"kb\"}]}";
    assert_int_equal(api_keys_load(k, without, strlen(without), 0, &n_plain, NULL), OK);
    assert_null(who(k, "ka"));
    api_keys_leave(k, a, &none, 0); /* it was under way */
    const char *again =
        "{\"keys\": [{\"name\": \"a\", \"key\": \"new\", \"concurrency\": 2, \"priority\": -3}]}";
    assert_int_equal(api_keys_load(k, again, strlen(again), 0, &n_plain, NULL), OK);
    assert_ptr_equal(who(k, "new"), a); /* the same name is the same entry */
    assert_int_equal(api_keys_terms(k, a).priority, -3);
    assert_int_equal(api_keys_terms(k, a).tenant, 1);
    api_keys_destroy(k);
}

static void test_names_are_bounded(void **state)
{
    (void)state;
    struct api_keys *k = api_keys_create();
    struct err_info e = {0};
    uint32_t n_plain;
    for (int round = 0; round < 3; round++) {
        struct buf b = {0};
        buf_str(&b, "{\"keys\": [");
        for (int i = 0; i < 400; i++)
            buf_printf(&b, "%s{\"name\": \"n%d-%d\", \"key\": \"k%d\"}", i ? "," : "", round, i, i);
        buf_str(&b, "]}");
        enum err err = api_keys_load(k, b.data, b.len, 0, &n_plain, &e);
        assert_int_equal(err, round < 2 ? OK : ERR_INVALID);
        buf_deinit(&b);
    }
    assert_non_null(strstr(e.text, "1024"));
    assert_string_equal(api_key_name(who(k, "k7")), "n1-7"); /* the second file is in force */
    api_keys_destroy(k);
}

/* ---- under way while files change --------------------------------------------------------- */

static struct api_keys *shared;
static atomic_bool over;
static atomic_uint_least64_t n_entered;

static void *client_main(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        struct api_key *key;
        uint32_t retry;
        struct api_key_usage u = {.n_generated = 1};
        if (api_keys_identify(shared, "ks", false, &key, NULL) != OK)
            fail_msg("the key that stays was refused");
        if (api_keys_enter(shared, key, false, 0, &retry, NULL) != OK)
            continue;
        (void)api_keys_terms(shared, key);
        atomic_fetch_add(&n_entered, 1);
        api_keys_leave(shared, key, &u, 0);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[3];
    shared = load("{\"keys\": [{\"name\": \"stays\", \"key\": \"ks\"}]}");
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, NULL), 0);
    for (int i = 0; i < 200; i++) {
        char text[256];
        uint32_t n_plain;
        struct buf out = {0};
        snprintf(text,
                 sizeof text,
                 "{\"keys\": [{\"name\": \"stays\", \"key\": \"ks\", \"concurrency\": %d}, "
                 "{\"name\": \"other%d\", \"key\": \"k%d\"}]}",
                 1 + i % 3,
                 i % 7,
                 i);
        assert_int_equal(api_keys_load(shared, text, strlen(text), 0, &n_plain, NULL), OK);
        api_keys_metrics(shared, &out);
        buf_deinit(&out);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    struct buf out = {0};
    char want[64];
    api_keys_metrics(shared, &out);
    snprintf(want,
             sizeof want,
             "weir_key_generation_tokens_total{key=\"stays\"} %llu\n",
             (unsigned long long)atomic_load(&n_entered));
    assert_non_null(strstr(buf_cstr(&out), want));
    buf_deinit(&out);
    api_keys_destroy(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who),
        cmocka_unit_test(test_no_keys_let_nobody_in),
        cmocka_unit_test(test_a_broken_file_changes_nothing),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_background),
        cmocka_unit_test(test_concurrency_and_names_across_files),
        cmocka_unit_test(test_names_are_bounded),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
