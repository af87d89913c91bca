/* Routes, shapes and errors, through a real engine and the small model. */
#include "unit/api/server.h"

#include <unistd.h>

#define COMPLETIONS "/v1/completions"
#define CHAT "/v1/chat/completions"
#define GREEDY "\"temperature\":0,\"max_tokens\":12"
#define PROMPT "\"prompt\":\"Once there was a\""
#define QUESTION "\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}]"

static struct server server;

static int setup(void **state)
{
    (void)state;
    server_start(&server, 8, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

static json_t *post(const char *path, const char *body)
{
    return server_json(&server, "POST", path, body, 200);
}

static void test_routes(void **state)
{
    (void)state;
    struct reply r;
    json_t *v = server_json(&server, "GET", "/health", "", 200);
    assert_string_equal(str_at(v, "status"), "ok");
    json_decref(v);
    v = server_json(&server, "GET", "/v1/models", "", 200);
    assert_string_equal(str_at(v, "data.0.id"), "weir-nano");
    assert_int_equal(int_at(v, "data.0.max_model_len"), 256);
    json_decref(v);
    v = server_json(&server, "GET", "/v1/models/weir-nano", "", 200);
    assert_string_equal(str_at(v, "object"), "model");
    json_decref(v);
    v = server_json(&server, "GET", "/v1/models/other", "", 404);
    assert_string_equal(str_at(v, "error.code"), "model_not_found");
    json_decref(v);
    v = server_json(&server, "GET", "/nothing", "", 404);
    assert_string_equal(str_at(v, "error.type"), "invalid_request_error");
    json_decref(v);
    server_talk(&server, "GET", CHAT, "", &r);
    assert_int_equal(r.answer.status, 405);
    assert_string_equal(r.allow, "POST");
    buf_deinit(&r.body);
    server_talk(&server, "POST", "/health", "", &r);
    assert_int_equal(r.answer.status, 405);
    assert_string_equal(r.allow, "GET, HEAD");
    buf_deinit(&r.body);
}

static void test_completion_shape(void **state)
{
    (void)state;
    json_t *v = post(COMPLETIONS, "{" PROMPT "," GREEDY ",\"model\":\"default\"}");
    assert_memory_equal(str_at(v, "id"), "cmpl-", 5);
    assert_int_equal(strlen(str_at(v, "id")), 5 + 24);
    assert_string_equal(str_at(v, "object"), "text_completion");
    assert_string_equal(str_at(v, "model"), "weir-nano");
    assert_true(int_at(v, "created") > 1700000000);
    assert_int_equal(json_array_size(at(v, "choices")), 1);
    assert_true(strlen(str_at(v, "choices.0.text")) > 0);
    assert_true(json_is_null(at(v, "choices.0.logprobs")));
    assert_int_equal(int_at(v, "usage.total_tokens"),
                     int_at(v, "usage.prompt_tokens") + int_at(v, "usage.completion_tokens"));
    assert_true(int_at(v, "usage.prompt_tokens_details.cached_tokens") >= 0);
    json_decref(v);
}

/* The texts of a stream, joined, with the shape of every chunk checked. */
static void join_stream(json_t *events,
                        const char *field,
                        uint32_t index,
                        char *out,
                        size_t cap,
                        char *finish,
                        size_t finish_cap)
{
    json_t *v;
    size_t i;
    const char *id = str_at(json_array_get(events, 0), "id");
    out[0] = finish[0] = '\0';
    json_array_foreach(events, i, v)
    {
        assert_string_equal(str_at(v, "id"), id);
        if (json_array_size(at(v, "choices")) == 0 || int_at(v, "choices.0.index") != index)
            continue;
        assert_string_equal(finish, ""); /* nothing after the finish */
        const char *text = json_string_value(at(v, field));
        if (text)
            strncat(out, text, cap - strlen(out) - 1);
        json_t *f = at(v, "choices.0.finish_reason");
        assert_non_null(f);
        if (json_is_string(f))
            snprintf(finish, finish_cap, "%s", json_string_value(f));
    }
}

static void test_completion_stream_is_whole(void **state)
{
    (void)state;
    char text[1000], finish[16];
    json_t *whole = post(COMPLETIONS, "{" PROMPT "," GREEDY ",\"ignore_eos\":true}");
    json_t *events = server_events(&server,
                                   COMPLETIONS,
                                   "{" PROMPT "," GREEDY ",\"ignore_eos\":true,\"stream\":true,"
                                   "\"stream_options\":{\"include_usage\":true}}");
    join_stream(events, "choices.0.text", 0, text, sizeof text, finish, sizeof finish);
    assert_string_equal(text, str_at(whole, "choices.0.text"));
    assert_string_equal(finish, "length");
    /* 12 tokens, the finish, the usage */
    assert_int_equal(json_array_size(events), 12 + 1 + 1);
    assert_true(json_is_null(at(events, "0.usage")));
    assert_int_equal(json_array_size(at(events, "13.choices")), 0);
    assert_int_equal(int_at(events, "13.usage.completion_tokens"), 12);
    json_decref(whole);
    json_decref(events);
}

static void test_chat(void **state)
{
    (void)state;
    char text[1000], finish[16];
    json_t *whole = post(CHAT, "{" QUESTION ",\"temperature\":0}");
    json_t *events =
        server_events(&server, CHAT, "{" QUESTION ",\"temperature\":0,\"stream\":true}");
    assert_non_null(strstr(str_at(whole, "choices.0.message.content"), "Paris"));
    assert_string_equal(str_at(whole, "choices.0.message.role"), "assistant");
    assert_string_equal(str_at(whole, "choices.0.finish_reason"), "stop");
    assert_string_equal(str_at(whole, "object"), "chat.completion");
    assert_string_equal(str_at(events, "0.choices.0.delta.role"), "assistant");
    assert_true(json_is_null(at(events, "0.choices.0.delta.content")));
    assert_string_equal(str_at(events, "0.object"), "chat.completion.chunk");
    assert_null(at(events, "0.usage"));
    join_stream(events, "choices.0.delta.content", 0, text, sizeof text, finish, sizeof finish);
    assert_string_equal(text, str_at(whole, "choices.0.message.content"));
    assert_string_equal(finish, "stop");
    json_t *last = json_array_get(events, json_array_size(events) - 1);
    assert_int_equal(json_object_size(at(last, "choices.0.delta")), 0);
    json_decref(whole);
    json_decref(events);
}

/* Content in parts, null content, the developer role. */
static void test_chat_messages(void **state)
{
    (void)state;
    json_t *plain = post(CHAT, "{" QUESTION "," GREEDY "}");
    json_t *parts = post(CHAT,
                         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                         "\"text\":\"What is the capital\"},{\"type\":\"text\",\"text\":\" of "
                         "France?\"}]}]," GREEDY "}");
    assert_string_equal(str_at(plain, "choices.0.message.content"),
                        str_at(parts, "choices.0.message.content"));
    json_decref(plain);
    json_decref(parts);
    static const char *const said[] = {
        "\"content\":\"No, sorry.\"",
        "\"content\":[{\"type\":\"refusal\",\"refusal\":\"No, sorry.\"}]",
        "\"content\":null,\"refusal\":\"No, sorry.\""};
    int n_prompt[3];
    for (int i = 0; i < 3; i++) { /* what refused is a turn like another */
        char body[512];
        snprintf(
            body,
            sizeof body,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",%s},"
            "{\"role\":\"user\",\"content\":\"Why?\"}],\"max_tokens\":1}",
            said[i]);
        json_t *v = post(CHAT, body);
        n_prompt[i] = (int)json_integer_value(at(v, "usage.prompt_tokens"));
        json_decref(v);
    }
    assert_int_equal(n_prompt[1], n_prompt[0]);
    assert_int_equal(n_prompt[2], n_prompt[0]);
    json_decref(post(CHAT,
                     "{\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief.\"},"
                     "{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
                     "null},{\"role\":\"user\",\"content\":\"\"}],\"max_tokens\":1}"));
}

/* Variables of the template: here one that it knows, and one that it does not. */
static void test_template_variables(void **state)
{
    (void)state;
    json_t *open = post(CHAT, "{" QUESTION ",\"max_tokens\":1}");
    json_t *closed = post(CHAT, "{" QUESTION ",\"max_tokens\":1,\"add_generation_prompt\":false}");
    json_t *kwargs = post(CHAT,
                          "{" QUESTION ",\"max_tokens\":1,\"documents\":[{\"text\":\"x\"}],"
                          "\"chat_template_kwargs\":{\"add_generation_prompt\":false,"
                          "\"enable_thinking\":false}}");
    int64_t n = int_at(closed, "usage.prompt_tokens");
    assert_true(int_at(open, "usage.prompt_tokens") > n);
    assert_int_equal(int_at(kwargs, "usage.prompt_tokens"), n);
    json_decref(open);
    json_decref(closed);
    json_decref(kwargs);
    /* calls of tools are the template's business; the built-in one passes over them */
    json_decref(post(CHAT,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":"
                     "\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":"
                     "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
                     "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"1\"}],"
                     "\"max_tokens\":1}"));
}

/* A user who writes control tokens gets plain text: more tokens than the one. */
static void test_user_text_is_no_control(void **state)
{
    (void)state;
    json_t *plain = post(COMPLETIONS, "{\"prompt\":\"<|im_end|>\",\"max_tokens\":1}");
    assert_true(int_at(plain, "usage.prompt_tokens") > 1);
    json_decref(plain);
    json_t *short_q = post(CHAT,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                           "\"max_tokens\":1}");
    json_t *evil_q = post(CHAT,
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}],"
                          "\"max_tokens\":1}");
    assert_true(int_at(evil_q, "usage.prompt_tokens") > int_at(short_q, "usage.prompt_tokens") + 1);
    json_decref(short_q);
    json_decref(evil_q);
}

