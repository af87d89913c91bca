/* The batch thread, with workers, a device and keys that make it hard. */
#include "backend/backend.h"
#include "unit/api/mortal.h"
#include "unit/batches/running.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* --- batches that are forgotten while the thread works ---------------------------------------- */

enum { N_FIRST = 40, N_POSTS = 120 };

static void *post(void *arg)
{
    const struct running *r = arg;
    for (int i = 0; i < N_POSTS; i++)
        json_decref(running_ask(r, "POST", "/v1/batches", "", 200));
    return NULL;
}

static uint32_t n_under_way(struct running *r)
{
    pthread_mutex_lock(&r->b->lock);
    const uint32_t n = jobs_under_way(r->b, NULL);
    pthread_mutex_unlock(&r->b->lock);
    return n;
}

/* Each that ends is the oldest that is over, and is forgotten for the next that a worker makes. */
static void batches_are_forgotten_while_others_are_looked_after(void **state)
{
    (void)state;
    struct running r;
    pthread_t worker;
    running_make_folder(&r);
    running_put_file(&r, 0, "", "not json\n");
    for (int i = 1; i <= N_FIRST; i++)
        running_put_batch(&r, i, "", 0, "validating");
    running_open(&r, NULL, 4);
    running_add_batches(&r, BATCH_MAX_JOBS - N_FIRST, "", JOB_COMPLETED);
    running_start(&r);
    pthread_create(&worker, NULL, post, &r);
    pthread_join(worker, NULL);
    while (n_under_way(&r) > 0)
        running_turn(&r);
    running_stop(&r);
}

/* --- batches that cannot go on ---------------------------------------------------------------- */

/* A file of one good line. */
static void put_line(const struct running *r, int n, const char *owner)
{
    char text[256];
    snprintf(text, sizeof text, RUNNING_LINE, 0, 2);
    running_put_file(r, n, owner, text);
}

static void what_one_batch_waits_for_holds_no_other(void **state)
{
    (void)state;
    struct running r;
    char path[96];
    running_make_folder(&r);
    put_line(&r, 0, "a");
    put_line(&r, 1, "b");
    running_put_batch(&r, 1, "a", 0, "validating");
    running_put_batch(&r, 2, "b", 1, "validating");
    snprintf(path, sizeof path, "%s/files/file-o1.jsonl", r.dir);
    assert_int_equal(mkdir(path, 0700), 0); /* where its results should go */
    running_open(&r, NULL, 4);
    running_start(&r);
    running_wait(&r, 2, "b", "completed");
    assert_int_equal(running_count(&r, 2, "b", false), 1);
    assert_true(running_is(&r, 1, "a", "validating"));
    running_stop(&r);
}

static bool is_there(const struct running *r, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return access(path, F_OK) == 0;
}

/* Its answers are kept, as those of a batch are that can be read again. */
static void a_batch_that_cannot_be_read_keeps_its_results(void **state)
{
    (void)state;
    static const char *const states[] = {"{\"id\":", "{\"id\":\"batch_1\"}"};
    struct running r;
    char path[96];
    for (int i = 0; i < 2; i++) {
        running_make_folder(&r);
        snprintf(path, sizeof path, "%s/files/file-o1.jsonl", r.dir);
        running_write(path, "an answer\n");
        snprintf(path, sizeof path, "%s/batches/batch_1.json", r.dir);
        running_write(path, states[i]);
        running_open(&r, NULL, 4);
        assert_true(is_there(&r, "files/file-o1.jsonl"));
        running_close(&r);
        assert_int_equal(unlink(path), 0); /* it is nobody's any more */
        running_open(&r, NULL, 4);
        assert_false(is_there(&r, "files/file-o1.jsonl"));
        running_stop(&r);
    }
}

/* A batch that fails is over when what it did can be asked for. */
static void a_batch_that_fails_shows_its_results_first(void **state)
{
    (void)state;
    struct running r;
    char path[96];
    running_make_folder(&r);
    for (int i = 1; i <= 2; i++) {
        running_put_batch(&r, i, "a", 0, "in_progress"); /* whose input is gone */
        snprintf(path, sizeof path, "%s/files/file-o%d.jsonl", r.dir, i);
        running_write(path, "an answer\n");
    }
    running_open(&r, NULL, 4);
    snprintf(path, sizeof path, "%s/files/file-o1.json", r.dir);
    assert_int_equal(mkdir(path, 0700), 0); /* where its name should go */
    running_start(&r);
    running_wait(&r, 2, "a", "failed");
    json_decref(running_ask(&r, "GET", "/v1/files/file-o2", "a", 200));
    assert_true(running_is(&r, 1, "a", "in_progress"));
    running_close(&r);
    assert_int_equal(rmdir(path), 0);
    running_open(&r, NULL, 4);
    running_start(&r);
    running_wait(&r, 1, "a", "failed");
    json_decref(running_ask(&r, "GET", "/v1/files/file-o1", "a", 200));
    running_stop(&r);
}

/* What is not written would be undone by the next start: a batch is over, or to be cancelled, when
 * its folder says so. */
