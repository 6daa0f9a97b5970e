/* SPDX-License-Identifier: BSD-3-Clause */
/* Annotation files are gigabytes when they are taken into memory as a tree: they are read
 * token by token here. */
#include "index_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "index_list.h"
#include "sampler.h"
#include "words.h"

/* A token is one of `{}[]:,`, 's' for a string, 'w' for a word (number, true, …), 0 at the
 * end, '?' for what is no JSON. */
struct scanner {
	FILE *f;
	char *text; /* of a string or word */
	size_t length, room;
};

static int add_byte(struct scanner *s, int c)
{
	if (s->length + 1 >= s->room) {
		size_t room = s->room ? s->room * 2 : 256;
		char *text = realloc(s->text, room);
		if (!text)
			return -ENOMEM;
		s->text = text;
		s->room = room;
	}
	s->text[s->length++] = (char)c;
	s->text[s->length] = '\0';
	return 0;
}

static int add_code_point(struct scanner *s, unsigned c)
{
	int r = 0;

	if (c < 0x80)
		return add_byte(s, (int)c);
	int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	static const unsigned char first[] = { 0, 0xc0, 0xe0, 0xf0 };
	r = add_byte(s, (int)(first[more] | c >> (6 * more)));
	while (r == 0 && more--)
		r = add_byte(s, (int)(0x80 | (c >> (6 * more) & 0x3f)));
	return r;
}

/* The four digits of \uXXXX; -1 when they are none. */
static int read_unit(struct scanner *s)
{
	char digits[5] = "", *end;

	for (int i = 0; i < 4; i++) {
		int c = getc_unlocked(s->f);
		if (c == EOF)
			return -1;
		digits[i] = (char)c;
	}
	long v = strtol(digits, &end, 16);
	return *end || strspn(digits, "0123456789abcdefABCDEF") != 4 ? -1 : (int)v;
}

static int read_escape(struct scanner *s)
{
	static const char from[] = "bfnrt\"\\/", to[] = "\b\f\n\r\t\"\\/";
	int c = getc_unlocked(s->f);
	const char *at = c == EOF || !c ? NULL : strchr(from, c);

	if (at)
		return add_byte(s, to[at - from]);
	int unit = c == 'u' ? read_unit(s) : -1;
	if (unit <= 0)
		return -EINVAL;
	if (unit >= 0xd800 && unit < 0xdc00 && getc_unlocked(s->f) == '\\' &&
	    getc_unlocked(s->f) == 'u') {
		int low = read_unit(s);
		if (low < 0xdc00 || low > 0xdfff)
			return -EINVAL;
		unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
	}
	return add_code_point(s, (unsigned)unit);
}

static int read_string(struct scanner *s)
{
	int c, r = 0;

	while (r == 0 && (c = getc_unlocked(s->f)) != '"') {
		if (c == EOF)
			return -EINVAL;
		r = c == '\\' ? read_escape(s) : add_byte(s, c);
	}
	return r;
}

static int next_token(struct scanner *s)
{
	int c, r = 0;

	do
		c = getc_unlocked(s->f);
	while (c == ' ' || c == '\n' || c == '\t' || c == '\r');
	if (c == EOF)
		return 0;
	if (strchr("{}[]:,", c))
		return c;
	s->length = 0;
	if (add_byte(s, '\0') < 0)
		return '?';
	s->length = 0;
	if (c == '"')
		return read_string(s) < 0 ? '?' : 's';
	for (; c != EOF && !strchr("{}[]:, \n\t\r\"", c) && r == 0; c = getc_unlocked(s->f))
		r = add_byte(s, c);
	if (c != EOF)
		ungetc(c, s->f);
	return r < 0 || !s->length ? '?' : 'w';
}

static int open_scanner(const char *index, const char *file, struct scanner *s, char **error)
{
	*s = (struct scanner){ .f = fopen(file, "re") };
	return s->f ? 0 : clair_bad(error, "index=%s:%s: %s", index, file, strerror(errno));
}

static void close_scanner(struct scanner *s)
{
	fclose(s->f);
	free(s->text);
}

/* --- strings that name files -------------------------------------------------------- */

static int take_strings(struct scanner *s, const struct clair_catalog *c, uint32_t folder,
			struct clair_indices *list)
{
	autofree unsigned char *seen = calloc(1, clair_catalog_count(c) / 8 + 1);
	int token, r = 0;

	if (!seen)
		return -ENOMEM;
	while (r == 0 && (token = next_token(s))) {
		if (token == '?')
			return -EINVAL;
		uint32_t id = token == 's' ? clair_index_find_path(c, folder, s->text) :
					     CLAIR_NO_ID;
		uint32_t to = id == CLAIR_NO_ID ? id : clair_catalog_resolve(c, id);
		if (to == CLAIR_NO_ID || clair_catalog_entry(c, to)->kind != CLAIR_FILE ||
		    seen[id / 8] & 1 << id % 8)
			continue;
		seen[id / 8] |= (unsigned char)(1 << id % 8);
		r = clair_indices_append(list, id);
	}
	return r;
}

