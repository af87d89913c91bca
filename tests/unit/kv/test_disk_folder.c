/* What lies in the disk tier's folder: damage, strangers, other models; and who may look. */
#include "base/log.h"
#include "disk_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void damage(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_damaged_segments_are_removed_when_met(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    for (uint64_t id = 0; id < 3; id++)
        assert_true(tier_store(x, x->t, id));
    damage(segment_path(x, 0), 300);
    assert_int_equal(truncate(segment_path(x, 1), 900), 0);
    assert_int_equal(tier_fetch(x, x->t, 0), 0);
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_int_equal(tier_stats(x->t).ignored, 2);
    assert_int_equal(tier_stats(x->t).entries, 1);
    assert_false(exists(segment_path(x, 0)));
    assert_false(exists(segment_path(x, 1)));
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
    assert_true(tier_store(x, x->t, 0));
    assert_int_equal(tier_fetch(x, x->t, 0), 1);
    assert_int_equal(truncate(segment_path(x, 2), 5), 0);
    disk_test_open(x); /* a wrong size is seen at once */
    assert_false(tier_has(x, x->t, 2));
    assert_int_equal(tier_stats(x->t).ignored, 1);
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
    assert_int_equal(tier_fetch(x, x->t, 0), 1);
}

static void test_other_models_are_kept_apart_and_evicted_alike(void **state)
{
    struct disk_test *x = *state;
    struct kv_key mine = x->cfg.fingerprint;
    x->cfg.max_bytes = segments(4);
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    assert_true(tier_store(x, x->t, 2));
    x->cfg.fingerprint.bytes[0] ^= 1;
    disk_test_open(x);
    assert_false(tier_has(x, x->t, 1));
    assert_int_equal(tier_stats(x->t).entries, 0);
    assert_int_equal(tier_stats(x->t).bytes, segments(2));
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_true(tier_store(x, x->t, 1));
    assert_true(tier_store(x, x->t, 3));
    assert_true(tier_store(x, x->t, 4)); /* in the place of the other's 1 */
    assert_int_equal(tier_stats(x->t).entries, 3);
    assert_false(exists(segment_path(x, 1)));
    assert_true(exists(segment_path(x, 2)));
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    x->cfg.fingerprint = mine;
    disk_test_open(x);
    assert_int_equal(tier_stats(x->t).entries, 1);
    assert_int_equal(tier_fetch(x, x->t, 2), 1);
}

/* The folder's name holds only a part of the fingerprint; the segment holds all of it. */
static void test_foreign_fingerprint_in_our_folder(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    x->cfg.fingerprint.bytes[31] ^= 1;
    disk_test_open(x);
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_int_equal(tier_stats(x->t).ignored, 1);
    assert_true(tier_store(x, x->t, 1));
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
}

static void test_models_without_segments_go_away(void **state)
{
    struct disk_test *x = *state;
    x->cfg.about = "one model\nnot this";
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    disk_test_close(x);
    char *text = NULL;
    size_t n = 0;
    FILE *f = fopen(below(x, "abcd000000000000/about"), "r");
    assert_true(getline(&text, &n, f) > 0);
    assert_string_equal(text, "one model\n");
    free(text);
    fclose(f);
    assert_int_equal(unlink(segment_path(x, 1)), 0);
    x->cfg.fingerprint.bytes[0] = 1;
    x->cfg.about = "another";
    disk_test_open(x);
    assert_false(exists(below(x, "abcd000000000000")));
    assert_true(exists(below(x, "01cd000000000000/about")));
    assert_int_equal(tier_stats(x->t).bytes, strlen("another\n"));
    x->cfg.about = "another, renamed";
    disk_test_open(x);
    assert_int_equal(tier_stats(x->t).bytes, strlen("another, renamed\n"));
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
}

static void test_strangers_are_counted_and_left_alone(void **state)
{
    struct disk_test *x = *state;
    char path[512];
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    disk_test_close(x);
    write_file(below(x, "notes.txt"), "0123456789", 10);
    assert_int_equal(mkdir(below(x, "deep"), 0700), 0);
    assert_int_equal(mkdir(below(x, "deep/er"), 0700), 0);
    write_file(below(x, "deep/er/file.kv"), "01234", 5);
    write_file(below(x, "abcd000000000000/README"), "0", 1);
    snprintf(path, sizeof path, "%s", segment_path(x, 1));
    snprintf(path + strlen(path) - 3, 8, ".kv~");
    write_file(path, "012", 3);
    snprintf(path + strlen(path) - 4, 8, ".tmp"); /* ours: left by a crash */
    write_file(path, "0123456", 7);
    char wrong[600]; /* a name of ours in the folder of other names */
    snprintf(wrong, sizeof wrong, "%s", segment_path(x, 1));
    char *shard = strstr(wrong, "/abcd") + 18;
    shard[0] = shard[0] == '0' ? '1' : '0';
    shard[2] = '\0';
    assert_int_equal(mkdir(wrong, 0700), 0);
    snprintf(shard + 2, 128, "%s", strrchr(segment_path(x, 1), '/'));
    write_file(wrong, "01", 2);
    disk_test_open(x);
    assert_false(exists(path));
    assert_int_equal(tier_stats(x->t).ignored, 5);
    assert_int_equal(tier_stats(x->t).bytes, segments(1) + 10 + 5 + 1 + 3 + 2);
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
    x->cfg.max_bytes = segments(2); /* strangers leave room for one only */
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 2));
    assert_false(tier_has(x, x->t, 1));
    assert_int_equal(tier_stats(x->t).bytes, segments(1) + 21);
    assert_true(exists(below(x, "deep/er/file.kv")));
    assert_true(exists(below(x, "notes.txt")));
    x->cfg.max_bytes = segments(1); /* and now for none */
    disk_test_open(x);
    assert_false(tier_store(x, x->t, 3));
    assert_int_equal(tier_stats(x->t).dropped, 1);
    assert_int_equal(real_bytes(x->dir), 21);
    assert_true(tier_stats(x->t).on);
}

