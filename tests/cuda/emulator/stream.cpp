/* Streams, events and graphs.
 *
 * A stream is a queue of work. Nothing runs when it is queued: work runs on the thread of whoever
 * waits, one piece at a time, the next stream drawn from those whose first piece may run, until
 * what was waited for is done. So a missing wait for an event shows: the seeds give orders in which
 * the other stream is late, and others in which it is early.
 *
 * A capture makes nodes instead, each with the nodes that it comes after; a launch of the graph is
 * one piece of work that runs the nodes in an order that these allow.
 *
 * The legacy stream (0) waits for all work queued before in streams that are not
 * cudaStreamNonBlocking, and they for it. */
#include "emu_internal.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <thread>
#include <time.h>
#include <vector>

namespace
{

/* What is known to be over: the last piece of each stream's work, by the stream's number. */
typedef std::map<uint32_t, uint32_t> knowledge;

void learn(knowledge *k, const knowledge &more)
{
    for (const auto &m : more) {
        uint32_t &last = (*k)[m.first];
        last = last > m.second ? last : m.second;
    }
}

struct event_state {
    knowledge known;               /* of what lies before the last record */
    uint64_t latest = 0, done = 0; /* records queued, records that have run */
    double at_ms = 0;
    bool timing = true;
};

struct node {
    std::vector<size_t> after;
    std::function<void()> run;
};

struct capture {
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool invalid = false;
    std::vector<node> nodes;
};

struct work {
    uint64_t ticket;
    const char *name;
    knowledge known; /* the host's, when it was queued */
    std::function<void()> run;
    std::shared_ptr<event_state> waits_for; /* may run when done >= record */
    uint64_t record = 0;
    std::vector<std::pair<const char *, size_t>> touches; /* of a copy, both ends */
};

} // namespace

struct emu_stream {
    std::deque<work> queue;
    bool blocking = true, destroyed = false;
    std::shared_ptr<capture> capturing;
    std::vector<size_t> tail; /* nodes that the next one comes after */
    uint32_t number = 0, pieces = 0;
    int device = 0;
    knowledge known;
};

struct emu_event {
    std::shared_ptr<event_state> state = std::make_shared<event_state>();
    std::shared_ptr<capture> captured;
    std::vector<size_t> tail;
};

struct emu_graph {
    std::vector<node> nodes;
};

struct emu_graph_exec {
    std::shared_ptr<std::vector<node>> nodes;
};

namespace
{

emu_stream legacy;
std::vector<emu_stream *> streams = {&legacy};
std::vector<capture *> captures; /* under way */
uint64_t tickets;
std::map<const void *, int> shared_limits;
int depth; /* of work that runs */
uint32_t n_streams;
unsigned graphs_alive;
thread_local knowledge host_known;
struct piece {
    uint32_t stream, number;
    const char *name;
};
std::vector<piece> pieces; /* all that ever began, if anybody asks */
emu_stream *runs;

emu_stream *stream_of(cudaStream_t s)
{
    return s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread ? &legacy : s;
}

double now_ms()
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<double>(ts.tv_sec) * 1e3 + static_cast<double>(ts.tv_nsec) * 1e-6;
}

bool may_run(const emu_stream *s)
{
    if (s->queue.empty()) {
        return false;
    }
    const work &w = s->queue.front();
    if (w.waits_for && w.waits_for->done < w.record) {
        return false;
    }
    if (s == &legacy) {
        for (const emu_stream *t : streams) {
            if (t != s && t->blocking && !t->queue.empty() && t->queue.front().ticket < w.ticket) {
                return false;
            }
        }
        return true;
    }
    return !s->blocking || legacy.queue.empty() || legacy.queue.front().ticket > w.ticket;
}

/* WEIR_EMU_STREAMS: 0 as they were queued, 1 the last first, else as the seed says. */
emu_order stream_order()
{
    static const char *text = getenv("WEIR_EMU_STREAMS");
    return !text          ? emu_order_now()
           : *text == '0' ? EMU_PLAIN
           : *text == '1' ? EMU_REVERSED
                          : EMU_DRAWN;
}

emu_stream *choose()
{
    emu_stream *best = nullptr;
    unsigned n = 0;
    for (emu_stream *s : streams) {
        if (!may_run(s)) {
            continue;
        }
        n++;
        bool earlier = best && s->queue.front().ticket < best->queue.front().ticket;
        switch (stream_order()) {
        case EMU_PLAIN:
            best = !best || earlier ? s : best;
            break;
        case EMU_REVERSED:
            best = !best || !earlier ? s : best;
            break;
        default:
            best = emu_draw() % n == 0 ? s : best;
        }
    }
    return best;
}

