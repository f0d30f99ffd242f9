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
    char engine[MC_ADDRESS_MAX], busy_engine[MC_ADDRESS_MAX];
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

static void start_engine(uint32_t busy_poll_us, void *memory, void *ordinary, char address[MC_ADDRESS_MAX]) {
    struct mc_engine_options options = {.struct_size = sizeof(options), .busy_poll_us = busy_poll_us};
    const uint32_t access = MC_REMOTE_READ | MC_REMOTE_WRITE;
    mc_engine *engine;

    CHECK(mc_engine_open(&options, &engine, NULL));
    CHECK(mc_engine_register(engine, memory, SPAN, NULL, access, NULL));
    CHECK(mc_engine_register(engine, ordinary, SPAN, NULL, access, NULL));
    CHECK_SYSTEM(mc_engine_address(engine, address, MC_ADDRESS_MAX) > 0);
}

static _Noreturn void serve(int control, void *ordinary) {
    struct announcement announcement = {0};
    uint64_t memory;
    void *address;
    char byte;

    CHECK(mc_memory_alloc(SPAN, NULL, &memory, &address, NULL));
    start_engine(0, address, ordinary, announcement.engine);
    start_engine(TARGET_BUSY_POLL_US, address, ordinary, announcement.busy_engine);
    announcement.address = (uint64_t)(uintptr_t)address;
    announcement.memory_fd = find_memory();
    announcement.raw_port = raw_serve(address);
    CHECK_SYSTEM(announcement.memory_fd >= 0);
    CHECK_SYSTEM(send(control, &announcement, sizeof(announcement), MSG_NOSIGNAL) == sizeof(announcement));
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
    target.ordinary = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK_SYSTEM((void *)target.ordinary != MAP_FAILED);
    target.process = fork();
    CHECK_SYSTEM(target.process >= 0);
    if (target.process == 0) {
        close(pair[0]);
        serve(pair[1], target.ordinary);
    }
    close(pair[1]);
    target.control = pair[0];
    CHECK_SYSTEM(recv(target.control, &announcement, sizeof(announcement), MSG_WAITALL) == sizeof(announcement));
    target.memory = map_memory(target.process, announcement.memory_fd);
    target.address = announcement.address;
    target.raw_port = announcement.raw_port;
    memcpy(target.engine, announcement.engine, sizeof(target.engine));
    memcpy(target.busy_engine, announcement.busy_engine, sizeof(target.busy_engine));
    *ret_target = target;
}

void target_stop(struct target *target) {
    close(target->control);
    CHECK_SYSTEM(waitpid(target->process, NULL, 0) == target->process);
    munmap(target->memory, SPAN);
    munmap(target->ordinary, SPAN);
}
