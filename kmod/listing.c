// SPDX-License-Identifier: GPL-2.0-only
/*
 * The text of targets_list. All targets take more than the page that one read can have, and the
 * counts change between one read and the next: a reader gets the rest of the text that was made
 * when the reading began.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "binary.h"
#include "listing.h"
#include "targets.h"

/* More readers at once than this may see a line twice, or not at all. */
#define READERS 16
/* Path and symbol; five numbers of up to 20 digits with their names; the state. */
#define LINE_SIZE (SB_PATH_SIZE + SB_SYMBOL_SIZE + 256)

struct text {
	/* Whose it is. Never followed: the file may be gone. */
	const struct file *reader;
	/* NULL once its end has been read. */
	char *text;
	size_t length;
	/* Larger is newer. */
	u64 used;
};

static DEFINE_MUTEX(lock);
static struct text texts[READERS];
static u64 uses;

static size_t print(char *to, size_t size, const struct sb_target *target)
{
	struct sb_counts counts;
	size_t length;

	sb_counts_read(target->counts, &counts);
	length = scnprintf(to, size, "%s:%s delay_ns=%llu hits=%llu", target->path, target->symbol,
			   READ_ONCE(target->delay_ns), counts.hits);
	if (target->pid)
		length += scnprintf(to + length, size - length, " pid=%d", target->pid);
	length += scnprintf(to + length, size - length,
			    " injected_ns=%llu interrupted=%llu file=%s\n", counts.injected_ns,
			    counts.interrupted, sb_binary_state(target));
	return length;
}

static int make(struct text *text)
{
	struct sb_target **targets = kcalloc(SB_TARGETS_MAX, sizeof(*targets), GFP_KERNEL);
	unsigned int i, count;
	int err = 0;

	if (!targets)
		return -ENOMEM;
	count = sb_targets_get(targets);
	text->length = 0;
	text->text = kvmalloc_array(count + 1, LINE_SIZE, GFP_KERNEL);
	if (!text->text)
		err = -ENOMEM;
	for (i = 0; i < count; i++) {
		if (!err)
			text->length += print(text->text + text->length, LINE_SIZE, targets[i]);
		sb_target_put(targets[i]);
	}
	kfree(targets);
	return err;
}

static struct text *find(const struct file *reader)
{
	unsigned int i;

	for (i = 0; i < READERS; i++) {
		if (texts[i].reader == reader)
			return &texts[i];
	}
	return NULL;
}

static void drop(struct text *text)
{
	kvfree(text->text);
	*text = (struct text){};
}

/*
 * Keeps a text in the place of the reader's last one, or of the one that was used the longest ago.
 */
static void keep(const struct text *new)
{
	struct text *place = find(new->reader);
	unsigned int i;

	if (!place) {
		place = &texts[0];
		for (i = 1; i < READERS; i++) {
			if (texts[i].used < place->used)
				place = &texts[i];
		}
	}
	drop(place);
	*place = *new;
}

/* Can the reader go on from there in the text that it has begun? */
static bool can_go_on(const struct file *reader, loff_t offset)
{
	const struct text *text = offset ? find(reader) : NULL;

	return text && (text->text || offset >= text->length);
}

/**
 * sb_listing_read - reads a part of the listing
 * @reader: who reads
 * @to: where to
 * @offset: from where; a reading begins at 0
 * @size: how much at most
 *
 * Return: how much was read, or an error.
 */
ssize_t sb_listing_read(const struct file *reader, char *to, loff_t offset, size_t size)
{
	struct text new = { .reader = reader };
	struct text *text;
	bool goes_on;
	ssize_t length;

	mutex_lock(&lock);
	goes_on = can_go_on(reader, offset);
	mutex_unlock(&lock);
	if (!goes_on) {
		/* Not under the lock: looks paths up. */
		length = make(&new);
		if (length)
			return length;
	}

	mutex_lock(&lock);
	if (new.text)
		keep(&new);
	text = find(reader);
	/* Another reader's may have taken its place in between; then this one starts anew. */
	length = -EAGAIN;
	if (text) {
		length = memory_read_from_buffer(to, size, &offset, text->text, text->length);
		text->used = ++uses;
	}
	if (!length) {
		kvfree(text->text);
		text->text = NULL;
	}
	mutex_unlock(&lock);
	return length;
}

/** sb_listing_close - frees what readers have left behind. */
void sb_listing_close(void)
{
	unsigned int i;

	for (i = 0; i < READERS; i++)
		drop(&texts[i]);
}