static int told; /* warnings that speak of room */

static void count_told(void *ctx, int level, const char *line)
{
    (void)ctx;
    told += level == LOG_WARN && strstr(line, "no room for a block");
}

/* A stranger's file of so many bytes, none of them on the disk. */
static void write_stranger(const struct disk_test *x, uint64_t n_bytes)
{
    write_file(below(x, "notes.txt"), "", 0);
    assert_int_equal(truncate(below(x, "notes.txt"), (off_t)n_bytes), 0);
}

/* Nothing that could be removed would make room, so nothing is. */
static void test_strangers_above_the_limit_cost_no_segment(void **state)
{
    struct disk_test *x = *state;
    x->cfg.max_bytes = segments(4);
    disk_test_open(x);
    for (uint64_t id = 0; id < 3; id++)
        assert_true(tier_store(x, x->t, id));
    disk_test_close(x);
    write_stranger(x, segments(4) + 1);
    told = 0;
    log_set_sink(count_told, NULL);
    disk_test_open(x);
    assert_false(tier_store(x, x->t, 8));
    assert_false(tier_store(x, x->t, 9));
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.on && s.writes);
    assert_int_equal(s.dropped, 2);
    assert_int_equal(s.evicted, 0);
    assert_int_equal(s.errors, 0);
    assert_int_equal(s.bytes, segments(7) + 1);
    for (uint64_t id = 0; id < 3; id++)
        assert_int_equal(tier_fetch(x, x->t, id), 1);
    disk_test_close(x);
    log_set_sink(NULL, NULL);
    assert_int_equal(told, 1);
}

/* A smaller segment stays where even without it there is none for one of ours. */
static void test_what_is_too_small_to_help_stays(void **state)
{
    struct disk_test *x = *state;
    const uint64_t small = kv_segment_bytes(HELP_TOKENS, 100);
    x->cfg.block_bytes = 100;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    disk_test_close(x);
    write_stranger(x, 50);
    x->cfg.block_bytes = HELP_PAYLOAD;
    x->cfg.fingerprint.bytes[0] ^= 1;
    x->cfg.max_bytes = segments(1) + 49;
    told = 0;
    log_set_sink(count_told, NULL);
    disk_test_open(x);
    assert_false(tier_store(x, x->t, 2));
    assert_int_equal(tier_stats(x->t).evicted, 0);
    assert_int_equal(real_bytes(x->dir), small + 50);
    x->cfg.max_bytes++; /* and goes where that is enough */
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 2));
    assert_int_equal(real_bytes(x->dir), segments(1) + 50);
    disk_test_close(x);
    log_set_sink(NULL, NULL);
    assert_int_equal(told, 1);
}

/* The line for people does not take the place that strangers have left for a segment. */
static void test_about_costs_no_last_segment(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    disk_test_close(x);
    write_stranger(x, segments(3));
    x->cfg.max_bytes = segments(4) + 7;
    x->cfg.about = "a model";
    disk_test_open(x);
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    assert_false(exists(below(x, "abcd000000000000/about")));
    assert_true(tier_store(x, x->t, 2));
    x->cfg.max_bytes++;
    disk_test_open(x);
    assert_int_equal(tier_fetch(x, x->t, 2), 1);
    assert_true(exists(below(x, "abcd000000000000/about")));
    assert_int_equal(tier_stats(x->t).bytes, x->cfg.max_bytes);
}

