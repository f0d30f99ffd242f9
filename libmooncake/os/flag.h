/* os/flag.h - a descriptor that is readable while a flag is up, for event loops of the host program. */
#ifndef MC_OS_FLAG_H
#define MC_OS_FLAG_H

/* A descriptor whose flag is down, closed in forked children, for fork_close; -1 with errno. */
int flag_open(void);

/* Raising or lowering a flag twice is harmless. The caller's lock orders the calls. */
void flag_raise(int fd);
void flag_lower(int fd);

#endif
