/* Opens many event streams on one server and measures what they cost it.
 *
 *      http_streams PORT PID [STREAMS [HZ [SECONDS [SPREAD]]]]
 *
 * PORT of a fake_app (tests/http) that is process PID. Every stream asks for HZ events a second
 * until long after the end. Prints events and bytes received and the CPU time of the process and of
 * its loop thread, as a share of one core and in microseconds an event. One thread, epoll. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* User and system time in seconds of a process, or of its first thread. */
static double cpu_s(int pid, int first_thread)
{
    char path[64], line[1024];
    if (first_thread)
        snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
    else
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(line, sizeof line, f)) {
        perror(path);
        exit(1);
    }
    fclose(f);
    unsigned long user = 0, sys = 0;
    const char *p = strrchr(line, ')');
    if (p)
        sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys);
    return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static int open_stream(int port, int hz, int spread)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        perror("connect");
        exit(1);
    }
    char req[200];
    int n = snprintf(req,
                     sizeof req,
                     "GET /stream?n=1000000&hz=%d&size=150&spread=%d HTTP/1.1\r\nHost: x\r\n\r\n",
                     hz,
                     spread);
    if (write(fd, req, (size_t)n) != n)
        exit(1);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Read for some seconds; counts bytes and events (blank lines that end one). */
static void drain(int ep, double seconds, long *n_bytes, long *n_events)
{
    static char buf[65536];
    struct epoll_event ev[512];
    *n_bytes = *n_events = 0;
    for (double end = now_s() + seconds; now_s() < end;) {
        int n = epoll_wait(ep, ev, 512, 100);
        for (int i = 0; i < n; i++) {
            ssize_t got = read(ev[i].data.fd, buf, sizeof buf);
            if (got <= 0) {
                if (got < 0 && errno == EAGAIN)
                    continue;
                fprintf(stderr, "a stream ended\n");
                exit(1);
            }
            *n_bytes += got;
            for (char *p = buf; (p = memchr(p, '}', (size_t)(buf + got - p))); p++)
                (*n_events)++;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: http_streams PORT PID [STREAMS [HZ [SECONDS [SPREAD]]]]\n");
        return 2;
    }
    int port = atoi(argv[1]), pid = atoi(argv[2]);
    int n_streams = argc > 3 ? atoi(argv[3]) : 4000, hz = argc > 4 ? atoi(argv[4]) : 20;
    int seconds = argc > 5 ? atoi(argv[5]) : 10, spread = argc > 6 ? atoi(argv[6]) : 0;
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    int ep = epoll_create1(0);
    for (int i = 0; i < n_streams; i++) {
        int fd = open_stream(port, hz, spread);
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
    }
    long n_bytes, n_events;
    drain(ep, 2, &n_bytes, &n_events); /* let them all start */
    double all = cpu_s(pid, 0), loop = cpu_s(pid, 1), self = cpu_s((int)getpid(), 0), t = now_s();
    drain(ep, seconds, &n_bytes, &n_events);
    t = now_s() - t;
    all = cpu_s(pid, 0) - all;
    loop = cpu_s(pid, 1) - loop;
    self = cpu_s((int)getpid(), 0) - self;
    printf("%d streams, %s: %.0f events/s, %.1f MB/s; loop thread %.0f %% of a core, %.2f us an "
           "event; process %.0f %%; this client %.0f %%\n",
           n_streams,
           spread ? "spread" : "in step",
           (double)n_events / t,
           (double)n_bytes / t / 1e6,
           100 * loop / t,
           1e6 * loop / (double)(n_events ? n_events : 1),
           100 * all / t,
           100 * self / t);
    return 0;
}
