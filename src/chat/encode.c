#include "chat/encode.h"

#include "chat/internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* BOS goes before what was appended from `first` on, unless it stands there already. */
static void put_bos(token_id bos, size_t first, struct token_list *ids)
{
    if (bos == TOKEN_NONE || (ids->n > first && ids->ids[first] == bos))
        return;
    token_list_add(ids, bos);
    memmove(ids->ids + first + 1, ids->ids + first, (ids->n - 1 - first) * sizeof *ids->ids);
    ids->ids[first] = bos;
}

const char *chat_token_text(const struct tokenizer *tok, token_id id, struct buf *out)
{
    if (id == TOKEN_NONE)
        return NULL;
    tokenizer_decode(tok, &id, 1, true, out);
    return buf_cstr(out);
}

static enum err encode_text(const struct tokenizer *tok,
                            const struct jinja_text *text,
                            struct token_list *ids,
                            struct err_info *e)
{
    struct text_piece *pieces = calloc(text->n_spans + 1, sizeof *pieces);
    if (!pieces)
        return err_set(e, ERR_NOMEM, "no memory for a conversation");
    for (size_t i = 0; i < text->n_spans; i++) {
        const struct jinja_span *s = &text->spans[i];
        pieces[i] = (struct text_piece){text->text.data + s->begin, s->end - s->begin, s->trusted};
    }
    enum err err = tokenizer_encode(tok, pieces, text->n_spans, ids, e);
    free(pieces);
    return err;
}

/* Does the prompt's end, where the template itself wrote it, begin the reply? */
static struct reply_start start_of(const struct chat_template *tmpl, const struct jinja_text *text)
{
    const struct jinja_span *last = text->n_spans ? &text->spans[text->n_spans - 1] : NULL;
    bool own = last && last->trusted;
    return reply_start_of(chat_template_style(tmpl),
                          own ? text->text.data + last->begin : NULL,
                          own ? last->end - last->begin : 0);
}

/* The answer's beginning, as text of a client's: encoded with what is before it, as if the model
 * had written it. */
static enum err add_begun(struct jinja_text *text, const char *begun, size_t n, struct err_info *e)
{
    if (n == 0)
        return OK;
    struct jinja_span *spans = realloc(text->spans, (text->n_spans + 1) * sizeof *spans);
    text->spans = spans ? spans : text->spans;
    text->text.may_fail = true;
    if (!spans || !buf_reserve(&text->text, n))
        return err_set(e, ERR_NOMEM, "no memory for the beginning of the answer");
    spans[text->n_spans++] =
        (struct jinja_span){.begin = text->text.len, .end = text->text.len + n};
    buf_add(&text->text, begun, n);
    return OK;
}

/* Gemma 4's template opens no turn behind a result where the assistant spoke before it called. */
static enum err open_turn(const struct chat_template *tmpl,
                          const struct chat_input *in,
                          struct jinja_text *text,
                          struct err_info *e)
{
    static const char closed[] = "<turn|>\n", opened[] = "<|turn>model\n";
    const struct jinja_span *last = text->n_spans ? &text->spans[text->n_spans - 1] : NULL;
    const size_t n = sizeof closed - 1;
    if (!in->add_generation_prompt || !last || !last->trusted ||
        chat_template_style(tmpl).format != reply_format_find("gemma") ||
        last->end - last->begin < n || memcmp(text->text.data + last->end - n, closed, n) != 0)
        return OK;
    const enum err err = add_begun(text, opened, sizeof opened - 1, e);
    if (!err)
        text->spans[text->n_spans - 1].trusted = true;
    return err;
}

/* Render *in, with the model's tokens added, and append the ids. */
static enum err render_and_encode(const struct chat_template *tmpl,
                                  const struct tokenizer *tok,
                                  struct chat_input *in,
                                  const struct chat_turn *turn,
                                  struct token_list *ids,
                                  struct reply_start *start,
                                  struct err_info *e)
{
    struct jinja_text text = {0};
    struct buf bos = {0}, eos = {0};
    in->bos = chat_token_text(tok, tokenizer_bos(tok), &bos);
    in->eos = chat_token_text(tok, tokenizer_eos(tok), &eos);
    size_t first = ids->n;
    enum err err;
    err = chat_render(tmpl, in, &text, e);
    if (!err)
        err = open_turn(tmpl, in, &text, e);
    *start = start_of(tmpl, &text);
    if (!err)
        err = add_begun(&text, turn->begun, turn->n_begun, e);
    if (!err && !(err = encode_text(tok, &text, ids, e)) && tokenizer_adds_bos(tok))
        put_bos(tokenizer_bos(tok), first, ids);
    jinja_text_deinit(&text);
    buf_deinit(&bos);
    buf_deinit(&eos);
    return err;
}

enum err chat_encode_turn(const struct chat_template *tmpl,
                          const struct tokenizer *tok,
                          const struct chat_turn *turn,
                          struct token_list *ids,
                          struct reply_start *start,
                          struct err_info *e)
{
    json_t *messages = NULL, *vars = NULL;
    *start = (struct reply_start){0};
    tmpl = chat_template_for(tmpl, chat_tools_wanted(turn->tools));
    enum err err = chat_turn_prepare(tmpl, turn, &messages, &vars, e);
    if (!err) {
        struct chat_input in = {.messages = messages,
                                .vars = vars,
                                .add_generation_prompt = turn->add_generation_prompt};
        err = render_and_encode(tmpl, tok, &in, turn, ids, start, e);
    }
    json_decref(messages);
    json_decref(vars);
    return err;
}

enum err chat_encode_plain(const struct chat_template *tmpl,
                           const struct tokenizer *tok,
                           const struct chat_message *messages,
                           size_t n_messages,
                           struct token_list *ids,
                           struct err_info *e)
{
    json_t *all = json_array();
    int failed = 0; /* as there is no memory: the texts are UTF-8 */
    for (size_t i = 0; i < n_messages; i++) {
        const struct chat_message *m = &messages[i];
        json_t *one = json_object();
        failed |= json_object_set_new(one, "role", json_stringn(m->role, m->role_len));
        failed |= json_object_set_new(one, "content", json_stringn(m->content, m->content_len));
        failed |= json_array_append_new(all, one);
    }
    const struct chat_turn turn = {.messages = all, .add_generation_prompt = true};
    struct reply_start start;
    enum err err = failed ? err_set(e, ERR_NOMEM, "no memory for %zu messages", n_messages)
                          : chat_encode_turn(tmpl, tok, &turn, ids, &start, e);
    json_decref(all);
    return err;
}
