/* Kernels, streams and events: what queues work, and what waits for it. */
#include "emu_queue.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

using namespace emu;

namespace
{

std::map<const void *, int> shared_limits;
uint32_t n_streams;

double now_ms()
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<double>(ts.tv_sec) * 1e3 + static_cast<double>(ts.tv_nsec) * 1e-6;
}

void record_now(event_state *e, uint64_t record)
{
    if (record > e->done) {
        e->done = record;
        e->at_ms = now_ms();
        if (running()) {
            e->known = running()->known;
        }
    }
}

bool finished(const event_state *e)
{
    return e->done >= e->latest;
}

} // namespace

/* --- kernels --- */

/* One of cudaStreamCreate's. */
static bool is_made(cudaStream_t stream)
{
    return stream && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
}

/* A launch goes to a stream of the thread's current device. */
/* WEIR_EMU_REFUSE: kernels whose names begin so cannot be launched, as if they took more registers
 * than a device has. */
static bool is_refused(const char *name)
{
    const char *begin = getenv("WEIR_EMU_REFUSE");
    return begin && strncmp(name + (*name == '('), begin, strlen(begin)) == 0;
}

/* WEIR_EMU_CODE=0: kernels were compiled for other devices. */
static bool has_code()
{
    const char *text = getenv("WEIR_EMU_CODE");
    return !text || strcmp(text, "0") != 0;
}

void emu_enqueue(const emu_config &config,
                 void (*run)(const void *arguments),
                 const void *arguments,
                 size_t bytes,
                 size_t align)
{
    EMU_LOCK();
    auto limit = shared_limits.find(config.function);
    size_t most = limit == shared_limits.end() ? static_cast<size_t>(EMU_SHARED_DEFAULT)
                                               : static_cast<size_t>(limit->second);
    most = most < emu_shared_most() ? most : emu_shared_most();
    if (config.shared_bytes > most) {
        emu_report("%s: %zu bytes of dynamic shared memory, allowed are %zu",
                   config.name,
                   config.shared_bytes,
                   most);
        emu_result(cudaErrorInvalidValue);
        return;
    }
    uint64_t threads = static_cast<uint64_t>(config.block.x) * config.block.y * config.block.z;
    if (threads == 0 || threads > EMU_MAX_THREADS || config.block.z > 64 || config.grid.x == 0 ||
        config.grid.y == 0 || config.grid.z == 0 || config.grid.x > 0x7fffffffu ||
        config.grid.y > 65535 || config.grid.z > 65535) {
        emu_report("%s: a grid of %u x %u x %u blocks of %u x %u x %u threads",
                   config.name,
                   config.grid.x,
                   config.grid.y,
                   config.grid.z,
                   config.block.x,
                   config.block.y,
                   config.block.z);
        emu_result(cudaErrorInvalidConfiguration);
        return;
    }
    if (!has_code()) {
        emu_result(cudaErrorNoKernelImageForDevice);
        return;
    }
    if (is_refused(config.name)) {
        if (stream_of(config.stream)->capturing) {
            stream_of(config.stream)->capturing->invalid = true;
        }
        emu_result(cudaErrorLaunchOutOfResources);
        return;
    }
    int device = 0;
    cudaGetDevice(&device);
    if (is_made(config.stream) && config.stream->device != device) {
        emu_result(cudaErrorInvalidResourceHandle);
        return;
    }
    void *copied = aligned_alloc(align < 16 ? 16 : align, (bytes + 63) / 64 * 64);
    memcpy(copied, arguments, bytes);
    std::shared_ptr<void> kept(copied, free);
    cudaError_t e = add(config.stream, config.name, [config, run, kept] {
        cudaError_t error = emu_run_grid({config, run, kept.get()});
        if (error != cudaSuccess) {
            emu_sticky = error;
        }
    });
    emu_result(e);
}

cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute attr, int value)
{
    EMU_LOCK();
    if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || static_cast<size_t>(value) > emu_shared_most()) {
            return emu_result(cudaErrorInvalidValue);
        }
        shared_limits[f] = value;
    }
    return emu_result(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f)
{
    EMU_LOCK();
    *a = cudaFuncAttributes();
    if (!has_code()) {
        return emu_result(cudaErrorNoKernelImageForDevice);
    }
    auto limit = shared_limits.find(f);
    a->maxThreadsPerBlock = EMU_MAX_THREADS;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = 90;
    a->maxDynamicSharedSizeBytes =
        limit == shared_limits.end() ? static_cast<int>(EMU_SHARED_DEFAULT) : limit->second;
    return emu_result(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n,
                                                          const void *,
                                                          int block_threads,
                                                          size_t shared_bytes)
{
    if (block_threads < 1 || block_threads > EMU_MAX_THREADS || shared_bytes > EMU_SHARED_MAX) {
        *n = 0;
        return emu_result(cudaSuccess);
    }
    int by_threads = 2048 / ((block_threads + 31) / 32 * 32);
    int by_shared = static_cast<int>((228u << 10) / (shared_bytes + 1024));
    *n = by_threads < by_shared ? by_threads : by_shared;
    *n = *n < 32 ? *n : 32;
    return emu_result(cudaSuccess);
}

/* --- streams --- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    EMU_LOCK();
    emu_stream *s = new emu_stream;
    s->blocking = !(flags & cudaStreamNonBlocking);
    s->number = ++n_streams;
    cudaGetDevice(&s->device);
    streams.push_back(s);
    *stream = s;
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, 0, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    if (is_legacy(s) || s->capturing) {
        return emu_result(cudaErrorInvalidResourceHandle);
    }
    add(stream, "its end", [] {}); /* whose end frees it */
    s->destroyed = true;
    run_until([] { return true; });
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    if (waits_on_capture(s)) {
        return emu_result(cudaErrorStreamCaptureUnsupported);
    }
    run_until([s] { return s->queue.empty(); });
    learn(&host_known, s->known);
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    if (waits_on_capture(s)) {
        return emu_result(cudaErrorStreamCaptureUnsupported);
    }
    bool done = s->queue.empty();
    if (done) {
        learn(&host_known, s->known);
    } else {
        run_some(); /* time passes */
    }
    return emu_result(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    EMU_LOCK();
    if (emu_capture_forbids()) {
        return emu_result(cudaErrorStreamCaptureUnsupported);
    }
    emu_run_all();
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    if (event->captured) {
        if (s->capturing && s->capturing != event->captured) {
            return emu_result(cudaErrorStreamCaptureUnsupported);
        }
        s->capturing = event->captured;
        s->tail.insert(s->tail.end(), event->tail.begin(), event->tail.end());
        return emu_result(cudaSuccess);
    }
    if (s->capturing) {
        s->capturing->invalid = true; /* an event from outside the capture */
        return emu_result(cudaErrorStreamCaptureUnsupported);
    }
    work w;
    w.waits_for = event->state;
    w.record = event->state->latest;
    push(s, std::move(w));
    return emu_result(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data)
{
    EMU_LOCK();
    return emu_result(add(stream, "a host function", [fn, data] { fn(data); }));
}

/* --- events --- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    EMU_LOCK();
    *event = new emu_event;
    (*event)->state->timing = !(flags & cudaEventDisableTiming);
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    EMU_LOCK();
    delete event;
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    std::shared_ptr<event_state> state = event->state;
    if (s->capturing && !(flags & cudaEventRecordExternal)) {
        event->captured = s->capturing;
        event->tail = s->tail;
        return emu_result(cudaSuccess);
    }
    if (s->capturing) {
        return emu_result(
            add(stream, "an event", [state] { record_now(state.get(), ++state->latest); }));
    }
    event->captured = nullptr;
    uint64_t record = ++state->latest;
    work w;
    w.name = "an event";
    w.run = [state, record] { record_now(state.get(), record); };
    push(s, std::move(w));
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    EMU_LOCK();
    if (event->captured) {
        return emu_result(cudaErrorCapturedEvent);
    }
    bool done = finished(event->state.get());
    if (done) {
        learn(&host_known, event->state->known);
    } else {
        run_some(); /* time passes */
    }
    return emu_result(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    EMU_LOCK();
    if (event->captured) {
        return emu_result(cudaErrorCapturedEvent);
    }
    std::shared_ptr<event_state> state = event->state;
    run_until([state] { return finished(state.get()); });
    learn(&host_known, state->known);
    return emu_result(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    EMU_LOCK();
    if (!start->state->timing || !end->state->timing || !start->state->latest ||
        !end->state->latest) {
        return emu_result(cudaErrorInvalidResourceHandle);
    }
    if (!finished(start->state.get()) || !finished(end->state.get())) {
        return emu_result(cudaErrorNotReady);
    }
    *ms = static_cast<float>(end->state->at_ms - start->state->at_ms);
    return emu_result(cudaSuccess);
}
