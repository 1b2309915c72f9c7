# Larder: the two commands that a newcomer needs are `make demo` and `make test`.
CARGO ?= cargo
PREFIX ?= /usr/local
# Where cargo puts what it builds.
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
# The book, and the program that makes it, which scripts/deps installs.
BOOK := $(or $(CARGO_TARGET_DIR),target)/book
MDBOOK := $(or $(CARGO_TARGET_DIR),target)/tools/bin/mdbook
# The crates whose tests catch mutants; always together, so that what they depend on is compiled once.
WITH_MUTANTS := -p larder-core -p larder-sim -p larder-front -p larder-shared -p larder-pg --features mutants
# The packages, and the container image.
PACKAGES := $(or $(CARGO_TARGET_DIR),target)/packages
# What is installed; `make build` makes it.
LARDER ?= $(RELEASE)/larder
# Where `make demo` creates its files.
DEMO := $(or $(CARGO_TARGET_DIR),target)/demo
# The programs of the newest server of Debian; sorted as versions (15 after 9.6), and expanded when they are used, after the
# server may have been installed.
PG_BIN ?= $(patsubst %/postgres,%,$(shell ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -V | tail -n 1))
# The PostgreSQL that install-postgres is for.
PG_CONFIG ?= $(or $(addsuffix /pg_config,$(PG_BIN)),pg_config)
LARDER_PG ?= $(RELEASE)/liblarder_pg.so
# The directories of that PostgreSQL, in the shell.
PG_DIRECTORIES = lib=$$($(PG_CONFIG) --pkglibdir) && share=$$($(PG_CONFIG) --sharedir) && test -n "$$lib" -a -n "$$share" || \
	    { echo "PG_CONFIG=$(PG_CONFIG) does not say where its server is; Debian's is" \
	        "/usr/lib/postgresql/15/bin/pg_config" >&2; exit 2; }
# Most tests wait for a server: twice as many run at a time as there are processors.
THREADS ?= $(shell expr 2 '*' "$$(nproc)")
# How long each fuzz target runs.
SECONDS ?= 600

.PHONY: help build build-postgres install install-postgres demo demo-postgres test test-postgres lint deps-build deps-test \
	uninstall-postgres deps-demo deps-demo-postgres deps-docs docs uninstall bench fuzz clean packages test-packages image image-csi \
	deps-packages test-python deps-python test-csi test-csi-cluster \
	test-mutants

help:
	@echo "make demo    build, and show the main job end to end on files that it makes itself; as"
	@echo "             root also a database in a file system"
	@echo "make demo-postgres    PostgreSQL on a modelled slow disk, with the library and without; ARGS=--full: longer;"
	@echo "             ARGS=--restart: how long a start takes after kill -9"
	@echo "make test    everything that CI runs; installs the Debian packages that it lacks"
	@echo "make build   $(RELEASE)/larder"
	@echo "make bench   every bench, in full"
	@echo "make fuzz    every fuzz target for SECONDS ($(SECONDS)) each; installs cargo-fuzz"
	@echo "make build-postgres    the library for PostgreSQL; make install-postgres installs it for PG_CONFIG"
	@echo "             ($(PG_CONFIG)); make uninstall-postgres removes it"
	@echo "make packages    packages of Debian and an RPM, in $(PACKAGES); make test-packages installs and upgrades"
	@echo "             them in bare roots, as root; make image makes a container image from a package,"
	@echo "             make image-csi that of the driver for Kubernetes"
	@echo "make test-python    install the Python package into $(RELEASE)/../python, and test it; not in make test"
	@echo "make test-csi    the driver for Kubernetes, with Go: lints, tests, csi-sanity and the chart; not in make test"
	@echo "make test-csi-cluster    the driver with a real control plane of Kubernetes, which the first run builds; not in"
	@echo "             make test; ARGS: those of go test, such as -run Deletion"
	@echo "make docs    the book, in $(BOOK); builds mdBook the first time"
	@echo "make install the binary, manual pages, completions and systemd units, below PREFIX"
	@echo "             ($(PREFIX)) and DESTDIR; run make build before; make uninstall removes them"

build: deps-build
	$(CARGO) build --release --locked -p larder

