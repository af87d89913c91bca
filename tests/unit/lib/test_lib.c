/* The library as programs see it: what it refuses and why, that answers are the same alone and
 * beside others, and that every generation ends once, however it ends. */
#include "base/mem.h"
#include "lib/internal.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NANO WEIR_MODELS "/weir-nano.gguf"
#define BERT TEST_DATA "/golden/encoders/bert.f32.gguf"
#define N_THREADS 8
#define MAX_TEXT 4096
/* What the model would not end by itself before somebody else does. */
#define LONG "root ::= [a-z]{1500}"

static struct weir *open_model(const char *path, uint32_t max_running, uint32_t max_waiting)
{
    struct weir_options o;
    struct weir_error e;
    struct weir *w;
    weir_options_init(&o);
    o.model = path;
    o.device = "cpu";
    o.n_threads = 2;
    o.kv_bytes = 64 << 20;
    o.max_running = max_running;
    o.max_waiting = max_waiting;
    if (weir_open(&o, &w, &e) != WEIR_OK)
        fail_msg("%s: %s", path, e.text);
    return w;
}

static struct weir_generation *begin(struct weir *w, const struct weir_request *q)
{
    struct weir_generation *g;
    struct weir_error e;
    if (weir_generate(w, q, &g, &e) != WEIR_OK)
        fail_msg("%s", e.text);
    return g;
}

static struct weir_generation *begin_long(struct weir *w)
{
    struct weir_request q;
    weir_request_init(&q);
    q.prompt = "Once";
    q.grammar = LONG;
    return begin(w, &q);
}

/* All that is left of it, in text[MAX_TEXT]; how many pieces it came in. */
static size_t read_all(struct weir_generation *g, char *text)
{
    size_t n = 0, n_pieces = 0, n_piece;
    const char *piece;
    for (; (piece = weir_next(g, &n_piece)) != NULL; n_pieces++) {
        assert_int_equal(strlen(piece), n_piece);
        assert_true(n_piece > 0 && n + n_piece < MAX_TEXT);
        memcpy(text + n, piece, n_piece);
        n += n_piece;
    }
    text[n] = '\0';
    return n_pieces;
}

static struct weir_result answer(struct weir *w, const struct weir_request *q, char *text)
{
    struct weir_generation *g = begin(w, q);
    struct weir_result r;
    struct weir_error e;
    read_all(g, text);
    assert_int_equal(weir_result(g, &r, &e), WEIR_OK);
    assert_string_equal(e.text, "");
    weir_free(g);
    return r;
}

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
    struct weir_options o;
    struct weir_request q;
    struct engine_stats stats;
    struct weir *w = open_model(NANO, 4, 4);
    weir_request_init(&q);
    q.prompt = "one two three one two three one two three one two";
    q.max_tokens = 60;
    answer(w, &q, plain);
    weir_close(w);
    weir_options_init(&o);
    o.model = NANO;
    o.device = "cpu";
    o.draft_tokens = 7;
    assert_int_equal(weir_open(&o, &w, NULL), WEIR_OK);
    answer(w, &q, drafted);
    engine_stats_get(w->engine, &stats);
    assert_true(stats.draft_tokens_right > 0);
    assert_string_equal(plain, drafted);
    weir_close(w);
}

/* --- many at once ---------------------------------------------------------------------------- */

struct asker {
    struct weir *w;
    uint32_t number;
    char alone[MAX_TEXT], beside[MAX_TEXT];
};

/* A different one for each number, all with the same beginning. */
static void ask(struct asker *a, char *text)
{
    char question[64];
    struct weir_request q;
    snprintf(question, sizeof question, "Count from %u: one two three", a->number);
    weir_request_init(&q);
    q.prompt = question;
    q.max_tokens = 40;
    q.temperature = 1.5f;
    q.seed = a->number;
    answer(a->w, &q, text);
}

static void *ask_beside(void *arg)
{
    struct asker *a = arg;
    for (int i = 0; i < 3; i++) {
        ask(a, a->beside);
        if (strcmp(a->alone, a->beside) != 0)
            break;
    }
    return NULL;
}

