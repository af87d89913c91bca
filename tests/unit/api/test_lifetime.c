/* Calls that end early, many at once, before the model is there and while the server drains. */
#include "unit/api/mortal.h"
#include "unit/api/server.h"

#include "api/vectors.h"
#include "backend/backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define COMPLETIONS "/v1/completions"
#define LONG "{\"prompt\":\"Once\",\"max_tokens\":200,\"ignore_eos\":true,\"stream\":true,\"n\":3}"

static struct server server;

static int setup(void **state)
{
    (void)state;
    server_start(&server, 8, 256);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

/* Wait until nothing runs and all ended calls are free. */
static void settle(void)
{
    struct engine_stats s;
    for (int i = 0; i < 3000; i++) {
        while (api_next(server.api)) {
        }
        engine_stats_get(server.engine, &s);
        if (s.running + s.waiting == 0)
            return;
        usleep(10000);
    }
    fail_msg("%u running, %u waiting after 30 s", s.running, s.waiting);
}

/* A client that leaves, at any moment, stops its requests; nothing leaks (ASan) or is used after.
 */
static void test_end_while_running(void **state)
{
    (void)state;
    struct api_answer a;
    struct engine_stats before, after;
    engine_stats_get(server.engine, &before);
    for (int pulls = 0; pulls < 6; pulls++) {
        struct buf out = {0};
        struct api_call *c = server_begin(&server, "POST", COMPLETIONS, LONG);
        for (int i = 0; i < pulls; i++) {
            if (api_pull(c, &a, &out) == API_WAIT)
                server_wait(&server);
            /* half of the time the call ends while it is named */
            if (i % 2 == 0)
                api_next(server.api);
        }
        api_end(c);
        buf_deinit(&out);
    }
    settle();
    engine_stats_get(server.engine, &after);
    assert_int_equal(after.requests_by_finish[FINISH_CANCELLED] -
                         before.requests_by_finish[FINISH_CANCELLED],
                     6 * 3);
}

static void test_a_call_is_named_as_its_owner_says(void **state)
{
    (void)state;
    struct api_call *c = server_begin(&server, "POST", COMPLETIONS, LONG);
    void *named;
    while (!(named = api_next(server.api)))
        server_wait(&server);
    assert_ptr_equal(named, &server);
    api_end(c);
    settle();
}

enum { N_THREADS = 4, N_CALLS = 8 };

struct worker {
    pthread_t thread;
    struct api_call *calls[N_CALLS];
};

static void *begin_calls(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < N_CALLS; i++) {
        char body[128];
        snprintf(body,
                 sizeof body,
                 "{\"prompt\":\"Once\",\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}",
                 i + 1);
        w->calls[i] = server_begin(&server, "POST", COMPLETIONS, body);
    }
    return NULL;
}

/* Workers begin while this thread names, pulls and ends: calls are named before it knows them. */
static void test_many_workers(void **state)
{
    (void)state;
    struct worker workers[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&workers[i].thread, NULL, begin_calls, &workers[i]);
    for (int i = 0; i < 100; i++) {
        while (api_next(server.api)) {
        }
        usleep(1000);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        for (int j = 0; j < N_CALLS; j++) {
            struct reply r;
            server_finish(&server, workers[i].calls[j], &r);
            assert_int_equal(r.answer.status, 200);
            json_t *v = json_loads(r.body.data, 0, NULL);
            assert_int_equal(int_at(v, "usage.completion_tokens"), j + 1);
            json_decref(v);
            buf_deinit(&r.body);
        }
    }
}

static void test_loading(void **state)
{
    (void)state;
    struct api_config ac = {.model_id = "m\"x"};
    struct server s = {0};
    struct err_info e;
    assert_int_equal(api_create(&ac, &s.api, &e), OK);
    json_t *v = server_json(&s, "GET", "/health", "", 503);
    assert_string_equal(str_at(v, "status"), "loading");
    json_decref(v);
    v = server_json(&s, "GET", "/v1/models", "", 200);
    assert_string_equal(str_at(v, "data.0.id"), "m\"x");
    json_decref(v);
    v = server_json(&s, "POST", COMPLETIONS, "{}", 503);
    assert_string_equal(str_at(v, "error.code"), "unavailable");
    json_decref(v);
    json_decref(server_json(&s, "GET", "/metrics", "", 503));
    assert_null(api_next(s.api));
    api_destroy(s.api);
}

