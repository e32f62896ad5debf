# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Man pages, built by scdoc. Without scdoc, make builds everything else.

vpath %.scd docs docs/man

# PAGE/NAME of each further name in a page's NAME section, by which man also finds the page.
MAN_ALIASES := $(shell awk '/^# / { is_name = $$2 == "NAME" } \
	is_name && sub(/ - .*/, "") { count = split($$0, names, /, /); \
		page = FILENAME; sub(/.*\//, "", page); sub(/\.scd$$/, "", page); \
		for (i = 1; i <= count; i++) if (names[i] ".3" != page) print page "/" names[i] ".3" }' \
	docs/man/*.scd)
MAN_PAGES := $(patsubst %.scd,$(B)/man/%,$(notdir $(wildcard docs/*.scd docs/man/*.scd))) \
	$(addprefix $(B)/man/,$(notdir $(MAN_ALIASES)))

ifneq ($(shell command -v scdoc),)
ALL += $(MAN_PAGES)
INSTALLED_MAN_PAGES := $(MAN_PAGES)
else
LEFT_OUT += 'the man pages: scdoc is not installed'
endif

# The variables of some pages come from the table of knobs.
MAN_VARIABLES := $(B)/docs/variables

$(MAN_VARIABLES): $(addprefix $(B)/obj/,docs/variables.o lib/base/size.o lib/config/knob.o \
		lib/config/read.o)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@

# .TH turns groff's hyphenation on again, which would break names.
$(B)/man/%: %.scd docs/docs.mk $(MAN_VARIABLES)
	@mkdir -p $(@D)
	sed 's|^@VARIABLES *\(.*\)@$$|$(MAN_VARIABLES) \1|e' $< >$@.scd
	scdoc <$@.scd >$@
	rm $@.scd
	sed -i '/^\.TH /a .nh' $@

define MAN_ALIAS
$(B)/man/$(notdir $(1)): $(patsubst %/,%.scd,$(dir $(1)))
	@mkdir -p $$(@D)
	echo '.so man3/$(patsubst %/,%,$(dir $(1)))' >$$@
endef
$(foreach alias,$(MAN_ALIASES),$(eval $(call MAN_ALIAS,$(alias))))

install:: $(INSTALLED_MAN_PAGES)
	set -e; for page in $^; do \
		install -D -m 644 $$page $(MANDIR)/man$${page##*.}/$${page##*/}; \
	done

uninstall::
	rm -f $(foreach page,$(notdir $(MAN_PAGES)),$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(page))
