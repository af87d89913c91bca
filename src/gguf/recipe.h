/* Which type each tensor of a file gets when the file is quantised.
 *
 * A recipe has one type for most matrices and gives more bits where an error costs most: the output
 * matrix, and in the _M mixes attn_v and ffn_down of the first and last eighth of the layers and of
 * every third between. Vectors, norms, the routers of experts and other small matrices stay as they
 * are. These are the choices of llama.cpp's quantiser without an importance matrix, so that a file
 * by that name has the same tensors in the same types. */
#ifndef WEIR_GGUF_RECIPE_H
#define WEIR_GGUF_RECIPE_H

#include "gguf/gguf.h"

struct gguf_recipe {
    const char *name;    /* "Q4_K_M" */
    uint32_t file_type;  /* general.file_type */
    enum gguf_type type; /* of most matrices */
    bool mixed;          /* with Q6_K where an error costs most */
};

/* The recipe of that name, letters of either case; NULL if there is none. */
#define GGUF_RECIPES "Q8_0, Q6_K, Q5_K_M, Q4_K_M or Q4_0"
const struct gguf_recipe *gguf_find_recipe(const char *name);

/* out[i] = the type of tensor i of g: its own if it stays as it is. A row that is no multiple of
 * 256 values falls back to the nearest type with blocks of 32 and no fewer bits; one that is no
 * multiple of 32 to F16. Allocates. Errors: ERR_UNSUPPORTED for a tensor that is quantised already;
 * ERR_FORMAT for metadata of the wrong kind. */
enum err gguf_recipe_types(const struct gguf_recipe *r,
                           const struct gguf *g,
                           enum gguf_type *out, /* [n_tensors] */
                           struct err_info *e) WEIR_MUST_USE;

#endif