/* A stream that fails before its first token: late, when it is first pulled, or after that. */
static void check_stream_fails(struct server *s, bool late)
{
    struct reply r;
    struct api_call *c =
        server_begin(s, "POST", COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":3,\"stream\":true}");
    if (late) {
        server_wait(s);
        while (api_next(s->api)) {
        }
    }
    server_finish(s, c, &r);
    assert_int_equal(r.answer.status, 200);
    assert_true(r.answer.stream);
    assert_memory_equal(r.body.data, "data: {\"error\":", 15);
    assert_null(strstr(r.body.data, "[DONE]"));
    buf_deinit(&r.body);
}

static void test_device_dies(void **state)
{
    (void)state;
    struct server s;
    static const char body[] = "{\"prompt\":\"a\",\"max_tokens\":3}";
    server_start_on(&s, make_mortal, POOLING_UNSPECIFIED, 4, 8);
    json_decref(server_json(&s, "POST", COMPLETIONS, body, 200));
    json_decref(server_json(&s, "GET", "/health", "", 200));
    atomic_store(&device_is_dead, true);
    json_decref(server_json(&s, "POST", COMPLETIONS, body, 500));
    json_t *v = server_json(&s, "GET", "/health", "", 503);
    assert_string_equal(str_at(v, "status"), "failing");
    assert_string_equal(str_at(v, "error.message"), MORTAL_SAYS);
    assert_int_equal(int_at(v, "error.code"), 503);
    json_decref(v);
    struct reply r;
    server_talk(&s, "GET", "/metrics", "", &r);
    assert_non_null(strstr(r.body.data, "\nweir_steps_failed_total 1\n"));
    buf_deinit(&r.body);
    check_stream_fails(&s, true);
    check_stream_fails(&s, false);
    atomic_store(&device_is_dead, false);
    json_decref(server_json(&s, "POST", COMPLETIONS, body, 200));
    json_decref(server_json(&s, "GET", "/health", "", 200));
    server_stop(&s);
}

/* All vectors of tokens that there are at once are bounded, and what a call held is free again. */
static void test_vectors_of_tokens(void **state)
{
    (void)state;
    struct server s;
    struct reply r;
    server_start_on(&s, NULL, POOLING_NONE, 4, 8);
    const uint64_t others = API_MAX_EACH - 3ull * s.model->hp.n_embd;
    atomic_store(&s.api->n_vector_values, others);
    for (int i = 0; i < 2; i++) {
        json_decref(server_json(&s, "POST", "/embeddings", "{\"input\":[[5,6],[7]]}", 200));
        assert_int_equal(atomic_load(&s.api->n_vector_values), others);
    }
    server_talk(&s, "POST", "/embeddings", "{\"input\":[5,6,7,8]}", &r);
    assert_int_equal(r.answer.status, 429);
    assert_string_not_equal(r.retry_after, "");
    buf_deinit(&r.body);
    assert_int_equal(atomic_load(&s.api->n_vector_values), others);
    atomic_store(&s.api->n_vector_values, 0);
    server_stop(&s);
}

/* Once an answer is given to its end, its reader may take its time: nothing that it was made of is
 * kept, nor a second copy of it. */
static void test_answers_wait_alone(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body;
    } asked[] = {
        {COMPLETIONS, "{\"prompt\":\"Once\",\"max_tokens\":2,\"n\":3}"},
        {COMPLETIONS, "{\"prompt\":\"Once\",\"max_tokens\":2,\"n\":3,\"stream\":true}"},
        {"/tokenize", "{\"content\":\"Once there was a\",\"with_pieces\":true}"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct api_answer a;
        struct buf out = {0};
        struct api_call *c = server_begin(&server, "POST", asked[i].path, asked[i].body);
        enum api_pull pulled;
        while ((pulled = api_pull(c, &a, &out)) != API_DONE) {
            if (pulled == API_WAIT)
                server_wait(&server);
            while (api_next(server.api)) {
            }
        }
        assert_int_equal(a.status, 200);
        assert_null(c->choices);
        assert_null(c->echoes);
        assert_null(c->body.data);
        assert_null(c->prefix.data);
        api_end(c);
        buf_deinit(&out);
    }
    settle();
}