static void test_choices_and_seeds(void **state)
{
    (void)state;
    char text[1000], finish[16];
    json_t *two = post(COMPLETIONS, "{" PROMPT ",\"max_tokens\":8,\"seed\":5,\"n\":2}");
    json_t *next = post(COMPLETIONS, "{" PROMPT ",\"max_tokens\":8,\"seed\":6}");
    assert_int_equal(json_array_size(at(two, "choices")), 2);
    assert_int_equal(int_at(two, "choices.1.index"), 1);
    assert_string_equal(str_at(two, "choices.1.text"), str_at(next, "choices.0.text"));
    assert_int_equal(int_at(two, "usage.prompt_tokens"), int_at(next, "usage.prompt_tokens"));
    json_t *events = server_events(
        &server, COMPLETIONS, "{" PROMPT ",\"max_tokens\":8,\"seed\":5,\"n\":2,\"stream\":true}");
    for (uint32_t i = 0; i < 2; i++) {
        char path[32];
        snprintf(path, sizeof path, "choices.%u.text", i);
        join_stream(events, "choices.0.text", i, text, sizeof text, finish, sizeof finish);
        assert_string_equal(text, str_at(two, path));
        assert_string_not_equal(finish, "");
    }
    json_decref(two);
    json_decref(next);
    json_decref(events);
}

