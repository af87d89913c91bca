/* What a template writes of the assistant's turn is what a model writes: read back as a reply, it
 * is the message that was given, whole or byte by byte, and it conforms to the grammar of its
 * tools. */
#include "unit/grammar/harness.h"

#include "chat/internal.h"
#include "chat/reply_grammar.h"
#include "chat/tools.h"
#include "unit/chat/reply/transcript.h"

#include <dirent.h>
#include <jansson.h>

#define STRING "{\"type\":\"string\"}"
static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"text\":" STRING
    ",\"n\":{\"type\":\"number\"},\"i\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
    "\"l\":{\"type\":\"array\",\"items\":" STRING "},\"o\":{\"type\":\"object\",\"properties\":{"
    "\"k\":" STRING ",\"m\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
    "\"x\":{\"type\":\"integer\"}}}}}}},\"required\":[\"text\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"description\":\"d\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{}}}}]";
static const char arguments_json[] =
    "{\"text\":\"two\\nlines, \\\"q\\\" & <b>\",\"n\":-1.5,\"i\":7,\"b\":true,\"l\":[\"a\",\"12\"],"
    "\"o\":{\"k\":\"v w\",\"m\":[{\"x\":1},{\"x\":2}]}}";

/* A turn of the assistant's, as given. */
struct turn {
    bool reasons, speaks;
    uint32_t n_calls;
};

static json_t *turn_message(struct turn t)
{
    json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", t.speaks ? "I look." : "");
    json_t *calls = json_array();
    for (uint32_t i = 0; i < t.n_calls; i++)
        json_array_append_new(calls,
                              json_pack("{s:s, s:s, s:{s:s, s:s}}",
                                        "id",
                                        i ? "abcdefghj" : "abcdefghi",
                                        "type",
                                        "function",
                                        "function",
                                        "name",
                                        i ? "get" : "look_up",
                                        "arguments",
                                        i ? "{}" : arguments_json));
    if (t.n_calls)
        json_object_set(m, "tool_calls", calls);
    json_decref(calls);
    if (t.reasons)
        json_object_set_new(m, "reasoning_content", json_string("Hm, so."));
    return m;
}

/* A conversation of the user's turn and this one, or NULL; the caller's. NULL with *e. */
static char *render(const struct chat_template *t,
                    const struct chat_tools *tools,
                    json_t *assistant,
                    struct err_info *e)
{
    json_t *m = json_pack("[{s:s, s:s}]", "role", "user", "content", "zu"), *ready = NULL;
    json_t *vars = NULL;
    struct jinja_text out = {0};
    char *text = NULL;
    if (assistant)
        json_array_append_new(m, assistant);
    const struct chat_turn turn = {.messages = m, .tools = tools};
    if (chat_turn_prepare(t, &turn, &ready, &vars, e) == OK) {
        const struct chat_input in = {ready, vars, !assistant, "<s>", "</s>", NULL};
        if (chat_render(t, &in, &out, e) == OK)
            text = strdup(buf_cstr(&out.text));
    }
    jinja_text_deinit(&out);
    json_decref(m);
    json_decref(ready);
    json_decref(vars);
    return text;
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t len = strlen(end);
    return n >= len && memcmp(s + n - len, end, len) == 0;
}

/* s[0..n) without white space at its end. */
static size_t trimmed(const char *s, size_t n)
{
    while (n > 0 && strchr(" \n\r\t", s[n - 1]))
        n--;
    return n;
}

/* How much of the prompt stands in front of the turn: all of it, but for marks of reasoning that
 * this turn does not have. */
static size_t prompt_of(const char *prompt, const char *whole, const struct reply_thoughts *t)
{
    size_t n = strlen(prompt);
    while (strncmp(prompt, whole, n) != 0) {
        size_t was = n;
        n = trimmed(prompt, n);
        for (int opening = 0; t && opening < 2; opening++) {
            const char *mark = reply_thoughts_mark(t, opening);
            if (n == was && ends_with(prompt, n, mark))
                n -= strlen(mark);
        }
        if (n == was)
            return 0;
    }
    return n;
}

/* Control tokens that end a turn or open the next one: no part of a reply, unless it is one of
 * those that its parser reads. */
