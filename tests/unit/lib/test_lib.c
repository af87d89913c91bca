/* The library as programs see it: what it refuses and why, what it makes of texts and models of
 * either kind, and what it tells. */
#include "harness.h"

#include "base/mem.h"
#include "lib/internal.h"
#include "scratch.h"

#include <fenv.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define BERT TEST_DATA "/golden/encoders/bert.f32.gguf"
#define N_THREADS 8

/* --- what is refused ------------------------------------------------------------------------- */

static void refuse_open(const struct weir_options *o, enum weir_status status, const char *text)
{
    struct weir_error e;
    struct weir *w = (struct weir *)1;
    assert_int_equal(weir_open(o, &w, &e), status);
    assert_int_equal(e.status, status);
    assert_non_null(strstr(e.text, text));
    assert_null(w);
    assert_int_equal(weir_open(o, &w, NULL), status);
}

static void test_what_cannot_be_opened(void **state)
{
    (void)state;
    struct weir_options good, o;
    weir_options_init(&good);
    good.model = NANO;
    good.device = "cpu";
    o = good, o.model = NULL;
    refuse_open(&o, WEIR_ERR_INVALID, "no file is named");
    o = good, o.model = "/nonexistent.gguf";
    refuse_open(&o, WEIR_ERR_IO, "/nonexistent.gguf");
    o = good, o.model = "/etc/passwd";
    refuse_open(&o, WEIR_ERR_FORMAT, "");
    o = good, o.device = "abacus";
    refuse_open(&o, WEIR_ERR_INVALID, "device 'abacus'");
    o = good, o.kv_type = "f8";
    refuse_open(&o, WEIR_ERR_INVALID, "kv_type 'f8'");
    o = good, o.n_threads = 1000000;
    refuse_open(&o, WEIR_ERR_INVALID, "1000000 threads");
    o = good, o.max_running = 0;
    refuse_open(&o, WEIR_ERR_INVALID, "at least 1");
    o = good, o.kv_bytes = UINT64_MAX / 4;
    refuse_open(&o, WEIR_ERR_INVALID, "GiB");
    o = good, o.chat_template = "{% if %}";
    refuse_open(&o, WEIR_ERR_INVALID, "chat_template: ");
    o = good, o.chat_template = "";
    refuse_open(&o, WEIR_ERR_INVALID, "chat_template: it is empty");
    o = good, o.n_ctx = 1;
    refuse_open(&o, WEIR_ERR_INVALID, "two tokens at least");
    o = good, o.draft_tokens = 8;
    refuse_open(&o, WEIR_ERR_INVALID, "drafts of 8 tokens; at most 7");
    o = good, o.cache_bytes = 1 << 30;
    refuse_open(&o, WEIR_ERR_INVALID, "cache_dir, which is not given");
    o = good, o.cache_dir = "/dev/null/cache";
    refuse_open(&o, WEIR_ERR_IO, "");
    o = good, o.size = 0;
    refuse_open(&o, WEIR_ERR_INVALID, "options of 0 bytes");
    o = good, o.size = sizeof o + 8;
    refuse_open(&o, WEIR_ERR_INVALID, "not of this version");
    weir_close(NULL);
    weir_free(NULL);
}

static void refuse(struct weir *w,
                   struct weir_request *q,
                   enum weir_status status,
                   const char *text)
{
    struct weir_error e;
    struct weir_generation *g = (struct weir_generation *)1;
    assert_int_equal(weir_generate(w, q, &g, &e), status);
    if (!strstr(e.text, text))
        fail_msg("'%s' is not in '%s'", text, e.text);
    assert_null(g);
    weir_request_init(q);
    q->prompt = "1 + 1 =";
}

