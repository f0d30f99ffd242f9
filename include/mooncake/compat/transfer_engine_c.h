/* transfer_engine_c.h - the C interface of kvcache-ai/Mooncake's transfer engine, over libmooncake.
 *
 * For programs that were written for that interface: types, layouts, names and results are the same, so that they are
 * linked again (-ltransfer_engine; pkg-config transfer_engine) and otherwise unchanged. New programs have more from
 * <mooncake/transfer.h>: words with each failure, waiting, deadlines, cancelling, access rights.
 *
 * Handles and ids are checked: a stale or invented one is an error, never a crash. A function that returns int returns
 * 0, or on failure a code of the list below: negative, or positive where it deals with batches. What went wrong is said
 * on stderr (MC_LOG_LEVEL=error silences that). All functions may be called from any thread. In a child after fork the
 * parent's handles and ids are stale.
 *
 *     1  invalid argument, handle or id         101  a name isn't found, or an address is malformed
 *     2  too many of something                  102  no engine answers, or the connection is lost
 *     3  memory is not registered               104  the peer refuses: keys, versions
 *     4  still busy                             200  the directory fails
 *     6  no such device                         201  the peer was restarted since the segment was opened
 *     7  overlaps registered memory               8  (batches) not supported
 */
#ifndef MOONCAKE_COMPAT_TRANSFER_ENGINE_C_H
#define MOONCAKE_COMPAT_TRANSFER_ENGINE_C_H

#include <stddef.h>
#include <stdint.h>

typedef void *transfer_engine_t;
typedef void *transport_t;
typedef int32_t segment_handle_t;
typedef int32_t segment_id_t;
typedef uint64_t batch_id_t;

/* The engine itself, as a target. Segments that are opened have numbers from 1 on. */
#define LOCAL_SEGMENT (0)
/* What allocateBatchID returns on failure. */
#define INVALID_BATCH UINT64_MAX

#define OPCODE_READ (0)
#define OPCODE_WRITE (1)

/* The states of a task. It has ended in all but the first two. */
#define STATUS_WAITING (0)
#define STATUS_PENDING (1)
#define STATUS_INVALID (2)
#define STATUS_CANCELED (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT (5)
#define STATUS_FAILED (6)

/* These layouts are compiled into programs, with the padding that they have. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpadded"
#endif

struct transfer_request {
    int opcode;             /* OPCODE_* */
    void *source;           /* the local end, for reads too; in registered memory */
    int32_t target_id;      /* a segment */
    uint64_t target_offset; /* the peer's virtual address */
    uint64_t length;
};
typedef struct transfer_request transfer_request_t;

struct transfer_status {
    int status; /* STATUS_* */
    uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

struct notify_msg {
    char *name; /* both end with NUL */
    char *msg;
};
typedef struct notify_msg notify_msg_t;

struct buffer_entry {
    void *addr;
    size_t length;
};
typedef struct buffer_entry buffer_entry_t;

struct nic_load_stat {
    char device_name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps;
};
typedef struct nic_load_stat nic_load_stat_t;

/* For programs that mention it: no function takes one. */
struct segment_desc {
    int type;
    union {
        struct {
            void *addr;
            uint64_t size;
            const char *location;
        } rdma;
        struct {
            const char *file_path;
            const char *subsystem_name;
            const char *proto;
            const char *ip;
            uint64_t port;
        } nvmeof;
    } desc_;
};
typedef struct segment_desc segment_desc_t;

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* ---- Engines ---------------------------------------------------------------------------------------------------- */

/* Opens an engine and its listener; NULL on failure. `metadata` is "P2PHANDSHAKE" (segments are opened by "host:port"),
 * or the "http://host:port/path" of a directory, where the engine is then found as `local_name`. It listens at the host
 * `ip`, or where that is NULL or empty at the host of `local_name` ("host", "host:port", "[ipv6]:port"), and nowhere
 * else; where `ip` is all addresses (0.0.0.0, ::), peers are told the host of `local_name`. The port is `rpc_port`, or
 * that of `local_name`, or where none is given or another process has it any free one: getLocalIpAndPort says which.
 * All transports that there are are used, whatever auto_discover and installTransport say. */
transfer_engine_t createTransferEngine(const char *metadata, const char *local_name, const char *ip, uint64_t rpc_port,
                                       int auto_discover);

/* Cancels what is in flight, and closes segments and listener. Its batches and segments are stale afterwards. */
void destroyTransferEngine(transfer_engine_t engine);

/* The engine is closed when the process ends by exit() or a return from main. One that a signal ends needs nothing: its
 * peers notice by its sockets. No signal handler is installed. */
void enableGracefulShutdown(transfer_engine_t engine);

/* Nothing to be done: 0. */
int discoverTopology(transfer_engine_t engine);
int syncSegmentCache(transfer_engine_t engine);
int removeLocalSegment(transfer_engine_t engine, const char *name);

/* The address by which peers open this engine, "host:port". -1, with an empty text, where it doesn't fit. */
int getLocalIpAndPort(transfer_engine_t engine, char *buf, size_t len);

/* Something other than NULL if the engine has the transport ("tcp", "shm"); it needn't be uninstalled. `args` has no
 * effect. */
transport_t installTransport(transfer_engine_t engine, const char *proto, void **args);
int uninstallTransport(transfer_engine_t engine, const char *proto);

/* There are no RDMA devices in use: *count is 0. */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *list, size_t *count);

