/* SPDX-License-Identifier: BSD-3-Clause */
#include "remember.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_folder.h"
#include "cleanup.h"
#include "options.h"

int clair_remember_path(const struct clair_catalog *catalog, char *path, size_t size)
{
	char name[64];

	snprintf(name, sizeof name, "order-%016llx.json",
		 (unsigned long long)clair_catalog_hash(catalog));
	return clair_cache_file(name, true, path, size);
}

int clair_remember_save(const char *file, const struct clair_catalog *catalog,
			uint32_t folder, const struct clair_words *words)
{
	autofree char *temporary = NULL;
	char hash[24], path[4096];
	json_t *list = json_object();

	snprintf(hash, sizeof hash, "%016llx",
		 (unsigned long long)clair_catalog_hash(catalog));
	clair_catalog_path(catalog, folder, path, sizeof path);
	for (size_t i = 0; list && i < words->count; i++)
		json_object_set_new(list, words->items[i].key,
				    json_string(words->items[i].value));
	json_t *all = json_pack("{s:i, s:s, s:s, s:o}", "version", 1, "catalog", hash,
				"folder", path, "words", list);
	int r = all && asprintf(&temporary, "%s.%d", file, (int)getpid()) > 0 ? 0 : -ENOMEM;
	/* Whole or not at all. */
	if (r == 0 && json_dump_file(all, temporary, JSON_INDENT(1)) < 0)
		r = -EIO;
	if (r == 0 && rename(temporary, file) < 0)
		r = -errno;
	json_decref(all);
	return r;
}

static int read_words(const json_t *list, struct clair_words *words)
{
	const char *key;
	json_t *value;
	void *at;

	if (!json_is_object(list))
		return -EBADMSG;
	at = json_object_iter((json_t *)(uintptr_t)list);
	for (; at; at = json_object_iter_next((json_t *)(uintptr_t)list, at)) {
		key = json_object_iter_key(at);
		value = json_object_iter_value(at);
		if (!json_is_string(value))
			return -EBADMSG;
		if (!strcmp(key, "how"))
			continue;
		/* A file that somebody made must not set what it should not. */
		if (!clair_options_is_order_word(key))
			return -EBADMSG;
		if (clair_words_set(words, key, json_string_value(value)) < 0)
			return -ENOMEM;
	}
	return 0;
}

int clair_remember_load(const char *file, const struct clair_catalog *catalog,
			uint32_t *folder, struct clair_words *words)
{
	char expected[24];
	struct stat st;

	if (stat(file, &st) < 0)
		return -errno;
	if (st.st_size > 1 << 20)
		return -EBADMSG;
	json_t *all = json_load_file(file, 0, NULL);
	if (!all)
		return -EBADMSG;
	const char *hash = json_string_value(json_object_get(all, "catalog"));
	const char *path = json_string_value(json_object_get(all, "folder"));
	snprintf(expected, sizeof expected, "%016llx",
		 (unsigned long long)clair_catalog_hash(catalog));
	int r = hash && path && !strcmp(hash, expected) ? 0 : -EBADMSG;
	if (r == 0) {
		*folder = clair_catalog_find(catalog, path);
		if (*folder == CLAIR_NO_ID ||
		    clair_catalog_entry(catalog, *folder)->kind != CLAIR_FOLDER)
			r = -EBADMSG;
	}
	if (r == 0)
		r = read_words(json_object_get(all, "words"), words);
	json_decref(all);
	if (r < 0)
		clair_words_finish(words);
	return r;
}