# Does not build, so that it can be run as root without a toolchain.
install:
	@test -x $(LARDER) || { echo "$(LARDER): does not exist; run make build first, or give LARDER=PATH" \
	    "(sudo drops CARGO_TARGET_DIR)" >&2; exit 2; }
	install -D -m 755 $(LARDER) $(DESTDIR)$(PREFIX)/bin/larder
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(LARDER) man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(LARDER) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/larder
	$(LARDER) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_larder
	$(LARDER) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/larder.fish
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in larder@.service larder-nbd@.service larder-loop@.service larder-ublk.service; do \
	    sed 's,/usr/local/bin/,$(PREFIX)/bin/,' dist/systemd/$$unit \
	        > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit 1; \
	done
	install -D -m 644 docs/larder.toml $(DESTDIR)$(PREFIX)/share/doc/larder/larder.toml
	for drop_in in fuse.conf network.conf ublk.conf; do \
	    install -D -m 644 dist/systemd/$$drop_in $(DESTDIR)$(PREFIX)/share/doc/larder/$$drop_in || exit 1; \
	done
	install -d $(DESTDIR)$(PREFIX)/lib/udev/rules.d
	for rules in 61-larder.rules 61-larder-volume.rules; do \
	    sed 's,/usr/lib/udev/,$(PREFIX)/lib/udev/,' dist/udev/$$rules \
	        > $(DESTDIR)$(PREFIX)/lib/udev/rules.d/$$rules || exit 1; \
	done
	install -m 755 dist/udev/larder-origin dist/udev/larder-name $(DESTDIR)$(PREFIX)/lib/udev
	sed 's,/usr/local/bin/,$(PREFIX)/bin/,' dist/apparmor/larder-server \
	    > $(DESTDIR)$(PREFIX)/share/doc/larder/larder-server
	for file in larder.rules.yml grafana-dashboard.json; do \
	    install -D -m 644 dist/prometheus/$$file $(DESTDIR)$(PREFIX)/share/doc/larder/$$file || exit 1; \
	done
	for kind in sysusers.d tmpfiles.d; do \
	    install -D -m 644 dist/$$kind/larder.conf $(DESTDIR)$(PREFIX)/lib/$$kind/larder.conf || exit 1; \
	done

# What install installs, with the same PREFIX and DESTDIR.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/larder $(DESTDIR)$(PREFIX)/share/man/man1/larder.1 \
	    $(DESTDIR)$(PREFIX)/share/man/man1/larder-*.1 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/larder \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_larder \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/larder.fish
	for unit in larder@.service larder-nbd@.service larder-loop@.service larder-ublk.service; do \
	    rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; \
	done
	rm -f $(DESTDIR)$(PREFIX)/lib/udev/rules.d/61-larder.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d/61-larder-volume.rules \
	    $(DESTDIR)$(PREFIX)/lib/udev/larder-origin $(DESTDIR)$(PREFIX)/lib/udev/larder-name
	rm -f $(DESTDIR)$(PREFIX)/lib/sysusers.d/larder.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/larder.conf
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/larder

build-postgres: deps-build
	$(CARGO) build --release --locked -p larder-pg

# One library serves PostgreSQL 15 to 18. Does not build either.
install-postgres:
	@test -f $(LARDER_PG) || { echo "$(LARDER_PG): does not exist; run make build-postgres first, or give" \
	    "LARDER_PG=PATH (sudo drops CARGO_TARGET_DIR)" >&2; exit 2; }
	@$(PG_DIRECTORIES); \
	set -x; install -D -m 755 $(LARDER_PG) "$(DESTDIR)$$lib/larder.so" && \
	    install -d "$(DESTDIR)$$share/extension" && \
	    install -m 644 postgres/extension/larder.control postgres/extension/larder--*.sql \
	        "$(DESTDIR)$$share/extension" && \
	    install -d "$(DESTDIR)$$share/larder" && \
	    install -m 644 dist/postgres/larder.collector.yml dist/postgres/larder.queries.yml dist/postgres/grafana-dashboard.json \
	        "$(DESTDIR)$$share/larder"