/* False: nothing can run. */
bool run_one()
{
    emu_stream *s = choose();
    if (!s) {
        return false;
    }
    work w = std::move(s->queue.front());
    s->queue.pop_front();
    learn(&s->known, w.known);
    if (w.waits_for) {
        learn(&s->known, w.waits_for->known);
    }
    if (s->blocking) {
        for (emu_stream *t : streams) { /* the legacy stream and others wait for each other */
            if (t != s && t->blocking && (s == &legacy || t == &legacy)) {
                learn(&s->known, t->known);
            }
        }
    }
    if (w.run) {
        s->known[s->number] = ++s->pieces;
        if (emu_on_range) {
            pieces.push_back({s->number, s->pieces, w.name});
        }
        runs = s;
        w.run();
        runs = nullptr;
    }
    if (s->destroyed && s->queue.empty()) {
        for (size_t i = 0; i < streams.size(); i++) {
            if (streams[i] == s) {
                streams.erase(streams.begin() + static_cast<long>(i));
                break;
            }
        }
        delete s;
    }
    return true;
}

/* Streams that were destroyed end with the program, if nothing has had to wait for them before. */
struct finish {
    ~finish()
    {
        for (emu_stream *s : streams) {
            if (s->destroyed) {
                delete s;
            }
        }
    }
} at_finish;

template <class F> void run_until(F done)
{
    if (depth || done()) {
        return;
    }
    depth++;
    emu_memory_open();
    while (!done()) {
        if (!run_one()) {
            emu_report("streams wait for events of each other");
            emu_sticky = cudaErrorLaunchFailure;
            for (emu_stream *s : streams) {
                s->queue.clear();
            }
            break;
        }
    }
    emu_check_slack();
    emu_memory_close();
    depth--;
}

void run_some()
{
    if (depth) {
        return;
    }
    depth++;
    emu_memory_open();
    run_one();
    emu_check_slack();
    emu_memory_close();
    depth--;
}

void invalidate(capture *c)
{
    c->invalid = true;
}

/* Onto the stream's queue, or into the graph that it captures. */
cudaError_t add(cudaStream_t stream, const char *name, std::function<void()> run)
{
    emu_stream *s = stream_of(stream);
    if (s->capturing) {
        if (s->capturing->invalid) {
            return cudaErrorStreamCaptureInvalidated;
        }
        s->capturing->nodes.push_back({s->tail, std::move(run)});
        s->tail = {s->capturing->nodes.size() - 1};
        return cudaSuccess;
    }
    if (s == &legacy) {
        for (capture *c : captures) {
            if (c->mode != cudaStreamCaptureModeRelaxed) {
                invalidate(c);
                return cudaErrorStreamCaptureImplicit;
            }
        }
    }
    work w;
    w.ticket = ++tickets;
    w.name = name;
    w.known = host_known;
    /* after a failure nothing runs any more */
    w.run = [run] {
        if (emu_sticky == cudaSuccess) {
            run();
        }
    };
    s->queue.push_back(std::move(w));
    return cudaSuccess;
}

void record_now(event_state *e, uint64_t record)
{
    if (record > e->done) {
        e->done = record;
        e->at_ms = now_ms();
        if (runs) {
            e->known = runs->known;
        }
    }
}

bool finished(const event_state *e)
{
    return e->done >= e->latest;
}

/* Waiting is forbidden on a stream that captures. */
bool waits_on_capture(emu_stream *s)
{
    if (s->capturing) {
        invalidate(s->capturing.get());
        return true;
    }
    return false;
}

struct copy_shape {
    char *to;
    size_t to_pitch;
    const char *from;
    size_t from_pitch, width, height;
};

size_t span(size_t pitch, size_t width, size_t height)
{
    return width && height ? pitch * (height - 1) + width : 0;
}

void copy_now(const copy_shape &c)
{
    emu_counted.copies++;
    for (size_t i = 0; i < c.height; i++) {
        const char *from = c.from + i * c.from_pitch;
        char *to = c.to + i * c.to_pitch;
        if (emu_on_range && runs) {
            emu_on_range(from, c.width, false);
            emu_on_range(to, c.width, true);
        }
        memcpy(to, from, c.width);
    }
}

