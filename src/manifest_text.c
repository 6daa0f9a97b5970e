/* SPDX-License-Identifier: BSD-3-Clause */
#include "manifest_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A column that names no file in so many values, nor one in eight of more, is not looked at. */
#define PATIENCE 64

static struct column *column_at(struct table *t, unsigned i)
{
	if (i >= MANIFEST_COLUMNS)
		return NULL;
	while (t->count <= i) {
		struct column *c = &t->columns[t->count];
		*c = (struct column){ 0 };
		snprintf(c->name, sizeof c->name, "%u", t->count++);
	}
	return &t->columns[i];
}

static struct column *column_named(struct table *t, const char *name)
{
	for (unsigned i = 0; i < t->count; i++)
		if (!strcmp(t->columns[i].name, name))
			return &t->columns[i];
	struct column *c = column_at(t, t->count);
	if (c)
		snprintf(c->name, sizeof c->name, "%s", name);
	return c;
}

static int take(struct table *t, struct column *c, const char *text, size_t length,
		uint32_t key)
{
	if (!c || !length || (c->strange > PATIENCE && c->strange / 8 > c->ids.count))
		return 0;
	uint32_t id = clair_names_find(t->names, text, length);
	if (id == CLAIR_NO_ID) {
		c->strange++;
		return 0;
	}
	int r = clair_indices_append(&c->ids, id);
	return r == 0 ? clair_indices_append(&c->keys, key) : r;
}

/* --- tables ----------------------------------------------------------------------------------- */

/* What divides the fields of these lines: a tab, a comma, a blank, or 0. */
static char divider_of(const char *text, size_t size)
{
	static const char dividers[] = "\t, ";
	size_t lines = 0, with[3] = { 0 };
	bool has[3] = { false };

	for (size_t i = 0; i < size && lines < 20; i++) {
		const char *d = text[i] ? strchr(dividers, text[i]) : NULL;

		if (d)
			has[d - dividers] = true;
		if (text[i] != '\n')
			continue;
		lines++;
		for (unsigned k = 0; k < 3; k++)
			with[k] += has[k];
		memset(has, 0, sizeof has);
	}
	for (unsigned k = 0; k < 3; k++)
		if (lines && with[k] * 5 >= lines * 4)
			return dividers[k];
	return 0;
}

/* One field at *AT, which moves past it; its text is [*BEGIN, *BEGIN + *LENGTH). */
static void next_field(char **at, char *end, char divider, char **begin, size_t *length)
{
	char *p = *at, *to;

	*begin = to = p;
	if (p < end && *p == '"') {
		for (p++; p < end && (*p != '"' || (p + 1 < end && p[1] == '"')); p++) {
			if (*p == '"')
				p++;
			*to++ = *p;
		}
		while (p < end && *p != divider)
			p++;
	} else {
		while (p < end && *p != divider)
			p++;
		to = p;
	}
	*length = (size_t)(to - *begin);
	while (*length && (*begin)[*length - 1] == ' ')
		--*length;
	*at = p < end ? p + 1 : end;
}

int clair_manifest_table(struct table *t, char *text, size_t size)
{
	char divider = divider_of(text, size);
	char *end = text + size;
	int r = 0;

	for (char *line = text; line < end && r == 0;) {
		char *stop = memchr(line, '\n', (size_t)(end - line));
		char *last = stop ? stop : end, *at = line, *field;
		size_t length;

		if (last > line && last[-1] == '\r')
			last--;
		if (!divider) {
			r = take(t, column_at(t, 0), line, (size_t)(last - line), 0);
		} else {
			for (unsigned i = 0; at < last && i < MANIFEST_COLUMNS && r == 0; i++) {
				next_field(&at, last, divider, &field, &length);
				r = take(t, column_at(t, i), field, length, 0);
			}
		}
		line = stop ? stop + 1 : end;
	}
	return r;
}

/* --- JSON --------------------------------------------------------------------------------------- */

struct json {
	struct table *table;
	char *at, *end;
	char key[48];       /* the last one */
	struct column *column; /* that got the last file of this object */
	size_t entry;
	uint32_t id; /* of this object, UINT32_MAX: not seen yet */
};

/* The string at AT, which stands behind its first quote; unescaped in place. */
static bool read_string(struct json *j, char **begin, size_t *length)
{
	static const char from[] = "bfnrt\"\\/", to[] = "\b\f\n\r\t\"\\/";
	char *out = j->at;

	*begin = out;
	for (; j->at < j->end && *j->at != '"'; j->at++) {
		if (*j->at != '\\') {
			*out++ = *j->at;
			continue;
		}
		if (++j->at >= j->end)
			return false;
		const char *k = *j->at ? strchr(from, *j->at) : NULL;
		/* Other characters than ASCII by their number: such a name is not found. */
		*out++ = k ? to[k - from] : '\\';
		if (!k)
			*out++ = *j->at;
	}
	if (j->at >= j->end)
		return false;
	j->at++;
	*length = (size_t)(out - *begin);
	return true;
}

static bool is_key(const struct json *j)
{
	const char *p = j->at;

	while (p < j->end && strchr(" \t\r\n", *p) && *p)
		p++;
	return p < j->end && *p == ':';
}

/* The id of an object may come before its file or after it. */
static void set_id(struct json *j, uint32_t id)
{
	j->id = id;
	if (j->column)
		j->column->keys.at[j->entry] = id;
}

static int read_value(struct json *j)
{
	char *text;
	size_t length;

	if (!read_string(j, &text, &length))
		return -EBADMSG;
	if (is_key(j)) {
		if (length >= sizeof j->key)
			length = sizeof j->key - 1;
		memcpy(j->key, text, length);
		j->key[length] = '\0';
		return 0;
	}
	struct column *c = column_named(j->table, j->key);
	size_t before = c ? c->ids.count : 0;
	int r = take(j->table, c, text, length, j->id);
	if (c && c->ids.count > before) {
		j->column = c;
		j->entry = before;
	}
	return r;
}

int clair_manifest_json(struct table *t, char *text, size_t size)
{
	struct json j = { .table = t, .at = text, .end = text + size, .id = UINT32_MAX };
	int r = 0;

	while (r == 0 && j.at < j.end) {
		char c = *j.at++;

		if (c == '"') {
			r = read_value(&j);
		} else if (c == '{' || c == '}') {
			j.column = NULL;
			j.id = UINT32_MAX;
		} else if (c >= '0' && c <= '9') {
			char *end;
			unsigned long v = strtoul(j.at - 1, &end, 10);
			/* The text ends with a NUL. */
			bool whole = v < UINT32_MAX && *end != '.';
			if (whole && !strcmp(j.key, "id"))
				set_id(&j, (uint32_t)v);
			else if (whole && !strcmp(j.key, "image_id"))
				r = clair_indices_append(&t->annotated, (uint32_t)v);
			j.at = end;
		}
	}
	return r == -EBADMSG ? 0 : r;
}
