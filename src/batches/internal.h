/* What the files of this folder share.
 *
 *      disk.c      folders, and small files written whole
 *      index.c     what files and batches have in common: an order, owners, lists
 *      files.c     the index of files and its routes
 *      jobs.c      the index of batches and its routes
 *      lines.c     a batch's input and results, line by line
 *      places.c    when a key's lines may begin
 *      calls.c     the calls that are under way
 *      run.c       the thread: batches as a whole, and whose line is next
 *      service.c   create, destroy, and which route is whose
 *
 * `lock` guards the index of files and of jobs and what is in them, but for a job's lines, which
 * are the batch thread's alone. It is held while a small file is written, so the loop thread never
 * takes it; that has a lock of its own, for the queues of calls. */
#ifndef WEIR_BATCHES_INTERNAL_H
#define WEIR_BATCHES_INTERNAL_H

#include "batches/batches.h"

#include <jansson.h>
#include <pthread.h>

#define BATCH_ID_BYTES 40
#define BATCH_MAX_FILES 10000
#define BATCH_MAX_JOBS 10000
#define BATCH_RESULTS 2 /* files that a batch makes: answers and errors */
/* Below all who wait for an answer: places of head start are 1,024 a step (sched.h). */
#define BATCH_PRIORITY (-50)

/* What can be found by its id, and belongs to somebody. */
struct entry {
    char id[BATCH_ID_BYTES];
    char *owner;     /* the name of a key, or "" */
    uint64_t serial; /* in the order of arrival */
};
struct index {
    struct entry **entries; /* [n] by serial; each the first member of what it is of */
    uint32_t n, cap;
    struct share *shares; /* [n_shares] how many each owner has, or once had */
    uint32_t n_shares;
};

struct batch_file {
    struct entry entry;
    char *name;
    char purpose[32];
    uint64_t bytes;
    int64_t created_at, expires_at; /* 0: never */
};

enum job_status {
    JOB_VALIDATING,
    JOB_IN_PROGRESS,
    JOB_FINALIZING,
    JOB_CANCELLING,
    JOB_COMPLETED, /* here and below: nothing is left to do */
    JOB_FAILED,
    JOB_EXPIRED,
    JOB_CANCELLED,
    N_JOB_STATUS
};

struct job {
    struct entry entry;
    char input[BATCH_ID_BYTES], output[BATCH_ID_BYTES], errors[BATCH_ID_BYTES];
    char endpoint[32], window[16];
    json_t *metadata;
    enum job_status status;
    int64_t created_at, expires_at;
    int64_t at[N_JOB_STATUS]; /* when it got there; 0: not yet */
    uint32_t n_total, n_completed, n_failed;
    char problem[320];     /* why it failed as a whole */
    struct lines *lines;   /* the batch thread's; NULL: not opened yet, or over */
    struct places *places; /* likewise: of its key; NULL: not looked after yet */
    uint64_t hold_us;      /* likewise: until then it is left alone: something went wrong */
    uint64_t turn;         /* likewise: how many lines had begun when one of it last did */
    struct job *next;      /* of those that were forgotten */
};

/* What the batches of one key share (places.c). The batch thread's. */
struct places {
    struct places *next;
    char *owner;
    uint64_t rate_us;    /* until then the key allows no more */
    uint64_t probe_us;   /* until then it is taken to have no place free */
    uint64_t refused_us; /* when a line was last refused for want of one; 0: never */
    uint32_t n_refused;  /* probes in a row */
    uint32_t n_free;     /* lines that ended since, each of which lets one begin at once */
    uint64_t turn;       /* how many lines had begun when one of the key last did */
};

/* One call under way. */
struct slot {
    struct job *job; /* NULL: free. The batch thread's */
    uint32_t line;   /* index into its lines */
    uint64_t begun_us;
    char *custom_id; /* its JSON text */
    struct api_call *call;
    bool known; /* loop thread: api_begin has returned it, and no other thread has it */
    bool work;  /* it is handed back for api_work, and will be handed over again */
    /* the answer, handed back with the slot */
    struct buf body;
    int status;
    char request_id[160];
    bool device;       /* its step failed, and none has worked since */
    bool key_limit;    /* it was refused by a limit of its key, */
    uint32_t retry_s;  /* for so long; 0: until another of its requests ends */
    struct slot *next; /* of a queue */
};

struct batches {
    struct batches_config cfg;
    struct api *api;
    int dir_fd, files_fd, jobs_fd, lock_fd;

    pthread_mutex_t lock;
    struct index files, jobs; /* of struct batch_file and struct job */
    struct job *forgotten;    /* out of the index, but the batch thread may work with them still */
    uint64_t next_serial;
    bool left_out; /* the state of some batch could not be read at the start */

    pthread_mutex_t queue_lock;
    pthread_cond_t more; /* with queue_lock; CLOCK_MONOTONIC */
    struct slot *begun;  /* for the loop thread */
    struct slot *ended;  /* for the batch thread */
    bool wake;           /* something changed that it should look at */
    bool draining, stopping;
    int event_fd;