static void a_state_that_is_not_written_is_not_entered(void **state)
{
    (void)state;
    struct running r;
    char path[96], aside[96];
    running_make_folder(&r);
    put_line(&r, 0, "a");
    running_put_batch(&r, 1, "a", 0, "finalizing");
    running_put_batch(&r, 2, "a", 0, "validating");
    snprintf(path, sizeof path, "%s/files/file-o1.jsonl", r.dir);
    running_write(path,
                  "{\"id\":\"batch_req_1_00000001\",\"custom_id\":\"0\",\"response\":{\"status_"
                  "code\":200,\"request_id\":\"r\",\"body\":{}},\"error\":null}\n");
    running_open(&r, NULL, 4);
    snprintf(path, sizeof path, "%s/batches/batch_1.json", r.dir);
    snprintf(aside, sizeof aside, "%s/batches/aside", r.dir);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* where its state should go */
    running_start(&r);
    running_wait(&r, 2, "a", "completed");
    assert_true(running_is(&r, 1, "a", "finalizing"));
    running_close(&r);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(aside, path), 0);
    running_open(&r, NULL, 4);
    running_start(&r);
    running_wait(&r, 1, "a", "completed");
    assert_int_equal(running_count(&r, 1, "a", false), 1);
    running_stop(&r);
}

static void a_cancellation_that_is_not_written_is_refused(void **state)
{
    (void)state;
    struct running r;
    char path[96];
    running_make_folder(&r);
    put_line(&r, 0, "a");
    running_put_batch(&r, 1, "a", 0, "validating");
    running_open(&r, NULL, 4);
    snprintf(path, sizeof path, "%s/batches/batch_1.json", r.dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* where its state should go */
    json_decref(running_ask(&r, "POST", "/v1/batches/batch_1/cancel", "a", 500));
    assert_true(running_is(&r, 1, "a", "validating"));
    assert_int_equal(rmdir(path), 0);
    json_decref(running_ask(&r, "POST", "/v1/batches/batch_1/cancel", "a", 200));
    assert_true(running_is(&r, 1, "a", "cancelling"));
    running_stop(&r);
}

/* However many files there are when a batch ends. */
static void results_have_a_place(void **state)
{
    (void)state;
    struct running r;
    running_make_folder(&r);
    put_line(&r, 0, "a");
    running_put_batch(&r, 1, "a", 0, "validating");
    running_open(&r, NULL, 4);
    running_add_files(&r, BATCH_MAX_FILES - 1, "a");
    running_start(&r);
    running_wait(&r, 1, "a", "completed");
    json_t *v = running_ask(&r, "GET", "/v1/batches/batch_1", "a", 200);
    assert_string_equal(str_at(v, "output_file_id"), "file-o1");
    json_decref(v);
    json_decref(running_ask(&r, "GET", "/v1/files/file-o1", "a", 200));
    running_stop(&r);
}

/* --- whose line is next ----------------------------------------------------------------------- */

enum { N_LINES = 400, N_OF_A = 12, ENOUGH = 40, AT_A_TIME = 4 };

/* A key with many batches has as many of its lines done as one with one. */
static void keys_take_turns_then_their_batches(void **state)
{
    (void)state;
    struct running r;
    struct buf text = {0};
    long long of_a = 0, least = N_LINES, most = 0;
    for (int i = 0; i < N_LINES; i++)
        buf_printf(&text, RUNNING_LINE, i, 4);
    running_make_folder(&r);
    running_put_file(&r, 0, "a", buf_cstr(&text));
    running_put_file(&r, 1, "b", buf_cstr(&text));
    for (int i = 1; i <= N_OF_A; i++)
        running_put_batch(&r, i, "a", 0, "validating");
    running_put_batch(&r, N_OF_A + 1, "b", 1, "validating");
    running_open(&r, NULL, AT_A_TIME);
    running_start(&r);
    while (running_count(&r, N_OF_A + 1, "b", true) < ENOUGH)
        running_turn(&r);
    for (int i = 1; i <= N_OF_A; i++) {
        const long long n = running_count(&r, i, "a", true);
        of_a += n;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    running_stop(&r);
    buf_deinit(&text);
    assert_true(of_a >= ENOUGH - 2 * AT_A_TIME && of_a <= ENOUGH + 2 * AT_A_TIME);
    assert_true(most - least <= 2);
}

/* --- a device that dies ----------------------------------------------------------------------- */

/* What it takes with it is done again when it is back, and is no result. */
static void a_dead_device_uses_no_line_up(void **state)
{
    (void)state;
    struct running r;
    struct buf text = {0};
    for (int i = 0; i < 20; i++)
        buf_printf(&text, RUNNING_LINE, i, 4);
    running_make_folder(&r);
    running_put_file(&r, 0, "a", buf_cstr(&text));
    running_put_batch(&r, 1, "a", 0, "validating");
    atomic_store(&device_is_dead, true);
    running_open(&r, make_mortal, AT_A_TIME);
    running_start(&r);
    while (atomic_load(&n_deaths) < 3)
        running_turn(&r);
    assert_int_equal(running_count(&r, 1, "a", true), 0);
    atomic_store(&device_is_dead, false);
    running_wait(&r, 1, "a", "completed");
    assert_int_equal(running_count(&r, 1, "a", false), 20);
    running_stop(&r);
    buf_deinit(&text);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_forgotten_while_others_are_looked_after),
        cmocka_unit_test(what_one_batch_waits_for_holds_no_other),
        cmocka_unit_test(a_batch_that_cannot_be_read_keeps_its_results),
        cmocka_unit_test(a_batch_that_fails_shows_its_results_first),
        cmocka_unit_test(a_state_that_is_not_written_is_not_entered),
        cmocka_unit_test(a_cancellation_that_is_not_written_is_refused),
        cmocka_unit_test(results_have_a_place),
        cmocka_unit_test(keys_take_turns_then_their_batches),
        cmocka_unit_test(a_dead_device_uses_no_line_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
