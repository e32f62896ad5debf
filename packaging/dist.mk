# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tarball of this version, `make dist`, and the packages for Fedora and its kin that
# rpmbuild makes of it, `make rpm`, into build/rpm/. Those of Fedora that these are built with
# have other names than Debian's, so that rpmbuild is not asked whether they are there.

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
