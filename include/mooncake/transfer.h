/* mooncake/transfer.h - the transfer engine: one-sided reads and writes between registered memory of processes.
 *
 * An engine listens at one address; its registered memory can be read and written by peers, as far as each region's
 * access rights allow. Both ends of a transfer are registered memory: the local one of this engine, the remote one of
 * the peer, named by the peer's own virtual address. The path (in the same engine, shared memory, TCP) is chosen by
 * cost for each request.
 *
 * Each request reaches exactly one terminal state, once; from then on nothing touches the caller's buffer. A WRITE is
 * COMPLETED when the target has applied it.
 */
#ifndef MOONCAKE_TRANSFER_H
#define MOONCAKE_TRANSFER_H

#include <mooncake/error.h>
#include <mooncake/queue.h>
#include <mooncake/types.h>

/* ---- Engines ---------------------------------------------------------------------------------------------------- */

/* NULL and 0 mean: the environment variable named, else the default. */
struct mc_engine_options {
    uint32_t struct_size;
    uint32_t flags;              /* MC_ENGINE_*; unknown bits are refused */
    const char *listen;          /* "host:port", "[ipv6]:port"; port 0 or none: any free one. MC_LISTEN, 127.0.0.1 */
    const char *advertise;       /* the host that peers are told; default the one listened on. MC_TCP_BIND_ADDRESS */
    const char *protocol;        /* "tcp" or "shm" restricts the paths to it (and self); default: any. MC_PROTOCOL */
    const char *key_file;        /* file with the cluster key, 16 to 4096 bytes; default none. MC_KEY_FILE */
    uint64_t connect_timeout_ns; /* MC_CONNECT_TIMEOUT_MS, default 5 s */
    uint32_t lanes;              /* TCP connections per peer, 1 to 16. MC_TCP_LANES_PER_PEER, default 2 */
    uint32_t notifications;      /* received notifications kept, 1 to 1048576. MC_NOTIFICATIONS, default 4096 */
    const char *directory;       /* where names of engines are kept: "p2p" (nowhere: peers are opened by "host:port"),
                                    "http://host:port/path". MC_METADATA_SERVER, default p2p */
    const char *name;            /* under which it is in the directory; default its address */
    uint32_t busy_poll_us;       /* microseconds that a thread which has just been busy stays awake for more, at most
                                    1000000; an idle engine sleeps. MC_BUSY_POLL_US, default 0 */
    uint32_t reserved;           /* 0 */
};

#define MC_ENGINE_CHECKSUM 1u /* CRC32C over each payload of its requests that crosses a network. MC_CHECKSUM */

MC_BEGIN_DECLS

/* Opens an engine, starts its listener, and publishes it in the directory, in place of whatever has the name there; that
 * may take 3 s. `options` may be NULL. MC_ERR_ADDRESS, MC_ERR_NAME_NOT_FOUND, MC_ERR_SYSTEM (the address can't be bound),
 * MC_ERR_NOT_SUPPORTED (protocol; a key without libcrypto; the directory), MC_ERR_INVALID_ARGUMENT (also: a name and no
 * directory), MC_ERR_UNREACHABLE and MC_ERR_PROTOCOL (the directory). */
MC_API int32_t mc_engine_open(const struct mc_engine_options *options, mc_engine **ret_engine, struct mc_error *error);

/* Cancels what is in flight, waits for calls in progress, closes all peers, takes the engine out of its directory (unless
 * another has its name by now; 3 s at most) and frees it. Batches remain readable until freed. MC_ERR_BUSY, with the
 * engine still open, if a peer's copy into a region does not end within a second. */
MC_API int32_t mc_engine_close(mc_engine *engine);

/* The address at which peers open this engine, "host:port"; written and returned as by mc_capabilities. */
MC_API int64_t mc_engine_address(mc_engine *engine, char *text, size_t size);

/* The random 128-bit incarnation of this engine. */
MC_API int32_t mc_engine_incarnation(mc_engine *engine, uint8_t ret_incarnation[16]);