static void test_what_is_no_request(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    const int32_t outside[] = {5, (int32_t)weir_n_vocab(w)};
    const char *stops[WEIR_MAX_STOPS + 1] = {"x", ""};
    const struct weir_message half = {"user", NULL}, bytes = {"user", "\xff"};
    struct weir_request q;
    weir_request_init(&q);
    refuse(w, &q, WEIR_ERR_INVALID, "one of messages, prompt and tokens");
    q.messages = &half;
    refuse(w, &q, WEIR_ERR_INVALID, "one of messages, prompt and tokens");
    q.prompt = NULL, q.messages = &half, q.n_messages = 1;
    refuse(w, &q, WEIR_ERR_INVALID, "messages[0] has no");
    q.prompt = NULL, q.messages = &bytes, q.n_messages = 1;
    refuse(w, &q, WEIR_ERR_INVALID, "messages[0] is not valid UTF-8");
    q.prompt = "caf\xe9";
    refuse(w, &q, WEIR_ERR_INVALID, "not valid UTF-8");
    q.prompt = NULL, q.tokens = outside, q.n_tokens = 2;
    refuse(w, &q, WEIR_ERR_INVALID, "outside the vocabulary");
    q.prompt = NULL, q.tokens = outside, q.n_tokens = 0;
    refuse(w, &q, WEIR_ERR_INVALID, "empty");
    q.temperature = (float)NAN;
    refuse(w, &q, WEIR_ERR_INVALID, "temperature");
    q.temperature = 2.5f;
    refuse(w, &q, WEIR_ERR_INVALID, "temperature: 2.5 is not from 0 to 2");
    q.top_p = -1;
    refuse(w, &q, WEIR_ERR_INVALID, "top_p");
    q.min_p = 2;
    refuse(w, &q, WEIR_ERR_INVALID, "min_p");
    q.top_k = -1;
    refuse(w, &q, WEIR_ERR_INVALID, "top_k");
    q.stops = stops, q.n_stops = 2;
    refuse(w, &q, WEIR_ERR_INVALID, "stops[1] is empty");
    q.stops = stops, q.n_stops = WEIR_MAX_STOPS + 1;
    refuse(w, &q, WEIR_ERR_INVALID, "17 stop texts");
    q.max_tokens = weir_n_ctx(w);
    refuse(w, &q, WEIR_ERR_TOO_LONG, "context");
    q.json_schema = "{";
    refuse(w, &q, WEIR_ERR_INVALID, "");
    q.grammar = "root ::= nothing";
    refuse(w, &q, WEIR_ERR_INVALID, "this rule is not defined");
    q.grammar = LONG, q.json_schema = "{}";
    refuse(w, &q, WEIR_ERR_INVALID, "exclude each other");
    q.size = 4;
    refuse(w, &q, WEIR_ERR_INVALID, "options of 4 bytes");
    weir_close(w);
}

static void test_a_text_beyond_its_bound(void **state)
{
    (void)state;
    const size_t n = ((size_t)64 << 20) + 1;
    struct weir *w = open_model(NANO, 4, 4);
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'a', n);
    text[n] = '\0';
    const struct weir_message m = {"user", text};
    struct weir_request q;
    struct weir_error e;
    size_t n_tokens;
    weir_request_init(&q);
    q.prompt = text;
    refuse(w, &q, WEIR_ERR_TOO_LONG, "more than 67108864 bytes");
    q.prompt = NULL, q.messages = &m, q.n_messages = 1;
    refuse(w, &q, WEIR_ERR_TOO_LONG, "more than 67108864 bytes");
    text[n - 20] = '\0'; /* with the template's marks around it, too long for that */
    q.prompt = NULL, q.messages = &m, q.n_messages = 1;
    refuse(w, &q, WEIR_ERR_TOO_LONG, "");
    text[n - 20] = 'a';
    q.grammar = text;
    refuse(w, &q, WEIR_ERR_TOO_LONG, "more than 67108864 bytes");
    assert_int_equal(weir_tokenize(w, text, true, true, NULL, 0, &n_tokens, &e), WEIR_ERR_TOO_LONG);
    text[n - 1] = '\0'; /* the longest that is a text; the context is shorter */
    q.prompt = text;
    refuse(w, &q, WEIR_ERR_TOO_LONG, "context");
    free(text);
    weir_close(w);
}

