/* The formats, each with what gives it away in a template. */
#include "chat/reply/internal.h"

#include <string.h>

#define TOOL_CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define TOOL_CALL_BEGIN "<｜tool▁call▁begin｜>"
#define TOOL_SEP "<｜tool▁sep｜>"
#define TOOL_CALL_END "<｜tool▁call▁end｜>"
#define TOOL_CALLS_END "<｜tool▁calls▁end｜>"

/* s[0..n) without white space at its ends. */
static void trim(const char **s, size_t *n)
{
    while (*n > 0 && reply_is_space((*s)[*n - 1]))
        --*n;
    size_t skip = reply_skip_space(*s, 0, *n);
    *s += skip;
    *n -= skip;
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t len = strlen(end);
    return n >= len && memcmp(s + n - len, end, len) == 0;
}

/* function SEP name ```json, or name SEP; a fence without arguments is closed */
static bool deepseek_head(const char *s, size_t n, struct reply_head *out)
{
    static const char *const fences[] = {"```", "```json"};
    const char *sep = memmem(s, n, TOOL_SEP, strlen(TOOL_SEP));
    if (!sep)
        return false;
    const char *after = sep + strlen(TOOL_SEP);
    size_t n_after = n - (size_t)(after - s), n_before = (size_t)(sep - s);
    trim(&s, &n_before);
    trim(&after, &n_after);
    for (size_t i = 0; i < sizeof fences / sizeof fences[0]; i++) {
        if (ends_with(after, n_after, fences[i]))
            n_after -= strlen(fences[i]);
        trim(&after, &n_after);
    }
    out->name = n_after ? after : s;
    out->n_name = n_after ? n_after : n_before;
    return n_after == 0 || reply_is(s, n_before, "function");
}

/* functions.name:0 MARK; all of it is the id */
static bool kimi_head(const char *s, size_t n, struct reply_head *out)
{
    static const char mark[] = "<|tool_call_argument_begin|>", prefix[] = "functions.";
    trim(&s, &n);
    if (!ends_with(s, n, mark))
        return false;
    size_t n_id = n - (sizeof mark - 1);
    trim(&s, &n_id);
    if (memchr(s, '<', n_id))
        return false;
    const char *colon = memrchr(s, ':', n_id);
    size_t n_name = colon ? (size_t)(colon - s) : n_id;
    size_t skip = n_name > sizeof prefix - 1 && memcmp(s, prefix, sizeof prefix - 1) == 0
                      ? sizeof prefix - 1
                      : 0;
    *out = (struct reply_head){s + skip, colon ? s : NULL, n_name - skip, colon ? n_id : 0};
    return true;
}

/* id<|tool_call:name|>name<|tool_call:args|> */
static bool solar_head(const char *s, size_t n, struct reply_head *out)
{
    static const char name[] = "<|tool_call:name|>", args[] = "<|tool_call:args|>";
    const char *at = memmem(s, n, name, sizeof name - 1);
    trim(&s, &n);
    if (!at || !ends_with(s, n, args))
        return false;
    const char *end = s + n - (sizeof args - 1);
    if (end < at + sizeof name - 1)
        return false;
    *out = (struct reply_head){
        at + sizeof name - 1, s, (size_t)(end - at) - (sizeof name - 1), (size_t)(at - s)};
    trim(&out->name, &out->n_name);
    trim(&out->id, &out->n_id);
    return true;
}

/* name> */
static bool function_head(const char *s, size_t n, struct reply_head *out)
{
    trim(&s, &n);
    if (n == 0 || s[n - 1] != '>')
        return false;
    out->name = s;
    out->n_name = n - 1;
    return true;
}

static const struct object_spec in_tool_call = {.close = "</tool_call>"};
static const struct object_spec in_tool_calls = {.close = "</tool_calls>"};
static const struct object_spec in_action = {.close = "<|END_ACTION|>"};
static const struct object_spec in_toolcall = {.close = "</TOOLCALL>"};
static const struct object_spec in_fence = {.close = "```"};
static const struct object_spec in_tools = {.close = "<|tools_suffix|>", .keyed = true};
static const struct object_spec unclosed = {0};
static const struct object_spec bare = {.bare = true};

static const struct named_spec deepseek = {.section = TOOL_CALLS_BEGIN,
                                           .call = TOOL_CALL_BEGIN,
                                           .close = TOOL_CALL_END,
                                           .section_close = TOOL_CALLS_END,
                                           .head = deepseek_head};