static const char *const ends[] = {"<|im_end|>",
                                   "</s>",
                                   "<|eot_id|>",
                                   "<|eom_id|>",
                                   "<|end|>",
                                   "<end_of_turn>",
                                   "<turn|>",
                                   "<｜end▁of▁sentence｜>",
                                   "<｜Assistant｜>",
                                   "<|END_OF_TURN_TOKEN|>",
                                   "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
                                   "<|START_THINKING|><|END_THINKING|>",
                                   "[e~[",
                                   "<|end_of_text|>",
                                   "<|eom|>",
                                   "<|eot|>",
                                   "<|call|>",
                                   "<|calls|>",
                                   "<|return|>",
                                   "<|end_of_msg|>",
                                   "<|endoftext|>",
                                   "<|eos|>",
                                   "<seed:eos>",
                                   "<｜hy_eos:opensource｜>",
                                   "<|role_end|>",
                                   "</assistant>",
                                   "<end_of_sentence>",
                                   "<SPECIAL_12>",
                                   "<sep>",
                                   "<|tool_response>",
                                   "<|message_sep|>"};
enum { N_ENDS = sizeof ends / sizeof ends[0] };

/* s without them; the caller's. */
static char *without_ends(const struct reply_config *cfg, const char *s)
{
    struct reply_parser *p = reply_create(cfg);
    struct buf out = {0};
    while (*s) {
        size_t n = 0;
        for (size_t i = 0; i < N_ENDS && !n; i++) {
            const size_t len = strlen(ends[i]);
            if (strncmp(s, ends[i], len) == 0 &&
                !(s[len + strspn(s + len, "\n")] && p && reply_reads(p, ends[i], len)))
                n = len;
        }
        if (!n)
            buf_char(&out, *s++);
        s += n;
    }
    reply_destroy(p);
    return (char *)buf_cstr(&out);
}

struct message {
    json_t *calls; /* [name, arguments] */
    struct buf content, reasoning, arguments, name;
};

static void on_event(void *ctx, const struct reply_event *ev)
{
    struct message *m = ctx;
    switch (ev->kind) {
    case REPLY_CONTENT:
        buf_add(&m->content, ev->text, ev->n);
        break;
    case REPLY_REASONING:
        buf_add(&m->reasoning, ev->text, ev->n);
        break;
    case REPLY_CALL_BEGIN:
        buf_clear(&m->arguments);
        buf_clear(&m->name);
        buf_add(&m->name, ev->text, ev->n);
        break;
    case REPLY_CALL_ARGUMENTS:
        buf_add(&m->arguments, ev->text, ev->n);
        break;
    case REPLY_CALL_END:
        json_array_append_new(
            m->calls,
            json_pack("[s, o?]",
                      buf_cstr(&m->name),
                      json_loadb(m->arguments.data, m->arguments.len, JSON_DECODE_ANY, NULL)));
        break;
    }
}

static void feed(
    const struct reply_config *cfg, const char *s, size_t step, reply_event_fn fn, void *ctx)
{
    struct reply_parser *p = reply_create(cfg);
    const size_t n = strlen(s);
    assert_non_null(p);
    for (size_t at = 0; at < n; at += step)
        reply_feed(p, s + at, n - at < step ? n - at : step, fn, ctx);
    reply_finish(p, false, fn, ctx);
    reply_destroy(p);
}

static bool splits_alike(const struct reply_config *cfg, const char *s)
{
    struct transcript whole = {.open = -1}, bytes = {.open = -1};
    feed(cfg, s, strlen(s) + 1, transcript_event, &whole);
    feed(cfg, s, 1, transcript_event, &bytes);
    transcript_close(&whole);
    transcript_close(&bytes);
    bool same = strcmp(buf_cstr(&whole.text), buf_cstr(&bytes.text)) == 0;
    buf_deinit(&whole.text);
    buf_deinit(&bytes.text);
    return same;
}

/* Tokens by which the grammar knows which of a format's ways is the model's. */
static const char *const deciding[] = {"[ARGS]", "<|function_call|>"};

/* ctx: the template's text. */
static int32_t deciding_token(const void *ctx, const char *s, size_t n)
{
    for (int32_t i = 0; i < 2; i++)
        if (strlen(deciding[i]) == n && memcmp(deciding[i], s, n) == 0 && strstr(ctx, deciding[i]))
            return CONTROL + i;
    return -1;
}

