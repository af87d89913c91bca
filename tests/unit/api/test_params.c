/* The shared fields: defaults, ranges, and what is refused. */
#include "api/params.h"
#include "engine/stop.h"

#include "unit/api/cmocka_all.h"

#include <string.h>

#define N_VOCAB 1000

static enum err parse(const char *text, struct api_params *p, json_t **body, struct err_info *e)
{
    memset(p, 0, sizeof *p);
    memset(e, 0, sizeof *e);
    assert_int_equal(api_json_parse(text, strlen(text), body, e), OK);
    return api_params_parse(*body, N_VOCAB, 128, p, e);
}

static void test_defaults(void **state)
{
    (void)state;
    struct api_params p, q;
    struct err_info e;
    json_t *body, *body2;
    assert_int_equal(parse("{}", &p, &body, &e), OK);
    assert_true(p.request.sample.temperature == 1.0f);
    assert_true(p.request.sample.top_p == 1.0f);
    assert_int_equal(p.request.sample.top_k, 0);
    assert_true(p.request.sample.repetition_penalty == 1.0f);
    assert_int_equal(p.n, 1);
    assert_false(p.max_tokens_given);
    assert_false(p.stream);
    assert_null(p.model.data);
    assert_false(p.return_token_ids || p.request.special_text);
    /* without a seed every request draws differently */
    assert_int_equal(parse("{}", &q, &body2, &e), OK);
    assert_true(p.request.sample.seed != q.request.sample.seed);
    api_params_deinit(&p);
    api_params_deinit(&q);
    json_decref(body);
    json_decref(body2);
}

static void test_all_fields(void **state)
{
    (void)state;
    struct api_params p;
    struct err_info e;
    json_t *body;
    assert_int_equal(
        parse("{\"model\": \"m\", \"n\": 3, \"best_of\": 3, \"max_tokens\": 5, \"temperature\": 0,"
              "\"top_p\": 0.5, \"top_k\": 40, \"min_p\": 0.1, \"repetition_penalty\": 1.5,"
              "\"presence_penalty\": -2, \"frequency_penalty\": 2, \"seed\": -7,"
              "\"logit_bias\": {\"0\": -100, \"999\": 1.5}, \"stop\": [\"a\", \"b\"],"
              "\"stop_token_ids\": [1, 2], \"stream\": true, \"ignore_eos\": true,"
              "\"stream_options\": {\"include_usage\": true}, \"return_tokens\": true,"
              "\"cache_prompt\": false, \"cache_salt\": \"me\", \"priority\": -3, \"user\": \"x\", "
              "\"response_format\": {\"type\": \"text\"},"
              "\"grammar\": \"\", \"bad_words\": [], \"min_tokens\": 4, \"store\": true,"
              "\"return_token_ids\": true, \"skip_special_tokens\": false}",
              &p,
              &body,
              &e),
        OK);
    const struct sample_params *s = &p.request.sample;
    assert_int_equal(p.n, 3);
    assert_true(p.max_tokens_given);
    assert_int_equal(p.request.max_tokens, 5);
    assert_int_equal(p.request.min_tokens, 4);
    assert_true(s->temperature == 0.0f && s->top_p == 0.5f && s->min_p == 0.1f);
    assert_true(s->repetition_penalty == 1.5f && s->presence_penalty == -2.0f);
    assert_true(s->frequency_penalty == 2.0f);
    assert_int_equal(s->top_k, 40);
    assert_true(s->seed == (uint64_t)-7);
    assert_int_equal(s->n_bias, 2);
    assert_int_equal(s->bias[0].id + s->bias[1].id, 999);
    assert_int_equal(stop_texts_count(p.request.stops), 2);
    assert_string_equal(stop_texts_get(p.request.stops, 1).data, "b");
    assert_int_equal(p.request.n_stop_ids, 2);
    assert_int_equal(p.request.stop_ids[1], 2);
    assert_false(p.request.cache);
    assert_int_equal(p.request.n_cache_salt, 2);
    assert_memory_equal(p.request.cache_salt, "me", 2);
    assert_int_equal(p.request.priority, -3);
    assert_true(p.stream && p.include_usage && p.return_tokens && p.request.ignore_eos);
    assert_true(p.return_token_ids && p.request.special_text);
    api_params_deinit(&p);
    json_decref(body);
}

