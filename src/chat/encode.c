#include "chat/encode.h"

#include "base/mem.h"

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

enum err chat_encode(const struct chat_template *tmpl,
                     const struct tokenizer *tok,
                     const struct chat_message *messages,
                     size_t n_messages,
                     struct token_list *ids,
                     struct err_info *e)
{
    struct chat_prompt prompt = {0};
    struct text_piece *pieces = NULL;
    size_t first = ids->n;
    enum err err = chat_render(tmpl, messages, n_messages, &prompt, e);
    if (err)
        goto out;
    pieces = mem_zalloc(prompt.n_spans, sizeof *pieces);
    for (size_t i = 0; i < prompt.n_spans; i++) {
        const struct chat_span *s = &prompt.spans[i];
        pieces[i] =
            (struct text_piece){prompt.text.data + s->begin, s->end - s->begin, s->trusted != 0};
    }
    err = tokenizer_encode(tok, pieces, prompt.n_spans, ids, e);
    if (!err && (tokenizer_adds_bos(tok) || chat_template_wants_bos(tmpl)))
        put_bos(tokenizer_bos(tok), first, ids);
out:
    free(pieces);
    chat_prompt_deinit(&prompt);
    return err;
}