static void test_links_are_not_followed(void **state)
{
    struct disk_test *x = *state;
    char outside[] = "/tmp/weir-outside-XXXXXX", inner[64], path[512];
    assert_non_null(mkdtemp(outside));
    snprintf(inner, sizeof inner, "%s/file", outside);
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    assert_true(tier_store(x, x->t, 2));
    snprintf(path, sizeof path, "%s", segment_path(x, 1));
    assert_int_equal(rename(path, inner), 0);
    assert_int_equal(symlink(inner, path), 0);
    assert_int_equal(tier_fetch(x, x->t, 1), 0); /* a whole segment, but behind a link */
    disk_test_open(x);
    assert_false(tier_has(x, x->t, 1));
    assert_int_equal(tier_stats(x->t).ignored, 1);
    assert_true(exists(path));
    assert_true(tier_store(x, x->t, 1)); /* replaces the link, not what it points to */
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    disk_test_close(x);
    snprintf(path, sizeof path, "%s", below(x, "abcd000000000000"));
    assert_int_equal(rename(path, below(x, "elsewhere")), 0);
    assert_int_equal(symlink(outside, path), 0);
    log_set_level(LOG_ERROR);
    disk_test_open(x);
    assert_int_equal(tier_stats(x->t).entries, 0);
    assert_false(tier_store(x, x->t, 3));
    log_set_level(LOG_INFO);
    assert_int_equal(real_bytes(outside), segments(1));
    unlink(inner);
    rmdir(outside);
}

/* Nothing can be written in its place; it is the only block that is not. */
static void test_a_folder_with_a_segments_name_costs_one_block(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    assert_int_equal(unlink(segment_path(x, 1)), 0);
    assert_int_equal(mkdir(segment_path(x, 1), 0700), 0);
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    for (int opened = 0; opened < 2; opened++) {
        assert_false(tier_has(x, x->t, 1));
        assert_false(tier_store(x, x->t, 1));
        assert_true(tier_stats(x->t).writes);
        assert_true(tier_store(x, x->t, 2 + (uint64_t)opened));
        assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
        disk_test_open(x);
    }
    assert_int_equal(unlink(segment_path(x, 2)), 0); /* and where it is met by making room */
    assert_int_equal(mkdir(segment_path(x, 2), 0700), 0);
    disk_test_close(x);
    x->cfg.max_bytes = segments(2);
    assert_int_equal(rmdir(segment_path(x, 1)), 0);
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 4));
    assert_int_equal(unlink(segment_path(x, 3)), 0);
    assert_int_equal(mkdir(segment_path(x, 3), 0700), 0);
    assert_true(tier_store(x, x->t, 5));
    assert_true(tier_stats(x->t).writes);
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
}

static void test_only_the_owner_may_look(void **state)
{
    struct disk_test *x = *state;
    struct stat st;
    char path[512];
    snprintf(path, sizeof path, "%s/new", x->dir);
    x->cfg.dir = path;
    x->cfg.about = "secret";
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    disk_test_close(x);
    const char *folders[] = {"new", "new/abcd000000000000"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stat(below(x, folders[i]), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
    }
    const char *files[] = {"new/lock", "new/abcd000000000000/about"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stat(below(x, files[i]), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    x->cfg.dir = x->dir;
}

static void test_what_cannot_be_opened(void **state)
{
    struct disk_test *x = *state;
    struct kv_disk_config cfg = x->cfg;
    struct kv_tier *t;
    struct err_info e = {0};
    cfg.max_bytes = segments(1) - 1;
    assert_int_equal(kv_disk_open(&cfg, &t, &e), ERR_INVALID);
    assert_null(t);
    cfg.max_bytes = segments(1);
    cfg.dir = below(x, "no/parent");
    assert_int_equal(kv_disk_open(&cfg, &t, &e), ERR_IO);
    assert_non_null(strstr(e.text, "no/parent"));
    write_file(below(x, "file"), "", 0);
    cfg.dir = below(x, "file");
    assert_int_equal(kv_disk_open(&cfg, &t, &e), ERR_IO);
    assert_non_null(strstr(e.text, "/file"));
    cfg = x->cfg;
    cfg.block_tokens = 0;
    assert_int_equal(kv_disk_open(&cfg, &t, &e), ERR_INVALID);
    cfg = x->cfg;
    cfg.block_bytes = SIZE_MAX - 10;
    cfg.max_bytes = UINT64_MAX;
    assert_int_equal(kv_disk_open(&cfg, &t, &e), ERR_INVALID);
    cfg.block_bytes = (size_t)1 << 62; /* times the number of buffers: too large to say */
    assert_int_equal(kv_disk_open(&cfg, &t, &e), ERR_NOMEM);
    assert_null(t);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, disk_test_setup, disk_test_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_damaged_segments_are_removed_when_met),
        TEST(test_other_models_are_kept_apart_and_evicted_alike),
        TEST(test_foreign_fingerprint_in_our_folder),
        TEST(test_models_without_segments_go_away),
        TEST(test_strangers_are_counted_and_left_alone),
        TEST(test_strangers_above_the_limit_cost_no_segment),
        TEST(test_what_is_too_small_to_help_stays),
        TEST(test_about_costs_no_last_segment),
        TEST(test_links_are_not_followed),
        TEST(test_a_folder_with_a_segments_name_costs_one_block),
        TEST(test_only_the_owner_may_look),
        TEST(test_what_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
