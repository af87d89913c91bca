/* weir SUBCOMMAND ...: the table. */
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"serve", cmd_serve, "serve a model over HTTP to many clients at once"},
    {"run", cmd_run, "one answer, or an interactive chat"},
    {"embed", cmd_embed, "a vector of each text"},
    {"bench", cmd_bench, "measure prefill and decode beside the machine's own limits"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"render", cmd_render, "a chat template with its variables, as text"},
    {"logits", cmd_logits, "logits of a prompt's positions, for comparing engines"},
    {"inspect", cmd_inspect, "what a GGUF file holds"},
    {"quantize", cmd_quantize, "make a GGUF file smaller: Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0"},
    {"devices", cmd_devices, "where a model can run: the CPU, and GPUs if there are any"},
    {"cache", cmd_cache, "list, verify or remove what a disk cache holds"},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void usage(FILE *f)
{
    fputs("Usage: weir COMMAND [OPTION...]\n\n"
          "An LLM inference server: GGUF models, continuous batching, OpenAI-compatible HTTP.\n\n"
          "Commands:\n",
          f);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\nExamples:\n"
          "  weir serve                        the built-in model on 127.0.0.1:8080\n"
          "  weir serve -m llama-3.2-1b.gguf   your model\n"
          "  weir run -p 'What is 2 + 3?'      one answer\n\n"
          "weir COMMAND --help tells more about each; weir --version the version.\n",
          f);
}

/* A result that could not be written is a failure. */
static int checked(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    perror("weir: standard output");
    return status == EXIT_DONE ? EXIT_FAILED : status;
}

/* Else the first file opened would get the number of a stream that is closed, and what is written
 * to the stream. To read or write one fails as before: each is open the wrong way. */
static void take_standard_streams(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_WRONLY);
        if (fd > STDIN_FILENO && fd <= STDERR_FILENO) {
            close(fd);
            fd = open("/dev/null", O_RDONLY);
        }
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    take_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a write past a limit shall fail, not kill */
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        usage(stdout);
        return checked(EXIT_DONE);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        puts("weir " WEIR_VERSION);
        return checked(EXIT_DONE);
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            char full[64];
            snprintf(full, sizeof full, "weir %s", name);
            argv[1] = full;
            cli_guard_mappings();
            return checked(commands[i].run(argc - 1, argv + 1));
        }
    }
    fprintf(stderr, "weir: no command named '%s'; see weir --help\n", name);
    return EXIT_USAGE;
}
