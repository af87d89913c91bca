/* Memory that is refused while a request is read or its answer written: each allocation that may
 * fail does so once, and the client is told 503, or gets the answer that it gets otherwise. */
#include "unit/api/server.h"

#include "base/mem.h"

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

struct outcome {
    int status;
    bool cut;
    struct buf body;
};

/* The nth allocation of this thread that may fail does; 0: none. False: there were not so many. */
static bool talk(
    const char *method, const char *path, const char *body, uint64_t nth, struct outcome *o)
{
    enum api_pull pulled;
    struct api_answer answer = {0};
    *o = (struct outcome){.body.may_fail = true};
    mem_fail_nth(nth);
    struct api_call *c = server_begin(&server, method, path, body);
    while ((pulled = api_pull(c, &answer, &o->body)) != API_DONE && pulled != API_CUT) {
        if (pulled == API_WORK)
            api_work(c);
        if (pulled != API_WAIT)
            continue;
        server_wait(&server);
        while (api_next(server.api)) {
        }
    }
    const bool failed = mem_fail_nth(0);
    o->status = answer.status;
    o->cut = pulled == API_CUT;
    api_end(c);
    buf_cstr(&o->body);
    return failed;
}

/* What does not differ from one answer to the next; the caller's reference. */
static json_t *substance(const struct outcome *o)
{
    static const char *const differ[] = {"id", "created", "created_at", "completed_at", "timings"};
    json_error_t je;
    json_t *v = json_loadb(o->body.data, o->body.len, 0, &je);
    if (!v)
        fail_msg("%s in %s", je.text, o->body.data);
    for (size_t i = 0; i < sizeof differ / sizeof differ[0]; i++)
        if (json_is_object(v))
            json_object_del(v, differ[i]);
    json_t *item = json_array_get(json_object_get(v, "output"), 0);
    json_object_del(item, "id");
    json_object_del(item, "call_id");
    return v;
}

static void sweep(const char *method, const char *path, const char *body)
{
    struct outcome all, some;
    uint32_t n_refused = 0;
    (void)talk(method, path, body, 0, &all);
    if (all.status != 200)
        fail_msg("%s: %d %s", path, all.status, all.body.data);
    json_t *expected = substance(&all);
    for (uint64_t nth = 1; talk(method, path, body, nth, &some); nth++) {
        assert_false(some.cut);
        if (some.status != 200 && some.status != 503)
            fail_msg("%s, allocation %d: %d %s", path, (int)nth, some.status, some.body.data);
        n_refused += some.status == 503;
        json_t *got = substance(&some);
        if (some.status == 200 && !json_equal(got, expected))
            fail_msg(
                "%s, allocation %d: %s, not %s", path, (int)nth, some.body.data, all.body.data);
        json_decref(got);
        buf_deinit(&some.body);
    }
    print_message("%s: %u times 503\n", path, n_refused);
    assert_true(n_refused > 0);
    json_decref(expected);
    buf_deinit(&some.body);
    buf_deinit(&all.body);
}

/* One of the allocations that fail is the one of which the server speaks so. */
static void sweep_for(const char *path, const char *body, const char *words)
{
    struct outcome o;
    bool found = false;
    for (uint64_t nth = 1; talk("POST", path, body, nth, &o); nth++) {
        assert_true(o.status == 200 || o.status == 503);
        found |= strstr(o.body.data, words) != NULL;
        buf_deinit(&o.body);
    }
    buf_deinit(&o.body);
    if (!found)
        fail_msg("%s: no 503 says '%s'", path, words);
}

static void test_arrays(void **state)
{
    (void)state;
    sweep_for("/v1/completions",
              "{\"include_stop_str_in_output\":false,\"prompt\":\"Once\",\"max_tokens\":2,\"stop_"
              "token_ids\":[1,2,3]}",
              "no memory for 'stop_token_ids'");
    sweep_for("/v1/completions",
              "{\"prompt\":\"Once\",\"max_tokens\":2,\"allowed_token_ids\":[1,2,3]}",
              "no memory for a mask");
    sweep("POST",
          "/v1/completions",
          "{\"prompt\":\"Once\",\"max_tokens\":2,\"bad_words\":[\"upon\",\"a time\"],\"seed\":1}");
    sweep_for("/v1/completions",
              "{\"prompt\":\"Once\",\"max_tokens\":2,\"guided_choice\":[\"aa\",\"bb\"]}",
              "'guided_choice': no memory for 2 texts");
    sweep_for("/v1/chat/completions",
              "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
              "\"Hi\"}]}],\"max_tokens\":2}",
              "no memory for a message");
}

