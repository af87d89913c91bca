/* What a model's file advises of sampling. */
#ifndef WEIR_CLI_SERVE_SAMPLING_H
#define WEIR_CLI_SERVE_SAMPLING_H

#include "base/buf.h"
#include "gguf/gguf.h"

/* Appends a JSON object of fields of requests ("{}": it advises nothing). What cannot be followed
 * is a warning in the log. */
void serve_sampling_advice(const struct gguf *g, struct buf *out);

#endif
