/* Calls that want a vector of each of several texts: embeddings.c and rerank.c. For api/ only.
 *
 *      body --> json, model, priority -- dialect.parse --> prompts --> requests --> engine
 *
 * A choice is a text; its request ends with a vector (engine.h) and the answer is written when all
 * have. On a worker up to submit, then the loop thread's. */
#ifndef WEIR_API_VECTORS_H
#define WEIR_API_VECTORS_H

#include "api/call.h"

#define API_MAX_TEXTS 2048 /* of one call */
/* Without pooling a text has as many vectors as tokens: values of one call, and of all that there
 * are at once. */
#define API_MAX_EACH_CALL (8u << 20)
#define API_MAX_EACH (4 * API_MAX_EACH_CALL)

/* What the answer's writer has to know. */
struct api_vectors {
    /* embeddings */
    bool openai; /* the shape of the answer; else llama-server's */
    bool each;   /* a vector of each token */
    bool base64;
    uint32_t n_dims; /* that are kept of each vector, from the first on */
    int64_t norm;    /* that each is brought to: 2 is the Euclidean length (embeddings.c) */
    /* reranking */
    uint32_t n_first; /* tokens of each prompt before its document */
    uint32_t top_n;
    bool raw;          /* scores as the head has them, not between 0 and 1 */
    bool plain;        /* an array of {index, score}, as Text Embeddings Inference has it */
    struct buf *texts; /* [n_texts] the documents, where they are to be returned */
    uint32_t n_texts;
    uint64_t n_held; /* of api.n_vector_values, until the answer is written */
};

void api_vectors_destroy(struct api *a, struct api_vectors *v); /* NULL is allowed */

/* Take c->vectors, read the body, and give the engine a request for each prompt. After OK, *c
 * belongs to the loop thread. Errors: as the client should see them. */
enum err api_vectors_compute(struct api_call *c,
                             const struct api_dialect *d,
                             const struct api_input *in,
                             struct err_info *e) WEIR_MUST_USE;

/* ,"usage":{...} of all texts; with the comma. */
void api_put_text_usage(const struct api_call *c, struct buf *out);

#endif
