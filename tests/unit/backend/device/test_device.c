/* Names of devices, plugins that do not fit, and where a model runs without one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/device/plugin.h"

#include <stdlib.h>
#include <string.h>

static void names_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum device_kind kind;
        uint32_t index;
    } good[] = {{"auto", DEVICE_AUTO, 0},
                {"cpu", DEVICE_CPU, 0},
                {"cuda", DEVICE_CUDA, 0},
                {"cuda:0", DEVICE_CUDA, 0},
                {"cuda:12", DEVICE_CUDA, 12}};
    static const char *const bad[] = {"",
                                      "gpu",
                                      "CUDA",
                                      "cuda:",
                                      "cuda:x",
                                      "cuda:1x",
                                      "cuda: 1",
                                      "cuda:-1",
                                      "cuda:99999",
                                      "cuda0",
                                      "cpu:0"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct device d = {.index = 99, .memory_share = 0.5};
        assert_int_equal(device_parse(good[i].text, &d), OK);
        assert_int_equal(d.kind, good[i].kind);
        assert_int_equal(d.index, good[i].index);
        assert_true(d.memory_share == 0.5); /* not its own */
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct device d;
        assert_int_equal(device_parse(bad[i], &d), ERR_INVALID);
    }
}

/* Every number counts, and the line names the one that differs. */
static void other_builds_are_refused(void **state)
{
    (void)state;
    const struct plugin_abi ours = PLUGIN_ABI;
    struct err_info e;
    assert_int_equal(plugin_check("x.so", &ours, &ours, &e), OK);
    for (size_t i = 0; i < sizeof ours / sizeof(uint32_t); i++) {
        struct plugin_abi theirs = ours;
        ((uint32_t *)&theirs)[i] += 8;
        assert_int_equal(plugin_check("x.so", &ours, &theirs, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.text, "x.so: built for"));
    }
    struct plugin_abi theirs = ours;
    theirs.batch_seq++;
    (void)!plugin_check("x.so", &ours, &theirs, &e);
    assert_non_null(strstr(e.text, "struct batch_seq"));
    theirs = ours;
    theirs.model_layer++; /* which struct model has a pointer to */
    (void)!plugin_check("x.so", &ours, &theirs, &e);
    assert_non_null(strstr(e.text, "struct model_layer"));
}

/* What WEIR_CUDA_PLUGIN may name that is no plugin; later calls look again. */
static void files_that_are_no_plugin_are_refused(void **state)
{
    (void)state;
    const struct backend_plugin *p;
    struct err_info e;
    setenv("WEIR_CUDA_PLUGIN", "/nowhere/libweir_cuda.so", 1);
    assert_int_equal(plugin_cuda(&p, &e), ERR_NOT_FOUND);
    assert_null(p);
    assert_non_null(strstr(e.text, "/nowhere/libweir_cuda.so"));
    setenv("WEIR_CUDA_PLUGIN", __FILE__, 1);
    if (plugin_cuda(&p, &e) == OK)
        fail_msg("a C file was loaded");
    setenv("WEIR_CUDA_PLUGIN", "/proc/self/exe", 1);
    assert_int_equal(plugin_cuda(&p, &e), ERR_UNSUPPORTED);
    assert_null(p);
}

/* AUTO becomes the CPU, CUDA an error. */
static void a_model_without_a_plugin_runs_on_the_cpu(void **state)
{
    (void)state;
    struct backend_config cfg = {.device = {.kind = DEVICE_AUTO}};
    struct backend_room room = {.kv_bytes = 1};
    struct backend *b;
    struct err_info e;
    setenv("WEIR_CUDA_PLUGIN", "/nowhere/libweir_cuda.so", 1);
    assert_int_equal(backend_choose(NULL, &cfg, 0, &room, &e), OK);
    assert_int_equal(cfg.device.kind, DEVICE_CPU);
    assert_int_equal(room.kv_bytes, 0);
    cfg.device.kind = DEVICE_CUDA;
    assert_int_equal(backend_choose(NULL, &cfg, 0, &room, &e), ERR_NOT_FOUND);
    cfg.device.kind = DEVICE_AUTO;
    assert_int_equal(backend_create(NULL, &cfg, &b, &e), ERR_INVALID);
    assert_null(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(other_builds_are_refused),
        cmocka_unit_test(files_that_are_no_plugin_are_refused),
        cmocka_unit_test(a_model_without_a_plugin_runs_on_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