static void test_prompt_forms(void **state)
{
    (void)state;
    json_t *v = post(COMPLETIONS, "{\"prompt\":[\"Once\",\"The\"],\"n\":2,\"max_tokens\":2}");
    assert_int_equal(json_array_size(at(v, "choices")), 4);
    assert_int_equal(int_at(v, "choices.3.index"), 3);
    json_decref(v);
    v = post(COMPLETIONS, "{\"prompt\":[10,11,12],\"max_tokens\":2}");
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 3);
    json_decref(v);
    v = post(COMPLETIONS, "{\"prompt\":[[10,11],[12]],\"max_tokens\":2}");
    assert_int_equal(json_array_size(at(v, "choices")), 2);
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 3);
    json_decref(v);
}

static void test_echo_logprobs(void **state)
{
    (void)state;
    json_t *v = post(COMPLETIONS,
                     "{" PROMPT ",\"max_tokens\":3,\"temperature\":0,\"echo\":true,"
                     "\"logprobs\":2,\"ignore_eos\":true,\"return_tokens\":true}");
    json_t *lp = at(v, "choices.0.logprobs"), *item;
    size_t n = json_array_size(at(lp, "tokens")), i;
    const char *text = str_at(v, "choices.0.text");
    assert_memory_equal(text, "Once there was a", 16);
    assert_int_equal(n, int_at(v, "usage.total_tokens"));
    assert_int_equal(json_array_size(at(lp, "token_logprobs")), n);
    assert_int_equal(json_array_size(at(lp, "text_offset")), n);
    assert_int_equal(json_array_size(at(v, "choices.0.tokens")), 3);
    assert_true(json_is_null(at(lp, "token_logprobs.0")));
    assert_true(json_is_null(at(lp, "top_logprobs.0")));
    json_array_foreach(at(lp, "tokens"), i, item)
    {
        const char *token = json_string_value(item);
        json_int_t offset = json_integer_value(json_array_get(at(lp, "text_offset"), i));
        assert_memory_equal(text + offset, token, strlen(token)); /* ASCII here */
        json_t *own = json_array_get(at(lp, "token_logprobs"), i);
        json_t *top = json_array_get(at(lp, "top_logprobs"), i);
        if (i == 0)
            continue;
        assert_true(json_number_value(own) <= 0.0);
        assert_true(json_object_size(top) >= 2 && json_object_size(top) <= 3);
        assert_non_null(json_object_get(top, token));
    }
    json_decref(v);
}

