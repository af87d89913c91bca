/* Memory, errors and the device's properties.
 *
 * An allocation of the device is mapped between two pages that cannot be touched, its end as near
 * to the one behind as the alignment of 256 allows; what is left of its pages holds a pattern that
 * is checked. New memory holds 0xff, NaN in every format. While no work runs, device memory cannot
 * be touched at all: a host that follows a device's pointer faults. */
#include "emu_internal.h"

#include <algorithm>
#include <errno.h>
#include <map>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* The sanitizer's, in programs that have it. */
extern "C" {
__attribute__((weak)) void AnnotateIgnoreSyncBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreSyncEnd(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char *file, int line);
}

void emu_mutex::lock()
{
    if (AnnotateIgnoreSyncBegin) {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    held.lock();
}

void emu_mutex::unlock()
{
    held.unlock();
    if (AnnotateIgnoreSyncEnd) {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
}

emu_mutex emu_lock;
emu_figures emu_counted;
cudaError_t emu_sticky = cudaSuccess;
void (*emu_on_range)(const void *p, size_t size, bool write);
void (*emu_on_bulk)(const void *, size_t, bool, uint32_t, uint32_t, const emu_known &);
void (*emu_on_free)(const void *p, size_t size);

namespace
{

constexpr size_t PAGE = 4096, ALIGNMENT = 256;
constexpr unsigned char FRESH = 0xff, SLACK = 0xa5;

struct allocation {
    size_t size;
    emu_place place;
    char *map; /* of the device: its pages between the two that guard them */
    size_t map_bytes;
    bool registered; /* the host's own, pinned */
};

std::map<char *, allocation> allocations; /* by address */
size_t device_used;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device; /* of this thread; they share one memory */
unsigned n_reports;
std::string first_report;

uint64_t the_seed, draws;
bool seed_known;

size_t device_total()
{
    const char *text = getenv("WEIR_EMU_MEMORY_MIB");
    size_t mib = text ? strtoull(text, nullptr, 10) : 0;
    return (mib ? mib : 256) << 20;
}

int device_count()
{
    const char *text = getenv("WEIR_EMU_DEVICES");
    int n = text ? atoi(text) : 1;
    return n < 0 ? 0 : n > 8 ? 8 : n;
}

void at_exit()
{
    if (n_reports) {
        fprintf(stderr, "emulator: %u report(s); the first: %s\n", n_reports, first_report.c_str());
        fflush(nullptr);
        _exit(EMU_EXIT);
    }
}

#ifndef EMU_ASAN
void on_fault(int signal, siginfo_t *info, void *context)
{
    char *p = static_cast<char *>(info->si_addr);
    char text[256] = "", where[256] = "the host";
    size_t beyond = 0;
    if (emu_in_kernel()) {
        emu_where(where, sizeof where);
    }
    auto next = allocations.upper_bound(p);
    if (emu_in_kernel() && emu_is_stack(p)) {
        snprintf(text, sizeof text, "the thread's stack is too small");
    } else if (emu_in_kernel() && (beyond = emu_beyond_shared(p)) != 0) {
        snprintf(text, sizeof text, "%zu bytes beyond the end of dynamic shared memory", beyond);
    } else if (next != allocations.begin() &&
               p - std::prev(next)->first < static_cast<long>(std::prev(next)->second.size)) {
        snprintf(text, sizeof text, "device memory");
    } else if (next != allocations.begin() &&
               p - std::prev(next)->first <
                   static_cast<long>(std::prev(next)->second.map_bytes + PAGE)) {
        auto a = std::prev(next);
        snprintf(text,
                 sizeof text,
                 "%ld bytes beyond an allocation of %zu",
                 p - a->first - static_cast<long>(a->second.size) + 1,
                 a->second.size);
    } else if (next != allocations.end() && next->first - p < static_cast<long>(2 * PAGE)) {
        snprintf(text,
                 sizeof text,
                 "%ld bytes before an allocation of %zu",
                 next->first - p,
                 next->second.size);
    } else {
        snprintf(text, sizeof text, "no allocation is near");
    }
    emu_report("%s touches %p: %s", where, static_cast<void *>(p), text);
#if defined(__x86_64__)
    if (emu_in_kernel()) {
        ucontext_t *c = static_cast<ucontext_t *>(context);
        void *stack, *landing = emu_fault_landing(&stack);
        c->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(reinterpret_cast<uintptr_t>(landing));
        c->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(
            (reinterpret_cast<uintptr_t>(stack) & ~static_cast<uintptr_t>(15)) - 8);
        return;
    }
#endif
    static_cast<void>(context);
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, nullptr);
}
#endif

#ifndef EMU_ASAN
struct sigaction others[2]; /* what was there before: a test's, say */

void take_faults()
{
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &others[0]);
    sigaction(SIGBUS, &action, &others[1]);
}
#endif

struct start {
    start()
    {
        atexit(at_exit);
#ifndef EMU_ASAN
        take_faults();
#endif
    }
} at_start;

allocation *holds(const void *p, char **base)
{
    auto next = allocations.upper_bound(static_cast<char *>(const_cast<void *>(p)));
    if (next == allocations.begin()) {
        return nullptr;
    }
    auto a = std::prev(next);
    if (static_cast<const char *>(p) >= a->first + a->second.size) {
        return nullptr;
    }
    *base = a->first;
    return &a->second;
}

#ifndef EMU_ASAN
void slack(const std::pair<char *const, allocation> &a, void (*visit)(char *, size_t))
{
    char *end = a.first + a.second.size, *map_end = a.second.map + a.second.map_bytes;
    visit(a.second.map, static_cast<size_t>(a.first - a.second.map));
    visit(end, static_cast<size_t>(map_end - end));
}
#endif

char *mapped(size_t size, allocation *out)
{
    size_t bytes = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t map_bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    void *p = mmap(nullptr, map_bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return nullptr;
    }
    out->map = static_cast<char *>(p) + PAGE;
    out->map_bytes = map_bytes;
    if (mprotect(out->map, map_bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(p, map_bytes + 2 * PAGE);
        return nullptr;
    }
    (void)madvise(out->map, map_bytes, MADV_HUGEPAGE); /* it is opened and closed often */
    char *base = out->map + map_bytes - bytes;
    memset(out->map, SLACK, map_bytes);
    memset(base, FRESH, size);
#ifdef EMU_ASAN
    ASAN_POISON_MEMORY_REGION(out->map, static_cast<size_t>(base - out->map));
    ASAN_POISON_MEMORY_REGION(base + size, bytes - size);
#endif
    return base;
}

void unmap(const allocation &a)
{
#ifdef EMU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(a.map, a.map_bytes);
#endif
    munmap(a.map - PAGE, a.map_bytes + 2 * PAGE);
}

cudaError_t allocate(void **out, size_t size, emu_place place)
{
    if (!out) {
        return cudaErrorInvalidValue;
    }
    *out = nullptr;
    if (size == 0) {
        return cudaSuccess;
    }
    if (place == EMU_DEVICE && size > device_total() - device_used) {
        return cudaErrorMemoryAllocation;
    }
    allocation a = {size, place, nullptr, 0, false};
    char *p = mapped(size, &a);
    if (!p) {
        return cudaErrorMemoryAllocation;
    }
    allocations[p] = a;
    if (place == EMU_DEVICE) {
        device_used += size;
        emu_counted.device_allocations++;
        mprotect(a.map, a.map_bytes, PROT_NONE);
    } else {
        emu_counted.host_allocations++;
    }
    *out = p;
    return cudaSuccess;
}

cudaError_t release(void *p, emu_place place)
{
    if (!p) {
        return cudaSuccess;
    }
    emu_run_all();
    auto a = allocations.find(static_cast<char *>(p));
    if (a == allocations.end() || a->second.place != place || a->second.registered) {
        emu_report("freeing %p, which is not an allocation of that kind", p);
        return cudaErrorInvalidValue;
    }
    if (place == EMU_DEVICE) {
        device_used -= a->second.size;
    }
    if (emu_on_free) {
        emu_on_free(p, a->second.size);
    }
    unmap(a->second);
    allocations.erase(a);
    return cudaSuccess;
}

} // namespace

bool emu_take_device_bytes(size_t n)
{
    if (n > device_total() - device_used) {
        return false;
    }
    device_used += n;
    return true;
}

void emu_give_device_bytes(size_t n)
{
    device_used -= n;
}

/* --- orders --- */

void emu_set_seed(uint64_t seed)
{
    std::lock_guard lock(emu_lock);
    the_seed = seed;
    draws = 0;
    seed_known = true;
}

uint64_t emu_seed(void)
{
    if (!seed_known) {
        const char *text = getenv("WEIR_EMU_SEED");
        emu_set_seed(text ? strtoull(text, nullptr, 10) : 0);
    }
    return the_seed;
}

uint64_t emu_draw(void)
{
    uint64_t x = emu_seed() * 0x9e3779b97f4a7c15u + ++draws * 0xd1342543de82ef95u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

emu_order emu_order_now(void)
{
    uint64_t seed = emu_seed();
    return seed == 0 ? EMU_PLAIN : seed == 1 ? EMU_REVERSED : EMU_DRAWN;
}

/* --- reports and errors --- */

void emu_report(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "emulator: %s\n", text);
    if (n_reports++ == 0) {
        first_report = text;
    }
}

const char *emu_take_report(unsigned *n)
{
    static std::string taken;
    std::lock_guard lock(emu_lock);
    if (n) {
        *n = n_reports;
    }
    if (n_reports == 0) {
        return nullptr;
    }
    taken = first_report;
    n_reports = 0;
    emu_sticky = cudaSuccess;
    last_error = cudaSuccess;
    return taken.c_str();
}

void emu_lose_device(void)
{
    std::lock_guard lock(emu_lock);
    emu_report("the device is lost, as it was told");
    emu_sticky = cudaErrorLaunchFailure;
}

emu_figures emu_get_figures(void)
{
    std::lock_guard lock(emu_lock);
    emu_counted.allocations_now = allocations.size();
    return emu_counted;
}

cudaError_t emu_result(cudaError_t error)
{
    if (error == cudaSuccess) {
        error = emu_sticky;
    }
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        last_error = error;
    }
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    std::lock_guard lock(emu_lock);
    return emu_sticky != cudaSuccess ? emu_sticky : e;
}

