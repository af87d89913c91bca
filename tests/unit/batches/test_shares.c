/* What one key may take of the places for files and batches. No engine: nothing is begun. */
#include "unit/batches/running.h"

#define PART(n, v)                                                                                 \
    {                                                                                              \
        .name = (n), .data = (v), .n_data = sizeof(v) - 1                                          \
    }

static enum err upload(const struct running *r, const char *owner)
{
    const struct api_part parts[] = {PART("purpose", "batch"), PART("file", "{}\n")};
    struct api_input in = {.method = "POST",
                           .path = "/v1/files",
                           .query = "",
                           .owner = owner,
                           .parts = parts,
                           .n_parts = 2};
    struct api_reply reply = {.fd = -1};
    const struct api_service s = batches_service(r->b);
    const enum err err = s.handle(s.ctx, &in, &reply, NULL);
    buf_deinit(&reply.body);
    return err;
}

static enum err create(const struct running *r, const char *owner, const char *file)
{
    char body[200];
    struct api_reply reply = {.fd = -1};
    snprintf(body,
             sizeof body,
             "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\","
             "\"completion_window\":\"24h\"}",
             file);
    struct api_input in = {.method = "POST",
                           .path = "/v1/batches",
                           .query = "",
                           .body = body,
                           .body_len = strlen(body),
                           .owner = owner};
    const struct api_service s = batches_service(r->b);
    const enum err err = s.handle(s.ctx, &in, &reply, NULL);
    buf_deinit(&reply.body);
    return err;
}

static void open_folder(struct running *r)
{
    struct err_info e;
    const struct batches_config cfg = {.dir = r->dir};
    if (batches_create(&cfg, NULL, &r->b, &e) != OK)
        fail_msg("%s", e.text);
}

static void close_folder(struct running *r)
{
    batches_destroy(r->b);
    running_remove(r);
}

/* As many as it may have, one key leaves room for batches and files of another. */
static void batches_of_one_key_leave_room_for_others(void **state)
{
    (void)state;
    struct running r;
    running_make_folder(&r);
    running_put_file(&r, 0, "a", "{}\n");
    running_put_file(&r, 1, "b", "{}\n");
    open_folder(&r);
    /* all but one: with the files they leave 2,000 places, and a has 7,999 */
    running_add_batches(&r, 3999, "a", JOB_IN_PROGRESS);
    assert_int_equal(create(&r, "a", "file-0"), OK);
    assert_int_equal(create(&r, "a", "file-0"), ERR_QUEUE_FULL);
    assert_int_equal(upload(&r, "a"), ERR_QUEUE_FULL);
    assert_int_equal(create(&r, "b", "file-1"), OK);
    assert_int_equal(upload(&r, "b"), OK);
    close_folder(&r);
}

/* Results to come take the last places, so that what is uploaded meanwhile does not. */
static void room_is_kept_for_results(void **state)
{
    (void)state;
    struct running r;
    running_make_folder(&r);
    running_put_file(&r, 0, "", "{}\n");
    open_folder(&r);
    running_add_files(&r, BATCH_MAX_FILES - 4, "");
    assert_int_equal(create(&r, "", "file-0"), OK);
    assert_int_equal(create(&r, "", "file-0"),
                     ERR_QUEUE_FULL); /* room for one file is not enough */
    assert_int_equal(upload(&r, ""), OK);
    assert_int_equal(upload(&r, ""), ERR_QUEUE_FULL);
    assert_int_equal(create(&r, "", "file-0"), ERR_QUEUE_FULL);
    struct job *j = job_at(r.b, 0);
    j->status = JOB_COMPLETED; /* and made no files */
    assert_int_equal(create(&r, "", "file-0"), OK);
    close_folder(&r);
}

/* Files alone refuse for good: nothing comes free by itself. */
static void files_of_one_key_leave_room_for_others(void **state)
{
    (void)state;
    struct running r;
    running_make_folder(&r);
    running_put_file(&r, 0, "a", "{}\n");
    open_folder(&r);
    running_add_files(&r, 7999, "a");
    assert_int_equal(upload(&r, "a"), ERR_INVALID);
    assert_int_equal(create(&r, "a", "file-0"), ERR_INVALID);
    assert_int_equal(upload(&r, "b"), OK);
    close_folder(&r);
}

/* A worker forgets a batch, and the thread that may work with it frees it. */
static void a_batch_that_is_forgotten_is_not_free_yet(void **state)
{
    (void)state;
    struct running r;
    running_make_folder(&r);
    running_put_file(&r, 0, "", "{}\n");
    open_folder(&r);
    running_add_batches(&r, BATCH_MAX_JOBS, "", JOB_COMPLETED);
    struct job *oldest = job_at(r.b, 0);
    assert_int_equal(create(&r, "", "file-0"), OK);
    assert_int_equal(r.b->jobs.n, BATCH_MAX_JOBS);
    assert_ptr_equal(r.b->forgotten, oldest);
    assert_string_equal(oldest->entry.id, "batch_x0");
    jobs_free_forgotten(r.b);
    assert_null(r.b->forgotten);
    close_folder(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_of_one_key_leave_room_for_others),
        cmocka_unit_test(room_is_kept_for_results),
        cmocka_unit_test(files_of_one_key_leave_room_for_others),
        cmocka_unit_test(a_batch_that_is_forgotten_is_not_free_yet),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