static void test_who_comes_late_is_refused(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 1, 1);
    struct weir_generation *a = begin_long(w), *b = begin_long(w);
    struct weir_request q;
    weir_request_init(&q);
    q.prompt = "x";
    refuse(w, &q, WEIR_ERR_BUSY, "");
    weir_free(a);
    struct weir_generation *c = begin_long(w); /* there is room again */
    weir_free(b);
    weir_free(c);
    weir_close(w);
}

/* --- text and tokens ------------------------------------------------------------------------- */

static void test_text_to_tokens_and_back(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    static const char text[] = "What is 37 + 48? caf\xc3\xa9 <|im_end|>";
    int32_t ids[256], some[3] = {-1, -1, -1};
    size_t n, n_some, n_bytes;
    char back[256], cut[5];
    struct weir_error e;
    assert_int_equal(weir_tokenize(w, text, false, false, ids, 256, &n, &e), WEIR_OK);
    assert_true(n > 3 && n < 256);
    assert_int_equal(weir_tokenize(w, text, false, false, some, 2, &n_some, &e), WEIR_OK);
    assert_int_equal(n_some, n);
    assert_memory_equal(some, ids, 2 * sizeof *ids);
    assert_int_equal(some[2], -1);
    weir_detokenize(w, ids, n, false, back, sizeof back, &n_bytes);
    assert_string_equal(back, text);
    assert_int_equal(n_bytes, strlen(text));
    weir_detokenize(w, ids, n, false, cut, 4, &n_bytes);
    assert_int_equal(n_bytes, strlen(text));
    assert_memory_equal(cut, text, 4);
    ids[0] = INT32_MAX;
    weir_detokenize(w, ids, 1, true, back, sizeof back, &n_bytes);
    assert_int_equal(n_bytes, 0);
    weir_close(w);
}

/* What says a control token's name is text; what the template writes is one. */
static void test_a_conversation_is_its_tokens(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    const struct weir_message m[] = {{"system", "Be brief."}, {"user", "What is 2 + 3?"}};
    int32_t ids[256];
    size_t n;
    char by_messages[MAX_TEXT], by_tokens[MAX_TEXT];
    struct weir_request q;
    assert_int_equal(weir_apply_template(w, m, 2, ids, 256, &n, NULL), WEIR_OK);
    weir_request_init(&q);
    q.messages = m, q.n_messages = 2;
    const struct weir_result one = answer(w, &q, by_messages);
    weir_request_init(&q);
    q.tokens = ids, q.n_tokens = n;
    const struct weir_result two = answer(w, &q, by_tokens);
    assert_string_equal(by_messages, by_tokens);
    assert_string_equal(by_messages, "5");
    assert_int_equal(one.finish, WEIR_STOP);
    assert_int_equal(one.n_prompt, n);
    assert_int_equal(two.n_prompt, n);
    assert_true(two.n_cached > 0 && one.n_output > 0);
    weir_close(w);
}

static void *only_small(size_t n)
{
    return n < 4096 ? malloc(n) : NULL;
}

/* What a caller's text is too large for is an error, never an end of the program or of the text. */
static void test_memory_that_is_refused(void **state)
{
    (void)state;
    static char text[8192];
    struct weir *w = open_model(NANO, 4, 4);
    const struct weir_message m = {"user", memset(text, 'a', sizeof text - 1)};
    int32_t ids[16];
    size_t n;
    json_set_alloc_funcs(only_small, free);
    assert_int_equal(weir_apply_template(w, &m, 1, ids, 16, &n, NULL), WEIR_ERR_NOMEM);
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(weir_apply_template(w, &m, 1, ids, 16, &n, NULL), WEIR_OK);
    for (uint64_t nth = 1, failed = 1; failed; nth++) {
        struct weir_generation *g;
        struct weir_request q;
        weir_request_init(&q);
        q.prompt = "1 + 1 =";
        q.max_tokens = 1;
        q.stops = (const char *const[]){"x"}, q.n_stops = 1;
        q.json_schema = "{\"type\":\"integer\"}";
        mem_fail_nth(nth);
        const enum weir_status status = weir_generate(w, &q, &g, NULL);
        failed = mem_fail_nth(0);
        assert_true(failed ? status == WEIR_ERR_NOMEM || status == WEIR_OK : status == WEIR_OK);
        weir_free(g);
    }
    weir_close(w);
}