/* Which paths lead to the open segments, and why not better ones: lines, or JSON. -1 where it doesn't fit; what does is
 * there, and ends with NUL. */
int showLinks(transfer_engine_t engine, char *buf, size_t len, int json);

/* ---- Segments --------------------------------------------------------------------------------------------------- */

/* The number of the engine of that name, at least 1, or a negative code. A name that is open has one number; it is open
 * until it was closed as often as opened. If the engine of that name was restarted, opening again gives a new number,
 * and requests to the old one fail. openSegmentNoCache also asks the directory again. */
segment_handle_t openSegment(transfer_engine_t engine, const char *name);
segment_handle_t openSegmentNoCache(transfer_engine_t engine, const char *name);
int closeSegment(transfer_engine_t engine, segment_handle_t segment);

/* Finds out whether the engine of that name answers. */
int warmupEfaSegment(transfer_engine_t engine, const char *name);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* Registers memory, at "*" or "cpu:N". Peers may read and write it if remote_accessible isn't 0; else it serves for the
 * local end only. Each overlap with registered memory is -7, also the same range again. */
int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
                        int remote_accessible);

/* When it has returned 0, no peer reaches the memory any more. */
int unregisterLocalMemory(transfer_engine_t engine, void *addr);

/* All or none, remotely accessible. */
int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *list, size_t n, const char *location);

/* Each of them; the first failure is the result. */
int unregisterLocalMemoryBatch(transfer_engine_t engine, void **list, size_t n);

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

/* A batch of at most `size` tasks (1048576 at most). */
batch_id_t allocateBatchID(transfer_engine_t engine, size_t size);

/* Submits `n` requests, all or none. Their tasks have the numbers from that of the batch's tasks before on. */
int submitTransfer(transfer_engine_t engine, batch_id_t batch, transfer_request_t *entries, size_t n);

/* The same; when all of them have completed, each peer of them is notified, whether anyone asks for states or not. The
 * tasks have ended when the notification is there, and have failed where it can't be delivered. */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch, transfer_request_t *entries, size_t n,
                             notify_msg_t notify);

/* The state of one task, numbered from 0; whoever asks for the same one again moves its bytes meanwhile, for a few
 * microseconds. Each ends at the latest after MC_TRANSFER_TIMEOUT seconds (30); then nothing touches its buffer any
 * more. Why tasks didn't complete is said on stderr once for each submission, by the first that is asked for. */
int getTransferStatus(transfer_engine_t engine, batch_id_t batch, size_t task, transfer_status_t *out);

/* 4, with the batch as it was, while a task hasn't ended. */
int freeBatchID(transfer_engine_t engine, batch_id_t batch);

/* ---- Notifications ---------------------------------------------------------------------------------------------- */

/* All that have come, without waiting: an array of *n for freeNotifsMsgBuf, NULL if there are none. */
notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *n);
int freeNotifsMsgBuf(notify_msg_t *list, int n);

/* Notifies the engine of a segment; returns when it has it. */
int genNotifyInEngine(transfer_engine_t engine, uint64_t target, notify_msg_t notify);

#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