static const struct named_spec kimi = {.section = "<|tool_calls_section_begin|>",
                                       .call = "<|tool_call_begin|>",
                                       .close = "<|tool_call_end|>",
                                       .section_close = "<|tool_calls_section_end|>",
                                       .head = kimi_head};
static const struct named_spec function_tag = {
    .call = "<function=", .close = "</function>", .head = function_head};

static const struct named_spec solar = {.section = "<|tool_calls|>",
                                        .call = "<|tool_call:begin|>",
                                        .close = "<|tool_call:end|>",
                                        .head = solar_head};

static const struct loose_spec lfm2 = {.close = "<|tool_call_end|>"};
static const struct loose_spec pythonic = {.bare = true};
static const struct loose_spec olmo3 = {.close = "</function_calls>"};
static const struct loose_spec gemma = {.close = "<tool_call|>", .quote = "<|\"|>"};
static const struct loose_spec functiongemma = {.close = "<end_function_call>",
                                                .quote = "<escape>"};

/* <function=NAME><parameter=KEY>...</parameter></function> */
#define FUNCTION_TAGS                                                                              \
    .name_open = "<function=", .name_close = ">", .call_close = "</function>",                     \
    .key_open = "<parameter=", .key_close = ">", .value_close = "</parameter>"
/* <invoke name="NAME"><parameter name="KEY">...</parameter></invoke> */
#define INVOKE_TAGS(prefix)                                                                        \
    .name_open = "<" prefix "invoke name=\"", .name_close = "\">",                                 \
    .call_close = "</" prefix "invoke>", .key_open = "<" prefix "parameter name=\"",               \
    .value_close = "</" prefix "parameter>"
static const struct tagged_spec qwen = {
    .open = "<tool_call>", .close = "</tool_call>", FUNCTION_TAGS, .lines = true};
static const struct tagged_spec seed = {
    .open = "<seed:tool_call>", .close = "</seed:tool_call>", FUNCTION_TAGS};
static const struct tagged_spec minicpm = {.name_open = "<function name=\"",
                                           .name_close = "\">",
                                           .call_close = "</function>",
                                           .key_open = "<param name=\"",
                                           .key_close = "\">",
                                           .value_close = "</param>",
                                           .cdata = true};
static const struct tagged_spec glm = {.open = "<tool_call>",
                                       .close = "</tool_call>",
                                       .key_open = "<arg_key>",
                                       .key_close = "</arg_key>",
                                       .value_open = {"<arg_value>"},
                                       .value_close = "</arg_value>"};
static const struct tagged_spec minimax = {.open = "<minimax:tool_call>",
                                           .close = "</minimax:tool_call>",
                                           INVOKE_TAGS(""),
                                           .key_close = "\">"};
static const struct tagged_spec muse = {.open = "<atem:function_calls>",
                                        .close = "</atem:function_calls>",
                                        INVOKE_TAGS("atem:"),
                                        .key_close = "\">",
                                        .twice = true};
#define DSML(block)                                                                                \
    {                                                                                              \
        .open = "<｜DSML｜" block ">", .close = "</｜DSML｜" block ">", INVOKE_TAGS("｜DSML｜"),   \
        .key_close = "\"", .value_open = {"string=\"true\">", "string=\"false\">"}, .typed = true  \
    }
static const struct tagged_spec dsml_3 = DSML("function_calls"), dsml_4 = DSML("tool_calls");

#define K3_OPEN(tag) "<|open|>" tag "<|sep|>"
#define K3_CLOSE(tag) "<|close|>" tag "<|sep|>"
#define K3_TYPE(name) "type=\"" name "\"<|sep|>"
static const struct tagged_spec kimi_k3 = {.open = K3_OPEN("tools"),
                                           .close = K3_CLOSE("tools"),
                                           .name_open = "<|open|>call tool=\"",
                                           .name_close = "<|sep|>",
                                           .call_close = K3_CLOSE("call"),
                                           .key_open = "<|open|>argument key=\"",
                                           .key_close = "\"",
                                           .value_open = {K3_TYPE("string"),
                                                          K3_TYPE("number"),
                                                          K3_TYPE("integer"),
                                                          K3_TYPE("boolean"),
                                                          K3_TYPE("null"),
                                                          K3_TYPE("object"),
                                                          K3_TYPE("array")},
                                           .value_close = K3_CLOSE("argument"),
                                           .typed = true,
                                           .attributes = true};

