/* The text cursor of a choice.
 *
 *      outputs    |The| capital| of| F|ran| ...    tokenizer_bytes of each
 *      taken       ^^^^^^^^^^^^^^^^^^               n_taken: became pieces
 *      written     ^^^^^^^^^^^^^^                   (tok_at, tok_off), n_bytes in all
 *      limit       ^^^^^^^^^^^^^^^^                 text_bytes of the newest output
 *
 * Bytes between written and limit go out; those past the limit may yet be a stop string. Bytes that
 * are part of a character wait in utf8; at the end they become U+FFFD. */
#include "api/text.h"

#include <math.h>
#include <stdio.h>

/* Does the answer name tokens, so that one may go out only with all of its text? */
static bool by_token(const struct api_call *c)
{
    return c->logprobs || c->return_tokens || c->token_ids;
}

uint32_t api_count_chars(const char *s, size_t n)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80; /* all but continuation bytes */
    return count;
}

/* A control token stands for no text, but may be a mark of the reply's format. */
static void feed_mark(struct api_choice *ch, token_id id)
{
    size_t n;
    const char *mark = tokenizer_bytes(ch->call->tokenizer, id, true, &n);
    if (ch->reply && reply_reads(ch->reply, mark, n))
        utf8_feed(&ch->utf8, mark, n, false, &ch->call->text);
}

/* Feed raw bytes of the outputs from the cursor up to `limit` bytes in all, at most to the end of
 * output `last`. */
static void feed(struct api_choice *ch, uint32_t last, uint32_t limit, bool flush)
{
    struct api_call *c = ch->call;
    const struct request_token *out = request_out(ch->req);
    while (ch->tok_at <= last && ch->tok_at < request_n_out(ch->req)) {
        size_t len;
        const char *bytes =
            tokenizer_bytes(c->tokenizer, out[ch->tok_at].id, c->special_text, &len);
        size_t n = len - ch->tok_off, room = limit > ch->n_bytes ? limit - ch->n_bytes : 0;
        if (n > room)
            n = room;
        utf8_feed(&ch->utf8, bytes + ch->tok_off, n, false, &c->text);
        ch->n_bytes += (uint32_t)n;
        ch->tok_off += (uint32_t)n;
        if (ch->tok_off < len)
            break;
        if (len == 0)
            feed_mark(ch, out[ch->tok_at].id);
        ch->tok_at++;
        ch->tok_off = 0;
    }
    if (flush)
        utf8_feed(&ch->utf8, "", 0, true, &c->text);
}

/* What c->text holds is the piece. */
static bool give(struct api_choice *ch, int64_t token, struct api_piece *p)
{
    const struct buf *text = &ch->call->text;
    *p = (struct api_piece){.text = text->data, .len = text->len, .token = token};
    return true;
}

/* The bytes that may be shown now, never fewer than were. */
static uint32_t shown_limit(const struct api_choice *ch, uint32_t n_out)
{
    uint32_t limit = n_out ? request_out(ch->req)[n_out - 1].text_bytes : 0;
    if (ch->done)
        limit = request_text_bytes(ch->req);
    return limit > ch->n_bytes ? limit : ch->n_bytes;
}

/* A whole token, once all of it may be shown; at the end also the one that the end cuts. */
static bool next_whole_token(struct api_choice *ch, uint32_t n_out, struct api_piece *p)
{
    size_t len;
    uint32_t i = ch->n_taken, limit = shown_limit(ch, n_out);
    tokenizer_bytes(ch->call->tokenizer, request_out(ch->req)[i].id, ch->call->special_text, &len);
    bool whole = len <= limit - ch->n_bytes;
    if (!whole && !(ch->done && ch->n_bytes < limit))
        return false;
    feed(ch, i, limit, false);
    ch->n_taken++;
    return give(ch, i, p);
}

