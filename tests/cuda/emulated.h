/* For tests of the emulation and of what it must report. C++. */
#ifndef TESTS_CUDA_EMULATED_H
#define TESTS_CUDA_EMULATED_H

#include "backend/cuda/mma.cuh"
#include "emu.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#define OK_CUDA(call) assert_string_equal(cudaGetErrorName(call), "cudaSuccess")

/* An array of the device with a copy on the host. */
template <class T> struct device_array {
    std::vector<T> host;
    T *p = nullptr;
    explicit device_array(size_t n, T value = T()) : host(n, value)
    {
        OK_CUDA(cudaMalloc(&p, n * sizeof(T)));
        up();
    }
    ~device_array()
    {
        cudaFree(p);
    }
    device_array(const device_array &) = delete;
    void up()
    {
        OK_CUDA(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    const std::vector<T> &down()
    {
        OK_CUDA(cudaMemcpy(host.data(), p, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
};

/* Splitmix. */
struct random_bits {
    uint64_t state;
    uint64_t next()
    {
        uint64_t x = state += 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
    float unit() /* [-1, 1) */
    {
        return static_cast<float>(static_cast<double>(next() >> 11) / (1ull << 52) - 1);
    }
};

template <class H> static inline H of_bits(uint16_t bits)
{
    H h;
    h.bits = bits;
    return h;
}

/* Runs f in a process of its own, which must end with a report that holds `text`, or be stopped by
 * a sanitizer. */
template <class F> static void must_report(const char *text, F f)
{
    fflush(nullptr);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) {
            _exit(3);
        }
        f();
        cudaDeviceSynchronize();
        const char *report = emu_take_report(nullptr);
        _exit(!report ? 0 : strstr(report, text) ? 42 : 43);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
#if defined(__SANITIZE_ADDRESS__)
#define TESTS_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) /* clang */
#define TESTS_UNDER_ASAN 1
#endif
#endif
#ifdef TESTS_UNDER_ASAN
    if (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 1)) {
        return;
    }
#endif
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 42) {
        print_message("no report with \"%s\": status %x\n", text, static_cast<unsigned>(status));
        fail();
    }
}

#endif