    struct slot *slots; /* [n_parallel] */
    pthread_t thread;
    bool started;
    struct places *places; /* of every key that had a batch since the start; the thread's */
    uint64_t turn;         /* how many lines have begun */
    uint64_t hold_us; /* until then nothing is begun: the server was full, or its device failed */
    uint32_t n_held;  /* times in a row */
};

/* disk.c. Names are of files in the folder fd. */
enum err disk_open_folder(int at, const char *path, int *fd, struct err_info *e) WEIR_MUST_USE;
enum err disk_lock(int at, const char *dir, int *fd, struct err_info *e) WEIR_MUST_USE;
bool disk_write_all(int fd, const char *data, size_t n); /* false: errno says why */
void disk_close(int fd);                                 /* -1: nothing is open */
/* Either all of it is there after a crash, or what was there before. Errors: ERR_FULL, ERR_IO. */
enum err disk_write(int fd, const char *name, const void *data, size_t n, struct err_info *e)
    WEIR_MUST_USE;
enum err disk_write_json(int fd, const char *name, const json_t *v, struct err_info *e)
    WEIR_MUST_USE;
/* An object, the caller's reference. */
enum err disk_read_json(int fd, const char *name, json_t **out, struct err_info *e) WEIR_MUST_USE;
/* A member of a struct that a small file keeps, as a field of its object. */
enum disk_kind {
    DISK_TEXT,  /* char[cap] */
    DISK_OWN,   /* char *, malloc'd */
    DISK_COUNT, /* uint32_t */
    DISK_LONG,  /* int64_t or uint64_t */
    DISK_JSON,  /* json_t *, a reference */
};
struct disk_field {
    const char *name;
    enum disk_kind kind;
    size_t at, cap;
};
#define DISK_FIELD(name, kind, of, member)                                                         \
    {                                                                                              \
        name, kind, offsetof(struct of, member), sizeof(((struct of *)0)->member)                  \
    }
/* fields[n] of *from as an object, the caller's reference; NULL: no memory. */
json_t *disk_pack(const struct disk_field *fields, size_t n, const void *from);
/* The way back, into *to, which is zero but for what others free. False, with a part of them read:
 * a field is missing or of another type. Texts that are too long are cut. */
bool disk_unpack(const struct disk_field *fields, size_t n, const json_t *v, void *to);
/* Calls fn with each name in the folder that ends in `suffix`, without the suffix. */
enum err disk_each(int fd,
                   const char *suffix,
                   void (*fn)(void *ctx, const char *stem),
                   void *ctx,
                   struct err_info *e) WEIR_MUST_USE;

/* places.c; times are of clock_us. places_of makes those of a key that has none. */
struct places *places_of(struct places **all, const char *owner);
void places_free(struct places *all);
uint64_t places_held_until(const struct places *p);
/* A line was begun; one that began at begun_us was refused, for retry_s or, 0, until a place is
 * free; one has ended. */
void places_begun(struct places *p, uint64_t now_us);
void places_refused(struct places *p, uint32_t retry_s, uint64_t begun_us, uint64_t now_us);
void places_ended(struct places *p, uint64_t now_us);

/* index.c; the lock is held. find: owner NULL is anybody's; NULL if there is none. */
void index_add(struct index *x, struct entry *e);
struct entry *index_find(const struct index *x, const char *id, const char *owner);
void index_remove(struct index *x, const struct entry *e); /* which is there */
uint32_t index_count(const struct index *x, const char *owner);
void index_deinit(struct index *x); /* not what is in it */
/* GET of a list: the owner's that are wanted (NULL: all), a page of them. `what`: "file". */
struct list_item {
    void *ctx;
    bool (*wanted)(void *ctx, const struct entry *e);
    json_t *(*describe)(void *ctx, const struct entry *e); /* the caller's reference */
    uint32_t max_page; /* and as many where a client does not say; 0: at most 100, else 20 */
};
enum err index_list(const struct index *x,
                    const struct api_input *in,
                    const char *what,
                    const struct list_item *item,
                    struct api_reply *out,
                    struct err_info *e) WEIR_MUST_USE;

/* files.c; the lock is held. */
enum err files_load(struct batches *b, struct err_info *e) WEIR_MUST_USE;
void files_unload(struct batches *b);
struct batch_file *files_find(const struct batches *b, const char *id, const char *owner);
/* May this owner have n more files, which a batch will? Of several keys none takes all the places:
 * each may hold four times what it leaves free. A batch that is under way holds those of its
 * results, which are therefore never refused. Errors: ERR_INVALID, or ERR_QUEUE_FULL where a batch
 * that ends may leave enough free. */
enum err files_check_share(const struct batches *b,
                           const char *owner,
                           uint32_t n,
                           struct err_info *e) WEIR_MUST_USE;
