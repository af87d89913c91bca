/* Masks, states and the composition of grammars: a mask is what trying every token says, in every
 * state of an answer; and neither a cache that is full nor other answers change it. */
#include "harness.h"

#include "grammar/internal.h"

#include <pthread.h>

static const struct {
    enum kind kind;
    const char *text;
} all[] = {
    {GBNF, "root ::= [a-z ]{0,40} \"\\xc3\"? | \"the\" | <[0]>"},
    {GBNF, "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\""},
    {GBNF, "root ::= ([^\\n]* \"\\n\"){3}"},
    {REGEX, "(\\d{2}|\\d{4}-\\d{2}){1,3}\\.?"},
    {REGEX, "(a|b)*abb(ab){10,500}"},
    {REGEX, ".{100,2000}"},
    {SCHEMA, "true"},
    {SCHEMA, "{\"type\":\"object\"}"},
    {SCHEMA, "{\"type\":\"string\",\"maxLength\":300}"},
    {SCHEMA,
     "{\"type\":\"array\",\"items\":{\"enum\":[\"foo\",\"bar\",1,10,123]},\"minItems\":20}"},
    {SCHEMA,
     "{\"properties\":{\"name\":{},\"age\":{\"type\":\"integer\",\"minimum\":7}},"
     "\"additionalProperties\":true}"},
};
enum { N_ALL = sizeof all / sizeof all[0] };

/* One answer by chance, its masks checked on the way. */
static void check_answer(struct grammar *g, uint64_t *seed)
{
    struct grammar_state *s = grammar_state_create(g);
    for (int i = 0; i < 60; i++) {
        int32_t allowed[N_VOCAB], n = 0;
        check_mask(s);
        struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
        for (int32_t t = 0; t < CONTROL; t++)
            if (mask.bits[t / 64] >> t % 64 & 1)
                allowed[n++] = t;
        grammar_mask_release(w.masks, &mask);
        if (n == 0)
            break;
        int32_t id = allowed[next_random(seed) % (uint64_t)n];
        if (grammar_accept(s, id, w.scratch) == GRAMMAR_ENDED)
            break;
    }
    grammar_state_destroy(s);
}

static void test_masks_are_exact(void **state)
{
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (int i = 0; i < N_ALL; i++) {
        struct grammar *g = must_make(all[i].kind, all[i].text);
        for (int k = 0; k < 10; k++)
            check_answer(g, &seed);
        grammar_release(g);
    }
}

