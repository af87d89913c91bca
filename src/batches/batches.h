/* Files of requests that are worked off in the background: OpenAI's /v1/files and /v1/batches.
 *
 *      DIR/lock                    flock: one server at a time
 *      DIR/files/file-ID.json      what a file is: name, purpose, bytes, owner, times
 *      DIR/files/file-ID.jsonl     its bytes; of results of a batch that runs without a .json
 *      DIR/batches/batch_ID.json   what a batch is, and how far it has come as a whole
 *
 * Each line of an input file becomes a call of the API, like one from a socket (api_begin), at a
 * low priority and a bounded number at a time. Its answer becomes a line of the output file, or of
 * the error file, and that line is the record that it was done: whoever starts again reads the two
 * files and does what is missing. So after a crash nothing is lost and nothing is there twice.
 *
 *      batch thread                                   loop thread
 *      next line -> api_begin ----- begun ----------> api_pull (once), and again at its news
 *      append the answer's line <-- finished -------- api_end
 *
 * All of a call but its beginning happens on the loop thread, which alone may drain the engine's
 * events; it never waits for a disk. .json files are written aside and renamed; results are
 * appended, and synced once a second and before a batch is said to be complete. */
#ifndef WEIR_BATCHES_BATCH_H
#define WEIR_BATCHES_BATCH_H

#include "api/api.h"

#define BATCHES_FILE_BYTES ((uint64_t)100 << 20) /* of an uploaded file, if no other is set */

struct batches;

struct batches_config {
    const char *dir;
    uint32_t n_parallel;     /* calls at a time; 0: 16 */
    uint64_t max_file_bytes; /* 0: BATCHES_FILE_BYTES */
    uint32_t max_lines;      /* of a file; 0: 50,000 */
    uint32_t max_line_bytes; /* 0: 1 MiB */
};

/* Opens DIR, makes it if need be, and reads what is there. Errors: ERR_IO (also: another server
 * uses it). */
enum err batches_create(const struct batches_config *cfg,
                        struct api *api,
                        struct batches **out,
                        struct err_info *e) WEIR_MUST_USE;
/* The routes, for api_set_service. */
struct api_service batches_service(struct batches *b);

/* Begin to work, once the api has its engine. Errors: ERR_NOMEM (no thread). */
enum err batches_start(struct batches *b, struct err_info *e) WEIR_MUST_USE;
/* Begin no more requests. Any thread; those under way may end. */
void batches_drain(struct batches *b);
/* Ends the thread, and on this, the loop thread, the calls that still run: they will be done again
 * after the next start. Then nothing is left but batches_destroy, after api_destroy. */
void batches_stop(struct batches *b);
void batches_destroy(struct batches *b); /* NULL is allowed */

/* Loop thread. Readable when calls have begun: then batches_collect pulls each once. */
int batches_event_fd(const struct batches *b);
void batches_collect(struct batches *b);
/* Is this name, which api_next gave, of one of our calls? If so, it is pulled. */
bool batches_take_news(struct batches *b, void *name);

#endif
