/* That faults are found, and where there is none none: small kernels, each in a process of its
 * own. */
#include "../ptx.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

enum { BYTES = 256, THREADS = 128 };

/* A product of 64 registers, from 1 on, with descriptor %rd9. */
std::string wgmma()
{
    std::string s = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1";
    for (int k = 2; k <= 64; k++)
        s += ", %f" + std::to_string(k);
    return s + "}, {%r1, %r2, %r3, %r4}, %rd9, %p3, 1, 1, 0;\n";
}
/* Its operands; shared memory is written by each thread, 32 bytes. */
std::string wgmma_operands()
{
    std::string s = "setp.ne.b32 %p3, 1, 0; mov.b64 %rd9, 68720001088;\n" /* 1024, 128, 256 */
                    "mov.u32 %r9, s; shl.b32 %r8, %r19, 5; add.s32 %r9, %r9, %r8;\n"
                    "st.shared.u32 [%r9], 0; st.shared.u32 [%r9+16], 0;\n";
    for (int k = 1; k <= 64; k++)
        s += "mov.f32 %f" + std::to_string(k) + ", 0f3F800000;\n";
    for (int k = 1; k <= 4; k++)
        s += "mov.u32 %r" + std::to_string(k) + ", 0;\n";
    return s;
}

struct test {
    const char *name;
    std::string body;
    const char *says; /* NULL: nothing is wrong */
};

const std::string copy = "cp.async.cg.shared.global [%r1], [%rd1], 16;\n";
const std::string commit = "cp.async.commit_group;\n", wait_all = "cp.async.wait_group 0;\n";
const std::string barrier = "bar.sync 0;\n", commit_products = "wgmma.commit_group.sync.aligned;\n";
const std::string fence = "wgmma.fence.sync.aligned;\n", proxy = "fence.proxy.async;\n";
const std::string wait_products = "wgmma.wait_group.sync.aligned 0;\n";

const test tests[] = {
    {"a load", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+240];", NULL},
    {"alignment", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+8];", "not aligned"},
    {"beyond an allocation", "ld.global.u32 %r1, [%rd1+256];", "in no allocation"},
    {"beyond shared memory", "mov.u32 %r1, s; st.shared.u32 [%r1+4096], 0;", "at 4096 of 4096"},
    {"never written", "add.s32 %r1, %r2, 1;", "operand 1 was never written"},
    {"written by some lanes", "@%p1 mov.u32 %r5, 1; add.s32 %r2, %r5, 1;", "(lanes ffff0000)"},
    {"a copy", copy + commit + wait_all + "ld.shared.u32 %r2, [%r1];", NULL},
    {"a copy and the end", copy + commit, "ends before its cp.async"},
    {"a copy read", copy + commit + "ld.shared.u32 %r2, [%r1];", "before a cp.async"},
    {"a copy of which a group is left",
     copy + commit +
         "cp.async.wait_group 1;\n"
         "ld.shared.u32 %r2, [%r1];",
     "before a cp.async"},
    {"another warp's copy",
     "@%p2 " + copy + commit + wait_all + "ld.shared.u32 %r2, [%r1];",
     "with no barrier"},
    {"another warp's copy and a barrier",
     "@%p2 " + copy + commit + wait_all + barrier + "ld.shared.u32 %r2, [%r1];",
     NULL},
    {"a copy to 8 bytes", "add.s32 %r1, %r1, 8;\n" + copy, "not aligned"},
    {"lanes that meet again",
     "@%p1 bra A;\nmov.u32 %r2, 1;\nA: shfl.sync.bfly.b32 %r3|%p4, %r19, 1, "
     "31, -1;",
     NULL},
    {"lanes that are gone",
     "@%p1 ret;\nshfl.sync.bfly.b32 %r3|%p4, %r19, 1, 31, -1;",
     "are not there"},
    {"a barrier for some lanes", "@%p1 bar.sync 0;", "a predicate leaves out"},
    {"an unknown instruction", "frobnicate.b32 %r1, %r2;", "frobnicate.b32 is unknown"},
    {"wgmma",
     wgmma_operands() + proxy + barrier + fence + wgmma() + wgmma() + commit_products +
         wait_products + "add.f32 %f1, %f1, %f2;",
     NULL},
    {"wgmma without a fence", wgmma_operands() + proxy + barrier + wgmma(), "no wgmma.fence"},
    {"wgmma without one between proxies",
     wgmma_operands() + barrier + fence + wgmma(),
     "no fence.proxy.async"},
    {"wgmma without a barrier",
     wgmma_operands() + proxy + fence + wgmma() + commit_products + wait_products,
     "read, is written with no barrier"},
    {"wgmma not waited for",
     wgmma_operands() + proxy + barrier + fence + wgmma() + commit_products +
         "add.f32 %f1, %f1, %f2;",
     "before it was waited for"},
    {"wgmma and a store",
     wgmma_operands() + proxy + barrier + fence + wgmma() + commit_products +
         "st.shared.u32 [%r9], 0;",
     "reads is written"},
};

int run(const test &t)
{
    const std::string text = ".version 9.0\n.target sm_90a\n.address_size 64\n"
                             ".entry k(.param .u64 p)\n{\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n"
                             ".reg .f32 %f<70>;\n.reg .pred %p<5>;\n"
                             ".shared .align 16 .b8 s[4096];\nld.param.u64 %rd1, [p];\n"
                             "mov.u32 %r19, %tid.x;\nmov.u32 %r1, s;\nsetp.lt.u32 %p1, %r19, 16;\n"
                             "setp.lt.u32 %p2, %r19, 32;\n" +
                             t.body + "\nret;\n}\n";
    void *p = NULL;
    if (cudaMalloc(&p, BYTES) != cudaSuccess)
        return 1;
    module *m = module_read(text);
    launch l = {m->functions.at("k").get(), {1, 1, 1}, {THREADS, 1, 1}, 0, {}};
    l.params.resize(sizeof p);
    memcpy(l.params.data(), &p, sizeof p);
    launch_run(l);
    return 0;
}

bool passes(const test &t)
{
    int ends[2], status = 0;
    fflush(stdout);
    char said[4096];
    size_t n = 0;
    if (pipe(ends) != 0)
        return false;
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        _exit(run(t));
    }
    close(ends[1]);
    for (ssize_t k; (k = read(ends[0], said + n, sizeof said - 1 - n)) > 0;)
        n += static_cast<size_t>(k);
    said[n] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    const bool as_wanted =
        t.says ? WIFEXITED(status) && WEXITSTATUS(status) == 97 && strstr(said, t.says)
               : status == 0;
    printf("%s %s\n%s", as_wanted ? "ok  " : "FAIL", t.name, as_wanted ? "" : said);
    return as_wanted;
}

} // namespace

int main()
{
    int failed = 0;
    for (const test &t : tests)
        failed += !passes(t);
    return failed != 0;
}
