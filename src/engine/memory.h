/* The engine's KV memory: joins kv/ with the backend that holds the bytes, and with the tier below.
 * For engine/ only. */
#ifndef WEIR_ENGINE_MEMORY_H
#define WEIR_ENGINE_MEMORY_H

#include "engine/step.h"

/* On the host: is there as much memory at all as was asked for? Errors: ERR_INVALID. */
enum err memory_check_asked(const struct engine *eng, struct err_info *e) WEIR_MUST_USE;

/* Decide how many blocks and panes there are (eng->memory), and shorten eng->n_ctx to what they can
 * hold. room_bytes: what the device has for them; 0: it is the host, which is asked here. Errors:
 * ERR_INVALID (what was asked for is not even one of each), ERR_NOMEM (what the device has is not).
 */
enum err memory_divide(struct engine *eng, uint64_t room_bytes, struct err_info *e) WEIR_MUST_USE;

/* After that: is there memory for the RAM tier, too, beside what lies on the host? Errors:
 * ERR_INVALID. */
enum err memory_check_host(const struct engine *eng,
                           bool on_device,
                           struct err_info *e) WEIR_MUST_USE;

/* Create eng->kv, and eng->tier if a directory or RAM for one is configured. The backend is there;
 * no step has run yet. Errors: ERR_IO (the directory), ERR_INVALID, ERR_NOMEM, ERR_INTERNAL (the
 * device). */
enum err memory_open(struct engine *eng, struct err_info *e) WEIR_MUST_USE;
void memory_close(struct engine *eng);

#endif