#define HY3(tag) "<" tag ":opensource>"
static const struct tagged_spec hy3 = {.open = HY3("tool_calls"),
                                       .close = HY3("/tool_calls"),
                                       .name_open = HY3("tool_call"),
                                       .name_close = HY3("tool_sep"),
                                       .call_close = HY3("/tool_call"),
                                       .key_open = HY3("arg_key"),
                                       .key_close = HY3("/arg_key"),
                                       .value_open = {HY3("arg_value")},
                                       .value_close = HY3("/arg_value")};

#define M3 "]<]minimax[>["

#define OBJECT .enter = object_enter, .byte = object_byte, .finish = object_finish
#define NAMED .enter = named_enter, .byte = named_byte, .finish = named_finish
#define LOOSE .enter = loose_enter, .byte = loose_byte, .finish = loose_finish
#define TAGGED .enter = tagged_enter, .byte = tagged_byte, .finish = tagged_finish

static const struct reply_format reply_formats[] = {
    {.name = "hermes",
     .spec = &in_tool_call,
     .open = {{"<tool_call>", false}},
     .tokens = {"</tool_call>"},
     OBJECT},
    {.name = "ernie",
     .spec = &in_tool_call,
     .open = {{"<tool_call>", false}},
     .tokens = {"</tool_call>"},
     .answer = {"<response>", "</response>"},
     OBJECT},
    {.name = "llama3", .spec = &bare, .open = {{"<|python_tag|>", false}, {"{", true}}, OBJECT},
    {.name = "mistral",
     .open = {{"[TOOL_CALLS]", false}},
     .tokens = {"[ARGS]", "[CALL_ID]"},
     .short_ids = true,
     .enter = mistral_enter,
     .byte = mistral_byte,
     .finish = mistral_finish},
    {.name = "functionary-v3.1",
     .spec = &function_tag,
     .open = {{"<function=", false}},
     .tokens = {"</function>"},
     NAMED},
    {.name = "functionary-v3.2",
     .no_text = true,
     .byte = functionary_byte,
     .finish = functionary_finish},
    {.name = "deepseek",
     .spec = &deepseek,
     .open = {{TOOL_CALLS_BEGIN, false}, {TOOL_CALL_BEGIN, false}},
     .tokens = {TOOL_SEP, TOOL_CALL_END, TOOL_CALLS_END},
     NAMED},
    {.name = "deepseek-v3.2",
     .spec = &dsml_3,
     .open = {{"<｜DSML｜function_calls>", false}},
     .tokens = {"｜DSML｜"},
     TAGGED},
    {.name = "deepseek-v4",
     .calls_end_thoughts = true,
     .spec = &dsml_4,
     .open = {{"<｜DSML｜tool_calls>", false}},
     .tokens = {"｜DSML｜"},
     TAGGED},
    {.name = "harmony",
     .no_text = true,
     .tokens = {"<|start|>",
                "<|channel|>",
                "<|message|>",
                "<|constrain|>",
                "<|end|>",
                "<|call|>",
                "<|return|>"},
     .byte = harmony_byte,
     .finish = harmony_finish,
     .reasons = harmony_reasons},
    {.name = "muse",
     .no_text = true,
     .spec = &muse,
     .open = {{"<atem:function_calls>", false}},
     .tokens = {"<|start|>", "<|message|>", "<|eom|>", "<|eot|>", "</atem:function_calls>"},
     .byte = harmony_byte,
     .finish = harmony_finish,
     .reasons = harmony_reasons},
    {.name = "kimi",
     .calls_end_thoughts = true,
     .spec = &kimi,
     .open = {{"<|tool_calls_section_begin|>", false}, {"<|tool_call_begin|>", false}},
     .tokens = {"<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"},
     NAMED},
    {.name = "kimi-k3",
     .calls_end_thoughts = true,
     .spec = &kimi_k3,
     .open = {{K3_OPEN("tools"), false}},
     .tokens = {"<|open|>", "<|close|>", "<|sep|>"},
     .drop = {{K3_OPEN("response"), false},
              {K3_CLOSE("response"), false},
              {K3_CLOSE("message"), false}},
     TAGGED},
    {.name = "qwen-xml",
     .calls_end_thoughts = true,
     .spec = &qwen,
     .open = {{"<tool_call>", false}, {"<function=", false}},
     .tokens = {"</tool_call>"},
     TAGGED},
    {.name = "glm",
     .calls_end_thoughts = true,
     .spec = &glm,
     .open = {{"<tool_call>", false}},
     .tokens = {"</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
     TAGGED},
    {.name = "minimax",
     .spec = &minimax,
     .open = {{"<minimax:tool_call>", false}},
     .tokens = {"</minimax:tool_call>"},
     TAGGED},
    {.name = "minimax-m3",
     .open = {{M3 "<tool_call>", false}},
     .tokens = {M3, "<tool_call>", "</tool_call>"},
     .enter = nested_enter,
     .byte = nested_byte,
     .finish = nested_finish},
    {.name = "granite",
     .spec = &unclosed,
     .open = {{"<|tool_call|>", false}},
     .answer = {"<response>", "</response>"},
     OBJECT},
    {.name = "command-r7b",
     .spec = &in_action,
     .open = {{"<|START_ACTION|>", false}},
     .tokens = {"<|END_ACTION|>"},
     .drop = {{"<|START_RESPONSE|>", false},
              {"<|END_RESPONSE|>", false},
              {"<|START_TEXT|>", false},
              {"<|END_TEXT|>", false}},
     OBJECT},
    {.name = "apriel",
     .calls_end_thoughts = true,
     .spec = &in_tool_calls,
     .open = {{"<tool_calls>", false}},
     .drop = {{"[END FINAL RESPONSE]", false}},
     OBJECT},
    {.name = "minimax-m1", .spec = &in_tool_calls, .open = {{"<tool_calls>", false}}, OBJECT},
    {.name = "hunyuan",
     .spec = &in_tool_calls,
     .open = {{"<tool_calls>", false}},
     .drop = {{"助手：", true}}, /* "assistant:", in front of answers that are no calls */
     .answer = {"<answer>", "</answer>"},
     OBJECT},
    {.name = "firefunction", .spec = &unclosed, .open = {{"functools[", true}}, OBJECT},
    {.name = "lfm2",
     .spec = &lfm2,
     .open = {{"<|tool_call_start|>", false}},
     .tokens = {"<|tool_call_end|>"},
     LOOSE},
    {.name = "pythonic",
     .spec = &pythonic,
     .open = {{"[", true}, {"<|python_start|>[", true}, {"```tool_code", false}},
     .tokens = {"<|python_start|>", "<|python_end|>"},
     .drop = {{"<|python_end|>", false}},
     LOOSE},
    {.name = "gemma",
     .spec = &gemma,
     .open = {{"<|tool_call>", false}},
     .tokens = {"<tool_call|>", "<|\"|>"},
     .drop = {{"<channel|>", false},
              {"<|channel>thought\n<channel|>", false},
              {"<|channel>thought<channel|>", false}},
     LOOSE},
    {.name = "functiongemma",
     .spec = &functiongemma,
     .open = {{"<start_function_call>", false}},
     .tokens = {"<end_function_call>", "<escape>"},
     LOOSE},
    {.name = "olmo3",
     .spec = &olmo3,
     .open = {{"<function_calls>", false}},
     .tokens = {"</function_calls>"},
     LOOSE},
    {.name = "seed",
     .spec = &seed,
     .open = {{"<seed:tool_call>", false}},
     .tokens = {"</seed:tool_call>"},
     TAGGED},
    {.name = "minicpm", .spec = &minicpm, .open = {{"<function name=\"", false}}, TAGGED},
    {.name = "nemotron",
     .spec = &in_toolcall,
     .open = {{"<TOOLCALL>", false}},
     .tokens = {"</TOOLCALL>"},
     OBJECT},
    {.name = "command-r",
     .spec = &in_fence,
     .open = {{"Action:\n```json", false}, {"Action: ```json", false}},
     OBJECT},
    {.name = "apertus",
     .spec = &in_tools,
     .open = {{"<|tools_prefix|>", false}},
     .tokens = {"<|tools_suffix|>"},
     OBJECT},
    {.name = "gigachat",
     .spec = &unclosed,
     .open = {{"<|function_call|>", false},
              {"<|message_sep|>\n\nfunction call<|role_sep|>\n", false}},
     .tokens = {"<|message_sep|>", "<|role_sep|>"},
     OBJECT},
    {.name = "solar",
     .spec = &solar,
     .open = {{"<|tool_calls|>", false}, {"<|tool_call:begin|>", false}},
     .tokens = {"<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>", "<|begin|>"},
     .drop = {{"<|begin|>assistant", false}, {"<|content|>", false}, {"<|end|>", false}},
     NAMED},
    {.name = "hy3",
     .spec = &hy3,
     .open = {{HY3("tool_calls"), false}, {HY3("tool_call"), false}},
     .tokens = {HY3("/tool_calls"),
                HY3("/tool_call"),
                HY3("tool_sep"),
                HY3("arg_key"),
                HY3("/arg_key"),
                HY3("arg_value"),
                HY3("/arg_value")},
     TAGGED},
    {.name = "xlam", .spec = &bare, .open = {{"[", true}, {"{", true}, {"```json", true}}, OBJECT},
    {.name = "json", .spec = &bare, .open = {{"{", true}, {"[", true}, {"```json", true}}, OBJECT},
};
enum { N_FORMATS = sizeof reply_formats / sizeof reply_formats[0] };

static const struct reply_thoughts all_thoughts[] = {
    {"think", "<think>", "</think>"},
    {"mistral", "[THINK]", "[/THINK]"},
    {"command-r7b", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"seed", "<seed:think>", "</seed:think>"},
    {"gemma", "<|channel>thought", "<channel|>"},
    {"minimax-m3", "<mm:think>", "</mm:think>"},
    {"apertus", "<|inner_prefix|>", "<|inner_suffix|>"},
    {"apriel", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
    {"solar", "<|think|>", "<|end|>"},
    {"thinking", "<thinking>", "</thinking>"},
    {"thought", "<thought>", "</thought>"}, /* EXAONE Deep's */
    {"hy3", HY3("think"), HY3("/think")},
    {"kimi-k3", K3_OPEN("think"), K3_CLOSE("think")},
    {"harmony", "<|channel|>analysis<|message|>", "<|end|>"},
    {"muse", "to=self<|message|>", "<|eom|>"},
};

/* What gives a format away: texts that are all in the template. The first row that fits wins, so
 * those whose marks are parts of others come later. */
static const struct {
    const char *format, *texts[2];
} signs[] = {
    {"harmony", {"<|channel|>", "<|message|>"}},
    {"muse", {"<atem:function_calls>", "<|eom|>"}},
    {"hy3", {":opensource", "<tool_sep{}>"}},
    {"minimax-m3", {M3, NULL}},
    {"kimi-k3", {"<|close|>", "<|end_of_msg|>"}},
    {"functionary-v3.2", {">>>all"}},
    {"seed", {"<seed:tool_call>", "<parameter="}},
    {"qwen-xml", {"<function=", "<parameter="}},
    {"glm", {"<tool_call>", "<arg_key>"}},
    {"gemma", {"<|tool_call>call:", NULL}},
    {"functiongemma", {"<start_function_call>", NULL}},
    {"olmo3", {"<function_calls>", "<functions>"}},
    {"deepseek-v3.2", {"｜DSML｜", "function_calls>"}},
    {"deepseek-v4", {"｜DSML｜", "tool_calls>"}},
    {"deepseek", {TOOL_CALLS_BEGIN, NULL}},
    {"kimi", {"<|tool_call_begin|>", NULL}},
    {"minimax", {"<minimax:tool_call>", NULL}},
    {"mistral", {"[TOOL_CALLS]", NULL}},
    {"functionary-v3.1", {"<function=", NULL}},
    {"lfm2", {"<|tool_list_start|>", NULL}},
    {"lfm2", {"<|tool_call_start|>", NULL}},
    {"lfm2", {"List of tools: [", NULL}},
    {"minicpm", {"<function name=", "<param name="}},
    {"nemotron", {"<TOOLCALL>", NULL}},
    {"apertus", {"<|tools_prefix|>", NULL}},
    {"gigachat", {"<|function_call|>", NULL}},
    {"gigachat", {"render_function_call", NULL}},
    {"solar", {"<|tool_call:begin|>", NULL}},
    {"command-r7b", {"<|START_ACTION|>", NULL}},
    {"command-r", {"Action:", "```json"}},
    {"firefunction", {"functools[", NULL}},
    {"granite", {"<|tool_call|>", NULL}},
    {"minimax-m1", {"<tool_calls>", "<end_of_sentence>"}},
    {"hunyuan", {"<tool_calls>", "<answer>"}},
    {"hunyuan", {"<tool_calls>", "<|extra_0|>"}},
    {"apriel", {"<tool_calls>", NULL}},
    {"xlam", {"[{\"name\": \"tool_call_name\"", NULL}},
    {"ernie", {"<tool_call>", "</response>"}},
    {"hermes", {"<tool_call>", "arguments"}},
    {"llama3", {"<|start_header_id|>ipython", NULL}},
    {"llama3", {"<|header_start|>ipython", NULL}},
};

/* Formats whose models mark reasoning in one way that their templates do not show as it is. */
static const struct {
    const char *format, *thoughts;
} pairs[] = {
    {"harmony", "harmony"},
    {"hy3", "hy3"},
    {"kimi-k3", "kimi-k3"},
    {"minimax-m1", "think"},
    {"hunyuan", "think"},
};

static bool has(const char *s, size_t n, const char *what)
{
    return !what || memmem(s, n, what, strlen(what)) != NULL;
}

/* The closing mark is enough: templates cut reasoning of earlier turns off with it. But some close
 * more than reasoning. */
static bool reasons_so(const struct reply_thoughts *t, const char *source, size_t n)
{
    bool shared = strcmp(t->close, "<|end|>") == 0 || strcmp(t->close, "<|eom|>") == 0;
    return has(source, n, t->close) && (!shared || has(source, n, t->open));
}

struct reply_style reply_style_detect(const char *source, size_t n)
{
    struct reply_style style = {NULL, NULL};
    for (size_t i = 0; source && i < sizeof signs / sizeof signs[0] && !style.format; i++)
        if (has(source, n, signs[i].texts[0]) && has(source, n, signs[i].texts[1]))
            style.format = reply_format_find(signs[i].format);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(reply_format_name(style.format), pairs[i].format) == 0)
            style.thoughts = reply_thoughts_find(pairs[i].thoughts);
    for (size_t i = 0; source && i < sizeof all_thoughts / sizeof all_thoughts[0]; i++)
        if (!style.thoughts && reasons_so(&all_thoughts[i], source, n))
            style.thoughts = &all_thoughts[i];
    return style;
}

const struct reply_format *reply_format_find(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(reply_formats[i].name, name) == 0)
            return &reply_formats[i];
    return NULL;
}

