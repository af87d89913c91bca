#include "emu_queue.h"

#include <stdlib.h>

namespace emu
{

namespace
{

emu_stream legacy;
uint64_t tickets;
int depth; /* of work that runs */
struct piece {
    uint32_t stream, number;
    const char *name;
};
std::vector<piece> pieces; /* all that ever began, if anybody asks */
emu_stream *runs;

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
        s->pieces++;
        if (emu_on_range) {
            s->known[s->number] = s->pieces;
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

} // namespace

std::vector<emu_stream *> streams = {&legacy};
std::vector<capture *> captures;
thread_local knowledge host_known;

/* Nothing where nobody asks: there would be more of it with each stream that ever was. */
void learn(knowledge *k, const knowledge &more)
{
    if (!emu_on_range) {
        return;
    }
    for (const auto &m : more) {
        uint32_t &last = (*k)[m.first];
        last = last > m.second ? last : m.second;
    }
}

emu_stream *stream_of(cudaStream_t s)
{
    return s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread ? &legacy : s;
}

bool is_legacy(const emu_stream *s)
{
    return s == &legacy;
}

emu_stream *running()
{
    return runs;
}

namespace
{

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

} // namespace

void run_until(const std::function<bool()> &done)
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

void push(emu_stream *s, work w)
{
    w.ticket = ++tickets;
    s->queue.push_back(std::move(w));
}

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
                c->invalid = true;
                return cudaErrorStreamCaptureImplicit;
            }
        }
    }
    work w;
    w.name = name;
    w.known = host_known;
    /* after a failure nothing runs any more */
    w.run = [run] {
        if (emu_sticky == cudaSuccess) {
            run();
        }
    };
    push(s, std::move(w));
    return cudaSuccess;
}

bool waits_on_capture(emu_stream *s)
{
    if (s->capturing) {
        s->capturing->invalid = true;
        return true;
    }
    return false;
}

} // namespace emu

using namespace emu;

bool emu_capture_forbids(void)
{
    bool forbidden = false;
    for (capture *c : captures) {
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal &&
             c->thread == std::this_thread::get_id())) {
            c->invalid = true;
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