/* The middle of a long repetition has one mask. */
static void test_long_repetitions_share_masks(void **state)
{
    (void)state;
    struct grammar *g =
        must_make(SCHEMA, "{\"type\":\"string\",\"minLength\":500,\"maxLength\":5000}");
    struct grammar_state *s = grammar_state_create(g);
    assert_int_equal(grammar_accept(s, '"', w.scratch), GRAMMAR_GOES_ON);
    uint64_t before = grammar_masks_stats(w.masks).misses;
    for (int i = 0; i < 4000; i++) {
        struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
        grammar_mask_release(w.masks, &mask);
        assert_int_equal(grammar_accept(s, 'x', w.scratch), GRAMMAR_GOES_ON);
    }
    assert_true(grammar_masks_stats(w.masks).misses - before < 30);
    for (int i = 4000; i < 5000; i++)
        assert_int_equal(grammar_accept(s, 'x', w.scratch), GRAMMAR_GOES_ON);
    assert_int_equal(grammar_accept(s, 'x', w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(s, '"', w.scratch), GRAMMAR_ENDED);
    grammar_state_destroy(s);
    grammar_release(g);
}

/* A pool of few masks gives the same ones, over and over. */
static void test_small_pool(void **state)
{
    (void)state;
    struct grammar_masks *large = w.masks;
    uint64_t seed = 42;
    assert_int_equal(grammar_masks_create(w.vocab, 1, 2, &w.masks, NULL), OK);
    struct grammar *g = must_make(SCHEMA, "true");
    for (int i = 0; i < 10; i++)
        check_answer(g, &seed);
    assert_true(grammar_masks_stats(w.masks).evictions > 0);
    grammar_release(g);
    grammar_masks_destroy(w.masks);
    w.masks = large;
}

/* A grammar of so many states that its automaton is emptied again and again. */
static void test_full_walker(void **state)
{
    (void)state;
    uint64_t seed = 7;
    struct grammar *g = must_make(GBNF, "root ::= ([a-z ]* \"e\" [a-z ]{7})* \"!\"");
    for (int i = 0; i < 300; i++)
        check_answer(g, &seed);
    grammar_release(g);
}

struct job {
    struct grammar *g;
    uint64_t seed;
    uint64_t sum;
};

/* Masks of random answers, added up. */
static void *use_grammar(void *arg)
{
    struct job *job = arg;
    struct grammar_scratch *scratch = grammar_scratch_create();
    for (int k = 0; k < 10; k++) {
        struct grammar_state *s = grammar_state_create(job->g);
        for (int i = 0; i < 40; i++) {
            struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
            int32_t id = (int32_t)(next_random(&job->seed) % CONTROL), tries = 0;
            for (; tries < CONTROL && !(mask.bits[id / 64] >> id % 64 & 1); tries++)
                id = (id + 1) % CONTROL;
            for (uint32_t i2 = 0; i2 < (N_VOCAB + 63) / 64; i2++)
                job->sum = job->sum * 31 + mask.bits[i2];
            grammar_mask_release(w.masks, &mask);
            if (tries == CONTROL || grammar_accept(s, id, scratch) != GRAMMAR_GOES_ON)
                break;
            (void)grammar_mask_ready(w.masks, s, GRAMMAR_NO_LIMIT);
        }
        grammar_state_destroy(s);
    }
    grammar_scratch_destroy(scratch);
    return NULL;
}

static void test_threads_do_not_show(void **state)
{
    (void)state;
    enum { N = 3 };
    for (int i = 0; i < N_ALL; i++) {
        struct grammar *g = must_make(all[i].kind, all[i].text),
                       *alone = must_make(all[i].kind, all[i].text);
        struct job jobs[N], want[N];
        pthread_t threads[N];
        for (int k = 0; k < N; k++) {
            jobs[k] = (struct job){.g = g, .seed = 100 + (uint64_t)k};
            want[k] = (struct job){.g = alone, .seed = 100 + (uint64_t)k};
            assert_int_equal(pthread_create(&threads[k], NULL, use_grammar, &jobs[k]), 0);
        }
        for (int k = 0; k < N; k++) {
            pthread_join(threads[k], NULL);
            use_grammar(&want[k]);
            assert_int_equal(jobs[k].sum, want[k].sum);
        }
        grammar_release(g);
        grammar_release(alone);
    }
}

/* ---- what is remembered of ways that were gone ---- */

static void check_same(const struct grammar_state *a, const struct grammar_state *b)
{
    assert_int_equal(a->n_parses, b->n_parses);
    assert_int_equal(a->n_cells, b->n_cells);
    assert_int_equal(a->complete, b->complete);
    assert_int_equal(a->way, b->way);
    assert_memory_equal(a->parses, b->parses, a->n_parses * sizeof *a->parses);
    assert_memory_equal(a->cells, b->cells, a->n_cells * sizeof *a->cells);
}

/* A token from a state as it is, and with the trail in another's hands: the same comes out. */
static enum grammar_step check_step(struct grammar_state *s,
                                    struct grammar_state *alone,
                                    int32_t id)
{
    enum grammar_step to = grammar_accept(s, id, w.scratch);
    pthread_mutex_lock(&s->g->trail_lock);
    assert_int_equal(grammar_accept(alone, id, w.scratch), to);
    pthread_mutex_unlock(&s->g->trail_lock);
    check_same(s, alone);
    return to;
}

/* Answers by chance whose tokens are allowed or not, followed with the trail and without it. */
static void test_trail_does_not_show(void **state)
{
    static const struct {
        enum kind kind;
        const char *text;
    } cases[] = {
        {SCHEMA, "{\"type\":\"object\"}"},
        {GBNF, "root ::= \"ab\" <[3]> root? | [a-z ] (root | root root)? (root root root)?"},
        {GBNF, "root ::= x{2,9} \"\\n\"?\nx ::= \"a\" (x | x x)? (x x x)? | [b-z ] x{0,3} [a-z]?"},
        {GBNF, "root ::= ([a-z ]* \"e\" [a-z ]{300})* \"!\""},
        {REGEX, "(a|b|the )*a(a|b| ){20}(a*b*){40}"},
        /* counts that are exact: more than are followed */
        {GBNF, "root ::= ([a-z ]* [a-m] [a-z ]{300})* \"!\""},
        {GBNF, "root ::= r{400} \"!\"\nr ::= [a-z ] [a-z ]?"},
        /* hundreds of stacks, each with cells of its own: more than a state keeps */
        {GBNF,
         "root ::= \"a\" (root \"b\" | root \"c\" | root \"d\") | t\n"
         "t ::= [a-z] t \"y\" | \"z\""},
    };
    uint64_t seed = 4711;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = must_make(cases[i].kind, cases[i].text);
        uint32_t most = 0, most_cells = 0;
        for (int k = 0; k < 12; k++) {
            struct grammar_state *s = grammar_state_create(g), *alone = grammar_state_create(g);
            enum grammar_step to = GRAMMAR_GOES_ON;
            for (int n = 0; n < 250 && to != GRAMMAR_ENDED; n++) {
                struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
                int32_t id = (int32_t)(next_random(&seed) % N_VOCAB), any = id;
                while (!mask.none && !(mask.bits[id / 64] >> id % 64 & 1))
                    id = (id + 1) % N_VOCAB;
                grammar_mask_release(w.masks, &mask);
                if (id == EOG)
                    break;
                if (any != id)
                    assert_int_equal(check_step(s, alone, any), GRAMMAR_REFUSED);
                to = check_step(s, alone, id);
                assert_int_not_equal(to, GRAMMAR_REFUSED);
                most = s->n_parses > most ? s->n_parses : most;
                most_cells = s->n_cells > most_cells ? s->n_cells : most_cells;
            }
            grammar_state_destroy(s);
            grammar_state_destroy(alone);
        }
        print_message("%zu: up to %u parses, %u cells\n", i, most, most_cells);
        grammar_release(g);
    }
}

