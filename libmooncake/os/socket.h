/* os/socket.h - non-blocking, close-on-exec stream sockets. Every descriptor made here is closed in forked children. */
#ifndef MC_OS_SOCKET_H
#define MC_OS_SOCKET_H

#include <stdint.h>

#include "os/address.h"

/* Listens on `address` and stores the descriptor, and the address really bound (the port chosen) in *ret_bound.
 * IPv6 listeners take IPv6 only, unless the address is "::", which takes both. MC_ERR_SYSTEM with address and errno. */
int32_t socket_listen(const struct address *address, int backlog, int *ret_fd, struct address *ret_bound,
                      struct mc_error *error);

/* Begins to connect, with TCP_NODELAY, and without pacing if the connection stays on this host; the outcome is read by
 * socket_error once the descriptor is writable. MC_ERR_SYSTEM. */
int32_t socket_connect(const struct address *address, int *ret_fd, struct mc_error *error);

/* Accepts one connection, likewise if it is TCP; -1 with errno (EAGAIN: none waits). */
int socket_accept(int listener);

/* Pending error of the socket as errno, 0 if none. */
int socket_error(int fd);

/* A listener, or a connection, in the abstract UNIX namespace under `name` (SOCK_SEQPACKET); -1 with errno.
 * The connection is made at once or refused: connecting there never waits. */
int socket_unix_listen(const char *name, int backlog);
int socket_unix_connect(const char *name);

/* Two ends of a stream within this host, which takes no descriptors. 0, or -1 with errno. */
int socket_unix_pair(int ret_fds[2]);

/* From now on the kernel refuses to pass descriptors to this UNIX socket (Linux 6.16; nothing happens before). */
void socket_refuse_fds(int fd);

/* Sends one packet with up to 4 descriptors; receives one packet and at most `capacity` descriptors, close-on-exec,
 * which the caller owns (more of them, or a truncated packet, is EPROTO and all are closed). Bytes moved, 0 at the end
 * of the stream, or -1 with errno. */
ptrdiff_t socket_send_fds(int fd, const void *packet, size_t length, const int *fds, size_t count);
ptrdiff_t socket_receive_fds(int fd, void *packet, size_t length, int *fds, size_t capacity, size_t *ret_count);

/* The user at the other end of a UNIX socket, from the kernel. 0, or -1 with errno. */
int socket_peer_user(int fd, uint32_t *ret_uid);

/* Closes and returns -1. -1 is fine. */
int socket_close(int fd);

#endif