/* Is s, up to white space, a reply of the grammar? *refused: what is not. */
static bool is_accepted(const struct reply_grammar *r, const char *s, const char **refused)
{
    struct grammar_builder *b = grammar_builder_create("tools");
    struct grammar *g = NULL;
    struct err_info e = {0};
    if (grammar_compile(b, reply_grammar_build(r, b), w.vocab, &g, &e))
        fail_msg("%s: %s", reply_format_name(r->style.format), e.text);
    struct grammar_state *st = grammar_state_create(g);
    const char *end = s + trimmed(s, strlen(s));
    bool ok = true;
    while (ok && s < end) {
        int32_t id = (uint8_t)*s;
        size_t n = 1;
        for (size_t i = 0; i < 2; i++)
            if (strncmp(s, deciding[i], strlen(deciding[i])) == 0 &&
                r->token(r->ctx, deciding[i], strlen(deciding[i])) >= 0) {
                id = CONTROL + (int32_t)i;
                n = strlen(deciding[i]);
            }
        *refused = s;
        ok = grammar_accept(st, id, w.scratch) != GRAMMAR_REFUSED;
        s += n;
    }
    bool whole = grammar_complete(st);
    grammar_state_destroy(st);
    grammar_release(g);
    grammar_builder_destroy(b);
    return ok && whole;
}

/* Of strict tools, forced to call or not. */
static bool conforms(const struct reply_config *cfg,
                     const char *source,
                     bool required,
                     const char *only,
                     const char *s,
                     const char **refused)
{
    static const bool strict[] = {true, true};
    const struct reply_grammar r = {.style = cfg->style,
                                    .start = cfg->start,
                                    .tools = cfg->tools,
                                    .strict = strict,
                                    .required = required,
                                    .only = only,
                                    .parallel = !only,
                                    .token = deciding_token,
                                    .ctx = source};
    return is_accepted(&r, s, refused) || is_accepted(&r, s + strspn(s, " \n"), refused);
}

/* What went wrong. */
enum {
    UNRENDERED = 1,
    PROMPT = 2, /* the turn does not begin as its prompt says */
    CALLS = 4,
    REASONING = 8,
    CONTENT = 16,
    SPLIT = 32,
    FORM = 64 /* what the grammar of the tools has */
};

/* Is the text, but for white space around it, what was given? */
static bool is_text(struct buf *b, const char *want)
{
    const char *s = buf_cstr(b);
    size_t skip = strspn(s, " \n");
    return trimmed(s + skip, strlen(s + skip)) == strlen(want) && strstr(s, want);
}

static const char thoughts[] = "Hm, so.", words[] = "I look.";

/* What was given, as far as the template writes it. */
static unsigned compare(const struct turn *turn, const char *s, struct message *m)
{
    json_t *want = json_array(), *args = json_loads(arguments_json, 0, NULL);
    if (turn->n_calls > 0)
        json_array_append_new(want, json_pack("[s, O]", "look_up", args));
    if (turn->n_calls > 1)
        json_array_append_new(want, json_pack("[s, {}]", "get"));
    unsigned wrong = json_equal(m->calls, want) ? 0 : CALLS;
    wrong |= is_text(&m->reasoning, turn->reasons && strstr(s, thoughts) ? thoughts : "")
                 ? 0
                 : REASONING;
    wrong |= is_text(&m->content, turn->speaks && strstr(s, words) ? words : "") ? 0 : CONTENT;
    json_decref(args);
    json_decref(want);
    return wrong;
}

/* The reply s, where it begins as cfg says. */
static unsigned try_reply(const struct reply_config *cfg,
                          const struct turn *turn,
                          const char *source,
                          const char *s)
{
    struct message m = {.calls = json_array()};
    const char *refused = "";
    feed(cfg, s, strlen(s) + 1, on_event, &m);
    unsigned wrong = compare(turn, s, &m) | (splits_alike(cfg, s) ? 0 : SPLIT);
    const bool calls = turn->n_calls > 0 && !turn->speaks;
    if (!conforms(cfg, source, calls, NULL, s, &refused) ||
        (calls && turn->n_calls == 1 && !conforms(cfg, source, true, "look_up", s, &refused)))
        wrong |= FORM;
    if (wrong && getenv("WEIR_VERBOSE"))
        print_message("%s\n-- content '%s', reasoning '%s', refused '%.40s'\n",
                      s,
                      buf_cstr(&m.content),
                      buf_cstr(&m.reasoning),
                      refused);
    json_decref(m.calls);
    buf_deinit(&m.content);
    buf_deinit(&m.reasoning);
    buf_deinit(&m.arguments);
    buf_deinit(&m.name);
    return wrong;
}