int clair_index_json(const struct clair_catalog *catalog, uint32_t folder, const char *file,
		     uint32_t **ids, uint32_t *count, char **error)
{
	struct clair_indices list = { 0 };
	struct scanner s;

	int r = open_scanner("json", file, &s, error);
	if (r < 0)
		return r;
	r = take_strings(&s, catalog, folder, &list);
	close_scanner(&s);
	if (r == -EINVAL)
		r = clair_bad(error, "index=json:%s: this is no JSON", file);
	else if (r == 0 && !list.count)
		r = clair_bad(error, "index=json:%s: no string in it names a file of the source",
			      file);
	if (r < 0) {
		clair_indices_finish(&list);
		return r;
	}
	*ids = list.at;
	*count = (uint32_t)list.count;
	return 0;
}

/* --- COCO --------------------------------------------------------------------------- */

struct image {
	long long number;
	uint32_t id;
	uint32_t place; /* in the file: of two with one number the later one counts */
};

struct images {
	struct image *at;
	size_t count, room;
};

static int add_image(struct images *images, long long number, uint32_t id)
{
	if (images->count == images->room) {
		size_t room = images->room ? images->room * 2 : 1024;
		struct image *at = realloc(images->at, room * sizeof *at);
		if (!at)
			return -ENOMEM;
		images->at = at;
		images->room = room;
	}
	images->at[images->count] =
		(struct image){ number, id, (uint32_t)images->count };
	images->count++;
	return 0;
}

static int by_number(const void *p, const void *q)
{
	const struct image *a = p, *b = q;

	if (a->number != b->number)
		return a->number < b->number ? -1 : 1;
	return a->place < b->place ? -1 : a->place > b->place;
}

struct coco {
	struct scanner s;
	const struct clair_catalog *catalog;
	uint32_t folder;
	const char *file;
	struct images images;
	char **error;
};

/* One object of the array "images", after its brace. */
static int read_image(struct coco *k)
{
	autofree char *key = NULL, *name = NULL;
	bool has_number = false;
	long long number = 0;
	int depth = 1, token, previous = '{';

	while (depth && (token = next_token(&k->s))) {
		if (token == '?')
			return -EINVAL;
		depth += token == '{' || token == '[';
		depth -= token == '}' || token == ']';
		if (depth == 1 && token == 's' && previous != ':') {
			free(key);
			key = strdup(k->s.text);
		} else if (depth == 1 && previous == ':' && key) {
			if (token == 'w' && !strcmp(key, "id")) {
				number = strtoll(k->s.text, NULL, 10);
				has_number = true;
			} else if (token == 's' && !strcmp(key, "file_name")) {
				free(name);
				name = strdup(k->s.text);
			}
		}
		previous = token;
	}
	if (!has_number || !name)
		return -EINVAL;
	uint32_t id = clair_index_find_path(k->catalog, k->folder, name);
	if (id == CLAIR_NO_ID) {
		clair_bad(k->error, "index=coco:%s: '%s' is no file of the source", k->file,
			  name);
		return -ENOENT; /* has been told */
	}
	return add_image(&k->images, number, id);
}

static int read_images(struct coco *k)
{
	int depth = 0, token, previous = 0, r = 0;
	bool images = false; /* the last key on top was "images" */

	while (r == 0 && (token = next_token(&k->s))) {
		if (token == '?')
			return -EINVAL;
		if (depth == 2 && images && token == '{') {
			r = read_image(k);
			previous = '}';
			continue;
		}
		depth += token == '{' || token == '[';
		depth -= token == '}' || token == ']';
		if (depth == 1 && token == ']' && images)
			return 0; /* what follows are annotations */
		if (depth == 1 && token == 's' && previous != ':')
			images = !strcmp(k->s.text, "images");
		previous = token;
	}
	return r;
}

int clair_index_coco(const struct clair_catalog *catalog, uint32_t folder, const char *file,
		     uint32_t **ids, uint32_t *count, char **error)
{
	struct coco k = { .catalog = catalog, .folder = folder, .file = file,
			  .error = error };

	int r = open_scanner("coco", file, &k.s, error);
	if (r < 0)
		return r;
	r = read_images(&k);
	close_scanner(&k.s);
	if (r == -ENOENT)
		r = -EINVAL;
	else if (r == -EINVAL || (r == 0 && !k.images.count))
		r = clair_bad(error, "index=coco:%s: this is no COCO file with images", file);
	uint32_t *list = r == 0 ? malloc(sizeof *list * k.images.count) : NULL;
	if (r == 0 && !list)
		r = -ENOMEM;
	if (r == 0) {
		uint32_t kept = 0;

		qsort(k.images.at, k.images.count, sizeof *k.images.at, by_number);
		for (size_t i = 0; i < k.images.count; i++)
			if (i + 1 == k.images.count ||
			    k.images.at[i + 1].number != k.images.at[i].number)
				list[kept++] = k.images.at[i].id;
		*ids = list;
		*count = kept;
	}
	free(k.images.at);
	return r;
}