# What install-postgres installs, with the same PG_CONFIG and DESTDIR.
uninstall-postgres:
	@$(PG_DIRECTORIES); \
	set -x; rm -f "$(DESTDIR)$$lib/larder.so" "$(DESTDIR)$$share/extension/larder.control" \
	    "$(DESTDIR)$$share/extension/larder--1.0.sql" "$(DESTDIR)$$share/extension/larder--1.0--1.1.sql" \
	    "$(DESTDIR)$$share/extension/larder--1.1--1.2.sql" && \
	    rm -rf "$(DESTDIR)$$share/larder"

packages: deps-build deps-packages
	scripts/packages --out $(PACKAGES)

# Not part of `make test`: it downloads the roots, and takes about 10 minutes.
test-packages: deps-build deps-packages
	tests/packages $(ARGS)

# Not part of `make test`: it builds the release profile, and installs packages of Python.
test-python: build deps-python
	LARDER=$(abspath $(LARDER)) scripts/python-test $(ARGS)

# Not part of `make test`: it needs Go, and downloads modules. LARDER is the server that the tests start.
test-csi:
	LARDER=$(abspath $(LARDER)) csi/check

# Not part of `make test`: it needs Go and Debian's package etcd-server, and builds Kubernetes once. LARDER_CONTROL_PLANE is the
# directory of these programs.
test-csi-cluster:
	csi/check-cluster $(ARGS)

image: packages
	scripts/image $(PACKAGES)

# Needs Go.
image-csi: deps-packages
	csi/image $(PACKAGES)

demo: build deps-demo
	$(RELEASE)/larder demo --dir $(DEMO)

# ARGS: further flags, such as --full, --device array-16 or --json.
demo-postgres: build build-postgres deps-demo-postgres
	$(RELEASE)/larder demo --part postgres --dir $(DEMO) $(ARGS)

# Lints and the book first, then all tests (torture, every mutant, faults, kill -9, interop). The last two parts run beside each
# other: the mutants compute, and the database waits.
test: deps-build deps-test lint docs
	RUST_TEST_THREADS=$(THREADS) $(CARGO) test --locked --workspace
	scripts/commands $(or $(CARGO_TARGET_DIR),target)/debug/larder --check
	scripts/readme $(or $(CARGO_TARGET_DIR),target)/debug/larder
	scripts/pages $(or $(CARGO_TARGET_DIR),target)/debug/larder $(BOOK)
	$(MAKE) --jobs=2 --output-sync=line test-mutants test-postgres

test-mutants: deps-build
	$(CARGO) test --locked $(WITH_MUTANTS) --test mutants --test flush_beside
	$(CARGO) test --locked $(WITH_MUTANTS) --lib -- pagelog guest mutant

# A short form: kills under the TPC-C mix, and the cases in which an old cache must be noticed. The long ones are
# postgres/kills/run and postgres/suites/run.
test-postgres: build-postgres
	PG_BIN=$(PG_BIN) postgres/kills/run rounds --rounds 3 --checksums on --library $(LARDER_PG)
	PG_BIN=$(PG_BIN) postgres/kills/run scenarios --only 0,1,4,23,49,50,51,52,54,57,58 --policies bounded --library $(LARDER_PG)
	PG_BIN=$(PG_BIN) postgres/operation/run --library $(LARDER_PG)
	PG_BIN=$(PG_BIN) postgres/kills/run scenarios --only 35,36,43,46,48,49 --policies full --checksums on --library $(LARDER_PG)

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p larder --no-default-features -- -D warnings
	$(CARGO) clippy --locked $(WITH_MUTANTS) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	$(CARGO) deny --log-level error check licenses bans sources
	scripts/advisories
	$(CARGO) run --locked -q -p xtask -- tidy

# Relative links, anchors and paths are checked by tidy.
docs: deps-docs
	scripts/pictures --check
	$(MDBOOK) build --dest-dir $(abspath $(BOOK)) docs
	$(CARGO) run --locked -q -p xtask -- tidy

deps-docs:
	@scripts/deps docs

deps-build:
	@scripts/deps build

deps-test:
	@scripts/deps test

deps-packages:
	@scripts/deps packages

deps-python:
	@scripts/deps python

deps-demo:
	@scripts/deps demo

deps-demo-postgres:
	@scripts/deps demo-postgres

bench: build
	$(RELEASE)/larder bench all

fuzz: deps-build
	@scripts/fuzz $(SECONDS)

clean:
	$(CARGO) clean
