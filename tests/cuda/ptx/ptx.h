/* A machine for PTX: what nvcc makes of the kernels, run on the host.
 *
 *      text of a module -> parse.cpp, decode.cpp -> struct function: an array of instructions
 *      a launch -> grid.cpp: blocks one after another, their warps in turn, from barrier to barrier
 *      a warp   -> warp.cpp: 32 lanes in lockstep, those at the lowest instruction first
 *
 * A register is 32 lanes of its type that lie together, at a multiple of UNIT bytes from the start
 * of the warp's file; a predicate is one word, a bit a lane. Constants and special registers are
 * registers too, filled before the first instruction: every operand is a place in the file. */
#ifndef WEIR_TESTS_CUDA_PTX_H
#define WEIR_TESTS_CUDA_PTX_H

#include <map>
#include <memory>
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <string_view>
#include <vector>

enum { LANES = 32, UNIT = 64, GRANULE = 16, MOST_THREADS = 1024 };
static constexpr uint32_t ALL_LANES = 0xffffffffu;
/* Where shared memory begins, as 32-bit addresses count: compute capability 9.0 keeps as much. */
static constexpr uint32_t SHARED_BASE = 1024;

struct warp;
struct insn;
typedef void (*form)(warp &w, const insn &i, uint32_t mask);

enum space { GLOBAL, SHARED, LOCAL, PARAM };
enum {
    INSN_SPREADS = 1, /* mov, selp: what is undefined may pass through */
    INSN_WGMMA = 2,   /* may name registers of products under way */
    INSN_BULK = 4,    /* makes an mbarrier */
};

struct insn {
    form run;
    const uint32_t *op; /* places in the file: n_dst of them written, then n_src read */
    uint16_t n_dst, n_src;
    uint8_t flags, space;
    uint8_t wide[2];           /* ld, st: bytes of the values' registers; cvt: of both */
    uint8_t address_wide[3];   /* bytes of the registers with addresses, */
    int64_t plus[3];           /* and what is added to them; [0] of a branch: where to */
    uint32_t guard, flip;      /* @p: its place, 0 for none; all ones for @!p */
    uint32_t file, line, text; /* .loc, and where in the module's text */
};

struct special {
    std::string name;
    uint32_t place;
};

struct function {
    struct module *of;
    std::string name;
    size_t text, end; /* of the module's: behind the name, behind the last brace */
    bool decoded = false;
    std::vector<insn> code;
    std::vector<std::unique_ptr<uint32_t[]>> ops;
    std::vector<uint32_t> param_at, param_size; /* in bytes */
    uint32_t param_bytes = 0, units = 1, shared = 0, local = 0, most_threads = MOST_THREADS;
    std::vector<uint8_t> file;     /* of a warp before it starts: constants */
    std::vector<uint32_t> defined; /* lanes, for each unit */
    std::vector<special> specials;
    bool has_wgmma = false, has_bulk = false;
    uint32_t dynamic_most = 48 << 10; /* by cudaFuncSetAttribute */
    std::vector<std::unique_ptr<warp>> idle;
};

struct variable {
    uint64_t at; /* an address; of shared memory the alignment */
    size_t size; /* 0: as much as a launch says */
    enum space space;
};

struct module {
    std::string text;
    std::map<std::string, std::unique_ptr<function>> functions;
    std::map<std::string, variable> variables;
    std::map<uint32_t, std::string> files;
};

/* What a group of lanes does: all that are at one instruction. */
enum waits { GOES_ON, FOR_LANES, FOR_A_PHASE }; /* lanes that are elsewhere; of an mbarrier */
struct group {
    uint32_t pc, mask;
    enum waits waits;
};

/* cp.async of a lane that nobody has waited for. */
struct copy_on_its_way {
    uint32_t lane, group, granule;
};

/* Shared memory that a wgmma reads till it is waited for. */
struct range {
    uint32_t begin, end;
};

struct block;

