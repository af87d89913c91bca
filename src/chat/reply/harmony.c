/* GPT-OSS: every text is a message in a channel (OpenAI's "harmony" format).
 *
 *      <|start|>assistant<|channel|>analysis<|message|>reasoning<|end|>
 *      <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{}<|call|>
 *      <|start|>assistant<|channel|>final<|message|>content<|return|>
 *
 * The prompt ends with "<|start|>assistant", so a reply begins in a header. The recipient may also
 * stand before the channel; of two channels in a header the last counts. Within a string of JSON
 * arguments no mark is looked for.
 *
 * Muse Glimmer has recipients alone, and calls in tags (format->spec):
 *
 *      <|start|>assistant to=self<|message|>reasoning<|eom|>
 *      <|start|>assistant to=f<|message|><atem:function_calls>...</atem:function_calls><|eom|>
 *      <|start|>assistant to=user<|message|>content<|eot|> */
#include "chat/reply/internal.h"

#include <string.h>

enum at { IN_HEADER, IN_REASONING, IN_CONTENT, IN_ARGUMENTS, BEFORE_CALL, IN_CALL };

static const char *const begins[] = {"<|channel|>", "<|start|>", "<|message|>", "to="};
static const char *const ends[] = {
    "<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>", NULL};
static const char *const muse_ends[] = {"<|eom|>", "<|eot|>", "<|start|>", NULL};
static const char message[] = "<|message|>";

/* s[0..n) has the beginning of one of the texts, or begins with all of one. */
static bool opens_header(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        size_t len = strlen(begins[i]);
        if (memcmp(begins[i], s, n < len ? n : len) == 0)
            return true;
    }
    return false;
}

/* The word behind the last `key` in raw: up to white space or a mark. False: not there. */
static bool find_word(const struct reply_parser *p, const char *key, const char **word, size_t *n)
{
    const char *at = NULL, *stop = p->raw.data + p->raw.len;
    for (const char *s = p->raw.data; (s = memmem(s, (size_t)(stop - s), key, strlen(key)));)
        at = s += strlen(key);
    if (!at)
        return false;
    const char *end = at;
    while (end < stop && !reply_is_space(*end) && *end != '<')
        end++;
    *word = at;
    *n = (size_t)(end - at);
    return true;
}

/* Is the message a call? Then it begins. */
static bool begin_call(struct reply_parser *p, const char *to, size_t n)
{
    static const char prefix[] = "functions.";
    char name[REPLY_MAX_NAME];
    bool prefixed = n > sizeof prefix - 1 && memcmp(to, prefix, sizeof prefix - 1) == 0;
    size_t skip = prefixed ? sizeof prefix - 1 : 0;
    if (!p->calls_wanted || !reply_is_name(to + skip, n - skip) ||
        !(prefixed || reply_knows(p, to, n)))
        return false;
    memcpy(name, to + skip, n - skip);
    reply_begin(p, name, n - skip, NULL, 0);
    p->harmony.at = IN_ARGUMENTS;
    p->harmony.scan = (struct json_scan){0};
    p->harmony.json = false;
    return true;
}

/* The header is whole: what comes? */
static void message_begins(struct reply_parser *p)
{
    const char *word;
    size_t n;
    enum at at = IN_CONTENT;
    bool muse = p->format->spec, to = find_word(p, "to=", &word, &n), calls = false;
    buf_clear(&p->space);
    if (to && !muse && begin_call(p, word, n))
        return;
    if (to && muse) {
        bool self = reply_is(word, n, "self"), other = !self && !reply_is(word, n, "user");
        calls = p->calls_wanted && (other || reply_knows(p, word, n)); /* a tool may be named so */
        at = self ? IN_REASONING : IN_CONTENT;
    } else if (!muse && find_word(p, "<|channel|>", &word, &n) && reply_is(word, n, "analysis")) {
        at = IN_REASONING;
    }
    p->harmony.text = at == IN_REASONING && !p->thoughts ? IN_CONTENT : at;
    p->harmony.at = calls ? BEFORE_CALL : p->harmony.text;
    buf_clear(&p->raw);
}

static bool header_byte(struct reply_parser *p, char c)
{
    buf_char(&p->raw, c);
    size_t from = reply_skip_space(p->raw.data, 0, p->raw.len);
    if (p->raw.len > REPLY_MAX_HEAD || !opens_header(p->raw.data + from, p->raw.len - from)) {
        p->harmony.at = IN_CONTENT; /* no header at all */
        reply_give_back(p);
    } else if (reply_raw_ends(p, message)) {
        message_begins(p);
    }
    return true;
}

static void emit(struct reply_parser *p, const char *s, size_t n)
{
    if (p->harmony.at == IN_REASONING)
        reply_reasoning(p, s, n);
    else if (p->harmony.at == IN_CONTENT)
        reply_content(p, s, n);
    else
        reply_arguments(p, s, n);
}

