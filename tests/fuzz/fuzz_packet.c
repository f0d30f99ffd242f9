/* fuzz_packet.c - any packets, with any number of descriptors, on the UNIX socket between processes of one host.
 *
 * The input is a list of packets: a byte that says how many descriptors come with it, a byte with its length, and its
 * bytes. What is taken has the kind that was waited for and no more descriptors than there is place for; all others are
 * closed.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/fork.h"
#include "os/socket.h"
#include "transports/shm/enter.h"

#define DESCRIPTORS_MAX 8

/* The lowest that is free: the same before and after, if none was lost. */
static int lowest_free(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    REQUIRE(fd >= 0);
    close(fd);
    return fd;
}

static void send_packet(int fd, const uint8_t *bytes, size_t length, int count) {
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[DESCRIPTORS_MAX];

    if (count > 0) {
        for (int i = 0; i < count; i++)
            fds[i] = fd;
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
        CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, sizeof(int) * (size_t)count);
    }
    (void)sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void receive_packets(int fd, enum shm_kind kind, size_t capacity) {
    for (int i = 0; i < 64; i++) {
        struct shm_packet packet;
        int fds[2] = {-1, -1};
        size_t count = 0;

        errno = 0;
        if (!shm_receive(fd, kind, 0, &packet, fds, capacity, &count)) {
            REQUIRE(errno != 0);
            if (errno != EPROTO)
                return;
            continue;
        }
        REQUIRE(packet.kind == kind && count <= capacity);
        for (size_t j = 0; j < count; j++) {
            REQUIRE(fcntl(fds[j], F_GETFD) == FD_CLOEXEC);
            fork_close(fds[j]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int ends[2], free_before = lowest_free();

    if (size < 2)
        return 0;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    for (size_t at = 1; at + 2 <= size;) {
        size_t length = data[at + 1];

        if (length > size - at - 2)
            length = size - at - 2;
        send_packet(ends[1], data + at + 2, length, data[at] % (DESCRIPTORS_MAX + 1));
        at += 2 + length;
    }
    if (data[0] % 2 == 0)
        shutdown(ends[1], SHUT_WR);
    receive_packets(ends[0], (enum shm_kind)(data[0] >> 1 & 7), data[0] >> 4 & 1 ? 1 : 2);
    close(ends[0]);
    close(ends[1]);
    REQUIRE(lowest_free() == free_before);
    return 0;
}
