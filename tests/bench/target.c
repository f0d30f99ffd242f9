/* tests/bench/target.c - the process that is written to and read from. */
#include "target.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* What the target tells when it is ready. */
struct announcement {
    uint64_t address;
    int memory_fd; /* its own number of it */
    uint16_t raw_port;
    char engine[MC_ADDRESS_MAX];
};

/* The library keeps the descriptor of its memory to itself; it is the only memfd of that size. */
static int find_memory(void) {
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int found = -1;

    CHECK_SYSTEM(directory != NULL);
    while (found < 0 && (entry = readdir(directory)) != NULL) {
        char link[64] = "";
        struct stat info;
        int fd = atoi(entry->d_name);

        if (readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1) > 0 &&
            strncmp(link, "/memfd:", 7) == 0 && fstat(fd, &info) == 0 && (uint64_t)info.st_size == SPAN)
            found = fd;
    }
    closedir(directory);
    return found;
}

static _Noreturn void serve(int control) {
    struct announcement announcement = {0};
    mc_engine *engine;
    uint64_t memory;
    void *address;
    char byte;
    int listener = raw_listen(&announcement.raw_port);

    CHECK(mc_engine_open(NULL, &engine, NULL));
    CHECK(mc_memory_alloc(SPAN, NULL, &memory, &address, NULL));
    CHECK(mc_engine_register(engine, address, SPAN, NULL, MC_REMOTE_READ | MC_REMOTE_WRITE, NULL));
    CHECK_SYSTEM(mc_engine_address(engine, announcement.engine, sizeof(announcement.engine)) > 0);
    announcement.address = (uint64_t)(uintptr_t)address;
    announcement.memory_fd = find_memory();
    CHECK_SYSTEM(announcement.memory_fd >= 0);
    CHECK_SYSTEM(send(control, &announcement, sizeof(announcement), MSG_NOSIGNAL) == sizeof(announcement));
    raw_serve(listener, 1 + LANES_MAX, address);
    (void)!read(control, &byte, 1);
    _exit(0);
}

/* The same pages as the engine's own mapping has, for memcpy. */
static unsigned char *map_memory(pid_t process, int number) {
    char path[64];
    void *address;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)process, number);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK_SYSTEM(fd >= 0);
    address = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK_SYSTEM(address != MAP_FAILED);
    (void)madvise(address, SPAN, MADV_POPULATE_WRITE); /* older kernels: the first, unmeasured call does it */
    close(fd);
    return address;
}

void target_start(struct target *ret_target) {
    struct announcement announcement;
    struct target target = {0};
    int pair[2];

    CHECK_SYSTEM(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    target.process = fork();
    CHECK_SYSTEM(target.process >= 0);
    if (target.process == 0) {
        close(pair[0]);
        serve(pair[1]);
    }
    close(pair[1]);
    target.control = pair[0];
    CHECK_SYSTEM(recv(target.control, &announcement, sizeof(announcement), MSG_WAITALL) == sizeof(announcement));
    target.memory = map_memory(target.process, announcement.memory_fd);
    target.address = announcement.address;
    target.raw_port = announcement.raw_port;
    memcpy(target.engine, announcement.engine, sizeof(target.engine));
    *ret_target = target;
}

void target_stop(struct target *target) {
    close(target->control);
    CHECK_SYSTEM(waitpid(target->process, NULL, 0) == target->process);
    munmap(target->memory, SPAN);
}