static void message_ends(struct reply_parser *p, const char *mark)
{
    if (p->harmony.at == IN_ARGUMENTS && !p->harmony.json)
        reply_end(p); /* free text: whole when its mark comes */
    p->harmony.at = IN_HEADER;
    buf_clear(&p->raw);
    if (strcmp(mark, "<|start|>") == 0 || strcmp(mark, "<|channel|>") == 0)
        buf_str(&p->raw, mark);
}

/* The mark of which what waits is the beginning, or all; or NULL. */
static const char *end_of(const struct reply_parser *p, const struct buf *waits)
{
    for (const char *const *end = p->format->spec ? muse_ends : ends; *end; end++)
        if (reply_starts(*end, waits->data, waits->len))
            return *end;
    return NULL;
}

/* Text up to a mark; what may be one waits in raw. */
static bool body_byte(struct reply_parser *p, char c)
{
    buf_char(&p->raw, c);
    while (p->raw.len > 0) {
        const char *mark = end_of(p, &p->raw);
        if (mark) {
            if (p->raw.len == strlen(mark))
                message_ends(p, mark);
            return true;
        }
        char first = reply_take_first(&p->raw);
        emit(p, &first, 1);
    }
    return true;
}

/* JSON while it lasts; then whatever it is until the mark. */
static bool arguments_byte(struct reply_parser *p, char c)
{
    struct harmony_state *s = &p->harmony;
    if (!s->json && !s->scan.begun && p->raw.len == 0) {
        if (reply_is_space(c))
            return true;
        s->json = c == '{';
        s->scan.begun = true;
    }
    if (!s->json)
        return body_byte(p, c);
    enum scan got = reply_json_byte(p, &s->scan, c);
    if (got != SCAN_MORE)
        s->at = IN_CONTENT;
    return got != SCAN_BAD || body_byte(p, c); /* the mark, too early */
}

/* White space, then the block of calls; what is none is text. */
static bool before_call_byte(struct reply_parser *p, char c)
{
    const char *open = p->format->open[0].text;
    if (p->raw.len == 0 && reply_is_space(c))
        return true;
    buf_char(&p->raw, c);
    if (!reply_starts(open, p->raw.data, p->raw.len)) {
        p->raw.len--;
        p->harmony.at = p->harmony.text;
        return body_byte(p, c);
    }
    if (p->raw.len == strlen(open)) {
        tagged_enter(p, open);
        p->harmony.at = IN_CALL;
    }
    return true;
}

/* A byte of no mark: of the call, or of what follows it. */
static void call_goes_on(struct reply_parser *p, char c)
{
    p->left = false;
    bool taken = p->harmony.at == IN_CALL && tagged_byte(p, c);
    if (taken && !p->left)
        return;
    p->harmony.at = IN_CONTENT;
    if (!taken)
        body_byte(p, c);
}

/* The mark that ends the message ends its call too, wherever that is; what may be one waits in
 * held. */
static bool call_byte(struct reply_parser *p, char c)
{
    buf_char(&p->held, c);
    while (p->held.len > 0) {
        const char *mark = p->harmony.at == IN_CALL ? end_of(p, &p->held) : NULL;
        if (mark && p->held.len == strlen(mark)) {
            buf_clear(&p->held);
            tagged_finish(p);
            message_ends(p, mark);
        }
        if (mark)
            return true;
        call_goes_on(p, reply_take_first(&p->held));
    }
    return true;
}

bool harmony_byte(struct reply_parser *p, char c)
{
    switch ((enum at)p->harmony.at) {
    case IN_HEADER:
        return header_byte(p, c);
    case IN_ARGUMENTS:
        return arguments_byte(p, c);
    case BEFORE_CALL:
        return before_call_byte(p, c);
    case IN_CALL:
        return call_byte(p, c);
    case IN_REASONING:
    case IN_CONTENT:
        break;
    }
    return body_byte(p, c);
}

/* Has what looked like the beginning of a header no whole mark: "<", "to"? */
static bool is_text(const struct reply_parser *p)
{
    size_t from = reply_skip_space(p->raw.data, 0, p->raw.len);
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        size_t len = strlen(begins[i]);
        if (p->raw.len - from >= len && memcmp(p->raw.data + from, begins[i], len) == 0)
            return false;
    }
    return from < p->raw.len;
}

void harmony_finish(struct reply_parser *p)
{
    struct harmony_state *s = &p->harmony;
    while (p->held.len > 0)
        call_goes_on(p, reply_take_first(&p->held));
    if (s->at == IN_CALL) {
        tagged_finish(p);
        return;
    }
    if (s->at == BEFORE_CALL)
        s->at = s->text;
    else if (s->at == IN_HEADER && is_text(p))
        s->at = IN_CONTENT;
    else if (s->at == IN_HEADER)
        buf_clear(&p->raw); /* part of a header */
    emit(p, p->raw.data, p->raw.len);
    buf_clear(&p->raw);
    if (s->at == IN_ARGUMENTS && !s->json && s->scan.begun && !p->cut)
        reply_end(p); /* the token that ends a call ends the output too, unseen */
}

bool harmony_reasons(const struct reply_parser *p)
{
    const struct harmony_state *s = &p->harmony;
    return s->at == IN_REASONING || (s->at == BEFORE_CALL && s->text == IN_REASONING);
}
