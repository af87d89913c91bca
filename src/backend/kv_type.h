/* How keys and values are stored. */
#ifndef WEIR_BACKEND_KV_TYPE_H
#define WEIR_BACKEND_KV_TYPE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum kv_type { KV_F32, KV_F16, KV_BF16, KV_Q8_0 };
const char *kv_type_name(enum kv_type t);                 /* "f16" */
enum err kv_type_parse(const char *s, enum kv_type *out); /* OK or ERR_INVALID */
size_t kv_row_bytes(enum kv_type t, uint32_t head_dim);   /* one head of one position */

#endif