cudaError_t cudaPeekAtLastError(void)
{
    std::lock_guard lock(emu_lock);
    return emu_sticky != cudaSuccess ? emu_sticky : last_error;
}

#define EMU_ERRORS(each)                                                                           \
    each(cudaSuccess, "no error") each(cudaErrorInvalidValue, "invalid argument")                  \
        each(cudaErrorMemoryAllocation, "out of memory")                                           \
            each(cudaErrorInitializationError, "initialization error")                             \
                each(cudaErrorInvalidConfiguration, "invalid configuration argument")              \
                    each(cudaErrorInvalidSymbol, "invalid device symbol")                          \
                        each(cudaErrorInvalidMemcpyDirection, "invalid copy direction")            \
                            each(cudaErrorInsufficientDriver, "the driver is too old")             \
                                each(cudaErrorInvalidDeviceFunction, "invalid device function")

static const struct {
    cudaError_t error;
    const char *name, *text;
} error_texts[] = {
#define EACH(name, text) {name, #name, text},
    EMU_ERRORS(EACH) EACH(cudaErrorNoDevice, "no CUDA-capable device is detected")
        EACH(cudaErrorInvalidDevice, "invalid device ordinal")
            EACH(cudaErrorNoKernelImageForDevice, "no kernel image is available for the device")
                EACH(cudaErrorInvalidResourceHandle,
                     "invalid resource handle") EACH(cudaErrorNotReady, "device not ready")
                    EACH(cudaErrorIllegalAddress, "an illegal memory access was encountered")
                        EACH(cudaErrorLaunchOutOfResources, "too many resources requested")
                            EACH(cudaErrorHostMemoryAlreadyRegistered, "already registered")
                                EACH(cudaErrorHostMemoryNotRegistered, "not registered")
                                    EACH(cudaErrorLaunchFailure, "unspecified launch failure")
                                        EACH(cudaErrorNotSupported, "operation not supported")
                                            EACH(cudaErrorStreamCaptureUnsupported,
                                                 "not permitted when stream is capturing")
                                                EACH(cudaErrorStreamCaptureInvalidated,
                                                     "an earlier error invalidated the capture")
                                                    EACH(cudaErrorStreamCaptureUnjoined,
                                                         "unjoined work in the capture")
                                                        EACH(cudaErrorStreamCaptureImplicit,
                                                             "implicit dependency of the capture")
                                                            EACH(cudaErrorCapturedEvent,
                                                                 "the event is of a capture")
#undef EACH
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &e : error_texts) {
        if (e.error == error) {
            return e.name;
        }
    }
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &e : error_texts) {
        if (e.error == error) {
            return e.text;
        }
    }
    return "unknown error";
}