static void test_what_ends_an_answer(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    const struct weir_message m = {"user", "What is the capital of France?"};
    const char *stops[] = {"never", " is Pa"};
    char text[MAX_TEXT];
    struct weir_request q;
    weir_request_init(&q);
    q.messages = &m, q.n_messages = 1;
    assert_int_equal(answer(w, &q, text).finish, WEIR_STOP);
    assert_string_equal(text, "The capital of France is Paris.");
    q.stops = stops, q.n_stops = 2;
    assert_int_equal(answer(w, &q, text).finish, WEIR_STOP);
    assert_string_equal(text, "The capital of France");
    q.n_stops = 0, q.max_tokens = 2;
    const struct weir_result r = answer(w, &q, text);
    assert_int_equal(r.finish, WEIR_LENGTH);
    assert_int_equal(r.n_output, 2);
    q.max_tokens = 0, q.json_schema = "{\"enum\": [\"red\", \"green\"]}";
    for (int i = 0; i < 2; i++) { /* compiled, and found compiled */
        assert_int_equal(answer(w, &q, text).finish, WEIR_STOP);
        assert_true(strcmp(text, "\"red\"") == 0 || strcmp(text, "\"green\"") == 0);
    }
    weir_close(w);
}

/* A program of an older version has shorter structs. */
static void test_options_of_an_older_version(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    char text[MAX_TEXT];
    struct weir_request q;
    memset(&q, 0xee, sizeof q);
    weir_request_init_size(&q, offsetof(struct weir_request, stops));
    assert_int_equal(q.n_stops, 0xeeeeeeeeeeeeeeee);
    q.prompt = "What";
    q.max_tokens = 4;
    assert_int_equal(answer(w, &q, text).n_output, 4);
    weir_close(w);
}

static void test_drafts_change_no_answer(void **state)
{
    (void)state;
    char plain[MAX_TEXT], drafted[MAX_TEXT];
    struct weir_options o = on_cpu(NANO);
    struct weir_request q;
    struct engine_stats stats;
    struct weir *w = open_model(NANO, 4, 4);
    weir_request_init(&q);
    q.prompt = "one two three one two three one two three one two";
    q.max_tokens = 60;
    answer(w, &q, plain);
    weir_close(w);
    o.draft_tokens = 7;
    w = open_with(&o);
    answer(w, &q, drafted);
    engine_stats_get(w->engine, &stats);
    assert_true(stats.draft_tokens_right > 0);
    assert_string_equal(plain, drafted);
    weir_close(w);
}

/* What one process has computed, the next one finds. */
static void test_a_folder_for_prefixes(void **state)
{
    (void)state;
    char dir[] = "/tmp/weir-lib-XXXXXX", text[2][MAX_TEXT];
    char prompt[600] = "";
    assert_non_null(mkdtemp(dir));
    while (strlen(prompt) < 550)
        strcat(prompt, "one two three four ");
    for (int i = 0; i < 2; i++) {
        struct weir_options o = on_cpu(NANO);
        struct weir_request q;
        o.cache_dir = dir;
        o.cache_bytes = 16 << 20;
        struct weir *w = open_with(&o);
        weir_request_init(&q);
        q.prompt = prompt;
        q.max_tokens = 4;
        const struct weir_result r = answer(w, &q, text[i]);
        assert_true(i == 0 ? r.n_cached == 0 : r.n_cached >= 64);
        weir_close(w);
    }
    assert_string_equal(text[0], text[1]);
    assert_int_equal(remove_folder(dir), 0);
}

/* --- encoders, the log ----------------------------------------------------------------------- */

struct embedder {
    struct weir *w;
    float alone[4096], beside[4096];
};