static void test_at_once(void **state)
{
    (void)state;
    assert_true(api_at_once(server.api, "GET", "/health"));
    assert_true(api_at_once(server.api, "HEAD", "/v1/health"));
    assert_false(api_at_once(server.api, "POST", "/health"));
    assert_false(api_at_once(server.api, "GET", "/v1/models"));
    assert_false(api_at_once(server.api, "GET", "/nothing"));
}

static int status_with(struct api *a, const char *path, const char *authorization, bool *www)
{
    struct api_input in = {
        .method = "GET", .path = path, .query = "", .body = "", .authorization = authorization};
    struct api_call *c = api_begin(a, &in);
    struct api_answer answer;
    struct buf out = {0};
    assert_int_equal(api_pull(c, &answer, &out), API_DONE);
    *www = answer.www_authenticate;
    api_end(c);
    buf_deinit(&out);
    return answer.status;
}

static void test_key(void **state)
{
    (void)state;
    struct api_config ac = {.model_id = "m", .api_key = "secret"};
    struct api *a;
    struct err_info e;
    bool www;
    assert_int_equal(api_create(&ac, &a, &e), OK);
    api_set_engine(a, server.engine, server.tmpl);
    assert_int_equal(status_with(a, "/v1/models", NULL, &www), 401);
    assert_true(www);
    assert_int_equal(status_with(a, "/v1/models", "Bearer secre", &www), 401);
    assert_int_equal(status_with(a, "/v1/models", "Bearer secret2", &www), 401);
    assert_int_equal(status_with(a, "/v1/models", "Basic secret", &www), 401);
    assert_int_equal(status_with(a, "/v1/models", "", &www), 401);
    assert_int_equal(status_with(a, "/metrics", NULL, &www), 401);
    assert_int_equal(status_with(a, "/nothing", NULL, &www), 401);
    assert_int_equal(status_with(a, "/v1/models", "Bearer secret", &www), 200);
    assert_false(www);
    assert_int_equal(status_with(a, "/v1/models", "bearer  secret", &www), 200);
    assert_int_equal(status_with(a, "/metrics", "Bearer secret", &www), 200);
    assert_int_equal(status_with(a, "/health", NULL, &www), 200);
    api_set_engine(a, NULL, NULL);
    api_destroy(a);
}

/* Last, because nothing is admitted after it: what runs is cut off, and says so. */
static void test_drain_and_stop(void **state)
{
    (void)state;
    struct reply r;
    struct buf out = {0};
    struct api_answer a;
    struct api_call *whole = /* seconds of work, so that it is surely running */
        server_begin(&server,
                     "POST",
                     COMPLETIONS,
                     "{\"prompt\":\"a\",\"max_tokens\":250,\"ignore_eos\":true,\"n\":100}");
    struct api_call *stream = server_begin(&server, "POST", COMPLETIONS, LONG);
    assert_int_equal(api_pull(stream, &a, &out), API_MORE);
    assert_int_equal(a.status, 200);
    api_set_draining(server.api);
    json_t *v = server_json(&server, "GET", "/health", "", 503);
    assert_string_equal(str_at(v, "status"), "draining");
    json_decref(v);
    server_talk(&server, "POST", COMPLETIONS, "{\"prompt\":\"a\"}", &r);
    assert_int_equal(r.answer.status, 503);
    assert_string_equal(r.retry_after, "5");
    buf_deinit(&r.body);
    engine_drain(server.engine);
    engine_stop(server.engine);
    server_finish(&server, stream, &r);
    assert_non_null(strstr(r.body.data, "shutting down"));
    assert_null(strstr(r.body.data, "[DONE]"));
    buf_deinit(&r.body);
    server_finish(&server, whole, &r);
    assert_int_equal(r.answer.status, 503);
    buf_deinit(&r.body);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_while_running),
        cmocka_unit_test(test_a_call_is_named_as_its_owner_says),
        cmocka_unit_test(test_many_workers),
        cmocka_unit_test(test_loading),
        cmocka_unit_test(test_device_dies),
        cmocka_unit_test(test_vectors_of_tokens),
        cmocka_unit_test(test_answers_wait_alone),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_drain_and_stop),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
