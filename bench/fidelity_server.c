/* A server of token streams that writes into each chunk when it sent it, on the clock Python calls monotonic.

   POST /FIRST/GAP/MOST/TOKENS/SEED: the first token after FIRST microseconds, then every GAP microseconds (give or take
   a fifth) a burst of 1 to MOST tokens, each written apart, until there were TOKENS. With a GAP of 0 it sends as fast as
   it can, MOST tokens a write. It prints its port and serves until its standard input ends. On Linux it has real-time
   priority where it may: nothing comes between the clock and the write. */

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef long long ns_t;

static ns_t now_ns(void) {
#ifdef __APPLE__
    return (ns_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW); /* what time.monotonic_ns() reads there */
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (ns_t)t.tv_sec * 1000000000 + t.tv_nsec;
#endif
}

static void sleep_until(ns_t due) {
    for (ns_t left; (left = due - now_ns()) > 0;) {
        struct timespec t = {left / 1000000000, left % 1000000000};
        nanosleep(&t, NULL);
    }
}

static int write_all(int fd, const char *text, size_t size) {
    while (size > 0) {
        ssize_t n = send(fd, text, size, 0);
        if (n <= 0) return -1;
        text += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Read one request; return the length of what came, 0 if the client left before its end. */
static size_t read_request(int fd, char *text, size_t room) {
    size_t size = 0;
    for (;;) {
        ssize_t n = recv(fd, text + size, room - 1 - size, 0);
        if (n <= 0) return 0;
        text[size += (size_t)n] = 0;
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end && length && size >= (size_t)(end + 4 - text) + strtoul(length + 16, NULL, 10)) return size;
        if (size == room - 1) return 0;
    }
}

static int chunk(char *text, size_t room, long number, ns_t received) {
    return snprintf(text, room,
                    "data: {\"id\":\"chatcmpl-fidelity\",\"object\":\"chat.completion.chunk\",\"created\":1795174185,"
                    "\"model\":\"fidelity\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w%ld \"},"
                    "\"finish_reason\":null}],\"received\":%lld,\"sent\":%lld}\n\n",
                    number, received, now_ns());
}

static void stream(int fd, ns_t received, long first, long gap, long most, long tokens, unsigned seed) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    char text[1 << 16];
    if (write_all(fd, head, sizeof head - 1)) return;
    ns_t due = received + first * 1000;
    for (long sent = 0; sent < tokens;) {
        long burst = gap ? 1 + rand_r(&seed) % most : most;
        if (gap) sleep_until(due);
        size_t size = 0;
        for (long n = 0; n < burst && sent < tokens; n++, sent++) {
            size += (size_t)chunk(text + size, sizeof text - size, sent, received);
            if (gap) {
                if (write_all(fd, text, size)) return;
                size = 0;
            }
        }
        if (size && write_all(fd, text, size)) return;
        due += gap * 800 + (gap ? rand_r(&seed) % (gap * 400) : 0);
    }
    int size = snprintf(text, sizeof text,
                        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
                        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":%ld}}\n\n"
                        "data: [DONE]\n\n",
                        tokens);
    write_all(fd, text, (size_t)size);
}

static void *serve(void *argument) {
    int fd = (int)(long)argument, on = 1;
    char request[1 << 14];
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    size_t size = read_request(fd, request, sizeof request);
    ns_t received = now_ns();
    long first, gap, most, tokens;
    unsigned seed;
    if (size && sscanf(request, "POST /%ld/%ld/%ld/%ld/%u", &first, &gap, &most, &tokens, &seed) == 5 && most > 0 &&
        most <= 128)
        stream(fd, received, first, gap, most, tokens, seed);
    shutdown(fd, SHUT_WR);
    while (recv(fd, request, sizeof request, 0) > 0) { /* until the client closes: a close now could be a reset */
    }
    close(fd);
    return NULL;
}

static void *watch(void *argument) {
    char text[64];
    while (read(0, text, sizeof text) > 0) {
    }
    exit(0);
    return argument;
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    pthread_t thread;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    signal(SIGPIPE, SIG_IGN);
#ifdef __linux__
    struct sched_param priority = {.sched_priority = 10};
    sched_setscheduler(0, SCHED_FIFO, &priority); /* may be refused: then it is a process like any other */
#endif
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 256) ||
        getsockname(listener, (struct sockaddr *)&address, &length)) {
        perror("fidelity_server");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    pthread_create(&thread, NULL, watch, NULL);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        if (pthread_create(&thread, NULL, serve, (void *)(long)fd)) close(fd);
        else pthread_detach(thread);
    }
}