const struct reply_thoughts *reply_thoughts_find(const char *name)
{
    for (size_t i = 0; i < sizeof all_thoughts / sizeof all_thoughts[0]; i++)
        if (strcmp(all_thoughts[i].name, name) == 0)
            return &all_thoughts[i];
    return NULL;
}

const char *reply_format_name(const struct reply_format *f)
{
    return f ? f->name : "none";
}

const char *reply_thoughts_name(const struct reply_thoughts *t)
{
    return t ? t->name : "none";
}

const char *reply_thoughts_mark(const struct reply_thoughts *t, bool opening)
{
    return opening ? t->open : t->close;
}

bool reply_thoughts_first(const struct reply_thoughts *t)
{
    return strcmp(t->name, "harmony") != 0 && strcmp(t->name, "muse") != 0;
}

const char *reply_call_in_thoughts(const struct reply_format *f, size_t i)
{
    return f && f->calls_end_thoughts && i < REPLY_MAX_MARKS ? f->open[i].text : NULL;
}

const char *reply_format_list(size_t i)
{
    return i < N_FORMATS ? reply_formats[i].name : NULL;
}

const char *reply_thoughts_list(size_t i)
{
    return i < sizeof all_thoughts / sizeof all_thoughts[0] ? all_thoughts[i].name : NULL;
}

bool reply_is_framed(const struct reply_format *f)
{
    return f && f->no_text;
}

bool reply_short_ids(const struct reply_format *f)
{
    return f && f->short_ids;
}

struct reply_start reply_start_of(struct reply_style style, const char *text, size_t n)
{
    struct reply_start start = {false};
    while (n > 0 && reply_is_space(text[n - 1]))
        n--;
    bool no_text = style.format && style.format->no_text;
    if (style.thoughts && !no_text) {
        start.thinking = ends_with(text, n, style.thoughts->open);
        start.thought = ends_with(text, n, style.thoughts->close);
    }
    return start;
}