/* Which network cards are near to this host's memory and GPUs, as JSON in the matrix format of kvcache-ai/Mooncake:
 * {"cpu:0":[[preferred cards],[others]],…,"cuda:0":…}; written and returned as by mc_capabilities. Read from sysfs when
 * the engine is opened, or taken from MC_CUSTOM_TOPO_JSON (a file); MC_TE_FILTERS leaves only the cards that it names. */
MC_API int64_t mc_engine_topology(mc_engine *engine, char *text, size_t size);

#define MC_METRICS_JSON 0u
#define MC_METRICS_PROMETHEUS 1u /* the text format, version 0.0.4 */

/* Counters and latency histograms since the engine was opened, in all and for each transport and peer; written and
 * returned as by mc_capabilities. MC_ERR_INVALID_ARGUMENT for another format. */
MC_API int64_t mc_engine_metrics(mc_engine *engine, uint32_t format, char *text, size_t size);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

#define MC_MEMORY_HUGE 1u /* of huge pages (the system's default size), or MC_ERR_NO_MEMORY if too few are reserved */
#define MC_MEMORY_NUMA 2u /* on numa_node, or MC_ERR_NO_MEMORY if it has too little */

struct mc_memory_options {
    uint32_t struct_size;
    uint32_t flags;     /* MC_MEMORY_*; unknown bits are refused */
    uint32_t numa_node; /* with MC_MEMORY_NUMA */
    uint32_t reserved;  /* 0 */
};

/* Allocates host memory that other processes of this host can map (a sealed memfd), zeroed and faulted in;
 * page-aligned, at least `size` bytes. `options` may be NULL. Stores an id and the address. Needs no engine.
 * MC_ERR_INVALID_ARGUMENT for size 0 or a node that isn't there, MC_ERR_NO_MEMORY, MC_ERR_NOT_SUPPORTED where the
 * system has no huge pages or forbids binding to a node. */
MC_API int32_t mc_memory_alloc(uint64_t size, const struct mc_memory_options *options, uint64_t *ret_memory,
                               void **ret_address, struct mc_error *error);

/* MC_ERR_BUSY while an engine has part of it registered. */
MC_API int32_t mc_memory_free(uint64_t memory);

/* Rights of peers. A region's own engine may always use it as the local end. */
#define MC_REMOTE_READ 1u
#define MC_REMOTE_WRITE 2u

/* Registers [address, address + length) with a location ("*", "cpu:N" of any N; NULL is "*") and access rights
 * (MC_REMOTE_*). Registering the same range again with the same location and rights adds a count; any other overlap is
 * MC_ERR_OVERLAP and changes nothing. MC_ERR_INVALID_ARGUMENT: NULL, length 0, wrap-around, not mapped;
 * MC_ERR_NOT_SUPPORTED: another location. The memory must stay mapped until it is unregistered. */
MC_API int32_t mc_engine_register(mc_engine *engine, void *address, uint64_t length, const char *location,
                                  uint32_t access, struct mc_error *error);

/* Takes one count off the region that begins at `address`; with the last one no peer reaches it any more when the call
 * returns. MC_ERR_NOT_REGISTERED; MC_ERR_BUSY, with the region still registered, if transfers on it don't end within a
 * second. */
MC_API int32_t mc_engine_unregister(mc_engine *engine, void *address, struct mc_error *error);

/* ---- Peers ------------------------------------------------------------------------------------------------------ */

/* Connects to the engine at `address` ("host:port", or a name in the engine's directory, which is asked first) and stores
 * a peer id, which stands for that incarnation for ever: if the process there is restarted, requests answer
 * MC_ERR_STALE_PEER, or MC_ERR_UNREACHABLE where it listens at another port now; opening its name again leads to the new
 * one. Waits for the resolver, at most the engine's connect timeout for the directory and an answer, and at most as long
 * again (2 s at most) for the way into a peer on the same host. MC_ERR_ADDRESS, MC_ERR_NAME_NOT_FOUND,
 * MC_ERR_UNREACHABLE, MC_ERR_AUTHENTICATION, MC_ERR_VERSION, MC_ERR_PROTOCOL. */
MC_API int32_t mc_peer_open(mc_engine *engine, const char *address, uint64_t *ret_peer, struct mc_error *error);