cudaError_t copy(copy_shape c, cudaMemcpyKind kind, cudaStream_t stream, bool synchronous)
{
    if (!c.width || !c.height) {
        return cudaSuccess;
    }
    if (!emu_check("copy to", c.to, span(c.to_pitch, c.width, c.height)) ||
        !emu_check("copy from", c.from, span(c.from_pitch, c.width, c.height))) {
        return cudaErrorInvalidValue;
    }
    emu_place to = emu_find(c.to).place, from = emu_find(c.from).place;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault &&
        (to_device != (to == EMU_DEVICE) || from_device != (from == EMU_DEVICE))) {
        emu_report("copy: the direction is not that of the pointers");
        return cudaErrorInvalidMemcpyDirection;
    }
    emu_stream *s = stream_of(stream);
    if (from == EMU_PAGEABLE && !s->capturing) {
        /* staged by the call, as the driver does */
        auto staged = std::make_shared<std::vector<char>>(c.width * c.height);
        copy_now({staged->data(), c.width, c.from, c.from_pitch, c.width, c.height});
        emu_counted.copies--;
        c.from_pitch = c.width;
        cudaError_t e = add(stream, "a copy", [c, staged] {
            copy_shape k = c;
            k.from = staged->data();
            copy_now(k);
        });
        if (e != cudaSuccess) {
            return e;
        }
    } else {
        cudaError_t e = add(stream, "a copy", [c] { copy_now(c); });
        if (e != cudaSuccess) {
            return e;
        }
        if (!s->capturing && !s->queue.empty()) {
            s->queue.back().touches = {{c.to, span(c.to_pitch, c.width, c.height)},
                                       {c.from, span(c.from_pitch, c.width, c.height)}};
        }
    }
    if ((synchronous || to == EMU_PAGEABLE) && !s->capturing) {
        run_until([s] { return s->queue.empty(); });
        learn(&host_known, s->known);
    }
    return cudaSuccess;
}

#define EMU_LOCK() std::lock_guard<std::recursive_mutex> lock(emu_lock)

} // namespace

bool emu_capture_forbids(void)
{
    bool forbidden = false;
    for (capture *c : captures) {
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal &&
             c->thread == std::this_thread::get_id())) {
            invalidate(c);
            forbidden = true;
        }
    }
    return forbidden;
}

bool emu_is_touched(const void *p, size_t size)
{
    const char *begin = static_cast<const char *>(p), *end = begin + size;
    for (const emu_stream *s : streams) {
        for (const work &w : s->queue) {
            for (const auto &[at, n] : w.touches) {
                if (at < end && begin < at + n) {
                    return true;
                }
            }
        }
    }
    return false;
}

void emu_run_all(void)
{
    run_until([] {
        for (const emu_stream *s : streams) {
            if (!s->queue.empty()) {
                return false;
            }
        }
        return true;
    });
    for (const emu_stream *s : streams) {
        learn(&host_known, s->known);
    }
}

uint32_t emu_work_now(void)
{
    return runs ? static_cast<uint32_t>(pieces.size()) : 0;
}

const char *emu_work_name(uint32_t work)
{
    return work && work <= pieces.size() ? pieces[work - 1].name : "nothing";
}

bool emu_work_is_after(uint32_t work)
{
    const piece &p = pieces[work - 1];
    auto known = runs->known.find(p.stream);
    return known != runs->known.end() && known->second >= p.number;
}

/* --- kernels --- */

/* One of cudaStreamCreate's. */
static bool is_made(cudaStream_t stream)
{
    return stream && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
}

/* A launch goes to a stream of the thread's current device. */
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

/* --- copies --- */

cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    EMU_LOCK();
    return emu_result(
        copy({static_cast<char *>(dst), size, static_cast<const char *>(src), size, size, 1},
             kind,
             stream,
             false));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind)
{
    EMU_LOCK();
    if (emu_capture_forbids()) {
        return emu_result(cudaErrorStreamCaptureImplicit);
    }
    return emu_result(
        copy({static_cast<char *>(dst), size, static_cast<const char *>(src), size, size, 1},
             kind,
             nullptr,
             true));
}