/* ---- composition ---- */

static grammar_node literal(struct grammar_builder *b, const char *s)
{
    return grammar_literal(b, s, strlen(s));
}

/* Free text, and once <call> has come, JSON and </call>; again and again. */
static struct grammar *tool_calls(void)
{
    struct grammar_builder *b = grammar_builder_create("tools");
    struct grammar *g;
    json_t *schema =
        json_loads("{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}", 0, NULL);
    grammar_node rule = grammar_rule(b, "text and calls");
    grammar_node call[3] = {
        grammar_json_schema(b, schema, "/tools/0"), literal(b, "</call>"), rule};
    grammar_node tail = grammar_seq(b, 3, call);
    struct grammar_text trigger = {"<call>", 6};
    grammar_define(b, rule, grammar_scan(b, 1, &trigger, &tail, true));
    assert_int_equal(grammar_compile(b, rule, w.vocab, &g, NULL), OK);
    grammar_builder_destroy(b);
    json_decref(schema);
    return g;
}

static void test_scan(void **state)
{
    (void)state;
    struct grammar *g = tool_calls();
    static const char *const yes[] = {"",
                                      "any text",
                                      "<",
                                      "<cal",
                                      "<<call>{\"a\":1}</call>",
                                      "\xff\xfe <calx",
                                      "x<call>{\"a\": 1}</call> y <call>{\"a\":2}</call><call"};
    static const char *const no[] = {"<call>",
                                     "<call>x",
                                     "<call>{\"a\":1}",
                                     "a<call>{}</call>",
                                     "<call>{\"a\":1}</call>b<call>c"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        if (!accepts(g, yes[i]))
            fail_msg("should accept %s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        if (accepts(g, no[i]))
            fail_msg("should not accept %s", no[i]);
    struct grammar_state *s = grammar_state_create(g);
    for (const char *p = "say <ca"; *p; p++) {
        check_mask(s);
        assert_int_equal(grammar_accept(s, (uint8_t)*p, w.scratch), GRAMMAR_GOES_ON);
    }
    check_mask(s);
    grammar_state_destroy(s);
    grammar_release(g);
}

/* Against a search: several triggers, of which one is part of another or shares its beginning. */
static void test_scan_by_chance(void **state)
{
    (void)state;
    static const struct grammar_text triggers[3] = {{"aab", 3}, {"abab", 4}, {"bb", 2}};
    struct grammar_builder *b = grammar_builder_create("x");
    struct grammar *g;
    grammar_node tails[3] = {literal(b, "1"), literal(b, "2"), literal(b, "3")};
    grammar_node root = grammar_scan(b, 3, triggers, tails, false);
    uint64_t seed = 99;
    assert_int_equal(grammar_compile(b, root, w.vocab, &g, NULL), OK);
    grammar_builder_destroy(b);
    for (int i = 0; i < 20000; i++) {
        char text[16];
        int n = (int)(next_random(&seed) % 10), hit = 0, at = 0;
        for (int k = 0; k < n; k++)
            text[k] = next_random(&seed) % 3 ? (char)('a' + next_random(&seed) % 2) : 'c';
        for (int k = 0; k <= n && !hit; k++)
            for (int t = 0; t < 3 && !hit; t++)
                if (k >= (int)triggers[t].len &&
                    memcmp(text + k - triggers[t].len, triggers[t].data, triggers[t].len) == 0) {
                    hit = t + 1;
                    at = k;
                }
        for (int tail = 1; tail <= 3; tail++) {
            text[n] = (char)('0' + tail);
            assert_int_equal(accepts_n(g, text, (size_t)n + 1), hit == tail && at == n);
        }
    }
    grammar_release(g);
}

static void test_states_are_independent(void **state)
{
    (void)state;
    struct grammar *g = must_make(REGEX, "ab|cd");
    struct grammar_state *s = grammar_state_create(g), *t = malloc(grammar_state_bytes());
    assert_ptr_equal(grammar_of(s), g);
    assert_int_equal(grammar_accept(s, 'a', w.scratch), GRAMMAR_GOES_ON);
    grammar_state_copy(t, s);
    assert_int_equal(grammar_accept(t, 'x', w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(t, EOG, w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(t, -1, w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(t, N_VOCAB, w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(t, 'b', w.scratch), GRAMMAR_ENDED);
    assert_int_equal(grammar_accept(t, 'b', w.scratch), GRAMMAR_REFUSED);
    assert_false(grammar_complete(s));
    assert_int_equal(grammar_accept(s, 'b', w.scratch), GRAMMAR_ENDED);
    free(t);
    grammar_state_destroy(s);
    grammar_release(g);
}

static void test_cache(void **state)
{
    (void)state;
    struct grammar_cache *c = grammar_cache_create();
    struct grammar *first = must_make(REGEX, "a");
    grammar_cache_add(c, "first", 5, first);
    assert_null(grammar_cache_find(c, "firs", 4));
    struct grammar *found = grammar_cache_find(c, "first", 5);
    assert_ptr_equal(found, first);
    grammar_release(found);
    for (int i = 0; i < 200; i++) { /* more than it holds; the first is used all the time */
        char key[16];
        struct grammar *g = must_make(REGEX, "b");
        grammar_cache_add(c, key, (size_t)snprintf(key, sizeof key, "%d", i), g);
        grammar_release(g);
        grammar_release(grammar_cache_find(c, "first", 5));
    }
    found = grammar_cache_find(c, "first", 5);
    assert_ptr_equal(found, first);
    grammar_release(found);
    assert_null(grammar_cache_find(c, "0", 1));
    grammar_cache_destroy(c);
    assert_true(accepts(first, "a"));
    grammar_release(first);
}

/* A vocabulary of a, b and xc. */
static const char *few_texts(const void *ctx, int32_t id, size_t *n)
{
    static const char *const words[] = {"a", "b", "xc", ""};
    (void)ctx;
    *n = strlen(words[id]);
    return words[id];
}

static bool never_ends(const void *ctx, int32_t id)
{
    (void)ctx;
    (void)id;
    return false;
}

static void test_vocabulary_without_a_byte(void **state)
{
    (void)state;
    const struct grammar_vocab_source source = {4, few_texts, never_ends, NULL};
    struct grammar_vocab *vocab;
    struct grammar_masks *masks;
    struct grammar *g;
    struct err_info e = {0};
    assert_int_equal(grammar_vocab_create(&source, &vocab, NULL), OK);
    assert_int_equal(grammar_masks_create(vocab, 1 << 16, 2, &masks, NULL), OK);
    /* what has a byte that is in no token is no text: with another way there is no dead end */
    struct grammar_builder *b = grammar_builder_create("x");
    grammar_node three = grammar_regex(b, "aq|(ab|a[qr]|[aq]b)(qq|b)", 25);
    assert_int_equal(grammar_compile(b, three, vocab, &g, NULL), OK);
    struct grammar_state *whole = grammar_state_create(g);
    for (int i = 0; i < 3; i++) {
        struct grammar_mask mask = grammar_mask_acquire(masks, whole);
        assert_int_equal(mask.bits[0], i == 0 ? 1 : 2);
        grammar_mask_release(masks, &mask);
        assert_int_equal(grammar_accept(whole, i == 0 ? 0 : 1, w.scratch),
                         i < 2 ? GRAMMAR_GOES_ON : GRAMMAR_ENDED);
    }
    grammar_state_destroy(whole);
    grammar_release(g);
    assert_int_equal(grammar_compile(b, grammar_literal(b, "aq", 2), vocab, &g, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "no text at all"));
    grammar_builder_destroy(b);
    /* one that is only in a token which does not fit: the mask says so */
    b = grammar_builder_create("x");
    assert_int_equal(grammar_compile(b, grammar_literal(b, "ac", 2), vocab, &g, NULL), OK);
    grammar_builder_destroy(b);
    struct grammar_state *s = grammar_state_create(g);
    struct grammar_mask mask = grammar_mask_acquire(masks, s);
    assert_false(mask.none);
    assert_int_equal(mask.bits[0], 1);
    grammar_mask_release(masks, &mask);
    assert_int_equal(grammar_accept(s, 0, w.scratch), GRAMMAR_GOES_ON);
    mask = grammar_mask_acquire(masks, s);
    assert_true(mask.none);
    grammar_mask_release(masks, &mask);
    grammar_state_destroy(s);
    grammar_release(g);
    grammar_masks_destroy(masks);
    grammar_vocab_destroy(vocab);
}

/* An answer by chance of at most n tokens; true if its text is complete in the end. */
static bool limited_answer(struct grammar *g, uint64_t *seed, uint32_t n)
{
    struct grammar_state *s = grammar_state_create(g);
    bool ended = false;
    for (uint32_t left = n; left > 0 && !ended; left--) {
        struct grammar_mask mask = grammar_mask_acquire_within(w.masks, s, left);
        int32_t allowed[N_VOCAB], n_allowed = 0;
        assert_false(mask.none);
        for (int32_t i = 0; i < N_VOCAB; i++)
            if (mask.bits[i / 64] >> i % 64 & 1)
                allowed[n_allowed++] = i;
        grammar_mask_release(w.masks, &mask);
        assert_true(n_allowed > 0);
        int32_t id = allowed[next_random(seed) % (uint64_t)n_allowed];
        ended = id == EOG;
        if (!ended) {
            enum grammar_step to = grammar_accept(s, id, w.scratch);
            assert_int_not_equal(to, GRAMMAR_REFUSED);
            ended = to == GRAMMAR_ENDED;
        }
    }
    bool complete = grammar_complete(s);
    grammar_state_destroy(s);
    return complete;
}

/* Whatever the limit, a text that can be brought to an end within it is. */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        enum kind kind;
        const char *text;
    } cases[] = {
        {SCHEMA, "{\"type\":\"object\"}"},
        {SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":5},"
         "\"age\":{\"type\":\"integer\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":["
         "\"red\",\"green\"]},\"minItems\":2}},\"required\":[\"name\",\"tags\"]}"},
        {SCHEMA,
         "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{"
         "\"type\":\"string\"},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}},"
         "\"required\":[\"v\"]}}}"},
        {SCHEMA, "{\"type\":\"string\",\"minLength\":60,\"maxLength\":90}"},
        {REGEX, "(ab|c{3,9})+(!|the end)"},
        {GBNF, "root ::= \"(\" root* \")\""},
        {GBNF, "root ::= <[3]> [a-z]* \"aaaaaaaa\" root?"},
        /* counts far from their end have one mask but ways that differ; no token is two capitals */
        {GBNF, "root ::= [A-Z]{60} | [A-C]{1,60} \"!\"{40}"},
        {GBNF, "root ::= r{30} | ([A-Z] \".\"?){25,40} \"!\"\nr ::= [A-C] [A-Z]? | [X-Z]{2}"},
    };
    uint64_t seed = 12345;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = must_make(cases[i].kind, cases[i].text);
        struct grammar_state *s = grammar_state_create(g);
        uint32_t shortest = s->way;
        grammar_state_destroy(s);
        assert_true(shortest > 0 && shortest < 100);
        for (uint32_t n = shortest; n < shortest + 60; n++)
            for (int k = 0; k < 6; k++)
                if (!limited_answer(g, &seed, n))
                    fail_msg("%s: no end in %u tokens, %u are enough", cases[i].text, n, shortest);
        for (uint32_t n = 1; n < shortest; n++) /* and where it cannot, there is no dead end */
            (void)limited_answer(g, &seed, n);
        grammar_release(g);
    }
}

/* A text that is complete ends at the limit where going on could not. */
static void test_limit_ends_what_is_complete(void **state)
{
    static const struct {
        enum kind kind;
        const char *text;
    } cases[] = {{REGEX, "(qz)+"},
                 {SCHEMA, "{\"type\":\"number\"}"},
                 {GBNF, "root ::= \"q\" (\"zz\" root)?"}};
    uint64_t seed = 7;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = must_make(cases[i].kind, cases[i].text);
        for (int k = 0; k < 4000; k++)
            if (!limited_answer(g, &seed, 2 + (uint32_t)k % 9))
                fail_msg("%s: cut", cases[i].text);
        grammar_release(g);
    }
}

/* Tokens of many bytes are taken where single ones would be too many. */
static void test_limit_takes_long_tokens(void **state)
{
    (void)state;
    uint64_t seed = 99;
    struct grammar *g = must_make(REGEX, "aaaaaaaa(aaaaaaaa|x)aaaaaaaatrue");
    for (int i = 0; i < 20; i++)
        assert_true(limited_answer(g, &seed, 4));
    grammar_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_are_exact),
        cmocka_unit_test(test_long_repetitions_share_masks),
        cmocka_unit_test(test_small_pool),
        cmocka_unit_test(test_full_walker),
        cmocka_unit_test(test_threads_do_not_show),
        cmocka_unit_test(test_trail_does_not_show),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_scan_by_chance),
        cmocka_unit_test(test_states_are_independent),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_vocabulary_without_a_byte),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_limit_ends_what_is_complete),
        cmocka_unit_test(test_limit_takes_long_tokens),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
