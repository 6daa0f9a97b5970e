/* SPDX-License-Identifier: BSD-3-Clause */
#include "index_internal.h"

#include <stdio.h>
#include <string.h>

/* --- strings as Python sees them ---------------------------------------------------- */

/* How many bytes more belong to the UTF-8 sequence that begins with BYTE; 0: none can. */
static unsigned more_bytes(unsigned char byte)
{
	return byte < 0xc2 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : byte < 0xf5 ? 3 : 0;
}

static uint32_t code_point(const unsigned char **p)
{
	const unsigned char *s = *p;
	unsigned more = more_bytes(s[0]), i;

	if (s[0] < 0x80) {
		*p += 1;
		return s[0];
	}
	uint32_t c = s[0] & (0x3fu >> more);
	for (i = 1; i <= more && (s[i] & 0xc0) == 0x80; i++)
		c = c << 6 | (s[i] & 0x3f);
	bool whole = more && i == more + 1;
	if (!whole || (more == 2 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (more == 3 && (c < 0x10000 || c > 0x10ffff))) {
		*p += 1;
		return 0xdc00 + s[0];
	}
	*p += more + 1;
	return c;
}

/* Two strings read as one. The first ends where a path's component ends, so that no
 * sequence lies across. */
struct text {
	const unsigned char *p, *rest;
};

static void normalise(struct text *t)
{
	if (!*t->p && t->rest) {
		t->p = t->rest;
		t->rest = NULL;
	}
}

static struct text text_of(const char *a, const char *rest)
{
	struct text t = { (const unsigned char *)a, (const unsigned char *)rest };

	normalise(&t);
	return t;
}

int clair_compare_python2(const char *a, const char *a_rest, const char *b,
			  const char *b_rest)
{
	struct text x = text_of(a, a_rest), y = text_of(b, b_rest);

	while (*x.p && *y.p) {
		if (*x.p == *y.p && *x.p < 0x80) {
			x.p++;
			y.p++;
		} else {
			uint32_t c = code_point(&x.p), d = code_point(&y.p);
			if (c != d)
				return c < d ? -1 : 1;
		}
		normalise(&x);
		normalise(&y);
	}
	return (*x.p != 0) - (*y.p != 0);
}

int clair_compare_python(const char *a, const char *b)
{
	return clair_compare_python2(a, NULL, b, NULL);
}

/* --- items -------------------------------------------------------------------------- */

/* What is the same stays in the order of finding: Python's sort is stable. */
static int by_finding(const struct found_item *a, const struct found_item *b)
{
	if (a->folder != b->folder)
		return a->folder < b->folder ? -1 : 1;
	return a->entry < b->entry ? -1 : a->entry > b->entry;
}

static const char *path_of(const struct found *f, const struct found_item *item)
{
	return f->folders[item->folder].path;
}

int clair_by_path(const void *p, const void *q, void *arg)
{
	const struct found *f = arg;
	const struct found_item *a = p, *b = q;
	int order = a->folder == b->folder ?
			    clair_compare_python(found_name(f, a), found_name(f, b)) :
			    clair_compare_python2(path_of(f, a), found_name(f, a),
						  path_of(f, b), found_name(f, b));

	return order ? order : by_finding(a, b);
}

static int compare_bytes2(const char *a, const char *a_rest, const char *b,
			  const char *b_rest)
{
	struct text x = text_of(a, a_rest), y = text_of(b, b_rest);

	while (*x.p && *x.p == *y.p) {
		x.p++;
		y.p++;
		normalise(&x);
		normalise(&y);
	}
	return (*x.p > *y.p) - (*x.p < *y.p);
}

int clair_by_bytes(const void *p, const void *q, void *arg)
{
	const struct found *f = arg;
	const struct found_item *a = p, *b = q;
	int order = compare_bytes2(path_of(f, a), found_name(f, a), path_of(f, b),
				   found_name(f, b));

	return order ? order : by_finding(a, b);
}

int clair_by_basename(const void *p, const void *q, void *arg)
{
	const struct found *f = arg;
	int order = clair_compare_python(found_name(f, p), found_name(f, q));

	return order ? order : clair_by_path(p, q, arg);
}

/* The label is the first component; bytes of label and name, put together. */
int clair_by_label_down(const void *p, const void *q, void *arg)
{
	const struct found *f = arg;
	const struct found_item *a = p, *b = q;
	char label_a[256], label_b[256];

	snprintf(label_a, sizeof label_a, "%.*s", (int)strcspn(path_of(f, a), "/"),
		 path_of(f, a));
	snprintf(label_b, sizeof label_b, "%.*s", (int)strcspn(path_of(f, b), "/"),
		 path_of(f, b));
	int order = compare_bytes2(label_b, found_name(f, b), label_a, found_name(f, a));
	return order ? order : by_finding(a, b);
}

/* --- timm's natural key: text and runs of digits in turn, lower case ---------------- */

static bool is_digit(unsigned char c)
{
	return c >= '0' && c <= '9';
}

static unsigned char lower(unsigned char c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

static void step(struct text *t)
{
	t->p++;
	normalise(t);
}

/* Both stand at digits: as numbers of any length. */
static int compare_numbers(struct text *x, struct text *y)
{
	int order = 0;

	while (*x->p == '0')
		step(x);
	while (*y->p == '0')
		step(y);
	/* The first difference counts, unless one of them has more digits. */
	while (is_digit(*x->p) && is_digit(*y->p)) {
		if (!order)
			order = (*x->p > *y->p) - (*x->p < *y->p);
		step(x);
		step(y);
	}
	if (is_digit(*x->p) || is_digit(*y->p))
		return is_digit(*x->p) ? 1 : -1;
	return order;
}

static int compare_natural(struct text x, struct text y)
{
	while (*x.p && *y.p) {
		int order;

		if (is_digit(*x.p) && is_digit(*y.p)) {
			order = compare_numbers(&x, &y);
			if (order)
				return order;
			continue;
		}
		/* Text against digits: the digits' side has an empty text here, which is
		 * a prefix of the other's. */
		if (is_digit(*x.p) != is_digit(*y.p))
			return is_digit(*x.p) ? -1 : 1;
		order = lower(*x.p) - lower(*y.p);
		if (order)
			return order;
		step(&x);
		step(&y);
	}
	return (*x.p != 0) - (*y.p != 0);
}

int clair_by_natural(const void *p, const void *q, void *arg)
{
	const struct found *f = arg;
	const struct found_item *a = p, *b = q;
	int order = compare_natural(text_of(path_of(f, a), found_name(f, a)),
				    text_of(path_of(f, b), found_name(f, b)));

	return order ? order : by_finding(a, b);
}

/* --- folders ------------------------------------------------------------------------ */

/* A folder's path without its last slash: Python compares "s" with "s-x", not "s/". */
static int compare_folders(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	char x[8192], y[8192];

	if (n >= sizeof x || m >= sizeof y)
		return clair_compare_python(a, b);
	memcpy(x, a, n + 1);
	memcpy(y, b, m + 1);
	if (n)
		x[n - 1] = '\0';
	if (m)
		y[m - 1] = '\0';
	return clair_compare_python(x, y);
}

int clair_folders_by_path(const void *p, const void *q, void *arg)
{
	const struct found_folder *a = p, *b = q;

	(void)arg;
	return compare_folders(a->path, b->path);
}

int clair_folders_by_class(const void *p, const void *q, void *arg)
{
	const struct found_folder *a = p, *b = q;
	size_t n = strcspn(a->path, "/"), m = strcspn(b->path, "/");

	(void)arg;
	if (n != m || memcmp(a->path, b->path, n)) {
		char x[256], y[256];
		snprintf(x, sizeof x, "%.*s", (int)n, a->path);
		snprintf(y, sizeof y, "%.*s", (int)m, b->path);
		return clair_compare_python(x, y);
	}
	return compare_folders(a->path, b->path);
}

int clair_folders_by_bytes(const void *p, const void *q, void *arg)
{
	const struct found_folder *a = p, *b = q;
	size_t n = strlen(a->path), m = strlen(b->path);

	(void)arg;
	/* Without the slash, as above. */
	size_t common = n && m ? (n < m ? n : m) - 1 : 0;
	int order = memcmp(a->path, b->path, common);
	return order ? order : (n > m) - (n < m);
}