struct warp {
    block *in;
    function *fn;
    uint32_t n; /* of the block's warps */
    std::unique_ptr<uint8_t[]> file;
    std::unique_ptr<uint32_t[]> defined;
    std::vector<uint8_t> local; /* lane after lane */
    uint32_t pc, mask, stop, live, carry;
    std::vector<group> others;
    enum { RUNS, AT_BARRIER, PARKED, DONE } state; /* parked: all that is left waits for phases */
    enum waits again;                              /* what the instruction waits for */
    uint32_t barrier, barrier_threads;
    const insn *now;
    std::vector<copy_on_its_way> copies;
    uint32_t committed[LANES], done[LANES]; /* groups of cp.async */
    /* wgmma: fences so far, and at which count a register was written; registers under way */
    uint32_t fences, proxy_fences, fenced_after; /* the last one: after so many barriers */
    std::vector<uint32_t> written;
    std::vector<uint8_t> under_way;
    uint32_t n_under_way, uncommitted;
    std::vector<range> reads;
    uint64_t products; /* a hash of those issued: the four warps of a group must agree */
    uint32_t early;    /* lanes that may run before the kernel before has ended */
    /* async.cpp: moments so far; what each lane knows to be over, block::n_known of each */
    uint32_t moment;
    std::vector<uint32_t> known;

    template <class T> T *at(uint32_t place) const
    {
        return reinterpret_cast<T *>(file.get() + static_cast<size_t>(place) * UNIT);
    }
};

/* What is known of GRANULE bytes of shared memory. */
struct granule {
    enum : uint8_t { NOTHING, WRITTEN, COPYING, COPIED, BULK } state;
    uint8_t warp;      /* who did it last, or the mbarrier of the bulk copy, */
    uint32_t barriers; /* after how many of the block's barriers, */
    uint32_t fences;   /* and of its own fences between proxies */
    uint8_t reader;    /* a warp whose wgmma read it, and 1; after how many barriers */
    uint32_t read_after;
    uint32_t moment; /* of who did it, or the mbarrier's phase */
};

/* In shared memory, for bulk copies (async.cpp). */
struct mbarrier {
    uint32_t at;                         /* bytes from the start of shared memory */
    uint32_t warp, lane, moment;         /* who made it, when, */
    bool fenced;                         /* and said so to the engine that copies */
    uint32_t arrivals, left;             /* of a phase; that are left of this one */
    int64_t bytes;                       /* that this phase expects and no copy has brought */
    uint32_t phase, waited, copied;      /* phases that are over, were waited for, had copies */
    std::vector<uint32_t> gathers, told; /* what they know who arrive; of the phases over */
};

struct block {
    const function *fn;
    const uint8_t *params;
    uint32_t grid[3], size[3], at[3], n_threads;
    std::vector<uint8_t> shared;
    std::vector<granule> granules;
    std::vector<warp *> warps;
    uint32_t barriers; /* so far */
    bool tracks;       /* granules: there are copies or products */
    uint32_t open;     /* warps with products under way */
    bool early;        /* launched to begin before the kernel before has ended */
    bool moves;        /* since all warps had their turn: something that an mbarrier counts */
    uint32_t n_known;  /* warps and mbarriers that lanes may know of */
    std::vector<mbarrier> mbarriers;
    std::vector<uint32_t> read; /* of each granule by each warp: the last one's moment */
};

