// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Breaks sentences between words into lines that fit the terminal. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "wrap.h"

#define COLUMNS_MIN	24		/* minimum width of sentences, even on a narrow terminal */

size_t terminal_width(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		return 0;
	return size.ws_col;
}

/* Counts the columns of a text. In UTF-8, a continuation byte takes no column. */
static size_t width_of(const char *text, size_t length)
{
	size_t i, width = 0;

	for (i = 0; i < length; i++)
		width += (text[i] & 0xc0) != 0x80;
	return width;
}

static size_t text_width(const char *text)
{
	return width_of(text, strlen(text));
}

char *wrap_text(const char *text, size_t width)
{
	char *copy = strdup(text), *word, *end;
	size_t used = 0, columns;

	for (word = copy; word && *word; word = end + 1) {
		end = word + strcspn(word, " ");
		columns = width_of(word, (size_t)(end - word));
		if (used && used + 1 + columns > width) {
			word[-1] = '\n';
			used = columns;
		} else {
			used += columns + (word > copy);
		}
		if (!*end)
			break;
	}
	return copy;
}

static const char *cell_of(struct libscols_table *table, size_t line, size_t column)
{
	return scols_cell_get_data(scols_line_get_cell(scols_table_get_line(table, line), column));
}

static size_t widest_cell(struct libscols_table *table, size_t column)
{
	struct libscols_column *heading = scols_table_get_column(table, column);
	size_t most = 0, width, i;

	if (!scols_table_is_noheadings(table))
		most = text_width(scols_column_get_name(heading));
	for (i = 0; i < scols_table_get_nlines(table); i++) {
		const char *text = cell_of(table, i, column);

		width = text ? text_width(text) : 0;
		most = width > most ? width : most;
	}
	return most;
}

/* Returns the width that the other columns leave for @column, or 0 if it needs no wrapping. */
static size_t room_for(struct libscols_table *table, size_t column)
{
	size_t terminal = terminal_width(), others = 0, i;

	for (i = 0; i < scols_table_get_ncols(table); i++)
		others += i == column ? 0 : widest_cell(table, i) + 1;
	if (!terminal || others + widest_cell(table, column) <= terminal)
		return 0;
	return terminal > others + COLUMNS_MIN ? terminal - others : COLUMNS_MIN;
}

int wrap_column(struct libscols_table *table, size_t column)
{
	size_t room = room_for(table, column), i;

	for (i = 0; room && i < scols_table_get_nlines(table); i++) {
		char *text = wrap_text(cell_of(table, i, column), room);

		if (!text || scols_line_refer_data(scols_table_get_line(table, i), column, text)) {
			free(text);
			return -ENOMEM;
		}
	}
	return 0;
}