static void test_whole_answers(void **state)
{
    (void)state;
    sweep("POST", "/tokenize", "{\"content\":\"Once upon a time\",\"with_pieces\":true}");
    sweep("POST",
          "/v1/completions",
          "{\"prompt\":\"Once\",\"max_tokens\":6,\"logprobs\":3,\"echo\":true,\"n\":2,"
          "\"temperature\":0,\"ignore_eos\":true}");
    sweep("POST",
          "/v1/chat/completions",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":6,"
          "\"logprobs\":true,\"top_logprobs\":2,\"temperature\":0,\"ignore_eos\":true}");
    sweep("POST",
          "/completion",
          "{\"prompt\":\"Once\",\"n_predict\":6,\"n_probs\":2,\"temperature\":0,"
          "\"response_fields\":[\"content\",\"completion_probabilities\"]}");
    sweep("POST",
          "/v1/responses",
          "{\"input\":\"Hi\",\"max_output_tokens\":16,\"temperature\":0,\"include\":[\"message."
          "output_text.logprobs\"]}");
}

#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":9}},"            \
    "\"required\":[\"a\"],\"additionalProperties\":false}"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" SCHEMA "}}"

static void test_what_compiles_grammars(void **state)
{
    (void)state;
    sweep("POST",
          "/v1/chat/completions",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":24,"
          "\"temperature\":0,"
          "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"s\","
          "\"schema\":" SCHEMA "}}}");
    sweep("POST",
          "/v1/chat/completions",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":24,"
          "\"temperature\":0,"
          "\"tools\":[" TOOL "]}");
    sweep("POST",
          "/v1/messages",
          "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":6,"
          "\"temperature\":0}");
    sweep(
        "POST",
        "/v1/messages",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":32,"
        "\"temperature\":0,\"tools\":[{\"name\":\"f\",\"input_schema\":" SCHEMA "}],"
        "\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}");
    sweep("POST",
          "/v1/responses",
          "{\"input\":\"Hi\",\"max_output_tokens\":24,\"temperature\":0,\"cache_prompt\":false,"
          "\"tools\":[{\"type\":"
          "\"web_search\"},{\"type\":\"namespace\",\"name\":\"s\",\"tools\":[{\"type\":"
          "\"custom\",\"name\":\"c\"}]}],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":"
          "\"required\",\"tools\":[{\"type\":\"custom\",\"name\":\"c\",\"namespace\":\"s\"}]}}");
    sweep("POST",
          "/v1/responses",
          "{\"input\":\"Hi\",\"max_output_tokens\":4,\"temperature\":0,\"cache_prompt\":false,"
          "\"tools\":[{\"type\":\"namespace\",\"name\":\"s\",\"description\":\"d\",\"tools\":[{"
          "\"type\":"
          "\"custom\",\"name\":\"c\"},{\"type\":\"custom\",\"name\":\"c\"}]}],\"tool_choice\":{"
          "\"type\":"
          "\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":\"namespace\",\"name\":\"s\"}]}"
          "}");
    sweep("POST",
          "/v1/responses",
          "{\"input\":[{\"type\":\"reasoning\",\"content\":\"t\"},{\"role\":\"user\",\"content\":"
          "\"u\"},{\"type\":"
          "\"custom_tool_call\",\"call_id\":\"a\",\"name\":\"c\","
          "\"input\":\"x\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"a\","
          "\"output\":\"y\"}],\"max_output_tokens\":4,\"temperature\":0,\"cache_prompt\":false}");
    sweep("POST",
          "/v1/messages",
          "{\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{\"role\":\"user\","
          "\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
          "\"thinking\":\"t\"},{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{}}]},"
          "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"a\","
          "\"content\":\"r\"},{\"type\":\"text\",\"text\":\"u\"}]},{\"role\":\"system\","
          "\"content\":\"s\"}],\"max_tokens\":4,\"temperature\":0}");
    sweep("POST", "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    sweep("POST", "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    sweep("POST", "/detokenize", "{\"tokens\":[46,326,68]}");
}

/* A stream that has begun ends with an error, and no event of it is cut off. */
static void test_streams(void **state)
{
    (void)state;
    static const char end[] = "data: [DONE]\n\n", error[] = "data: {\"error\":";
    struct outcome o;
    uint32_t n_refused = 0;
    for (uint64_t nth = 1; talk("POST",
                                "/v1/chat/completions",
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                                "\"max_tokens\":6,\"logprobs\":true,\"stream\":true}",
                                nth,
                                &o);
         nth++) {
        const char *last = o.body.data;
        if (o.status == 503) {
            n_refused++;
            buf_deinit(&o.body);
            continue;
        }
        assert_int_equal(o.status, 200);
        assert_false(o.cut);
        for (const char *at = last; (at = strstr(at, "\n\n")); at += 2) {
            assert_int_equal(strncmp(last, "data: ", 6), 0);
            last = at[2] ? at + 2 : last;
        }
        if (strcmp(last, end) != 0) {
            assert_int_equal(strncmp(last, error, sizeof error - 1), 0);
            n_refused++;
        }
        buf_deinit(&o.body);
    }
    buf_deinit(&o.body);
    assert_true(n_refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_what_compiles_grammars),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
