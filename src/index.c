/* SPDX-License-Identifier: BSD-3-Clause */
#include "index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "index_internal.h"
#include "index_json.h"
#include "index_list.h"
#include "words.h"

static const char *const torchvision_images[] = { ".jpg", ".jpeg", ".png", ".ppm",
						  ".bmp", ".pgm", ".tif", ".tiff",
						  ".webp", NULL };
static const char *const timm_images[] = { ".png", ".jpg", ".jpeg", NULL };
static const char *const keras_images[] = { ".bmp", ".gif", ".jpeg", ".jpg", ".png",
					    NULL };
static const char *const keras_text[] = { ".txt", NULL };
static const char *const keras_audio[] = { ".wav", NULL };
static const char *const fastai_images[] = {
	".bmp", ".gif", ".ief", ".jpe", ".jpeg", ".jpg", ".png", ".svg", ".tif", ".tiff",
	".ico", ".pbm", ".pgm", ".pnm", ".ppm",	 ".ras", ".rgb", ".xbm", ".xpm", ".xwd",
	".webp", NULL
};
static const char *const numpy_files[] = { ".npy", NULL };
static const char *const dali_files[] = { ".jpg", ".jpeg", ".png",  ".bmp", ".tif", ".tiff",
					  ".pnm", ".ppm",  ".pgm",  ".pbm", ".jp2", ".webp",
					  ".flac", ".ogg", ".wav", NULL };
static const char *const yolo_images[] = { ".bmp", ".dng",  ".jpeg", ".jpg",  ".mpo", ".png",
					   ".tif", ".tiff", ".webp", ".pfm", ".heic", NULL };
/* Pillow's, as far as people have them. */
static const char *const pillow_images[] = {
	".blp",  ".bmp",  ".dib",  ".bufr", ".cur",  ".pcx",  ".dcx", ".dds",  ".ps",
	".eps",  ".fit",  ".fits", ".fli",  ".flc",  ".ftc",  ".ftu", ".gbr",  ".gif",
	".grib", ".png",  ".apng", ".jp2",  ".j2k",  ".jpc",  ".jpf", ".jpx",  ".j2c",
	".icns", ".ico",  ".im",   ".iim",  ".tif",  ".tiff", ".jfif", ".jpe", ".jpg",
	".jpeg", ".mpg",  ".mpeg", ".msp",  ".pcd",  ".pxr",  ".pbm", ".pgm",  ".ppm",
	".pnm",  ".psd",  ".bw",   ".rgb",  ".rgba", ".sgi",  ".ras", ".tga",  ".icb",
	".vda",  ".vst",  ".webp", ".wmf",  ".emf",  ".xbm",  ".xpm", NULL
};

/* An order is either of folders, and of names inside each of them (NULL: as they were
 * found), or of whole items. Neither: as it was found. */
struct method {
	struct clair_index index;
	const char *const *extensions;
	unsigned flags;
	found_compare *folders, *names, *items;
	const char *split; /* Hugging Face's, or NULL */
};

