/* loader.c - opens the library given as its argument at run time, twice, and asks for its version. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(argc > 1 ? argv[1] : "libmooncake.so.1", RTLD_NOW | RTLD_LOCAL);
        const char *(*version)(void);
        uint32_t (*api_version)(void);

        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        *(void **)&version = dlsym(library, "mc_version");
        *(void **)&api_version = dlvsym(library, "mc_api_version", "MOONCAKE_1.0");
        if (!version || !api_version || api_version() >> 16 != 1)
            return 2;
        puts(version());
        dlclose(library);
    }
    return 0;
}
