/* What tests of reply_grammar.h share: tools, calls as templates write them, and how an answer is
 * read back. */
#ifndef WEIR_TESTS_REPLY_GRAMMAR_CASES_H
#define WEIR_TESTS_REPLY_GRAMMAR_CASES_H

#include "unit/grammar/harness.h"

#include "unit/grammar/checker.h"

#include "base/buf.h"
#include "chat/reply_grammar.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"b\":{\"type\":\"boolean\"},\"e\":{\"enum\":["
    "\"one\",\"two\"]}},\"required\":[\"s\",\"e\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{},\"additionalProperties\":false}}}]";
static const char *const with_tags[] = {"qwen-xml",
                                        "glm",
                                        "minimax",
                                        "deepseek-v3.2",
                                        "deepseek-v4",
                                        "seed",
                                        "minicpm",
                                        "hy3",
                                        "kimi-k3",
                                        "minimax-m3",
                                        "gemma",
                                        "functiongemma",
                                        "muse"};

/* Muse Glimmer's call of "get" as its template writes it. */
#define MUSE_GET(args)                                                                             \
    " to=get<|message|><atem:function_calls>\n<atem:invoke name=\"get\">\n" args                   \
    "</atem:invoke>\n</atem:function_calls>"

/* Kimi K3's. */
#define K3_NOTHING "<|close|>response<|sep|>"
#define K3_GET(args)                                                                               \
    "<|open|>tools<|sep|><|open|>call tool=\"get\" index=\"1\"<|sep|>" args                        \
    "<|close|>call<|sep|><|close|>tools<|sep|>"
#define K3_ARG(key, type, value)                                                                   \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"

/* MiniMax M3's. */
#define M3 "]<]minimax[>["
#define M3_TAG(name, value) M3 "<" name ">" value M3 "</" name ">"
#define M3_CALL(name, args)                                                                        \
    M3 "<tool_call>\n" M3 "<invoke name=\"" name "\">" args M3 "</invoke>\n" M3 "</tool_call>"
static struct grammar *compile(const struct reply_grammar *r, struct err_info *e)
{
    struct grammar_builder *b = grammar_builder_create("tools");
    struct grammar *g = NULL;
    grammar_node root = reply_grammar_build(r, b);
    enum err err = grammar_compile(b, root, w.vocab, &g, e);
    assert_true(!err == (g != NULL));
    grammar_builder_destroy(b);
    return g;
}

struct counts {
    uint32_t calls, whole;
    size_t content, reasoning;
    struct buf arguments;
    bool bad;
};

/* Of the arguments of any call; or NULL. */
static const json_t *must_satisfy, *must_be;

static void on_event(void *ctx, const struct reply_event *ev)
{
    struct counts *c = ctx;
    switch (ev->kind) {
    case REPLY_CONTENT:
        c->content += ev->n;
        break;
    case REPLY_REASONING:
        c->reasoning += ev->n;
        break;
    case REPLY_CALL_BEGIN:
        c->calls++;
        c->bad |=
            !(ev->n == 1 && ev->text[0] == 'f') && !(ev->n == 3 && !memcmp(ev->text, "get", 3));
        buf_clear(&c->arguments);
        break;
    case REPLY_CALL_ARGUMENTS:
        buf_add(&c->arguments, ev->text, ev->n);
        break;
    case REPLY_CALL_END: {
        json_t *v = json_loadb(c->arguments.data, c->arguments.len, JSON_ALLOW_NUL, NULL);
        const char *e = json_string_value(json_object_get(v, "e"));
        c->bad |= !json_is_object(v);
        if (must_be)
            c->bad |= !json_equal(must_be, v);
        else if (must_satisfy)
            c->bad |= !v || !check(must_satisfy, must_satisfy, v);
        else if (json_object_size(v) > 0)
            c->bad |= !json_is_string(json_object_get(v, "s")) || !e ||
                      (strcmp(e, "one") != 0 && strcmp(e, "two") != 0);
        json_decref(v);
        c->whole++;
        break;
    }
    }
}

static void read_back(const struct reply_grammar *r, const char *text, size_t n, struct counts *out)
{
    const struct reply_config cfg = {.style = r->style, .tools = r->tools, .start = r->start};
    struct reply_parser *p = reply_create(&cfg);
    *out = (struct counts){0};
    reply_feed(p, text, n, on_event, out);
    reply_finish(p, false, on_event, out);
    reply_destroy(p);
    buf_deinit(&out->arguments);
}

#endif
