/* transports/shm/direct.c - another process's ordinary memory, by process_vm_readv and process_vm_writev.
 *
 * Owns a pidfd. Any thread, once it is open.
 *
 * These calls name the other process by its number, which another process may have later; but not soon: the kernel gives
 * numbers in turn, and comes round to the same one only after all others. So the number is the peer's during a call if
 * pidfd and UNIX socket show that the peer is there at its beginning, or did so a quarter of a millisecond before at
 * most. (Asking costs half of what the call for a small copy does, so it isn't done each time.)
 */
#include "transports/shm/direct.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "os/fork.h"

#define LOOK_LASTS (CLOCK_MILLISECOND / 4)

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* The pidfd, closed in forked children; -1 with errno. */
static int open_pidfd(int pid) {
    int fd;

    fork_pause();
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    fork_close_in_child_paused(fd);
    fork_resume();
    return fd;
}

/* Is the peer there, with its end of the socket open? */
static bool is_there(struct shm_direct *direct) {
    struct pollfd polled[2] = {{.fd = direct->pidfd, .events = POLLIN}, {.fd = direct->socket, .events = POLLRDHUP}};

    if (poll(polled, 2, 0) != 0)
        return false;
    atomic_store_explicit(&direct->looked, clock_now(), memory_order_relaxed);
    return true;
}

static bool was_there_just_now(struct shm_direct *direct) {
    return clock_now() - atomic_load_explicit(&direct->looked, memory_order_relaxed) < LOOK_LASTS;
}

int32_t shm_direct_move(struct shm_direct *direct, bool write, const struct iovec *local, size_t local_count,
                        const struct iovec *remote, size_t remote_count, uint64_t *ret_moved) {
    ssize_t moved;
    int code;

    if (!was_there_just_now(direct) && !is_there(direct))
        return MC_ERR_CONNECTION_LOST;
    do
        moved = write ? process_vm_writev(direct->pid, local, local_count, remote, remote_count, 0)
                      : process_vm_readv(direct->pid, local, local_count, remote, remote_count, 0);
    while (moved < 0 && errno == EINTR);
    code = errno;
    if (moved > 0) {
        *ret_moved = (uint64_t)moved;
        return MC_OK;
    }
    if (!is_there(direct))
        return MC_ERR_CONNECTION_LOST;
    if (moved == 0 || code == EFAULT)
        return MC_ERR_NOT_REGISTERED;
    if (code == ESRCH) { /* it has no memory any more, and will have no descriptors in a moment */
        atomic_store(&direct->obstacle, "the peer's process has ended, or its first thread has");
        return MC_ERR_CONNECTION_LOST;
    }
    if (code == EPERM || code == ENOSYS) {
        atomic_store(&direct->obstacle, "the kernel forbids now what it allowed when the peer was opened");
        return MC_ERR_NOT_SUPPORTED;
    }
    return code == ENOMEM ? MC_ERR_NO_MEMORY : MC_ERR_SYSTEM;
}

int32_t shm_direct_move_all(struct shm_direct *direct, bool write, uint8_t *local, uint64_t remote, uint64_t length,
                            uint64_t *ret_moved) {
    int32_t status = MC_OK;
    uint64_t done = 0;

    while (status == MC_OK && done < length) {
        struct iovec here = {.iov_base = local + done, .iov_len = length - done};
        struct iovec there = {.iov_base = (void *)(uintptr_t)(remote + done), .iov_len = length - done};
        uint64_t moved = 0;

        status = shm_direct_move(direct, write, &here, 1, &there, 1, &moved);
        done += moved;
    }
    *ret_moved = done;
    return status;
}

bool shm_direct_probe(struct shm_direct *direct, uint64_t address, uint64_t length) {
    struct iovec ends[2] = {{.iov_base = (void *)(uintptr_t)address, .iov_len = 1},
                            {.iov_base = (void *)(uintptr_t)(address + (length - 1)), .iov_len = 1}};
    uint8_t bytes[2];
    struct iovec here = {.iov_base = bytes, .iov_len = 2};
    uint64_t moved = 0;

    return shm_direct_move(direct, false, &here, 1, ends, 2, &moved) == MC_OK && moved == 2;
}

/* ---- Opening ---- */

/* Yama's setting; 0 where there is none. */
static long ptrace_scope(void) {
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    char text[16] = "";

    if (file == NULL)
        return 0;
    if (fgets(text, sizeof(text), file) == NULL)
        text[0] = '\0';
    (void)fclose(file);
    return strtol(text, NULL, 10);
}

static void set_obstacle(struct shm_direct *direct, const char *words) {
    text_copy(direct->words, sizeof(direct->words), words);
    atomic_store(&direct->obstacle, direct->words);
}

/* Says what forbids it. */
static void explain(struct shm_direct *direct, int code) {
    long scope = ptrace_scope();

    if (code == EPERM && scope > 0)
        snprintf(direct->words, sizeof(direct->words),
                 "process_vm_readv is forbidden by kernel.yama.ptrace_scope=%ld (0 allows it)", scope);
    else if (code == EPERM)
        text_copy(direct->words, sizeof(direct->words),
                  "process_vm_readv is forbidden: by a seccomp filter, or because the peer may not be traced");
    else if (code == ENOSYS)
        text_copy(direct->words, sizeof(direct->words), "the kernel has no process_vm_readv, or a filter denies it");
    else
        snprintf(direct->words, sizeof(direct->words), "the peer's memory can't be read: %s", strerror(code));
    atomic_store(&direct->obstacle, direct->words);
}

/* Reads the proof in the peer. */
static void prove(struct shm_direct *direct, const struct shm_page *page) {
    uint8_t proof[sizeof(page->proof)] = {0};
    struct iovec here = {.iov_base = proof, .iov_len = sizeof(proof)};
    struct iovec there = {.iov_base = (void *)(uintptr_t)page->proof_address, .iov_len = sizeof(proof)};
    ssize_t got = process_vm_readv(direct->pid, &here, 1, &there, 1, 0);
    int code = errno;

    if (!is_there(direct))
        set_obstacle(direct, "the peer is gone");
    else if (got < 0 && code != EFAULT)
        explain(direct, code);
    else if (got != (ssize_t)sizeof(proof) || memcmp(proof, page->proof, sizeof(proof)) != 0)
        set_obstacle(direct, "the process at the other end of the UNIX socket is not the one that made the page");
}

void shm_direct_open(struct shm_direct *direct, int socket, const struct shm_page *page) {
    struct ucred user;
    socklen_t length = sizeof(user);

    memset(direct, 0, sizeof(*direct));
    direct->pidfd = -1;
    direct->socket = socket;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &length) != 0 || user.pid <= 0) {
        set_obstacle(direct, "the peer is in a process namespace that can't be seen from here");
        return;
    }
    direct->pid = user.pid;
    direct->pidfd = open_pidfd(user.pid);
    if (direct->pidfd < 0) {
        snprintf(direct->words, sizeof(direct->words), "no descriptor of the peer's process (pidfd_open): %s",
                 strerror(errno));
        atomic_store(&direct->obstacle, direct->words);
        return;
    }
    prove(direct, page);
}

void shm_direct_close(struct shm_direct *direct) {
    fork_close(direct->pidfd);
    direct->pidfd = -1;
}
