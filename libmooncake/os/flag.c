/* os/flag.c - an eventfd that is 0 or not. */
#include "os/flag.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "os/fork.h"

int flag_open(void) {
    int fd;

    fork_pause();
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fork_close_in_child_paused(fd);
    fork_resume();
    return fd;
}

void flag_raise(int fd) {
    uint64_t one = 1;

    while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

void flag_lower(int fd) {
    uint64_t value;

    while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR)
        continue;
}