static const struct method methods[] = {
	{ { "imagefolder", "torchvision's ImageFolder: classes, their folders, names" },
	  torchvision_images, FIND_FOLLOW | FIND_CLASSES, clair_folders_by_class,
	  clair_by_path, NULL, NULL },
	{ { "datasetfolder", "the same for files of every kind" }, NULL,
	  FIND_FOLLOW | FIND_CLASSES, clair_folders_by_class, clair_by_path, NULL, NULL },
	{ { "sorted", "all files by their whole path, as Python sorts strings" }, NULL, 0,
	  NULL, NULL, clair_by_path, NULL },
	{ { "walk", "all files as os.walk finds them: readdir's order, files first" }, NULL, 0,
	  NULL, NULL, NULL, NULL },
	{ { "readdir", "the files of the folder itself, as os.listdir gives them" }, NULL,
	  FIND_FLAT, NULL, NULL, NULL, NULL },
	{ { "sorted-images", "pictures by their whole path" }, torchvision_images, 0, NULL,
	  NULL, clair_by_path, NULL },
	{ { "walk-images", "pictures as os.walk finds them" }, torchvision_images, 0,
	  NULL, NULL, NULL, NULL },
	{ { "fastai", "fastai's get_image_files: os.walk's order, nothing hidden" },
	  fastai_images, FIND_FOLLOW | FIND_VISIBLE, NULL, NULL, NULL, NULL },
	{ { "inaturalist", "torchvision's INaturalist: classes in order, readdir's inside" },
	  NULL, FIND_FOLLOW | FIND_CLASSES | FIND_ONE_LEVEL, clair_folders_by_class, NULL,
	  NULL, NULL },
	{ { "basename", "all files by their name without folders" }, NULL, 0, NULL, NULL,
	  clair_by_basename, NULL },
	{ { "bytes", "all files by their whole path, bytewise (TensorFlow's list_files)" },
	  NULL, 0, NULL, NULL, clair_by_bytes, NULL },
	{ { "natural", "timm's ImageFolder: natural key of the lower-cased path" },
	  timm_images, FIND_FOLLOW, NULL, NULL, clair_by_natural, NULL },
	{ { "hf-imagefolder", "Hugging Face's imagefolder, its train split" }, pillow_images,
	  FIND_FOLLOW | FIND_VISIBLE | FIND_PUBLIC, NULL, NULL, clair_by_path, "train" },
	{ { "hf-imagefolder-validation", "the same, its validation split" }, pillow_images,
	  FIND_FOLLOW | FIND_VISIBLE | FIND_PUBLIC, NULL, NULL, clair_by_path,
	  "validation" },
	{ { "hf-imagefolder-test", "the same, its test split" }, pillow_images,
	  FIND_FOLLOW | FIND_VISIBLE | FIND_PUBLIC, NULL, NULL, clair_by_path, "test" },
	{ { "ultralytics", "YOLO's pictures by their whole path" }, yolo_images,
	  FIND_FOLLOW | FIND_VISIBLE, NULL, NULL, clair_by_path, NULL },
	{ { "keras", "Keras' image_dataset_from_directory before its shuffle" }, keras_images,
	  FIND_CLASSES, clair_folders_by_class, clair_by_path, NULL, NULL },
	{ { "keras-text", "the same for text_dataset_from_directory" }, keras_text,
	  FIND_CLASSES, clair_folders_by_class, clair_by_path, NULL, NULL },
	{ { "keras-audio", "the same for audio_dataset_from_directory" }, keras_audio,
	  FIND_CLASSES, clair_folders_by_class, clair_by_path, NULL, NULL },
	{ { "keras-flat", "the same for pictures with labels=None" }, keras_images, 0,
	  clair_folders_by_path, clair_by_path, NULL, NULL },
	{ { "dali", "DALI's readers.file(file_root): bytewise, one level of folders" },
	  dali_files, FIND_CLASSES | FIND_ONE_LEVEL, clair_folders_by_bytes, clair_by_bytes,
	  NULL, NULL },
	{ { "dali-all", "the same with file_filters that take every file" }, NULL,
	  FIND_CLASSES | FIND_ONE_LEVEL, clair_folders_by_bytes, clair_by_bytes, NULL, NULL },
	{ { "dali-numpy", "DALI's readers.numpy(file_root)" }, numpy_files, FIND_ONE_LEVEL,
	  clair_folders_by_bytes, clair_by_bytes, NULL, NULL },
	{ { "nopfs", "NoPFS: label and name put together, descending" }, NULL,
	  FIND_CLASSES | FIND_ONE_LEVEL, NULL, NULL, clair_by_label_down, NULL },
};
#define METHODS (sizeof methods / sizeof methods[0])

/* Those that have a file. */
static const struct from_file {
	const char *prefix;
	struct clair_index index;
	int (*make)(const struct clair_catalog *catalog, uint32_t folder, const char *file,
		    uint32_t **ids, uint32_t *count, char **error);
} from_files[] = {
	{ "list:",
	  { "list:FILE", "the paths in FILE, one a line; list:FILE:COLUMN of a CSV" },
	  clair_index_list },
	{ "coco:",
	  { "coco:FILE", "the pictures of a COCO annotation file by id (CocoDetection)" },
	  clair_index_coco },
	{ "json:",
	  { "json:FILE", "what the strings in FILE name, in the order of appearance" },
	  clair_index_json },
};
#define FROM_FILES (sizeof from_files / sizeof from_files[0])

const struct clair_index *clair_index_at(size_t i)
{
	if (i < METHODS)
		return &methods[i].index;
	return i - METHODS < FROM_FILES ? &from_files[i - METHODS].index : NULL;
}

static const struct from_file *find_from_file(const char *name)
{
	for (size_t i = 0; i < FROM_FILES; i++)
		if (!strncmp(name, from_files[i].prefix, strlen(from_files[i].prefix)))
			return &from_files[i];
	return NULL;
}

bool clair_index_exists(const char *name)
{
	for (size_t i = 0; i < METHODS; i++)
		if (!strcmp(methods[i].index.name, name))
			return true;
	return !strcmp(name, "auto") || find_from_file(name);
}

static void take_ids(const struct found_item *items, uint32_t count, bool names,
		     uint32_t *ids)
{
	for (uint32_t i = 0; i < count; i++)
		ids[i] = names ? items[i].entry : items[i].to;
}

