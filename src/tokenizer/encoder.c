#include "tokenizer/encoder.h"

#include "base/mem.h"

#include <stdlib.h>

void token_list_add(struct token_list *l, token_id id)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->ids = mem_realloc(l->ids, l->cap * sizeof *l->ids);
    }
    l->ids[l->n++] = id;
}

void token_list_deinit(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

enum err token_list_room(struct token_list *l, size_t n, struct err_info *e)
{
    if (l->cap - l->n >= n)
        return OK;
    size_t cap = l->cap + l->cap / 2 > l->n + n ? l->cap + l->cap / 2 : l->n + n;
    token_id *ids = realloc(l->ids, cap * sizeof *ids);
    if (!ids)
        return err_set(e, ERR_NOMEM, "no memory for %zu token ids", cap);
    l->ids = ids;
    l->cap = cap;
    return OK;
}

enum err encoder_room(struct encoder *enc, size_t n, struct err_info *e)
{
    return token_list_room(enc->out, n, e);
}

enum err encoder_text_room(struct encoder *enc, size_t n, struct err_info *e)
{
    if (n <= enc->cap_text)
        return OK;
    size_t cap = n + n / 2;
    char *text = realloc(enc->text, cap);
    if (!text)
        return err_set(e, ERR_NOMEM, "no memory to tokenize %zu bytes", n);
    enc->text = text;
    enc->cap_text = cap;
    return OK;
}

enum err encoder_cuts_room(struct encoder *enc, size_t n, struct err_info *e)
{
    if (n <= enc->cap_cuts)
        return OK;
    free(enc->cuts);
    enc->cuts = malloc(n * sizeof *enc->cuts);
    enc->cap_cuts = enc->cuts ? n : 0;
    return enc->cuts ? OK : err_set(e, ERR_NOMEM, "no memory to tokenize %zu bytes", n);
}

void encoder_deinit(struct encoder *enc)
{
    merger_deinit(&enc->merger);
    free(enc->text);
    free(enc->cuts);
}