/* Releases the id; batches in flight go on. */
MC_API int32_t mc_peer_close(uint64_t peer);

/* Asks the peer for a sign of life. `timeout_ns` as in mc_batch_options. MC_OK, MC_ERR_TIMEOUT, MC_ERR_STALE_PEER,
 * MC_ERR_UNREACHABLE, MC_ERR_CONNECTION_LOST. */
MC_API int32_t mc_peer_probe(uint64_t peer, uint64_t timeout_ns, struct mc_error *error);

/* Which path each transfer takes and why not a better one, as JSON: {"peer":"host:port","transports":[{"transport":
 * "self","cost":0,"usable":false,"reason":"…"},…],"regions":[{"base":…,"length":…,"access":"rw","path":"shm",
 * "how":"mapped","reason":"…"},…]}. Transports are cheapest first. One that has stopped working isn't usable any more;
 * tcp is again as soon as a request has connected. Regions are those of the peer that this process knows of (of a peer
 * on the same host all); which local memory takes part makes no difference. "how" is "mapped", or "process_vm" with the
 * reason why not mapped. Both "path" and "how" are null where shared memory doesn't reach the region, with the reason:
 * it goes by the next transport that is usable. Written and returned as by mc_capabilities. */
MC_API int64_t mc_peer_explain(uint64_t peer, char *text, size_t size);

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

#define MC_READ 0u  /* peer to local */
#define MC_WRITE 1u /* local to peer */

#define MC_REQUEST_GUARD 1u    /* guard_address and guard_value count */
#define MC_REQUEST_CHECKSUM 2u /* the status is to have the CRC32C of the bytes here, taken while they are copied */

/* One transfer. Set what you don't use to zero. */
struct mc_request {
    uint64_t peer;
    uint32_t opcode; /* MC_READ or MC_WRITE */
    uint32_t flags;  /* MC_REQUEST_* */
    void *local;
    uint64_t remote;        /* the peer's virtual address */
    uint64_t length;        /* 0 is fine: completes at once */
    uint64_t guard_address; /* 8-aligned, in memory of the peer that is registered for remote reading */
    uint64_t guard_value;   /* compared by the target before the first byte and after the last */
};

/* Terminal states are all but MC_STATE_PENDING. */
#define MC_STATE_PENDING 1u
#define MC_STATE_CANCELLED 3u
#define MC_STATE_COMPLETED 4u
#define MC_STATE_TIMEOUT 5u
#define MC_STATE_FAILED 6u

/* On a WRITE that did not complete: the remote range holds old, new or mixed bytes, and bytes that were already sent
 * may still arrive there. */
#define MC_STATUS_INDETERMINATE 1u

struct mc_request_status {
    uint32_t state;    /* MC_STATE_* */
    int32_t status;    /* MC_OK when completed, MC_ERR_PENDING while pending, else why not */
    uint64_t bytes;    /* moved so far; `length` when completed */
    uint32_t flags;    /* MC_STATUS_* */
    uint32_t checksum; /* CRC32C of the bytes, if it was asked for and the request is completed; else 0 */
};

#define MC_BATCH_DRIVEN 1u /* the caller's next step is mc_batch_wait: it drives, and nothing moves until then */
#define MC_BATCH_NOTIFY 2u /* when all requests have completed, each peer of the batch is notified; see below */

struct mc_batch_options {
    uint32_t struct_size;
    uint32_t flags;          /* MC_BATCH_*; unknown bits are refused */
    uint64_t timeout_ns;     /* deadline of each request, from submission; 0: MC_TRANSFER_TIMEOUT seconds, default 30 */
    uint64_t user_data;      /* returned in the completion */
    mc_queue *queue;         /* where the completion appears; NULL: nowhere, use mc_batch_wait */
    const void *notify_name; /* with MC_BATCH_NOTIFY: as for mc_peer_notify; copied by the call */
    size_t notify_name_length;
    const void *notify_message;
    size_t notify_message_length;
};