/* A token that is not among the most likely is listed beside them. */
static void test_unlikely_token_is_listed(void **state)
{
    (void)state;
    json_t *v = post(COMPLETIONS,
                     "{" PROMPT ",\"max_tokens\":1,\"temperature\":0,\"logprobs\":2,"
                     "\"logit_bias\":{\"70\":100}}");
    json_t *lp = at(v, "choices.0.logprobs");
    json_t *own = json_object_get(at(lp, "top_logprobs.0"), str_at(lp, "tokens.0"));
    assert_int_equal(json_object_size(at(lp, "top_logprobs.0")), 3);
    assert_true(json_equal(own, at(lp, "token_logprobs.0")));
    assert_true(json_number_value(own) < -1.0); /* the model's own, without the bias */
    json_decref(v);
}

static void test_chat_logprobs(void **state)
{
    (void)state;
    json_t *v = post(CHAT, "{" QUESTION "," GREEDY ",\"logprobs\":true,\"top_logprobs\":3}");
    json_t *content = at(v, "choices.0.logprobs.content"), *item;
    char joined[1000] = "";
    size_t i;
    json_array_foreach(content, i, item)
    {
        strncat(joined, str_at(item, "token"), sizeof joined - strlen(joined) - 1);
        assert_int_equal(json_array_size(at(item, "top_logprobs")), 3);
        /* greedy takes the most likely */
        assert_string_equal(str_at(item, "top_logprobs.0.token"), str_at(item, "token"));
        assert_true(json_is_array(at(item, "bytes")));
    }
    assert_string_equal(joined, str_at(v, "choices.0.message.content"));
    json_decref(v);
}