static unsigned try_turn(const struct chat_template *t, const char *source, struct turn turn)
{
    struct chat_tools tools = {.parallel = true, .list = json_loads(tools_json, 0, NULL)};
    struct err_info e = {0};
    assert_non_null(tools.list);
    const struct reply_style style = chat_template_style(t);
    char *prompt = render(t, &tools, NULL, &e);
    char *whole = prompt ? render(t, &tools, turn_message(turn), &e) : NULL;
    size_t n_prompt = whole ? prompt_of(prompt, whole, style.thoughts) : 0;
    unsigned wrong = !whole ? UNRENDERED : !n_prompt ? PROMPT : 0;
    if (!wrong) {
        const bool told = reply_start_of(style, prompt, strlen(prompt)).thinking;
        const bool written = strstr(whole + n_prompt, thoughts) != NULL;
        struct reply_config cfg = {
            .style = style, .tools = tools.list, .start = reply_start_of(style, whole, n_prompt)};
        cfg.start.thinking |= told;
        char *s = without_ends(&cfg, whole + n_prompt);
        if (!told || written) /* a model that has to reason does */
            wrong = try_reply(&cfg, &turn, source, s);
        free(s);
    }
    if (wrong == UNRENDERED && getenv("WEIR_VERBOSE"))
        print_message("%s\n", e.text);
    free(prompt);
    free(whole);
    chat_tools_deinit(&tools);
    return wrong;
}

/* What is not to be expected of some. */
static const struct {
    const char *file;
    unsigned wrong;
} exceptions[] = {
    /* templates that Python cannot render either: they read what these tools do not say, call
     * list.append, a function that is not there, or print what is no JSON */
    {"CohereForAI-c4ai-command-r-plus-tool_use.jinja", UNRENDERED},
    {"Kimi-K2-Instruct.jinja", UNRENDERED},
    {"fireworks-ai-llama-3-firefunction-v2.jinja", UNRENDERED},
    {"llama-cpp-deepseek-r1.jinja", UNRENDERED},
    /* ids, which the grammar leaves out */
    {"Mistral-Small-3.2-24B-Instruct-2506.jinja", FORM},
    {"mistralai-Mistral-Nemo-Instruct-2407.jinja", FORM},
    /* CDATA, likewise */
    {"openbmb-MiniCPM5-1B.jinja", FORM},
    /* words behind calls */
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", FORM},
    {"google-gemma-4-31B-it-interleaved.jinja", FORM},
};

static unsigned excepted(const char *file)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++)
        if (strcmp(exceptions[i].file, file) == 0)
            return exceptions[i].wrong;
    return 0;
}

/* Returns how many turns went wrong that should not. */
static uint32_t try_template(const char *folder, const char *file)
{
    static char source[1 << 18];
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    source[fread(source, 1, sizeof source - 1, f)] = '\0';
    fclose(f);
    struct chat_template *t = chat_template_create(source, strlen(source));
    unsigned wrong_at_all = 0;
    uint32_t n_wrong = 0;
    for (unsigned k = 0; k < 12; k++) {
        const struct turn turn = {.reasons = k & 1, .speaks = k < 4 || (k & 2), .n_calls = k / 4};
        if (turn.n_calls > 1 && chat_template_traits(t)->one_call)
            continue;
        const unsigned wrong = try_turn(t, source, turn);
        wrong_at_all |= wrong;
        if (!(wrong & ~excepted(file)))
            continue;
        n_wrong++;
        print_message("%s (%s): reasons %d, speaks %d, %u calls: %u\n",
                      file,
                      reply_format_name(chat_template_style(t).format),
                      turn.reasons,
                      turn.speaks,
                      turn.n_calls,
                      wrong & ~excepted(file));
    }
    if (excepted(file) & ~wrong_at_all)
        print_message("%s: %u is right\n", file, excepted(file) & ~wrong_at_all);
    chat_template_destroy(t);
    return n_wrong + ((excepted(file) & ~wrong_at_all) != 0);
}

static void test_released(void **state)
{
    (void)state;
    const char *root = getenv("WEIR_FIXTURES");
    char folder[500];
    snprintf(
        folder, sizeof folder, "%s/templates", root ? root : TEST_DATA "/../../../shared/fixtures");
    struct dirent **names;
    int n_names = scandir(folder, &names, NULL, alphasort);
    uint32_t n_wrong = 0, n_tried = 0;
    for (int i = 0; i < n_names; i++) {
        if (ends_with(names[i]->d_name, strlen(names[i]->d_name), ".jinja")) {
            n_wrong += try_template(folder, names[i]->d_name);
            n_tried++;
        }
        free(names[i]);
    }
    if (n_names >= 0)
        free(names);
    if (n_tried == 0) {
        print_message("no %s: released templates are not tested here\n", folder);
        skip();
    }
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_released),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