static void order_items(const struct method *m, struct found *f, bool names, uint32_t *ids)
{
	uint32_t done = 0;

	if (!m->folders) {
		if (m->items && f->count)
			qsort_r(f->items, f->count, sizeof *f->items, m->items, f);
		take_ids(f->items, f->count, names, ids);
		return;
	}
	/* Names first, while items know their folders by number. */
	for (uint32_t i = 0; m->names && i < f->folder_count; i++) {
		const struct found_folder *d = &f->folders[i];
		if (d->end - d->begin > 1)
			qsort_r(f->items + d->begin, d->end - d->begin, sizeof *f->items,
				m->names, f);
	}
	qsort_r(f->folders, f->folder_count, sizeof *f->folders, m->folders, f);
	for (uint32_t i = 0; i < f->folder_count; i++) {
		const struct found_folder *d = &f->folders[i];
		take_ids(f->items + d->begin, d->end - d->begin, names, ids + done);
		done += d->end - d->begin;
	}
}

static int make_by(const struct method *m, const struct clair_catalog *catalog,
		   uint32_t folder, bool names, uint32_t **ids, uint32_t *count)
{
	struct found f = { .catalog = catalog };
	uint32_t *list = NULL;

	int r = clair_found_find(&f, folder, m->extensions, m->flags);
	if (r == 0 && m->split)
		clair_found_keep_split(&f, m->split);
	if (r == 0) {
		list = malloc(sizeof *list * (f.count + 1ul));
		r = list ? 0 : -ENOMEM;
	}
	if (r == 0) {
		order_items(m, &f, names, list);
		*ids = take_ptr(list);
		*count = f.count;
	}
	free(list);
	clair_found_finish(&f);
	return r;
}

static bool has_picture(const struct clair_catalog *c, uint32_t folder, unsigned depth)
{
	const struct clair_entry *e = clair_catalog_entry(c, folder);

	for (uint32_t i = 0; i < e->count; i++)
		if (clair_catalog_entry(c, e->first + i)->kind != CLAIR_FOLDER &&
		    clair_found_extension(clair_catalog_name(c, e->first + i),
					  torchvision_images))
			return true;
	for (uint32_t i = 0; i < e->count && depth; i++)
		if (clair_catalog_entry(c, e->first + i)->kind == CLAIR_FOLDER &&
		    has_picture(c, e->first + i, depth - 1))
			return true;
	return false;
}

/* Two folders with a picture not far below look like classes. */
static bool has_classes(const struct clair_catalog *c, uint32_t folder)
{
	const struct clair_entry *e = clair_catalog_entry(c, folder);
	unsigned classes = 0;

	for (uint32_t i = 0; i < e->count && classes < 2; i++) {
		uint32_t id = clair_catalog_resolve(c, e->first + i);

		if (id != CLAIR_NO_ID && clair_catalog_entry(c, id)->kind == CLAIR_FOLDER &&
		    has_picture(c, id, 8))
			classes++;
	}
	return classes >= 2;
}

const char *clair_index_meant(const struct clair_catalog *catalog, uint32_t folder,
			      const char *name)
{
	if (strcmp(name, "auto"))
		return name;
	return has_classes(catalog, folder) ? "imagefolder" : "sorted";
}

static int make_any(const struct clair_catalog *catalog, uint32_t folder, const char *name,
		    bool names, uint32_t **ids, uint32_t *count, char **error)
{
	name = clair_index_meant(catalog, folder, name);
	const struct from_file *from = find_from_file(name);
	if (from) {
		int r = from->make(catalog, folder, name + strlen(from->prefix), ids, count,
				   error);
		for (uint32_t i = 0; r == 0 && !names && i < *count; i++) {
			uint32_t to = clair_catalog_resolve(catalog, (*ids)[i]);
			if (to != CLAIR_NO_ID)
				(*ids)[i] = to;
		}
		return r;
	}
	for (size_t i = 0; i < METHODS; i++) {
		if (strcmp(methods[i].index.name, name))
			continue;
		int r = make_by(&methods[i], catalog, folder, names, ids, count);
		if (r == -ELOOP || r == -EOVERFLOW)
			return clair_bad(error,
					 "index=%s: links make the folders endless", name);
		return r;
	}
	return clair_bad(error,
			 "index=%s: there is no such dataset order; `clairfs order --list` "
			 "shows them",
			 name);
}

int clair_index_names(const struct clair_catalog *catalog, uint32_t folder,
		      const char *name, uint32_t **ids, uint32_t *count, char **error)
{
	return make_any(catalog, folder, name, true, ids, count, error);
}

int clair_index_make(const struct clair_catalog *catalog, uint32_t folder, const char *name,
		     uint32_t **ids, uint32_t *count, char **error)
{
	return make_any(catalog, folder, name, false, ids, count, error);
}