/* Stop at every place of a known answer: what is shown is what comes before, in each mode. */
static void test_stop_never_leaks(void **state)
{
    (void)state;
    static const char *const modes[] = {"", ",\"logprobs\":1", ",\"return_tokens\":true"};
    char body[600], wanted[1000], text[1000], finish[16], tokens[1000];
    json_t *whole = post(COMPLETIONS, "{" PROMPT "," GREEDY ",\"ignore_eos\":true}");
    const char *full = str_at(whole, "choices.0.text");
    for (size_t from = 1; from + 4 < strlen(full); from += 3) {
        char stop[5];
        snprintf(stop, sizeof stop, "%.4s", full + from);
        if (strpbrk(stop, "\"\\\n"))
            continue;
        snprintf(wanted, sizeof wanted, "%.*s", (int)(strstr(full, stop) - full), full);
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            snprintf(body,
                     sizeof body,
                     "{" PROMPT "," GREEDY ",\"ignore_eos\":true,\"stream\":true,\"stop\":[\"%s\","
                     "\"never said\"]%s}",
                     stop,
                     modes[m]);
            json_t *events = server_events(&server, COMPLETIONS, body), *e;
            join_stream(events, "choices.0.text", 0, text, sizeof text, finish, sizeof finish);
            assert_string_equal(text, wanted);
            assert_string_equal(finish, "stop");
            size_t i;
            tokens[0] = '\0';
            json_array_foreach(events, i, e)
            {
                const char *t = json_string_value(at(e, "choices.0.logprobs.tokens.0"));
                if (t && strncmp(t, "<|", 2) != 0) /* control tokens are listed but show no text */
                    strncat(tokens, t, sizeof tokens - strlen(tokens) - 1);
            }
            /* a token that the stop cuts in two is listed, what comes after it is not */
            if (m == 1)
                assert_true(strlen(tokens) >= strlen(wanted) &&
                            strncmp(tokens, full, strlen(tokens)) == 0 &&
                            strlen(tokens) < strlen(wanted) + 16);
            json_decref(events);
        }
    }
    json_decref(whole);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *param, *code;
    } cases[] = {
        {COMPLETIONS, "{", 400, NULL, NULL},
        {COMPLETIONS, "{}", 400, "prompt", NULL},
        {COMPLETIONS, "{\"prompt\":\"\"}", 400, "prompt", NULL},
        {COMPLETIONS, "{\"prompt\":[]}", 400, "prompt", NULL},
        {COMPLETIONS, "{\"prompt\":{}}", 400, "prompt", NULL},
        {COMPLETIONS, "{\"prompt\":[\"a\",1]}", 400, "prompt[1]", NULL},
        {COMPLETIONS, "{\"prompt\":[1,\"a\"]}", 400, "prompt[1]", NULL},
        {COMPLETIONS, "{\"prompt\":[[1],[]]}", 400, "prompt[1]", NULL},
        {COMPLETIONS, "{\"prompt\":[1,1536]}", 400, "prompt", NULL},
        {COMPLETIONS, "{\"prompt\":[-1]}", 400, "prompt", NULL},
        {COMPLETIONS, "{\"prompt\":[[1],[2],[3]],\"n\":100}", 400, "prompt", NULL},
        {COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":21}", 400, "logprobs", NULL},
        {COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":true}", 400, "logprobs", NULL},
        {COMPLETIONS, "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400, "suffix", NULL},
        {COMPLETIONS, "{\"prompt\":\"a\",\"model\":\"gpt-9\"}", 404, "model", "model_not_found"},
        {COMPLETIONS,
         "{\"prompt\":\"a\",\"max_tokens\":1000}",
         400,
         "max_tokens",
         "context_length_exceeded"},
        {CHAT, "{}", 400, "messages", NULL},
        {CHAT, "{\"messages\":[]}", 400, "messages", NULL},
        {CHAT, "{\"messages\":[1]}", 400, "messages[0]", NULL},
        {CHAT, "{\"messages\":[{\"content\":\"a\"}]}", 400, "messages[0].role", NULL},
        {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content", NULL},
        {CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":1}]}",
         400,
         "messages[0].content",
         NULL},
        {CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
         "\"image_url\":{\"url\":\"x\"}}]}]}",
         400,
         "messages[0].content",
         NULL},
        {CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"x\"}]}"
         "]}",
         400,
         "messages[0].content",
         NULL},
        {CHAT, "{" QUESTION ",\"tools\":{}}", 400, "tools", NULL},
        {CHAT, "{" QUESTION ",\"functions\":[{\"name\":\"f\"}]}", 400, "functions", NULL},
        {CHAT,
         "{" QUESTION ",\"tools\":[],\"chat_template_kwargs\":{\"tools\":[]}}",
         400,
         "chat_template_kwargs",
         NULL},
        {CHAT,
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":1}]}",
         400,
         "messages[0].reasoning_content",
         NULL},
        {CHAT, "{" QUESTION ",\"chat_template_kwargs\":[1]}", 400, "chat_template_kwargs", NULL},
        {CHAT,
         "{" QUESTION ",\"chat_template_kwargs\":{\"messages\":[]}}",
         400,
         "chat_template_kwargs",
         NULL},
        {CHAT,
         "{" QUESTION ",\"documents\":[],\"chat_template_kwargs\":{\"documents\":[]}}",
         400,
         "chat_template_kwargs",
         NULL},
        {CHAT,
         "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":1}]}",
         400,
         "messages[0].tool_calls",
         NULL},
        {CHAT, "{" QUESTION ",\"documents\":[1]}", 400, "documents", NULL},
        {CHAT, "{" QUESTION ",\"add_generation_prompt\":1}", 400, "add_generation_prompt", NULL},
        {CHAT, "{" QUESTION ",\"tool_choice\":\"required\"}", 400, "tool_choice", NULL},
        {CHAT, "{" QUESTION ",\"modalities\":[\"text\",\"audio\"]}", 400, "modalities", NULL},
        {CHAT, "{" QUESTION ",\"top_logprobs\":2}", 400, "top_logprobs", NULL},
        {CHAT, "{" QUESTION ",\"logprobs\":1}", 400, "logprobs", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *v = server_json(&server, "POST", cases[i].path, cases[i].body, cases[i].status);
        const char *param = json_string_value(at(v, "error.param"));
        const char *code = json_string_value(at(v, "error.code"));
        if (strcmp(param ? param : "", cases[i].param ? cases[i].param : "") != 0 ||
            strcmp(code ? code : "", cases[i].code ? cases[i].code : "") != 0)
            fail_msg("%s: param %s, code %s: %s",
                     cases[i].body,
                     param,
                     code,
                     str_at(v, "error.message"));
        assert_true(strlen(str_at(v, "error.message")) > 0);
        json_decref(v);
    }
}

