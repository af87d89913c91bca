/* Grammars at work in the engine: the vocabulary's trie, the pool of masks, and a thread that
 * computes a mask while the model runs; for engine/ only.
 *
 *      accept    the token moves the request's state on; a mask that is not there yet is ordered
 *      (run)     the thread computes it, beside the backend's workers
 *      sample    the mask is there, or is waited for, or computed on the spot
 *
 * All of it is made when the first grammar comes, by the thread that brings it. */
#ifndef WEIR_ENGINE_GUIDE_H
#define WEIR_ENGINE_GUIDE_H

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

struct guide;

/* n_vocab: of the model, at least the tokenizer's. */
struct guide *guide_create(const struct tokenizer *t, uint32_t n_vocab, uint32_t max_running);
void guide_destroy(struct guide *g); /* no request with a grammar is left */

/* Any thread. */
enum err guide_vocab(struct guide *g,
                     const struct grammar_vocab **out,
                     struct err_info *e) WEIR_MUST_USE;
/* A state at the beginning of a grammar, whose first mask is there. Any thread, after guide_vocab.
 */
struct grammar_state *guide_begin(struct guide *g, struct grammar *grammar);

/* Any worker. left: tokens that may come yet, this one counted. no_end: also rule out what ends a
 * text. */
struct grammar_mask guide_mask(struct guide *g,
                               const struct grammar_state *s,
                               uint32_t left,
                               bool no_end);
/* Is the token in a mask that is not `none`? */
bool guide_allows(const struct grammar_mask *m, token_id token);
/* Give the mask back. A *chosen token outside of it (all it allows had no probability) becomes the
 * first that is allowed, or TOKEN_NONE. */
void guide_release(struct guide *g, struct grammar_mask *mask, token_id *chosen);

/* Engine thread. Move on by a token of the mask, behind which `left` may come; if the text goes on,
 * the next mask is on its way.
 * REFUSED: a grammar so ambiguous that its parses found no room; the token must not go out. */
enum grammar_step guide_accept(struct guide *g,
                               struct grammar_state *s,
                               token_id token,
                               uint32_t left);

struct grammar_mask_stats guide_stats(struct guide *g);

#endif
