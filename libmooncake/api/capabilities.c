/* api/capabilities.c - what this process can use, and why not the rest, as JSON. */
#include <mooncake/error.h>
#include <mooncake/types.h>

#include "base/writer.h"
#include "metadata/directory.h"
#include "net/auth.h"
#include "net/http.h"
#include "os/jansson.h"
#include "os/pcre2.h"
#include "transports/transport.h"

#define LATER "not in this version"

struct capability {
    const char *name;
    const char *reason; /* NULL: yes */
};

static void write_group(struct writer *writer, const char *group, const struct capability *capabilities, size_t count) {
    writer_print(writer, "\"%s\":", group);
    for (size_t i = 0; i < count; i++) {
        writer_print(writer, "%s\"%s\":", i == 0 ? "{" : ",", capabilities[i].name);
        writer_json_string(writer, capabilities[i].reason == NULL ? "yes" : capabilities[i].reason);
    }
    writer_print(writer, "}");
}

int64_t mc_capabilities(char *text, size_t size) {
    const struct capability transports[] = {
        {"self", transport_self.unavailable()},
        {"shm", transport_shm.unavailable()},
        {"tcp", transport_tcp.unavailable()},
        {"rdma", LATER},
        {"cuda", LATER},
    };
    const struct capability directories[] = {
        {"p2p", directory_p2p.unavailable()},
        {"http", directory_http.unavailable()},
        {"redis", LATER},
        {"etcd", LATER},
    };
    const struct capability allocators[] = {{"host", transport_shm.unavailable()}, {"cuda", LATER}, {"ascend", LATER}};
    const struct capability libraries[] = {
        {"libcrypto", auth_unavailable()},
        {"libcurl", http_unavailable()},
        {"libjansson", jansson_unavailable()},
        {"libpcre2", pcre2_unavailable()},
    };
    struct writer writer;

    if (text == NULL && size > 0)
        return MC_ERR_INVALID_ARGUMENT;
    writer_init(&writer, text, size);
    writer_print(&writer, "{");
    write_group(&writer, "transports", transports, sizeof(transports) / sizeof(transports[0]));
    writer_print(&writer, ",");
    write_group(&writer, "directories", directories, sizeof(directories) / sizeof(directories[0]));
    writer_print(&writer, ",");
    write_group(&writer, "allocators", allocators, sizeof(allocators) / sizeof(allocators[0]));
    writer_print(&writer, ",");
    write_group(&writer, "libraries", libraries, sizeof(libraries) / sizeof(libraries[0]));
    writer_print(&writer, "}");
    return (int64_t)writer.length;
}