/* Take a file that is in its place already into the index, and write what it is. */
enum err files_adopt(struct batches *b,
                     const char *id,
                     const char *name,
                     const char *purpose,
                     const char *owner,
                     struct err_info *e) WEIR_MUST_USE;
void files_remove_expired(struct batches *b, int64_t now);
enum err files_route(struct batches *b,
                     const struct api_input *in,
                     const char *rest,
                     struct api_reply *out,
                     struct err_info *e) WEIR_MUST_USE;
/* "ID.json" or the like into name[64]. */
void file_name(const char *id, const char *suffix, char *name);

/* jobs.c; the lock is held. */
enum err jobs_load(struct batches *b, struct err_info *e) WEIR_MUST_USE;
void jobs_unload(struct batches *b);
bool job_is_over(const struct job *j);
uint32_t jobs_under_way(const struct batches *b, const char *owner); /* NULL: of all */
struct job *job_at(const struct batches *b, uint32_t i);
/* Enter a state now, and write it down; one that cannot be written is not entered. */
enum err job_enter(struct batches *b, struct job *j, enum job_status status, struct err_info *e)
    WEIR_MUST_USE;
bool jobs_use_file(const struct batches *b, const char *file_id);
/* Batch thread, where it has no pointer to a job that is over. */
void jobs_free_forgotten(struct batches *b);
enum err jobs_route(struct batches *b,
                    const struct api_input *in,
                    const char *rest,
                    struct api_reply *out,
                    struct err_info *e) WEIR_MUST_USE;

/* service.c */
/* The part of a path up to the next slash, into id[BATCH_ID_BYTES]; one that is too long is no
 * id, and stays none. */
void batches_path_id(const char *part, char *id);
void batches_reply_json(struct api_reply *out, json_t *v); /* takes v */

/* lines.c: batch thread. */
enum line_state { LINE_OPEN, LINE_RUNNING, LINE_DONE };
struct line {
    uint64_t at;
    uint32_t n_bytes;
    uint32_t number; /* in the file, from 1: blank lines are counted, but are no requests */
    uint8_t state;   /* enum line_state */
    bool repeats;    /* the custom_id of an earlier line */
};
struct lines {
    int in_fd, out_fd, err_fd;
    struct line *lines; /* [n] */
    uint32_t n, n_open, n_running;
    uint32_t next; /* no open line is before it */
    bool unsynced;
};

/* The lines of a file, for its limits alone (lines may be NULL). Errors: ERR_INVALID. */
enum err lines_check(const struct batches_config *cfg,
                     const char *data,
                     size_t n,
                     struct err_info *e) WEIR_MUST_USE;
/* Read the input, and what of it was done already; sets the job's counts. Errors: ERR_INVALID: the
 * input is not there any more, or is none; ERR_IO, ERR_NOMEM: that may pass. */
enum err lines_open(struct batches *b, struct job *j, struct err_info *e) WEIR_MUST_USE;
void lines_close(struct job *j);
/* Of a batch whose input is gone: the counts become those of its results, of which half a line is
 * cut off. Errors: ERR_IO, ERR_NOMEM: that may pass. */
enum err lines_recount(struct batches *b, struct job *j, struct err_info *e) WEIR_MUST_USE;
bool lines_lost(const struct job *j); /* somebody removed a file with results */
/* One line's text: malloc'd, *n bytes. NULL: it cannot be read. */
char *lines_read(const struct lines *l, uint32_t i, struct err_info *e);
/* Record how line i ended. custom_id: JSON. body NULL: `code` and `message` say why there is none.
 */
struct line_result {
    const char *custom_id;
    int status;
    const char *request_id;
    const char *body;
    size_t n_body;
    const char *code, *message;
};
enum err lines_finish(struct job *j, uint32_t i, const struct line_result *r, struct err_info *e)
    WEIR_MUST_USE;
enum err lines_sync(struct job *j, struct err_info *e) WEIR_MUST_USE;

/* calls.c: batch thread. */
/* This went wrong, and may pass: the batch is left alone for a while. */
void job_hold(struct job *j, const struct err_info *e);
void calls_hold_starved(struct job *j); /* there is no memory for a line of its */
/* Record that line i has no answer, and why. v: its JSON, or NULL if it is none. */
void calls_refuse(struct batches *b,
                  struct job *j,
                  uint32_t i,
                  const json_t *v,
                  const char *code,
                  const char *message);
struct slot *calls_free_slot(struct batches *b); /* NULL: all calls are under way */
/* Begin the next open line of this job in a free slot, or record what is wrong with it, which
 * leaves the slot free. False: there is none. */
bool calls_begin_next(struct batches *b, struct slot *s, struct job *j);
/* Record the answers that came meanwhile; lines that were refused for now are open again. */
void calls_take_ended(struct batches *b);

/* run.c */
void run_wake(struct batches *b);

#endif
