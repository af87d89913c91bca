/* Answers that take long to write are written by a worker, so that no stream waits for them. */
#include "unit/api/server.h"

#define COMPLETIONS "/v1/completions"
#define CHAT "/v1/chat/completions"
#define PROMPT "\"prompt\":\"Once there was a\""

/* How often the answer asks for a worker; it must be one without error. */
static uint32_t works_of(struct server *s, const char *path, const char *body)
{
    struct reply r;
    server_talk(s, "POST", path, body, &r);
    if (r.answer.status != 200)
        fail_msg("%s: %s", body, r.body.data);
    json_t *v = json_loads(r.body.data, JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    json_decref(v);
    buf_deinit(&r.body);
    return r.n_works;
}

/* What takes long to write is a worker's; streams are not, whose pieces are small. */
static void test_large_answers_are_a_workers(void **state)
{
    (void)state;
    static const char large[] =
        "{" PROMPT ",\"n\":8,\"max_tokens\":30,\"ignore_eos\":true,\"logprobs\":20}";
    static const char small[] =
        "{" PROMPT ",\"n\":8,\"max_tokens\":3,\"ignore_eos\":true,\"logprobs\":20}";
    static const char plain[] = "{" PROMPT ",\"n\":8,\"max_tokens\":30,\"ignore_eos\":true}";
    static const char stream[] = "{" PROMPT ",\"n\":8,\"max_tokens\":30,\"ignore_eos\":true,"
                                 "\"logprobs\":20,\"stream\":true}";
    struct server s;
    struct reply r;
    server_start(&s, 8, 16);
    assert_int_equal(works_of(&s, COMPLETIONS, large), 1);
    assert_int_equal(works_of(&s, COMPLETIONS, small), 0);
    assert_int_equal(works_of(&s, COMPLETIONS, plain), 0);
    server_talk(&s, "POST", COMPLETIONS, stream, &r);
    assert_int_equal(r.answer.status, 200);
    assert_int_equal(r.n_works, 0);
    buf_deinit(&r.body);
    server_stop(&s);
}

static void test_many_vectors_are_a_workers(void **state)
{
    (void)state;
    struct server s;
    struct buf few = {0}, many = {0};
    server_start_on(&s, NULL, POOLING_NONE, 4, 8);
    const uint32_t n = 16384 / s.model->hp.n_embd + 1; /* tokens of two texts */
    buf_str(&few, "{\"content\":[\"a\",\"b\"]}");
    buf_str(&many, "{\"content\":[[1");
    for (uint32_t i = 1; i < n; i++)
        buf_printf(&many, "%s%u", i == n / 2 ? "],[" : ",", i % 100 + 1);
    buf_str(&many, "]]}");
    assert_int_equal(works_of(&s, "/embedding", buf_cstr(&few)), 0);
    assert_int_equal(works_of(&s, "/embedding", buf_cstr(&many)), 1);
    buf_deinit(&few);
    buf_deinit(&many);
    server_stop(&s);
}

/* Each choice of a completion repeats its prompt's; a chat has them once. */
static void test_many_ids_are_a_workers(void **state)
{
    (void)state;
    struct server s;
    struct buf prompt = {0}, body = {0};
    const char *const ids = ",\"n\":90,\"max_tokens\":2,\"return_token_ids\":true}";
    server_start(&s, 16, 128);
    buf_str(&prompt, "{\"prompt\":[7");
    for (uint32_t i = 1; i < 200; i++) /* 90 times those are more than 16384 */
        buf_printf(&prompt, ",%u", i);
    buf_char(&prompt, ']');
    buf_printf(&body, "%s%s", buf_cstr(&prompt), ids);
    assert_int_equal(works_of(&s, COMPLETIONS, buf_cstr(&body)), 1);
    buf_clear(&body);
    buf_printf(&body, "%s,\"n\":90,\"max_tokens\":2}", buf_cstr(&prompt));
    assert_int_equal(works_of(&s, COMPLETIONS, buf_cstr(&body)), 0);
    buf_clear(&body);
    buf_printf(&body, "{\"prompt\":\"a\"%s", ids);
    assert_int_equal(works_of(&s, COMPLETIONS, buf_cstr(&body)), 0);
    buf_clear(&body);
    buf_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (uint32_t i = 0; i < 200; i++)
        buf_str(&body, i % 2 ? "7" : " ");
    buf_printf(&body, "\"}]%s", ids);
    assert_int_equal(works_of(&s, CHAT, buf_cstr(&body)), 0);
    buf_clear(&body);
    buf_printf(&body, "%s,\"n\":3,\"max_tokens\":2,\"prompt_logprobs\":6}", buf_cstr(&prompt));
    assert_int_equal(works_of(&s, COMPLETIONS, buf_cstr(&body)), 1);
    buf_clear(&body);
    buf_printf(&body, "%s,\"n\":2,\"max_tokens\":2,\"prompt_logprobs\":6}", buf_cstr(&prompt));
    assert_int_equal(works_of(&s, COMPLETIONS, buf_cstr(&body)), 0);
    buf_deinit(&prompt);
    buf_deinit(&body);
    server_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_answers_are_a_workers),
        cmocka_unit_test(test_many_vectors_are_a_workers),
        cmocka_unit_test(test_many_ids_are_a_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