static void test_the_same_alone_and_beside_others(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 64);
    struct asker *askers = calloc(N_THREADS, sizeof *askers);
    pthread_t threads[N_THREADS];
    for (uint32_t i = 0; i < N_THREADS; i++) {
        askers[i].w = w;
        askers[i].number = i;
        ask(&askers[i], askers[i].alone);
    }
    assert_string_not_equal(askers[0].alone, askers[1].alone);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_beside, &askers[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(askers[i].alone, askers[i].beside);
    }
    free(askers);
    weir_close(w);
}

/* --- ends ------------------------------------------------------------------------------------ */

static void test_cancelled_by_another_thread(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    struct weir_generation *g = begin_long(w);
    struct weir_result r;
    char text[MAX_TEXT];
    assert_non_null(weir_next(g, NULL));
    weir_cancel(g);
    weir_cancel(g);
    read_all(g, text);
    assert_null(weir_next(g, NULL));
    assert_int_equal(weir_result(g, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    assert_true(r.n_output > 0 && r.n_output < 1500);
    weir_cancel(g); /* too late, and no matter */
    assert_int_equal(weir_result(g, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    weir_free(g);
    weir_free(begin_long(w)); /* while it runs */
    weir_close(w);
}

struct reader {
    struct weir_generation *g;
    atomic_bool *go_on; /* NULL: at once */
    atomic_uint *n_reading;
    char text[MAX_TEXT];
    struct weir_result result;
};

static void *read_to_the_end(void *arg)
{
    struct reader *r = arg;
    const char *first = weir_next(r->g, NULL);
    atomic_fetch_add(r->n_reading, 1);
    while (r->go_on && !atomic_load(r->go_on))
        sched_yield();
    if (first)
        read_all(r->g, r->text);
    (void)weir_result(r->g, &r->result, NULL);
    weir_free(r->g);
    return NULL;
}

/* Of those that run some are being read, others will be when the model is no more. */
static void test_closed_under_its_readers(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    atomic_uint n_reading = 0;
    atomic_bool go_on = false;
    struct reader *readers = calloc(N_THREADS, sizeof *readers);
    pthread_t threads[N_THREADS];
    struct weir_generation *unread = begin_long(w), *waits = NULL;
    for (int i = 0; i < 3; i++) {
        readers[i] = (struct reader){
            .g = begin_long(w), .go_on = i == 0 ? &go_on : NULL, .n_reading = &n_reading};
        assert_int_equal(pthread_create(&threads[i], NULL, read_to_the_end, &readers[i]), 0);
    }
    waits = begin_long(w); /* has never run */
    while (atomic_load(&n_reading) < 3)
        sched_yield();
    weir_close(w);
    atomic_store(&go_on, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].result.finish, WEIR_CANCELLED);
    }
    char text[MAX_TEXT];
    struct weir_result r;
    assert_true(read_all(unread, text) > 0);
    weir_cancel(unread);
    assert_int_equal(weir_result(unread, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    assert_null(weir_next(waits, NULL));
    assert_int_equal(weir_result(waits, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    weir_free(waits);
    weir_free(unread);
    free(readers);
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
        struct weir_options o;
        struct weir_request q;
        struct weir *w;
        weir_options_init(&o);
        o.model = NANO;
        o.device = "cpu";
        o.n_threads = 1;
        o.cache_dir = dir;
        o.cache_bytes = 16 << 20;
        assert_int_equal(weir_open(&o, &w, NULL), WEIR_OK);
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

/* Of all threads but the program's own. */
static void test_signals_are_for_the_program(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    struct weir_generation *g = begin_long(w); /* there is a thread for masks then */
    char path[300], line[256];
    int n_threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *d; (d = readdir(tasks)) != NULL;) {
        unsigned long long blocked = 0;
        if (d->d_name[0] == '.' || atoi(d->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        if (f)
            fclose(f);
        assert_true(blocked >> (SIGINT - 1) & 1 && blocked >> (SIGUSR1 - 1) & 1);
        n_threads++;
    }
    closedir(tasks);
    assert_true(n_threads >= 4); /* engine, worker, masks, events */
    weir_free(g);
    weir_close(w);
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
        cmocka_unit_test(test_the_same_alone_and_beside_others),
        cmocka_unit_test(test_cancelled_by_another_thread),
        cmocka_unit_test(test_closed_under_its_readers),
        cmocka_unit_test(test_a_folder_for_prefixes),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_warnings_go_where_they_are_wanted),
        cmocka_unit_test(test_signals_are_for_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
