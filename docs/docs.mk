# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Man pages, built by scdoc. Without scdoc or python3, make builds everything else.

vpath %.scd docs

# Those of section 3, except libactmem(3), come from the public headers.
MAN_CALLS := $(shell $(PYTHON3) -B scripts/man-pages --list)
MAN_HAND := $(patsubst docs/%.scd,$(B)/man/%,$(wildcard docs/*.scd))
MAN_PAGES := $(MAN_HAND) $(MAN_CALLS:%=$(B)/man/%.3)

ifneq ($(and $(shell command -v scdoc),$(MAN_CALLS)),)
ALL += $(MAN_PAGES)
INSTALLED_MAN_PAGES := $(MAN_PAGES)
else
LEFT_OUT += 'the man pages: scdoc or python3 is not installed'
endif

# The variables of some pages come from the table of knobs.
MAN_VARIABLES := $(B)/docs/variables

$(MAN_VARIABLES): $(addprefix $(B)/obj/,docs/variables.o lib/base/size.o lib/config/knob.o \
		lib/config/read.o)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@

# .TH turns groff's hyphenation on again, which would break names.
$(MAN_HAND): $(B)/man/%: %.scd docs/docs.mk $(MAN_VARIABLES)
	@mkdir -p $(@D)
	sed 's|^@VARIABLES@$$|$(MAN_VARIABLES)|e' $< >$@.scd
	scdoc <$@.scd >$@
	rm $@.scd
	sed -i '/^\.TH /a .nh' $@

$(B)/man/.calls: scripts/man-pages $(wildcard lib/include/*.h docs/man/*.c)
	@mkdir -p $(@D)
	$(PYTHON3) -B scripts/man-pages $(@D)
	touch $@

$(MAN_CALLS:%=$(B)/man/%.3): $(B)/man/.calls
	@test -e $@ || $(PYTHON3) -B scripts/man-pages $(@D)

install:: $(INSTALLED_MAN_PAGES)
	set -e; for page in $^; do \
		install -D -m 644 $$page $(MANDIR)/man$${page##*.}/$${page##*/}; \
	done

uninstall::
	rm -f $(foreach page,$(notdir $(MAN_PAGES)),$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(page))
