# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154 # the settings are run's
# Gets and builds PostgreSQL's tests in the version of the server under test. The server itself is never
# built: what runs is what the distribution ships. Sourced by run.

# "15.18", and Debian's version of the package ("15.18-0+deb12u1", empty if it is not Debian's).
server_version() { "$bin/postgres" --version | sed -E 's/^[^0-9]*([0-9.]+).*/\1/'; }
package_version() { "$bin/postgres" --version | sed -nE 's/.*\(Debian ([^)]+)\)$/\1/p'; }

# Set to (exec) where the command shall have the process of its subshell.
replace=()

# As the user who runs the servers, with nothing of the caller's environment (PGHOST, LD_PRELOAD ...).
as_user() {
    local clean=(env -i "HOME=$base" "PATH=${run_path:-$PATH}" LANG=C.UTF-8)
    if [ "$(id -u)" = 0 ]; then
        "${replace[@]}" runuser -u "$user" -- "${clean[@]}" "$@"
    else
        "${replace[@]}" "${clean[@]}" "$@"
    fi
}

install_missing() {
    local missing=()
    command -v cc >/dev/null 2>&1 && command -v make >/dev/null 2>&1 || missing+=(build-essential)
    command -v dpkg-source >/dev/null 2>&1 || missing+=(dpkg-dev)
    command -v prove >/dev/null 2>&1 || missing+=(perl)
    perl -MIPC::Run -e 1 2>/dev/null || missing+=(libipc-run-perl)
    [ -x "$bin/postgres" ] || missing+=("$(package_of_bin)")
    if [ ${#missing[@]} = 0 ]; then return; fi
    if [ "$(id -u)" != 0 ]; then
        die "missing Debian packages: apt-get install ${missing[*]}"
    fi
    say "installing: ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null
}

# /usr/lib/postgresql/15/bin comes with the package postgresql-15.
package_of_bin() {
    local major
    major=$(sed -nE 's,^/usr/lib/postgresql/([0-9]+)/bin/?$,\1,p' <<<"$bin")
    [ -n "$major" ] || die "$bin/postgres: is not there"
    echo "postgresql-$major"
}

# Debian's source package of exactly this version. The sources are those that the machine has for
# binaries, turned into deb-src in a file of our own: the machine's configuration stays as it is.
debian_source() { # package version
    local apt=$base/apt dl=$base/download options
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$dl"
    # shellcheck disable=SC2016 # apt-get's own fields
    apt-get indextargets --format 'deb-src $(SITE) $(CODENAME) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' >"$apt/sources.list"
    [ -s "$apt/sources.list" ] || return 1
    options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update &&
        (cd "$dl" && apt-get "${options[@]}" source --download-only "$1=$2") || return 1
    chmod -R a+rX "$dl"
    # With Debian's patches, as the server has them. apt-get has verified the files.
    as_user dpkg-source --no-check --no-copy -x "$dl/${1}_${2#*:}.dsc" "$src" >/dev/null
}

# The project's own tarball, for a server that is not Debian's or whose source is gone.
upstream_source() { # version
    local url=${POSTGRES_SOURCES:-https://ftp.postgresql.org/pub/source} dl=$base/download
    local file=postgresql-$1.tar.bz2
    mkdir -p "$dl"
    command -v curl >/dev/null 2>&1 || die "no source package for $1, and no curl for $url"
    if ! curl -fsSL --retry 2 --max-time 600 -o "$dl/$file" "$url/v$1/$file" ||
        ! curl -fsSL --max-time 60 -o "$dl/$file.sha256" "$url/v$1/$file.sha256"; then
        die "no source of PostgreSQL $1: neither a source package nor $url/v$1/$file"
    fi
    (cd "$dl" && sha256sum --quiet -c "$file.sha256") || die "$file: wrong checksum"
    as_user mkdir "$src"
    as_user tar -C "$src" --strip-components=1 -xf "$dl/$file"
}

get_source() { # version
    local package
    package=$(package_version)
    say "source of PostgreSQL ${package:-$1}"
    if [ -n "$package" ] && debian_source "postgresql-${1%%.*}" "$package"; then
        return
    fi
    rm -rf "$src"
    upstream_source "$1"
}

# Only pg_regress, isolationtester and the libraries that the tests load, with what they need (libpq,
# port, common, contrib/spi). Neither readline nor zlib nor ICU: nothing of ours serves. The extensions that
# the recovery tests create (test_decoding, pg_prewarm) come with the server.
build() {
    local log=$base/build.log
    say "building pg_regress and isolationtester"
    # shellcheck disable=SC2016 # expanded by the inner shell
    as_user bash -c 'cd "$1" && ./configure --enable-tap-tests --without-readline --without-zlib --without-icu &&
        for part in interfaces/libpq test/regress test/isolation; do make -s -j2 -C "src/$part" all || exit 1; done' \
        build "$src" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "the build failed: $log"
    }
}

prepare() {
    local version
    install_missing
    version=$(server_version)
    if [ "$(cat "$src/.suites" 2>/dev/null)" = "$version" ]; then
        say "$src: tests of $version are there"
        return
    fi
    mkdir -p "$base"
    if [ "$(id -u)" = 0 ]; then chown "$user": "$base"; fi
    rm -rf "$src"
    get_source "$version"
    build
    as_user tee "$src/.suites" <<<"$version" >/dev/null
    say "$src: tests of $version"
}

check_prepared() {
    local built
    [ -x "$bin/postgres" ] || die "$bin/postgres: is not there; run: run prepare"
    version=$(server_version)
    built=$(cat "$src/.suites" 2>/dev/null) || die "no tests in $src; run: run prepare"
    [ "$built" = "$version" ] ||
        die "the server is $version and the tests are of $built; run: run prepare"
}