/* Submits `count` requests (1 to 1048576; elements `stride` bytes apart), all or none: if a call fails, nothing was
 * begun. Peers may differ; the order among requests is undefined. The array may be reused on return; the buffers belong
 * to the engine until the requests are terminal. Stores a batch id, which the caller frees. `options` may be NULL.
 * With MC_BATCH_NOTIFY the batch ends when the notifications are in their queues: whoever receives one sees what the
 * batch wrote. If a request did not complete none is sent; if one can't be delivered, the batch's status says why, with
 * all requests completed. */
MC_API int32_t mc_batch_submit(mc_engine *engine, const struct mc_request *requests, size_t count, size_t stride,
                               const struct mc_batch_options *options, uint64_t *ret_batch, struct mc_error *error);

/* Waits at most `timeout_ns` (0: only looks) until all requests are terminal, driving the transfer meanwhile. MC_OK if
 * all completed, MC_ERR_PENDING if the time ran out, else the status of the first request that did not complete. */
MC_API int32_t mc_batch_wait(uint64_t batch, uint64_t timeout_ns);

/* The states of requests [first, first + count) of the batch, into elements `stride` bytes apart.
 * MC_ERR_INVALID_ARGUMENT where it has no such requests. */
MC_API int32_t mc_batch_status(uint64_t batch, size_t first, struct mc_request_status *statuses, size_t count,
                               size_t stride);

/* Says in *error which request did not complete, on which path, and why; it is untouched where all did. Returns what
 * mc_batch_wait would without waiting. */
MC_API int32_t mc_batch_explain(uint64_t batch, struct mc_error *error);

/* Ends all requests that aren't terminal as CANCELLED. On return the whole batch is terminal and its buffers are quiet.
 */
MC_API int32_t mc_batch_cancel(uint64_t batch);

/* Releases the id of a terminal batch; MC_ERR_BUSY while a request is pending. */
MC_API int32_t mc_batch_free(uint64_t batch);

/* Submit, wait and free in one, driven by the calling thread. Returns when all are terminal: MC_OK, or the status of
 * the first that did not complete. `timeout_ns` as in mc_batch_options. */
MC_API int32_t mc_engine_transfer(mc_engine *engine, const struct mc_request *requests, size_t count, size_t stride,
                                  uint64_t timeout_ns, struct mc_error *error);

/* One request of the peer's engine, as by mc_engine_transfer. */
MC_API int32_t mc_peer_read(uint64_t peer, void *local, uint64_t remote, uint64_t length, uint64_t timeout_ns,
                            struct mc_error *error);
MC_API int32_t mc_peer_write(uint64_t peer, const void *local, uint64_t remote, uint64_t length, uint64_t timeout_ns,
                             struct mc_error *error);

/* ---- Notifications ---------------------------------------------------------------------------------------------- */

/* A received notification: three byte strings, each followed by a NUL that its length doesn't count. Owned by the
 * caller until mc_notification_free. */
struct mc_notification {
    const char *sender; /* the sending engine's address, "host:port" */
    const char *name;
    const char *message;
    size_t sender_length;
    size_t name_length;
    size_t message_length;
};

#define MC_NOTIFICATION_MAX 65536u /* bytes of name and message together */

/* Delivers a notification into the peer's queue and waits until it is there. `timeout_ns` as in mc_batch_options.
 * MC_ERR_TOO_LARGE, MC_ERR_QUEUE_FULL, MC_ERR_TIMEOUT. Writes that completed before the call are visible to whoever
 * receives it. */
MC_API int32_t mc_peer_notify(uint64_t peer, const void *name, size_t name_length, const void *message,
                              size_t message_length, uint64_t timeout_ns, struct mc_error *error);

/* Takes the oldest notification, waiting at most `timeout_ns`; MC_ERR_PENDING if there is none. */
MC_API int32_t mc_engine_receive(mc_engine *engine, uint64_t timeout_ns, struct mc_notification **ret_notification);

/* A descriptor that is readable while a notification waits, or a negative status. Belongs to the engine: poll it, never
 * read or close it. */
MC_API int32_t mc_engine_notification_fd(mc_engine *engine);

/* NULL is fine. */
MC_API void mc_notification_free(struct mc_notification *notification);

MC_END_DECLS

#endif