/* Too long a prompt names both numbers, and the dialect's own field. */
static void test_context_exceeded(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 300; i++)
        buf_str(&b, "7 ");
    buf_str(&b, "\"}]}");
    json_t *v = server_json(&server, "POST", CHAT, buf_cstr(&b), 400);
    assert_string_equal(str_at(v, "error.code"), "context_length_exceeded");
    assert_string_equal(str_at(v, "error.param"), "messages");
    assert_non_null(strstr(str_at(v, "error.message"), "256"));
    json_decref(v);
    buf_deinit(&b);
}

/* Room is 8 + 16: what could never fit is the client's mistake, what does not fit now is to come
 * back, and is not admitted in part. */
static void test_queue_full(void **state)
{
    (void)state;
    struct reply r;
    json_t *v = server_json(&server, "POST", COMPLETIONS, "{\"prompt\":\"a\",\"n\":100}", 400);
    assert_string_equal(str_at(v, "error.param"), "n");
    json_decref(v);
    struct api_call *running =
        server_begin(&server,
                     "POST",
                     COMPLETIONS,
                     "{\"prompt\":\"a\",\"n\":20,\"max_tokens\":200,\"ignore_eos\":true}");
    server_talk(&server, "POST", COMPLETIONS, "{\"prompt\":\"a\",\"n\":5}", &r);
    assert_int_equal(r.answer.status, 429);
    assert_true(atoi(r.retry_after) >= 1);
    assert_non_null(strstr(r.body.data, "queue_full"));
    buf_deinit(&r.body);
    json_decref(post(COMPLETIONS, "{\"prompt\":\"a\",\"n\":4,\"max_tokens\":1}"));
    server_finish(&server, running, &r);
    assert_int_equal(r.answer.status, 200);
    buf_deinit(&r.body);
}

/* In chunks that come late, too, timings are those of the tokens that they have told, not of the
 * newest. */