static void test_max_completion_tokens_wins(void **state)
{
    (void)state;
    struct api_params p;
    struct err_info e;
    json_t *body;
    assert_int_equal(
        parse("{\"max_tokens\": 5, \"max_completion_tokens\": 9, \"top_k\": -1}", &p, &body, &e),
        OK);
    assert_int_equal(p.request.max_tokens, 9);
    assert_int_equal(p.request.sample.top_k, 0);
    api_params_deinit(&p);
    json_decref(body);
    /* but -1, which is no number */
    assert_int_equal(parse("{\"max_tokens\": 5, \"max_completion_tokens\": -1}", &p, &body, &e),
                     OK);
    assert_int_equal(p.request.max_tokens, 5);
    api_params_deinit(&p);
    json_decref(body);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body, *field;
    } cases[] = {
        {"{\"n\": 0}", "n"},
        {"{\"n\": 129}", "n"},
        {"{\"n\": \"1\"}", "n"},
        {"{\"best_of\": 2}", "best_of"},
        {"{\"max_tokens\": 0}", "max_tokens"},
        {"{\"max_tokens\": -2}", "max_tokens"},
        {"{\"max_tokens\": 1, \"max_completion_tokens\": 0}", "max_completion_tokens"},
        {"{\"n_predict\": 0}", "n_predict"},
        {"{\"max_tokens\": 0, \"max_completion_tokens\": 1}", "max_tokens"},
        {"{\"max_completion_tokens\": 1.5}", "max_completion_tokens"},
        {"{\"temperature\": -0.1}", "temperature"},
        {"{\"temperature\": 2.1}", "temperature"},
        {"{\"temperature\": \"hot\"}", "temperature"},
        {"{\"top_p\": 1.1}", "top_p"},
        {"{\"top_k\": -2}", "top_k"},
        {"{\"min_p\": -1}", "min_p"},
        {"{\"repetition_penalty\": 0}", "repetition_penalty"},
        {"{\"repeat_penalty\": 0}", "repeat_penalty"},
        {"{\"presence_penalty\": 2.5}", "presence_penalty"},
        {"{\"frequency_penalty\": -3}", "frequency_penalty"},
        {"{\"seed\": 1.5}", "seed"},
        {"{\"seed\": 18446744073709551615}", "seed"},
        {"{\"stop\": \"\"}", "stop"},
        {"{\"stop\": [\"a\", \"\"]}", "stop[1]"},
        {"{\"stop\": 1}", "stop"},
        {"{\"stop\": [1]}", "stop[0]"},
        {"{\"stop\": [\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
         "\"1\",\"1\",\"1\",\"1\",\"1\"]}",
         "stop"},
        {"{\"stop_token_ids\": [1000]}", "stop_token_ids"},
        {"{\"stop_token_ids\": 1}", "stop_token_ids"},
        {"{\"logit_bias\": [1]}", "logit_bias"},
        {"{\"logit_bias\": {\"1000\": 1}}", "logit_bias"},
        {"{\"logit_bias\": {\"01\": 1}}", "logit_bias"},
        {"{\"logit_bias\": {\"-1\": 1}}", "logit_bias"},
        {"{\"logit_bias\": {\"\": 1}}", "logit_bias"},
        {"{\"logit_bias\": {\"99999999999999999999\": 1}}", "logit_bias"},
        {"{\"logit_bias\": {\"1\": 101}}", "logit_bias"},
        {"{\"logit_bias\": {\"1\": null}}", "logit_bias"},
        {"{\"stream\": 1}", "stream"},
        {"{\"stream_options\": true}", "stream_options"},
        {"{\"stream_options\": {\"include_usage\": 1}}", "stream_options.include_usage"},
        {"{\"cache_prompt\": 1}", "cache_prompt"},
        {"{\"cache_salt\": 1}", "cache_salt"},
        {"{\"priority\": 101}", "priority"},
        {"{\"priority\": 0.5}", "priority"},
        {"{\"model\": 1}", "model"},
        {"{\"min_tokens\": -1}", "min_tokens"},
        {"{\"typical_p\": 0.5}", "typical_p"},
        {"{\"mirostat\": 2}", "mirostat"},
        {"{\"use_beam_search\": true}", "use_beam_search"},
        {"{\"skip_special_tokens\": 0}", "skip_special_tokens"},
        {"{\"max_tokens\": 0, \"max_completion_tokens\": 2}", "max_tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct api_params p;
        struct err_info e;
        json_t *body;
        enum err err = parse(cases[i].body, &p, &body, &e);
        if (!err)
            err = api_params_some(&p, &e);
        if (err != ERR_INVALID || strcmp(e.field, cases[i].field) != 0)
            fail_msg("%s: %d, field '%s': %s", cases[i].body, err, e.field, e.text);
        api_params_deinit(&p);
        json_decref(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_all_fields),
        cmocka_unit_test(test_max_completion_tokens_wins),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