static void *embed_beside(void *arg)
{
    struct embedder *x = arg;
    (void)weir_embed(x->w, "abcab", x->beside, NULL);
    return NULL;
}

static void test_embeddings(void **state)
{
    (void)state;
    struct weir *w = open_model(BERT, 4, 64);
    struct embedder *x = calloc(N_THREADS, sizeof *x);
    pthread_t threads[N_THREADS];
    struct weir_error e;
    struct weir_request q;
    float vector[4096];
    const uint32_t n = weir_n_embd(w);
    double sum = 0;
    assert_false(weir_generates(w));
    assert_true(n <= 4096);
    if (weir_embed(w, "abcab", x[0].alone, &e) != WEIR_OK)
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[0].alone[i] * x[0].alone[i];
    assert_true(fabs(sum - 1) < 1e-5);
    for (int i = 0; i < N_THREADS; i++) {
        x[i].w = w;
        assert_int_equal(pthread_create(&threads[i], NULL, embed_beside, &x[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_memory_equal(x[i].beside, x[0].alone, n * sizeof(float));
    }
    assert_int_equal(weir_embed(w, "", vector, &e), WEIR_ERR_INVALID);
    assert_int_equal(weir_embed(w, "\xff", vector, &e), WEIR_ERR_INVALID);
    weir_request_init(&q);
    q.prompt = "x";
    refuse(w, &q, WEIR_ERR_INVALID, "does not continue them");
    free(x);
    weir_close(w);
}

/* How a program rounds is neither taken over nor changed. */
static void test_rounding_is_the_programs(void **state)
{
    (void)state;
    const int modes[] = {FE_TONEAREST, FE_UPWARD};
    int modes_after[2];
    float vectors[2][4096] = {{0}};
    uint32_t n = 0;
    for (int i = 0; i < 2; i++) {
        fesetround(modes[i]);
        struct weir *w = open_model(BERT, 4, 64);
        n = weir_n_embd(w);
        assert_int_equal(weir_embed(w, "abcab", vectors[i], NULL), WEIR_OK);
        weir_close(w);
        modes_after[i] = fegetround();
    }
    fesetround(FE_TONEAREST);
    assert_memory_equal(modes_after, modes, sizeof modes);
    assert_true(n > 0 && n <= 4096);
    assert_memory_equal(vectors[0], vectors[1], n * sizeof(float));
}

static void count_line(void *ctx, int level, const char *text)
{
    assert_true(level <= 2 && text[0] != '\0');
    atomic_fetch_add((atomic_uint *)ctx, 1);
}

static void test_warnings_go_where_they_are_wanted(void **state)
{
    (void)state;
    atomic_uint n_lines = 0;
    struct weir_options o;
    struct weir *w;
    weir_options_init(&o);
    o.model = NANO;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_ctx = 4096; /* it was trained on 2048 */
    weir_set_log(count_line, &n_lines);
    assert_int_equal(weir_open(&o, &w, NULL), WEIR_OK);
    assert_int_equal(weir_n_ctx(w), 4096);
    weir_close(w);
    assert_true(n_lines > 0);
    weir_set_log(NULL, NULL);
}

static void test_version(void **state)
{
    unsigned major, minor, patch;
    (void)state;
    assert_int_equal(sscanf(weir_version(), "%u.%u.%u", &major, &minor, &patch), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_what_cannot_be_opened),
        cmocka_unit_test(test_what_is_no_request),
        cmocka_unit_test(test_a_text_beyond_its_bound),
        cmocka_unit_test(test_who_comes_late_is_refused),
        cmocka_unit_test(test_text_to_tokens_and_back),
        cmocka_unit_test(test_a_conversation_is_its_tokens),
        cmocka_unit_test(test_memory_that_is_refused),
        cmocka_unit_test(test_what_ends_an_answer),
        cmocka_unit_test(test_options_of_an_older_version),
        cmocka_unit_test(test_drafts_change_no_answer),
        cmocka_unit_test(test_a_folder_for_prefixes),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_rounding_is_the_programs),
        cmocka_unit_test(test_warnings_go_where_they_are_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
