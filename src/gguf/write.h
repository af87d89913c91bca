/* A new GGUF file, like a given one but for the types of its tensors.
 *
 *     begin    metadata and tensors' places into a new weir-*.part in the folder of PATH
 *     data     the tensors' bytes, in the order of the given file's tensors
 *     end      to the disk, and renamed to PATH; or abort, and nothing is left
 *
 * All metadata is copied, in its order, but for what numbers the files of a split model: PATH holds
 * it whole. general.file_type and general.quantization_version are set.
 * Links are followed; what exists there and is no regular file is refused.
 * PATH may be the given file itself: it is replaced by the rename, while the mapping stays.
 *
 * Thread: one at a time. */
#ifndef WEIR_GGUF_WRITE_H
#define WEIR_GGUF_WRITE_H

#include "gguf/gguf.h"

struct gguf_writer;

/* types[gguf_n_tensors(g)]: of which each tensor's row length is a multiple of the block. Room for
 * the whole file is taken at once where the file system can. Errors: ERR_IO, ERR_NOMEM,
 * ERR_UNSUPPORTED (a file too large for its numbers). */
enum err gguf_write_begin(const char *path,
                          const struct gguf *g,
                          const enum gguf_type *types,
                          uint32_t file_type,
                          struct gguf_writer **out,
                          struct err_info *e) WEIR_MUST_USE;

/* Bytes that the whole file will have. */
size_t gguf_write_bytes(const struct gguf_writer *w);

/* The path of what is written until the end, for who must remove it from a signal handler. */
const char *gguf_write_part(const struct gguf_writer *w);

/* The next n bytes; a call may not go past the end of a tensor. Padding is put by itself. */
enum err gguf_write_data(struct gguf_writer *w, const void *bytes, size_t n, struct err_info *e)
    WEIR_MUST_USE;

/* After the last byte of the last tensor. Frees w, also when it fails. */
enum err gguf_write_end(struct gguf_writer *w, struct err_info *e) WEIR_MUST_USE;

/* Remove what was written, and free w; NULL is fine. */
void gguf_write_abort(struct gguf_writer *w);

#endif
