/* Text to tokens and back, by the model's tokenizer and chat template. */
#include "lib/internal.h"

#include <stdlib.h>
#include <string.h>

static enum err too_long(struct err_info *e)
{
    return err_set(e, ERR_TOO_LONG, "a text of more than %zu bytes", LIB_MAX_TEXT_BYTES);
}

enum err lib_encode(const struct weir *w,
                    const char *text,
                    bool add_special,
                    bool parse_special,
                    struct token_list *ids,
                    struct err_info *e)
{
    const size_t n = strnlen(text, LIB_MAX_TEXT_BYTES + 1);
    if (n > LIB_MAX_TEXT_BYTES)
        return too_long(e);
    if (add_special)
        tokenizer_add_begin(w->tokenizer, ids);
    const struct text_piece piece = {.text = text, .n_bytes = n, .parse_special = parse_special};
    return tokenizer_encode(w->tokenizer, &piece, 1, ids, e);
}

/* messages[i], whose text takes of *room, in bytes. */
static enum err view_message(const struct weir_message *m,
                             size_t i,
                             size_t *room,
                             struct chat_message *out,
                             struct err_info *e)
{
    if (!m->role || !m->content)
        return err_set(e, ERR_INVALID, "messages[%zu] has no role or no content", i);
    const size_t n_role = strnlen(m->role, *room + 1);
    const size_t n_content = n_role > *room ? 0 : strnlen(m->content, *room - n_role + 1);
    if (n_role + n_content > *room)
        return too_long(e);
    if (!utf8_valid(m->role, n_role) || !utf8_valid(m->content, n_content))
        return err_set(e, ERR_INVALID, "messages[%zu] is not valid UTF-8 text", i);
    *room -= n_role + n_content;
    *out = (struct chat_message){m->role, n_role, m->content, n_content};
    return OK;
}

enum err lib_encode_chat(const struct weir *w,
                         const struct weir_message *messages,
                         size_t n_messages,
                         struct token_list *ids,
                         struct err_info *e)
{
    size_t room = LIB_MAX_TEXT_BYTES;
    if (n_messages > room / sizeof(struct chat_message))
        return too_long(e);
    struct chat_message *views = malloc((n_messages + 1) * sizeof *views);
    if (!views)
        return err_set(e, ERR_NOMEM, "no memory for %zu messages", n_messages);
    enum err err = OK;
    for (size_t i = 0; i < n_messages && !err; i++)
        err = view_message(&messages[i], i, &room, &views[i], e);
    if (!err)
        err = chat_encode_plain(w->template, w->tokenizer, views, n_messages, ids, e);
    free(views);
    return err;
}

/* As many as there is room for. */
static void give(const struct token_list *ids, int32_t *tokens, size_t max, size_t *n)
{
    const size_t n_here = ids->n < max ? ids->n : max;
    if (n_here > 0)
        memcpy(tokens, ids->ids, n_here * sizeof *tokens);
    *n = ids->n;
}

enum weir_status weir_tokenize(const struct weir *w,
                               const char *text,
                               bool add_special,
                               bool parse_special,
                               int32_t *tokens,
                               size_t max,
                               size_t *n_tokens,
                               struct weir_error *e)
{
    struct token_list ids = {0};
    struct err_info why;
    const struct lib_own own = lib_enter();
    enum err err = lib_encode(w, text, add_special, parse_special, &ids, &why);
    lib_leave(&own);
    if (!err)
        give(&ids, tokens, max, n_tokens);
    token_list_deinit(&ids);
    return lib_status(err, &why, e);
}

enum weir_status weir_apply_template(const struct weir *w,
                                     const struct weir_message *messages,
                                     size_t n_messages,
                                     int32_t *tokens,
                                     size_t max,
                                     size_t *n_tokens,
                                     struct weir_error *e)
{
    struct token_list ids = {0};
    struct err_info why;
    const struct lib_own own = lib_enter();
    enum err err = lib_encode_chat(w, messages, n_messages, &ids, &why);
    lib_leave(&own);
    if (!err)
        give(&ids, tokens, max, n_tokens);
    token_list_deinit(&ids);
    return lib_status(err, &why, e);
}

void weir_detokenize(const struct weir *w,
                     const int32_t *tokens,
                     size_t n_tokens,
                     bool special,
                     char *text,
                     size_t max,
                     size_t *n_bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        size_t n;
        const char *bytes = tokenizer_bytes_at(w->tokenizer, tokens, i, special, &n);
        const size_t room = at < max ? max - at : 0;
        if (room > 0)
            memcpy(text + at, bytes, n < room ? n : room);
        at += n;
    }
    if (at < max)
        text[at] = '\0';
    *n_bytes = at;
}
