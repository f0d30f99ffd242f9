/* programs/admin_pages.h - what a master's administration answers about segments and objects. Any thread. */
#ifndef MC_PROGRAMS_ADMIN_PAGES_H
#define MC_PROGRAMS_ADMIN_PAGES_H

#include "programs/web.h"
#include "store/master_service.h"

#define ADMIN_TEXT "text/plain; version=0.0.4; charset=utf-8"
#define ADMIN_JSON "application/json; charset=utf-8"
#define ADMIN_PAGE_KEYS 1000u /* of a listing at a time, where no limit is asked for */

typedef void admin_page(struct master_service *service, const struct web_request *request, struct web_reply *reply);

admin_page admin_page_segment_names;
admin_page admin_page_segment_details;
admin_page admin_page_segment;
admin_page admin_page_object;
admin_page admin_page_objects;
admin_page admin_page_listing; /* one page; reply->cursor says where the next begins */

/* Appends about `limit` keys to a listing, a line each, from *cursor on, and moves that on (0: the end). False if the
 * master doesn't serve. */
bool admin_add_keys(struct master_service *service, uint32_t limit, uint64_t *cursor, struct web_text *text);

/* The segments, malloc'd; NULL with *ret_serves whether the master serves, if there are none or memory is short. */
struct segment_description *admin_segments(struct master_service *service, size_t *ret_count, bool *ret_serves);

/* A refusal, as the reference writes it. */
void admin_refuse(struct web_reply *reply, unsigned code, int32_t status, const char *words);
void admin_refuse_unavailable(struct web_reply *reply);

#endif