/* parse.cpp, decode.cpp, forms.cpp */
module *module_read(std::string_view text);
void function_decode(function &f);
struct form_of {
    form run;
    const char *operands; /* bytes of each, 'p' for a predicate; "4=44": one is written, two read */
    uint8_t flags = 0;
};
const form_of *form_find(const std::string &op);
bool form_memory(const std::string &op, insn &i);  /* ld, st */
bool form_convert(const std::string &op, insn &i); /* cvt */
[[noreturn]] void decode_failed(const function &f, size_t text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* warp.cpp */
void warp_start(warp &w, uint32_t live);
void warp_run(warp &w);
[[noreturn]] void fault(const warp &w, int lane, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether exactly the lanes of `want` are here; else they wait for the rest (w.again). */
bool lanes_meet(warp &w, uint32_t mask, uint32_t want);
void warp_branch(warp &w, const insn &i, uint32_t mask);
void warp_exit(warp &w, const insn &i, uint32_t mask);
void warp_barrier(warp &w, const insn &i, uint32_t mask);
void warp_sync(warp &w, const insn &i, uint32_t mask);
void warp_wait_before(warp &w, const insn &i, uint32_t mask);

/* memory.cpp: the lanes' addresses as the host's */
struct reach {
    enum space space;
    unsigned bytes;
    bool writes;
};
/* Of the address that is operand `op`, the one numbered `n` of the instruction's. */
void lanes_at(warp &w, const insn &i, uint32_t mask, unsigned op, int n, reach a, uint8_t *host[]);
/* Whether shared memory [offset, + bytes) may be read now: nothing is on its way to it. */
void shared_settled(const warp &w, int lane, uint32_t offset, unsigned bytes);
/* Whether a lane may read global memory now: where its kernel may begin early, what none wrote. */
void global_settled(const warp &w, int lane, uint64_t address, uint64_t bytes);
uint64_t address_of(const warp &w, const insn &i, unsigned op, int n, int lane);
void cp_async(warp &w, const insn &i, uint32_t mask);
void cp_async_commit(warp &w, const insn &i, uint32_t mask);
void cp_async_wait(warp &w, const insn &i, uint32_t mask);
void cp_async_wait_all(warp &w, const insn &i, uint32_t mask);
void atom_add(warp &w, const insn &i, uint32_t mask);
void atom_or(warp &w, const insn &i, uint32_t mask);

/* async.cpp */
void bulk_start(block &b);
void bulk_end(block &b);
void bulk_joins(block &b, uint32_t barrier); /* the warps that are at it */
void bulk_lanes_met(warp &w);
void bulk_lanes_join(warp &w);
void bulk_read(warp &w, int lane, uint32_t offset, unsigned bytes);
void bulk_read_until(warp &w, range r, uint32_t moment); /* by wgmma */
void bulk_written(warp &w, int lane, uint32_t offset, unsigned bytes);
[[noreturn]] void bulk_never_over(warp &w);
void mbarrier_init(warp &w, const insn &i, uint32_t mask);
void mbarrier_fence(warp &w, const insn &i, uint32_t mask);
void mbarrier_arrive(warp &w, const insn &i, uint32_t mask);
void mbarrier_try_wait(warp &w, const insn &i, uint32_t mask);
void bulk_copy(warp &w, const insn &i, uint32_t mask);

/* tensor.cpp */
bool proxy_fenced(const warp &w, const granule &s); /* since who wrote it did */
void ldmatrix_x4(warp &w, const insn &i, uint32_t mask);
void ldmatrix_x4_trans(warp &w, const insn &i, uint32_t mask);
void mma_f16(warp &w, const insn &i, uint32_t mask);
void mma_bf16(warp &w, const insn &i, uint32_t mask);
void wgmma_f16(warp &w, const insn &i, uint32_t mask);
void wgmma_bf16(warp &w, const insn &i, uint32_t mask);
void wgmma_fence(warp &w, const insn &i, uint32_t mask);
void wgmma_commit(warp &w, const insn &i, uint32_t mask);
void wgmma_wait(warp &w, const insn &i, uint32_t mask);
void fence_proxy(warp &w, const insn &i, uint32_t mask);

/* grid.cpp */
struct launch {
    function *fn;
    uint32_t grid[3], size[3], dynamic;
    std::vector<uint8_t> params;
    bool early = false; /* it may begin before the kernel before has ended */
};
void launch_run(const launch &l);
void ranges_forget(); /* memory.cpp: allocations may be others now */

/* device.cpp: the range around an address that the device may touch; false if there is none */
struct device_memory {
    uint64_t begin, end;
    uint8_t *by_kernel; /* of each word, whether a kernel wrote it last */
};
bool device_range(uint64_t address, device_memory *m);
void *device_constant(const void *bytes, size_t n);
int device_capability(); /* 80, 90 */

#endif
