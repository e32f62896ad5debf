# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# `make dist` builds the tarball of this version. `make rpm` runs rpmbuild on it and builds
# packages for Fedora, RHEL and derivatives into build/rpm/. Their build dependencies have other
# names on Debian, so rpmbuild does not check them.

RPM := $(B)/rpm
DIST_TARBALL := $(B)/dist/actmem-$(ACTMEM_VERSION).tar.xz

.PHONY: dist
dist:
	@packaging/dist $(DIST_TARBALL)
	@ls $(DIST_TARBALL)

.PHONY: rpm
rpm: dist
	@scripts/setup packages build demo rpm
	@$(MAKE) --no-print-directory -s $(VENV)/.ready
	@rm -rf $(RPM) && mkdir -p $(RPM)
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL rpmbuild -tb --nodeps $(DIST_TARBALL) \
		--define '_topdir $(abspath $(RPM))/work' --define '_rpmdir $(abspath $(RPM))' \
		--define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
		--define '_sysusersdir %{_prefix}/lib/sysusers.d' \
		--define '_udevrulesdir %{_prefix}/lib/udev/rules.d' \
		--define '_buildhost actmem' --define 'xla_include $(abspath $(XLA_INCLUDE))' \
		>$(RPM)/build.log 2>&1 || { tail -n 30 $(RPM)/build.log >&2; exit 1; }
	@rm -rf --one-file-system $(RPM)/work
	@ls $(RPM)/*.rpm
