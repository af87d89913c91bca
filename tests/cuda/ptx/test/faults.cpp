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

/* A product of so many columns, in half as many registers, from 1 on, with descriptor %rd9. */
std::string wgmma(int columns = 128)
{
    const std::string shape = "m64n" + std::to_string(columns) + "k16";
    std::string s = "wgmma.mma_async.sync.aligned." + shape + ".f32.f16.f16 {%f1";
    for (int k = 2; k <= columns / 2; k++)
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

/* AGAIN: launched twice, the second time to begin before the first has ended; AFTER_A_COPY: what
 * the first wrote is set by the host between. */
enum launches { ONCE, AGAIN, AFTER_A_COPY };

struct test {
    const char *name;
    std::string body;
    const char *says; /* NULL: nothing is wrong */
    enum launches launches = ONCE;
};

const std::string copy = "cp.async.cg.shared.global [%r1], [%rd1], 16;\n";
const std::string commit = "cp.async.commit_group;\n", wait_all = "cp.async.wait_group 0;\n";
const std::string barrier = "bar.sync 0;\n", commit_products = "wgmma.commit_group.sync.aligned;\n";
const std::string fence = "wgmma.fence.sync.aligned;\n", proxy = "fence.proxy.async;\n";
const std::string wait_products = "wgmma.wait_group.sync.aligned 0;\n";

/* Thread 0 makes two mbarriers behind the rest: %r10, of one arrival, and %r11, of who reads. */
const std::string places = "add.s32 %r10, %r12, 4096; add.s32 %r11, %r12, 4104;\n";
std::string init(int readers = 4)
{
    return places +
           "@%p5 mbarrier.init.shared::cta.b64 [%r10], 1;\n"
           "@%p5 mbarrier.init.shared::cta.b64 [%r11], " +
           std::to_string(readers) + ";\n";
}
const std::string init_fence = "@%p5 fence.mbarrier_init.release.cluster;\n";
const std::string make = init() + init_fence + barrier;
/* By a thread, into shared memory from 0 on. */
std::string expect(int bytes, const std::string &thread = "%p5")
{
    return "@" + thread + " mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], " +
           std::to_string(bytes) + ";\n";
}
std::string bulk(const std::string &to = "%r12",
                 const std::string &from = "%rd1",
                 const std::string &bytes = "256",
                 const std::string &thread = "%p5")
{
    return "@" + thread +
           " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[" +
           to + "], [" + from + "], " + bytes + ", [%r10];\n";
}
std::string wait(const std::string &on, int parity, const std::string &label)
{
    return label + ": mbarrier.try_wait.parity.shared::cta.b64 %p4, [" + on + "], " +
           std::to_string(parity) + ";\n@!%p4 bra " + label + ";\n";
}
const std::string read_shared = "ld.shared.u32 %r2, [%r12];\n", meet = "bar.warp.sync -1;\n";
const std::string waited = wait("%r10", 0, "W"), brought = make + expect(256) + bulk();
/* A lane of each warp says that the warp has read; thread 0 waits for that and brings more. */
const std::string arrive = "@%p6 mbarrier.arrive.shared::cta.b64 _, [%r11];\n";
const std::string again = "@!%p5 bra E;\n" + wait("%r11", 0, "V") + expect(256) + bulk() +
                          "E: " + wait("%r10", 1, "X") + read_shared;
const std::string once = "ld.global.nc.L1::no_allocate.L2::256B.u32 %r2, [%rd1];\n";
const std::string wait_before = "griddepcontrol.wait;\n", store = "st.global.u32 [%rd1], 1;\n";

const test tests[] = {
    {"a load", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+240];", NULL},
    {"alignment", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+8];", "not aligned"},
    {"beyond an allocation", "ld.global.u32 %r1, [%rd1+256];", "in no allocation"},
    {"beyond shared memory", "st.shared.u32 [%r1+8192], 0;", "at 8192 of 8192"},
    {"a load past the cache", once, NULL},
    {"a load of a generic address", "ld.u32 %r2, [%rd1];", NULL},
    {"one of shared memory",
     "cvt.u64.u32 %rd2, %r1; cvta.shared.u64 %rd2, %rd2; ld.u32 %r2, [%rd2];",
     "in no allocation"},
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
    {"wgmma of 64 columns",
     wgmma_operands() + proxy + barrier + fence + wgmma(64) + commit_products + wait_products +
         "add.f32 %f1, %f1, %f32;",
     NULL},
    {"wgmma of 64 columns not waited for",
     wgmma_operands() + proxy + barrier + fence + wgmma(64) + commit_products +
         "add.f32 %f1, %f1, %f32;",
     "before it was waited for"},

    {"a bulk copy", brought + waited + read_shared, NULL},
    {"a bulk copy from 8", make + expect(256) + bulk("%r12", "%rd1+8", "240"), "multiples of 16"},
    {"a bulk copy to 8", make + expect(256) + bulk("%r12+8"), "multiples of 16"},
    {"a bulk copy of 24 bytes", make + expect(24) + bulk("%r12", "%rd1", "24"), "multiples of 16"},
    {"a bulk copy of too much",
     make + expect(272) + bulk("%r12", "%rd1", "272"),
     "272 bytes of global memory"},
    {"a bulk copy to too far", make + expect(256) + bulk("%r12+8000"), "at 8000 of 8192"},
    {"a bulk copy read", brought + read_shared + waited, "is read before the bulk copy"},
    {"a bulk copy written over",
     brought + "st.shared.u32 [%r1], 0;\n" + waited,
     "is written before the bulk copy"},
    {"a bulk copy that a wgmma reads",
     wgmma_operands() + proxy + brought + fence + wgmma() + commit_products + wait_products +
         waited,
     "is read before the bulk copy"},
    {"a bulk copy copied over", brought + expect(256) + bulk(), "copied over before the bulk copy"},
    {"a bulk copy that one warp waits for",
     brought + "@!%p2 bra R;\n" + waited + "R: " + read_shared,
     "is read before the bulk copy"},
    {"a bulk copy that one warp waits for, and a barrier",
     brought + "@!%p2 bra R;\n" + waited + "R: " + meet + barrier + read_shared,
     NULL},
    {"a bulk copy that one lane waits for",
     brought + "@!%p6 bra R;\n" + waited + "R: " + read_shared,
     "is read before the bulk copy"},
    {"a bulk copy that one lane waits for, and the warp for it",
     brought + "@!%p6 bra R;\n" + waited + "R: " + meet + read_shared,
     NULL},
    {"a bulk copy and the end", brought, "ends before the bulk copies"},
    {"bytes that never come", make + expect(256), "never came"},
    {"too many bytes expected", make + expect(272) + bulk() + waited, "16 bytes are missing"},
    {"too few bytes expected", make + expect(128) + bulk() + waited, "expects 128 more"},
    {"a phase that nobody ends", make + waited, "1 of 1 arrivals and 0 bytes are missing"},
    {"a wait for parity 2", make + expect(256) + wait("%r10", 2, "W"), "for parity 2"},
    {"two arrivals instead of one", make + expect(256) + expect(256), "0 of them left"},
    {"no mbarrier", places + expect(256), "no mbarrier was made"},
    {"an mbarrier of none", places + "mbarrier.init.shared::cta.b64 [%r10], 0;", "of 0 arrivals"},
    {"an mbarrier for others at once", init() + init_fence + waited, "used with no barrier since"},
    {"an mbarrier without a fence",
     init() + barrier + expect(256) + bulk() + waited,
     "no fence.mbarrier_init"},
    {"a store to an mbarrier", make + "st.shared.u32 [%r10], 0;", "where an mbarrier is"},
    {"a ring", brought + waited + read_shared + meet + arrive + again, NULL},
    {"a ring whose lanes all arrive",
     init(THREADS) + init_fence + barrier + expect(256) + bulk() + waited + read_shared +
         "mbarrier.arrive.shared::cta.b64 _, [%r11];\n" + again,
     NULL},
    {"a ring whose warps do not meet",
     brought + waited + read_shared + arrive + again,
     "does not read any more"},
    {"a ring where nobody waits",
     brought + waited + read_shared + meet + "setp.eq.u32 %p3, %r19, 96;\n" + expect(256, "%p3") +
         bulk("%r12", "%rd1", "256", "%p3") + wait("%r10", 1, "X"),
     "nothing says that warp 0 does not read"},
    {"a bulk copy over what a wgmma reads",
     wgmma_operands() + proxy + make + fence + wgmma() + commit_products + expect(256) + bulk() +
         wait_products + waited,
     "nothing says that warp 0 does not read"},
    {"a ring that a wgmma reads",
     wgmma_operands() + proxy + make + expect(256) + bulk() + waited + fence + wgmma() +
         commit_products + wait_products + arrive + again,
     NULL},
    {"a ring that a wgmma reads, and lanes that arrive too soon",
     wgmma_operands() + proxy + make + expect(256) + bulk() + waited + fence + wgmma() +
         commit_products + meet + arrive + wait_products + again,
     "does not read any more"},
    {"a bulk copy over what a wgmma has read",
     wgmma_operands() + proxy + make + fence + wgmma() + commit_products + wait_products + barrier +
         expect(256) + bulk() + waited,
     NULL},
    {"a bulk copy over a store",
     make + "st.shared.u32 [%r1], 0;\n" + barrier + expect(256) + bulk() + waited,
     "with no fence.proxy.async since"},
    {"a bulk copy over a store and a fence",
     make + "st.shared.u32 [%r1], 0;\n" + proxy + barrier + expect(256) + bulk() + waited,
     NULL},
    {"a bulk copy over another warp's store",
     make + "@%p2 st.shared.u32 [%r1], 0;\n" + proxy + "setp.eq.u32 %p3, %r19, 96;\n" +
         expect(256, "%p3") + bulk("%r12", "%rd1", "256", "%p3") + waited,
     "which warp 0 writes, with no barrier since"},

    {"a kernel that begins early", wait_before + once + store, NULL, AGAIN},
    {"one that reads first", once + wait_before + store, "read before griddepcontrol", AGAIN},
    {"one that reads first what nobody wrote",
     "ld.global.u32 %r2, [%rd1+4];\n" + wait_before + store,
     NULL,
     AGAIN},
    {"one that reads first what the host wrote",
     once + wait_before + barrier + store,
     NULL,
     AFTER_A_COPY},
    {"one that copies first",
     brought + wait_before + waited + store,
     "read before griddepcontrol",
     AGAIN},
    {"one that writes first", store + wait_before, "written before griddepcontrol", AGAIN},
    {"one that does not wait", "@%p6 griddepcontrol.wait;", "ends before griddepcontrol", AGAIN},
};

int run(const test &t)
{
    const std::string text =
        ".version 9.0\n.target sm_90a\n.address_size 64\n"
        ".entry k(.param .u64 p)\n{\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n"
        ".reg .f32 %f<70>;\n.reg .pred %p<7>;\n"
        ".shared .align 16 .b8 s[8192];\nld.param.u64 %rd1, [p];\n"
        "mov.u32 %r19, %tid.x;\nmov.u32 %r1, s;\nmov.u32 %r12, s;\nsetp.lt.u32 %p1, %r19, 16;\n"
        "setp.lt.u32 %p2, %r19, 32;\nsetp.eq.u32 %p5, %r19, 0;\n"
        "and.b32 %r18, %r19, 31;\nsetp.eq.u32 %p6, %r18, 0;\n" +
        t.body + "\nret;\n}\n";
    void *p = NULL;
    if (cudaMalloc(&p, BYTES) != cudaSuccess)
        return 1;
    module *m = module_read(text);
    launch l = {m->functions.at("k").get(), {1, 1, 1}, {THREADS, 1, 1}, 0, {}, false};
    l.params.resize(sizeof p);
    memcpy(l.params.data(), &p, sizeof p);
    launch_run(l);
    l.early = true;
    if (t.launches == AFTER_A_COPY && cudaMemset(p, 0, BYTES) != cudaSuccess)
        return 1;
    if (t.launches != ONCE)
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