bool api_next_piece(struct api_choice *ch, struct api_piece *p)
{
    uint32_t n_out = request_n_out(ch->req);
    buf_clear(&ch->call->text);
    if (ch->ended)
        return false;
    while (ch->n_taken < n_out) {
        if (by_token(ch->call)) {
            if (next_whole_token(ch, n_out, p))
                return true;
            break;
        }
        uint32_t i = ch->n_taken++;
        feed(ch, i, request_out(ch->req)[i].text_bytes, false);
        if (ch->call->text.len > 0 || ch->call->ignore_eos)
            return give(ch, i, p);
    }
    if (!ch->done)
        return false;
    /* the end decides what was held back: shown, or cut off with its stop string */
    ch->ended = true;
    if (n_out > 0)
        feed(ch, n_out - 1, shown_limit(ch, n_out), true);
    return ch->call->text.len > 0 && give(ch, -1, p);
}

void api_put_token(const struct tokenizer *t, token_id id, bool as_bytes, struct buf *out)
{
    size_t n;
    const char *s = tokenizer_bytes(t, id, true, &n);
    if (!as_bytes || utf8_valid(s, n)) {
        api_put_text(out, s, n);
        return;
    }
    buf_str(out, "\"bytes:");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "\\\\x%02x", (unsigned char)s[i]);
    buf_char(out, '"');
}

void api_put_token_name(const struct api_call *c, token_id id, bool as_bytes, struct buf *out)
{
    if (c->tokens_as_ids)
        buf_printf(out, "\"token_id:%d\"", id);
    else
        api_put_token(c->tokenizer, id, as_bytes, out);
}

/* [a, b, ...] of the raw bytes of a token. */
static void put_bytes(const struct tokenizer *t, token_id id, struct buf *out)
{
    size_t n;
    const char *s = tokenizer_bytes(t, id, true, &n);
    buf_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_char(out, ',');
        api_put_int(out, (unsigned char)s[i]);
    }
    buf_char(out, ']');
}

/* "token":...,"logprob":...,"bytes":[...] behind an open brace */
static void put_one(
    const struct api_call *c, token_id id, float logprob, bool with_id, struct buf *out)
{
    buf_char(out, '{');
    if (with_id) {
        buf_str(out, "\"id\":");
        api_put_int(out, id);
        buf_char(out, ',');
    }
    buf_str(out, "\"token\":");
    api_put_token_name(c, id, false, out);
    buf_str(out, ",\"logprob\":");
    api_put_float(out, logprob);
    buf_str(out, ",\"bytes\":");
    put_bytes(c->tokenizer, id, out);
}

static void put_prob(const struct tokenizer *t, token_id id, float logprob, struct buf *out)
{
    buf_str(out, "{\"id\":");
    api_put_int(out, id);
    buf_str(out, ",\"token\":");
    api_put_token(t, id, false, out);
    buf_str(out, ",\"bytes\":");
    put_bytes(t, id, out);
    buf_str(out, ",\"prob\":");
    api_put_float(out, expf(logprob));
}

/* Those that could not have come are left out. */
void api_put_prob(const struct api_choice *ch, uint32_t i, struct buf *out)
{
    const struct api_call *c = ch->call;
    const struct request_token *own = &request_out(ch->req)[i];
    const struct token_logprob *top = request_top(ch->req, i);
    put_prob(c->tokenizer, own->id, own->logprob, out);
    buf_str(out, ",\"top_probs\":[");
    for (uint32_t j = 0; j < c->n_top && top && top[j].id >= 0; j++) {
        buf_str(out, j > 0 ? "," : "");
        put_prob(c->tokenizer, top[j].id, top[j].logprob, out);
        buf_char(out, '}');
    }
    buf_str(out, "]}");
}

void api_put_logprob(const struct api_choice *ch, uint32_t i, bool with_id, struct buf *out)
{
    const struct api_call *c = ch->call;
    const struct request_token *own = &request_out(ch->req)[i];
    const struct token_logprob *top = request_top(ch->req, i);
    put_one(c, own->id, own->logprob, with_id, out);
    buf_str(out, ",\"top_logprobs\":[");
    for (uint32_t j = 0; j < c->n_top && top; j++) {
        if (j > 0)
            buf_char(out, ',');
        put_one(c, top[j].id, top[j].logprob, with_id, out);
        buf_char(out, '}');
    }
    buf_str(out, "]}");
}
