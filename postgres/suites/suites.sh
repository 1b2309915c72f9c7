# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154 # the settings are run's
# The three suites. Each returns 1 if its command failed; judge counts. They run where errexit is off,
# so every step says what follows from its failure. Sourced by run.

# pg_regress or pg_isolation_regress against the run's server.
regress_like() { # directory program schedule options...
    local dir=$src/src/test/$1 program=$2 what=(--schedule="$src/src/test/$1/$3") status=0
    shift 3
    if [ -n "$tests" ]; then read -ra what <<<"$tests"; fi
    start_server || return 1
    watch "$dir/$program" --inputdir="$dir" --outputdir="$run" --bindir="$bin" --host="$run" \
        --port="$port" --user=postgres "$@" "${what[@]}" || status=$?
    run_after
    if [ "$status" != 0 ] && [ -s "$run/regression.diffs" ]; then
        say "--- regression.diffs"
        head -n 60 "$run/regression.diffs" >&2
    fi
    return "$status"
}

suite_regress() {
    local status=0
    regress_like regress pg_regress parallel_schedule --dlpath="$src/src/test/regress" \
        --max-concurrent-tests=20 || status=$?
    if [ "$compare" = yes ] && [ "$status" = 0 ]; then
        compare_bare || problems+=("the comparison with the bare server failed")
    fi
    return "$status"
}

suite_isolation() { regress_like isolation pg_isolation_regress isolation_schedule; }

# Without the test that starts a copy of a running server's files without its label, to show that this is wrong. Under
# `full` such a copy lacks pages, and its start is refused.
not_refused() {
    if [ -n "$library" ] && [ "$policy" = full ]; then
        grep -vxF t/042_low_level_backup.pl
    else
        cat
    fi
}

# Every server that a test makes gets the settings through TEMP_CONFIG. What the tests write after it
# wins: a server that streams has 1 MB of shared buffers.
suite_recovery() {
    local dir=$src/src/test/recovery what=(t/*.pl) status=0
    if [ -n "$tests" ]; then
        read -ra what <<<"$tests"
    else
        mapfile -t what < <(cd "$dir" && printf '%s\n' t/*.pl | not_refused)
    fi
    inside mkdir -p "$run/tmp_check" || return 1
    environment+=("TEMP_CONFIG=$run/settings.conf" "TESTDIR=$run" "TESTDATADIR=$run/tmp_check"
        "TESTLOGDIR=$run/tmp_check/log" "PG_REGRESS=$src/src/test/regress/pg_regress"
        "REGRESS_SHLIB=$src/src/test/regress/regress.so" enable_injection_points=no)
    # Theirs are servers of their own, with users of their own. The tests copy data directories by a program that gives each
    # file the mode of a new one; the library refuses flash that others may read.
    watch env -u PGHOST -u PGUSER -u PGDATABASE -u PGDATA --chdir="$dir" bash -c 'umask 077 && exec "$@"' prove \
        prove -j "$jobs" -I "$src/src/test/perl" "${what[@]}" || status=$?
    run_after
    return "$status"
}
