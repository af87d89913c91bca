/* What one call of tokenizer_encode works with: the ids so far, and scratch memory. */
#ifndef WEIR_TOKENIZER_ENCODER_H
#define WEIR_TOKENIZER_ENCODER_H

#include "tokenizer/merge.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/vocab.h"

/* Zero-initialise, then set out. */
struct encoder {
    struct token_list *out;
    struct merger merger;
    struct pretokenize_scratch *words; /* BPE, from its first run on */
    char *escaped;                     /* SPM: a run with its spaces replaced */
    size_t cap_escaped;
};

void encoder_deinit(struct encoder *enc);

/* Room for n more ids at once, so that token_list_add does not allocate. */
enum err encoder_room(struct encoder *enc, size_t n, struct err_info *e) WEIR_MUST_USE;

#endif
