/* weir devices: where a model can run. */
#include "cli/cli.h"
#include "cli/model_options.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_LISTED = 64 };

static const char doc[] =
    "List the CPU and every GPU, by the names that --device takes, and why a GPU cannot be used."
    "\vA GPU needs the plugin libweir_cuda.so: beside this program, in ../lib/weir, in the library "
    "path, or where WEIR_CUDA_PLUGIN says.\n\n"
    "Examples:\n"
    "  weir devices\n"
    "  weir serve --device cuda:1";

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    argp_error(s, "unexpected argument '%s'", arg);
    return 0;
}

static void show(uint32_t index, const struct device_info *d)
{
    printf("cuda:%-3u %s", index, d->name[0] ? d->name : "unknown");
    if (d->major)
        printf(", compute capability %u.%u", d->major, d->minor);
    if (d->total_bytes)
        printf(", %.1f GiB", (double)d->total_bytes / (1 << 30));
    if (d->free_bytes)
        printf(", %.1f free", (double)d->free_bytes / (1 << 30));
    printf("%s%s\n", d->why_not[0] ? "; cannot be used: " : "", d->why_not);
}

int cmd_devices(int argc, char **argv)
{
    static const struct argp argp = {NULL, parse_option, NULL, doc, NULL, NULL, NULL};
    struct device_info devices[MAX_LISTED];
    char versions[64];
    uint32_t n = 0;
    struct err_info e = {0};
    cli_parse(&argp, argc, argv, NULL);
    printf("cpu\n");
    const enum err err = device_list(devices, MAX_LISTED, &n, versions, &e);
    for (uint32_t i = 0; i < n && i < MAX_LISTED && !err; i++)
        show(i, &devices[i]);
    if (versions[0])
        printf("CUDA: %s\n", versions);
    if (err)
        printf("no GPU: %s\n", e.text);
    return EXIT_DONE;
}