/* --- the device --- */

/* For tests: how often the driver was looked for before it was told to load kernels at once. */
int emu_lazy_calls;

static void look_for_driver()
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    emu_lazy_calls += !loading || strcmp(loading, "EAGER") != 0;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    look_for_driver();
    *count = device_count();
    return emu_result(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return emu_result(device_count() ? cudaSuccess : cudaErrorNoDevice);
}

/* WEIR_EMU_SHARED_KIB: 99 as of compute capability 8.9; else what 9.0 has. */
size_t emu_shared_most(void)
{
    const char *text = getenv("WEIR_EMU_SHARED_KIB");
    const size_t n = text ? strtoull(text, nullptr, 10) << 10 : 0;
    return n > 0 && n < EMU_SHARED_MAX ? n : static_cast<size_t>(EMU_SHARED_MAX);
}

static cudaError_t known(int device)
{
    return emu_result(device_count() == 0                      ? cudaErrorNoDevice
                      : device >= 0 && device < device_count() ? cudaSuccess
                                                               : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t e = known(device);
    current_device = e == cudaSuccess ? device : current_device;
    return e;
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned)
{
    return known(device);
}

cudaError_t cudaSetDeviceFlags(unsigned)
{
    return emu_result(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t e = known(device);
    if (e != cudaSuccess) {
        return e;
    }
    *prop = cudaDeviceProp();
    snprintf(prop->name, sizeof prop->name, "Emulated device");
    memset(prop->uuid.bytes, 0xe0, sizeof prop->uuid.bytes);
    prop->totalGlobalMem = device_total();
    prop->sharedMemPerBlock = EMU_SHARED_DEFAULT;
    prop->regsPerBlock = 65536;
    prop->warpSize = 32;
    prop->memPitch = 0x7fffffff;
    prop->maxThreadsPerBlock = EMU_MAX_THREADS;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 0x7fffffff;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->totalConstMem = 65536;
    prop->major = emu_shared_most() == EMU_SHARED_MAX ? 9 : 8;
    prop->minor = prop->major == 9 ? 0 : 9;
    prop->multiProcessorCount = EMU_MULTIPROCESSORS;
    prop->canMapHostMemory = 1;
    prop->concurrentKernels = 1;
    prop->asyncEngineCount = 2;
    prop->unifiedAddressing = 1;
    prop->memoryBusWidth = 64;
    prop->l2CacheSize = 1 << 20;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->streamPrioritiesSupported = 1;
    prop->sharedMemPerMultiprocessor = emu_shared_most() + 1024;
    prop->regsPerMultiprocessor = 65536;
    prop->sharedMemPerBlockOptin = emu_shared_most();
    prop->maxBlocksPerMultiProcessor = 32;
    prop->reservedSharedMemPerBlock = 1024;
    return emu_result(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess) {
        return e;
    }
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(p.sharedMemPerBlock);
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrComputeMode:
        *value = cudaComputeModeDefault;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = p.memoryBusWidth;
        break;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(p.sharedMemPerMultiprocessor);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(p.sharedMemPerBlockOptin);
        break;
    default:
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device)
{
    snprintf(id, static_cast<size_t>(len), "0000:00:00.0");
    return known(device);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return emu_result(cudaSuccess);
}

cudaError_t cudaDeviceReset(void)
{
    std::lock_guard lock(emu_lock);
    emu_run_all();
    emu_sticky = cudaSuccess;
    last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    look_for_driver();
    *version = device_count() ? CUDART_VERSION : 0;
    return emu_result(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return emu_result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    std::lock_guard lock(emu_lock);
    *total_bytes = device_total();
    *free_bytes = *total_bytes - device_used;
    return emu_result(cudaSuccess);
}

/* --- memory --- */

#define EMU_ENTER()                                                                                \
    std::lock_guard lock(emu_lock);                                                                \
    do {                                                                                           \
        if (device_count() == 0) {                                                                 \
            return emu_result(cudaErrorNoDevice);                                                  \
        }                                                                                          \
        if (emu_capture_forbids()) {                                                               \
            return emu_result(cudaErrorStreamCaptureUnsupported);                                  \
        }                                                                                          \
    } while (0)

cudaError_t cudaMalloc(void **p, size_t size)
{
    EMU_ENTER();
    return emu_result(allocate(p, size, EMU_DEVICE));
}

cudaError_t cudaFree(void *p)
{
    EMU_ENTER();
    return emu_result(release(p, EMU_DEVICE));
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    return cudaHostAlloc(p, size, 0);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned)
{
    EMU_ENTER();
    return emu_result(allocate(p, size, EMU_PINNED));
}

cudaError_t cudaFreeHost(void *p)
{
    EMU_ENTER();
    const emu_range r = emu_find(p);
    if (p && r.place == EMU_PINNED && emu_is_touched(r.base, r.size)) {
        /* nothing says that this call waits, as cudaFree does */
        emu_report("freeing pinned memory %p, which a queued copy reads or writes", p);
    }
    return emu_result(release(p, EMU_PINNED));
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned)
{
    EMU_ENTER();
    char *base;
    if (!p || !size) {
        return emu_result(cudaErrorInvalidValue);
    }
    if (holds(p, &base)) {
        return emu_result(cudaErrorHostMemoryAlreadyRegistered);
    }
    allocations[static_cast<char *>(p)] = {size, EMU_PINNED, static_cast<char *>(p), size, true};
    emu_counted.host_allocations++;
    return emu_result(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *p)
{
    EMU_ENTER();
    emu_run_all();
    auto a = allocations.find(static_cast<char *>(p));
    if (a == allocations.end() || !a->second.registered) {
        return emu_result(cudaErrorHostMemoryNotRegistered);
    }
    allocations.erase(a);
    return emu_result(cudaSuccess);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    std::lock_guard lock(emu_lock);
    char *base;
    allocation *a = holds(host, &base);
    *device = a && a->place == EMU_PINNED ? host : nullptr;
    return emu_result(*device ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    std::lock_guard lock(emu_lock);
    char *base;
    allocation *a = holds(p, &base);
    *out = cudaPointerAttributes();
    void *q = const_cast<void *>(p);
    out->type = !a                       ? cudaMemoryTypeUnregistered
                : a->place == EMU_DEVICE ? cudaMemoryTypeDevice
                                         : cudaMemoryTypeHost;
    out->device = a ? 0 : -2;
    out->devicePointer = a ? q : nullptr;
    out->hostPointer = a && a->place == EMU_DEVICE ? nullptr : q;
    return emu_result(cudaSuccess);
}

emu_range emu_find(const void *p)
{
    char *base = nullptr;
    allocation *a = holds(p, &base);
    return a ? emu_range{base, a->size, a->place} : emu_range{nullptr, 0, EMU_PAGEABLE};
}

bool emu_check(const char *what, const void *p, size_t size)
{
    emu_range r = emu_find(p);
    if (!p) {
        emu_report("%s: a null pointer", what);
        return false;
    }
    if (r.place != EMU_PAGEABLE &&
        size > r.size - static_cast<size_t>(static_cast<const char *>(p) - r.base)) {
        emu_report("%s: %zu bytes from byte %zu of an allocation of %zu",
                   what,
                   size,
                   static_cast<size_t>(static_cast<const char *>(p) - r.base),
                   r.size);
        return false;
    }
    return true;
}

void emu_memory_open(void)
{
    for (auto &a : allocations) {
        if (a.second.place == EMU_DEVICE) {
            mprotect(a.second.map, a.second.map_bytes, PROT_READ | PROT_WRITE);
        }
    }
#ifndef EMU_ASAN
    static thread_local bool has_stack;
    if (!has_stack) {
        stack_t s = {};
        s.ss_size = 64 << 10;
        s.ss_sp =
            mmap(nullptr, s.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        has_stack = s.ss_sp != MAP_FAILED && sigaltstack(&s, nullptr) == 0;
    }
    take_faults();
#endif
}

void emu_memory_close(void)
{
    for (auto &a : allocations) {
        if (a.second.place == EMU_DEVICE) {
            mprotect(a.second.map, a.second.map_bytes, PROT_NONE);
        }
    }
#ifndef EMU_ASAN
    sigaction(SIGSEGV, &others[0], nullptr);
    sigaction(SIGBUS, &others[1], nullptr);
#endif
}

void emu_check_slack(void)
{
#ifndef EMU_ASAN
    for (auto &a : allocations) {
        if (a.second.registered) {
            continue;
        }
        slack(a, [](char *p, size_t n) {
            const auto is_slack = [](char c) { return static_cast<unsigned char>(c) == SLACK; };
            if (n == 0 || (is_slack(p[0]) && memcmp(p, p + 1, n - 1) == 0)) {
                return;
            }
            emu_report("bytes beside an allocation were written, at %p",
                       static_cast<void *>(std::find_if_not(p, p + n, is_slack)));
            emu_sticky = cudaErrorIllegalAddress;
            memset(p, SLACK, n);
        });
    }
#endif
}
