/* SPDX-License-Identifier: BSD-3-Clause */
/* Hugging Face's splits by keywords: a keyword stands between characters that are no
 * letters, in a folder's name or, when no folder has one, in a file's. Without any keyword
 * all files are train. */
#include "index_internal.h"

#include <string.h>

static const struct {
	const char *split;
	const char *keywords[5];
} splits[] = {
	{ "train", { "train", "training" } },
	{ "validation", { "validation", "valid", "dev", "val" } },
	{ "test", { "test", "testing", "eval", "evaluation" } },
};
#define SPLITS (sizeof splits / sizeof splits[0])

static bool is_separator(char c)
{
	return c && strchr("-._ 0123456789/", c);
}

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p++)
		if ((p == text || is_separator(p[-1])) && (!p[n] || is_separator(p[n])))
			return true;
	return false;
}

static bool has_keyword(const char *text, size_t split)
{
	for (const char *const *k = splits[split].keywords; *k; k++)
		if (has_word(text, *k))
			return true;
	return false;
}

static bool any_keyword(const char *text)
{
	for (size_t i = 0; i < SPLITS; i++)
		if (has_keyword(text, i))
			return true;
	return false;
}

void clair_found_keep_split(struct found *f, const char *split)
{
	bool in_folders = false, in_names = false;
	size_t which = 0;
	uint32_t kept = 0;

	while (which < SPLITS - 1 && strcmp(splits[which].split, split))
		which++;
	for (uint32_t i = 0; i < f->folder_count && !in_folders; i++)
		in_folders = f->folders[i].end > f->folders[i].begin &&
			     any_keyword(f->folders[i].path);
	for (uint32_t i = 0; i < f->count && !in_folders && !in_names; i++)
		in_names = any_keyword(found_name(f, &f->items[i]));
	for (uint32_t i = 0; i < f->count; i++) {
		const struct found_item *item = &f->items[i];
		bool keep = in_folders ? has_keyword(f->folders[item->folder].path, which) :
			    in_names   ? has_keyword(found_name(f, item), which) :
					 which == 0;

		if (keep)
			f->items[kept++] = *item;
	}
	f->count = kept;
}
