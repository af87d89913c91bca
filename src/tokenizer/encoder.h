/* What one call of tokenizer_encode works with: the ids so far, and scratch memory. */
#ifndef WEIR_TOKENIZER_ENCODER_H
#define WEIR_TOKENIZER_ENCODER_H

#include "tokenizer/merge.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/vocab.h"

/* A step of the best way through a text. UGM, by where it ends: its last token, which has n bytes;
 * PLAMO, by where it begins: its first. */
struct cut {
    double score; /* of all the way to there, or from there */
    size_t n;
    token_id id;
};

/* Zero-initialise, then set out. */
struct encoder {
    struct token_list *out;
    struct merger merger;
    struct pretokenize_scratch words; /* BPE */
    char *text;                       /* SPM, UGM, WPM: a run as its vocabulary writes it */
    size_t cap_text;
    struct cut *cuts; /* UGM, PLAMO: the best way to each position, or from there */
    size_t cap_cuts;
};

void encoder_deinit(struct encoder *enc);

/* Room for n bytes in enc->text; its content stays. */
enum err encoder_text_room(struct encoder *enc, size_t n, struct err_info *e) WEIR_MUST_USE;

/* Room for n cuts; what they hold is lost. */
enum err encoder_cuts_room(struct encoder *enc, size_t n, struct err_info *e) WEIR_MUST_USE;

/* Room for n more ids at once, so that token_list_add does not allocate. */
enum err encoder_room(struct encoder *enc, size_t n, struct err_info *e) WEIR_MUST_USE;

#endif