cudaError_t cudaMemcpy2DAsync(void *dst,
                              size_t dst_pitch,
                              const void *src,
                              size_t src_pitch,
                              size_t width,
                              size_t height,
                              enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    EMU_LOCK();
    if (width > dst_pitch || width > src_pitch) {
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(copy({static_cast<char *>(dst),
                            dst_pitch,
                            static_cast<const char *>(src),
                            src_pitch,
                            width,
                            height},
                           kind,
                           stream,
                           false));
}

cudaError_t cudaMemcpy2D(void *dst,
                         size_t dst_pitch,
                         const void *src,
                         size_t src_pitch,
                         size_t width,
                         size_t height,
                         enum cudaMemcpyKind kind)
{
    EMU_LOCK();
    if (emu_capture_forbids()) {
        return emu_result(cudaErrorStreamCaptureImplicit);
    }
    if (width > dst_pitch || width > src_pitch) {
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(copy({static_cast<char *>(dst),
                            dst_pitch,
                            static_cast<const char *>(src),
                            src_pitch,
                            width,
                            height},
                           kind,
                           nullptr,
                           true));
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t stream)
{
    EMU_LOCK();
    if (!size) {
        return emu_result(cudaSuccess);
    }
    if (!emu_check("memset", p, size)) {
        return emu_result(cudaErrorInvalidValue);
    }
    if (emu_find(p).place == EMU_PAGEABLE) {
        emu_report("memset: not memory of the device");
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(add(stream, "a memset", [p, value, size] {
        if (emu_on_range) {
            emu_on_range(p, size, true);
        }
        memset(p, value, size);
    }));
}

cudaError_t cudaMemset(void *p, int value, size_t size)
{
    return cudaMemsetAsync(p, value, size, nullptr);
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
    if (s == &legacy || s->capturing) {
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
        invalidate(s->capturing.get()); /* an event from outside the capture */
        return emu_result(cudaErrorStreamCaptureUnsupported);
    }
    work w;
    w.ticket = ++tickets;
    w.waits_for = event->state;
    w.record = event->state->latest;
    s->queue.push_back(std::move(w));
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
    w.ticket = ++tickets;
    w.name = "an event";
    w.run = [state, record] { record_now(state.get(), record); };
    s->queue.push_back(std::move(w));
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

/* --- graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    if (s == &legacy) {
        return emu_result(cudaErrorStreamCaptureUnsupported);
    }
    if (s->capturing) {
        return emu_result(cudaErrorInvalidValue);
    }
    auto c = std::make_shared<capture>();
    c->origin = s;
    c->mode = mode;
    c->thread = std::this_thread::get_id();
    s->capturing = c;
    s->tail.clear();
    captures.push_back(c.get());
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    *graph = nullptr;
    std::shared_ptr<capture> c = s->capturing;
    if (!c || c->origin != s) {
        return emu_result(cudaErrorInvalidValue);
    }
    /* every node must be one that the origin's next work would come after */
    std::vector<bool> joined(c->nodes.size());
    std::vector<size_t> open = s->tail;
    while (!open.empty()) {
        size_t i = open.back();
        open.pop_back();
        if (!joined[i]) {
            joined[i] = true;
            open.insert(open.end(), c->nodes[i].after.begin(), c->nodes[i].after.end());
        }
    }
    bool all = true;
    for (bool j : joined) {
        all = all && j;
    }
    for (emu_stream *t : streams) {
        if (t->capturing == c) {
            t->capturing = nullptr;
            t->tail.clear();
        }
    }
    for (size_t i = 0; i < captures.size(); i++) {
        if (captures[i] == c.get()) {
            captures.erase(captures.begin() + static_cast<long>(i));
            break;
        }
    }
    if (c->invalid) {
        return emu_result(cudaErrorStreamCaptureInvalidated);
    }
    if (!all) {
        return emu_result(cudaErrorStreamCaptureUnjoined);
    }
    *graph = new emu_graph{c->nodes};
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    *status = !s->capturing           ? cudaStreamCaptureStatusNone
              : s->capturing->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
    return emu_result(cudaSuccess);
}

/* WEIR_EMU_GRAPHS: so many more can be made, then memory is out. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    EMU_LOCK();
    const char *most = getenv("WEIR_EMU_GRAPHS");
    *exec = nullptr;
    if (most && graphs_alive >= static_cast<unsigned>(atoi(most))) {
        return emu_result(cudaErrorMemoryAllocation);
    }
    graphs_alive++;
    *exec = new emu_graph_exec{std::make_shared<std::vector<node>>(graph->nodes)};
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    EMU_LOCK();
    auto nodes = exec->nodes;
    return emu_result(add(stream, "a graph", [nodes] {
        std::vector<bool> done(nodes->size());
        std::vector<size_t> ready;
        for (size_t left = nodes->size(); left; left--) {
            ready.clear();
            for (size_t i = 0; i < nodes->size(); i++) {
                bool can = !done[i];
                for (size_t a : (*nodes)[i].after) {
                    can = can && done[a];
                }
                if (can) {
                    ready.push_back(i);
                    if (emu_order_now() == EMU_PLAIN) {
                        break;
                    }
                }
            }
            size_t i = emu_order_now() == EMU_PLAIN      ? ready.front()
                       : emu_order_now() == EMU_REVERSED ? ready.back()
                                                         : ready[emu_draw() % ready.size()];
            if (emu_sticky == cudaSuccess) {
                (*nodes)[i].run();
            }
            done[i] = true;
        }
    }));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    EMU_LOCK();
    if (nodes) {
        return emu_result(cudaErrorNotSupported); /* only how many there are */
    }
    *n = graph->nodes.size();
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    EMU_LOCK();
    delete graph;
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    EMU_LOCK();
    graphs_alive -= exec != nullptr;
    delete exec;
    return emu_result(cudaSuccess);
}