static void test_timings_of_late_chunks(void **state)
{
    (void)state;
    static const char body[] = "{" PROMPT "," GREEDY ",\"ignore_eos\":true,\"stream\":true,"
                               "\"timings_per_token\":true,\"return_progress\":true}";
    static const char field[] = "\"predicted_n\":";
    struct engine_stats before, now;
    struct reply r;
    uint32_t n = 0, last_n = 0, n_chunks = 0;
    double ms, last_ms = 0;
    engine_stats_get(server.engine, &before);
    struct api_call *c = server_begin(&server, "POST", COMPLETIONS, body);
    for (int i = 0; i < 6000; i++) { /* all tokens are there before the first is told */
        engine_stats_get(server.engine, &now);
        if (now.requests_by_finish[FINISH_LENGTH] > before.requests_by_finish[FINISH_LENGTH])
            break;
        usleep(10000);
    }
    server_finish(&server, c, &r);
    for (const char *p = r.body.data; (p = strstr(p, field)); p++, n_chunks++) {
        assert_int_equal(sscanf(p, "\"predicted_n\":%u,\"predicted_ms\":%lf", &n, &ms), 2);
        if (n < 2 ? ms != 0 : n > last_n ? ms <= last_ms : ms != last_ms)
            fail_msg("%u tokens: %.3f ms after %.3f in\n%s", n, ms, last_ms, r.body.data);
        last_n = n;
        last_ms = ms;
    }
    assert_true(n == 12 && n_chunks > 12);
    buf_deinit(&r.body);
}

static void test_metrics(void **state)
{
    (void)state;
    static const char *const names[] = {
        "weir_requests_running 0\n",
        "weir_requests_waiting 0\n",
        "weir_kv_blocks{state=\"free\"} ",
        "weir_kv_blocks_peak ",
        "weir_kv_cache_usage_perc ",
        "weir_time_to_first_token_seconds_bucket{le=\"+Inf\"} ",
        "weir_inter_token_latency_seconds_count ",
        "weir_request_queue_time_seconds_sum ",
        "weir_request_prefill_time_seconds_count ",
        "weir_request_decode_time_seconds_count ",
        "weir_e2e_request_latency_seconds_count ",
        "weir_batch_rows_count ",
        "weir_batch_sequences_count ",
        "weir_step_seconds_count ",
        "weir_steps_total ",
        "weir_step_allocations_total 0\n",
        "weir_prompt_tokens_total ",
        "weir_generation_tokens_total ",
        "weir_prefix_cache_queries_total ",
        "weir_prefix_cache_hits_total ",
        "weir_request_success_total{finished_reason=\"length\"} ",
        "weir_http_requests_total{status=\"200\"} ",
    };
    struct reply r;
    struct engine_stats before, after;
    json_decref(post(COMPLETIONS, "{" PROMPT ",\"max_tokens\":2,\"ignore_eos\":true}"));
    /* a prompt of four answers counts once, as in the usage, and is looked up four times */
    engine_stats_get(server.engine, &before);
    json_t *v = post(COMPLETIONS, "{" PROMPT ",\"max_tokens\":2,\"ignore_eos\":true,\"n\":4}");
    uint64_t n_prompt = (uint64_t)json_integer_value(at(v, "usage.prompt_tokens"));
    engine_stats_get(server.engine, &after);
    assert_int_equal(after.prompt_tokens - before.prompt_tokens, n_prompt);
    assert_int_equal(after.looked_up_tokens - before.looked_up_tokens, 4 * n_prompt);
    json_decref(v);
    server_talk(&server, "GET", "/metrics", "", &r);
    assert_int_equal(r.answer.status, 200);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!strstr(r.body.data, names[i]))
            fail_msg("no '%s' in\n%s", names[i], r.body.data);
    }
    buf_deinit(&r.body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_completion_shape),
        cmocka_unit_test(test_completion_stream_is_whole),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_chat_messages),
        cmocka_unit_test(test_template_variables),
        cmocka_unit_test(test_user_text_is_no_control),
        cmocka_unit_test(test_choices_and_seeds),
        cmocka_unit_test(test_prompt_forms),
        cmocka_unit_test(test_echo_logprobs),
        cmocka_unit_test(test_unlikely_token_is_listed),
        cmocka_unit_test(test_chat_logprobs),
        cmocka_unit_test(test_stop_never_leaks),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_context_exceeded),
        cmocka_unit_test(test_queue_full),
        cmocka_unit_test(test_timings_of_late_chunks),
        cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
