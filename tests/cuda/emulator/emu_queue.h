/* The queue that stream.cpp, copy.cpp and graph.cpp put work on, and the order in which it runs.
 *
 * A stream is a queue of work. Nothing runs when it is queued: work runs on the thread of whoever
 * waits, one piece at a time, the next stream drawn from those whose first piece may run, until
 * what was waited for is done. So a missing wait for an event shows: the seeds give orders in which
 * the other stream is late, and others in which it is early.
 *
 * The legacy stream (0) waits for all work queued before in streams that are not
 * cudaStreamNonBlocking, and they for it. */
#ifndef EMU_QUEUE_H
#define EMU_QUEUE_H

#include "emu_internal.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace emu
{

/* What is known to be over: the last piece of each stream's work, by the stream's number. */
typedef std::map<uint32_t, uint32_t> knowledge;

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

} // namespace emu

struct emu_stream {
    std::deque<emu::work> queue;
    bool blocking = true, destroyed = false;
    std::shared_ptr<emu::capture> capturing;
    std::vector<size_t> tail; /* nodes that the next one comes after */
    uint32_t number = 0, pieces = 0;
    int device = 0;
    emu::knowledge known;
};

struct emu_event {
    std::shared_ptr<emu::event_state> state = std::make_shared<emu::event_state>();
    std::shared_ptr<emu::capture> captured;
    std::vector<size_t> tail;
};

namespace emu
{

extern std::vector<emu_stream *> streams; /* the legacy one first */
extern std::vector<capture *> captures;   /* under way */
extern thread_local knowledge host_known;

void learn(knowledge *k, const knowledge &more);

emu_stream *stream_of(cudaStream_t s);
bool is_legacy(const emu_stream *s);

/* Onto the stream's queue, or into the graph that it captures. */
cudaError_t add(cudaStream_t stream, const char *name, std::function<void()> run);
/* Onto its queue whatever it captures: gets its ticket here. */
void push(emu_stream *s, work w);

/* Runs work until done says so; nothing in work that runs itself. */
void run_until(const std::function<bool()> &done);
/* One piece, if any may run: time passes. */
void run_some();
/* The stream whose work runs, or null. */
emu_stream *running();

/* Waiting is forbidden on a stream that captures. */
bool waits_on_capture(emu_stream *s);

} // namespace emu

#define EMU_LOCK() std::lock_guard lock(emu_lock)

#endif
