# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of run's and its parts
# A run's directory and its server, which ../cluster.py makes, starts and stops. Sourced by run.

port=54317

# In force: policy bounded keeps nothing back from a server that does not sync, so it must; full with it.
effective_fsync() {
    if [ -n "$fsync" ]; then
        echo "$fsync"
    elif [ -n "$library" ] && [ "$policy" != through ]; then
        echo on
    fi
}

settings() {
    local sync
    sync=$(effective_fsync)
    echo "shared_buffers = $buffers"
    if [ -n "$sync" ]; then echo "fsync = $sync"; fi
    if [ -z "$library" ]; then return; fi
    if [ "$loader" = extension ]; then echo "shared_preload_libraries = '$run/larder.so'"; fi
    # Relative, so below the data directory: every server has its own.
    echo "larder.flash_directory = 'larder_flash'"
    echo "larder.flash_size = '$flash'"
    echo "larder.policy = '$policy'"
}

initdb_options() {
    if [ "$checksums" = on ]; then
        echo --data-checksums
    elif [ "${version%%.*}" -ge 18 ]; then
        echo --no-data-checksums
    fi
}

open_run() { # suite
    run=$(mktemp -d "$base/run.$1.XXXXXX")
    cp -r "$here/wrap" "$run/bin"
    cp "$here/../cluster.py" "$run/bin/cluster"
    # A copy: a build in the meantime must not change the library under a server.
    if [ -n "$library" ]; then cp "$library" "$run/larder.so"; fi
    settings >"$run/settings.conf"
    touch "$run/servers" "$run/suite.out"
    chmod -R a+rX "$run"
    if [ "$(id -u)" = 0 ]; then chown -R "$user": "$run"; fi
    run_path=$run/bin:$bin:$PATH
    watched='' problems=() seconds=0
    environment=("SUITE_DIR=$run" "SUITE_BIN=$bin" "SUITE_INCLUDE=$src/src/include"
        "SUITE_INITDB=$(initdb_options)" "SUITE_LIBRARY=${library:+$run/larder.so}" SUITE_PRELOAD=
        "PGHOST=$run" "PGPORT=$port" PGUSER=postgres PGDATABASE=postgres "PGDATA=$run/data"
        "${variables[@]}")
    if [ -n "$library" ] && [ "$loader" = preload ]; then
        environment+=("SUITE_PRELOAD=$run/larder.so")
    fi
}

# A command in the run's environment.
inside() { as_user env "${environment[@]}" "$@"; }

# The suite's command, no longer than it may take, shown as it goes. In the background, so that an
# interrupt reaches us.
watch() { # command...
    local status=0 began=$SECONDS shown
    (replace=(exec) && inside timeout -k 30 "$limit" "$@") >"$run/suite.out" 2>&1 &
    watched=$!
    tail -n +1 -f --pid="$watched" "$run/suite.out" >&2 &
    shown=$!
    wait "$watched" || status=$?
    seconds=$((SECONDS - began)) watched=''
    wait "$shown" || true
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        problems+=("not finished after $limit s")
    fi
    return "$status"
}

# The run's cluster, by the server's own programs if `programs` names them, else by those that stand before them.
cluster() { # create|start|stop options...
    inside env "PG_BIN=${programs:-$run/bin}" cluster "$1" "$run" --port "$port" "${@:2}"
}

start_server() {
    # As pg_regress sets them in a server of its own. Sequential scans that join one another, which a
    # small pool makes likely, give rows in another order: the recovery tests turn them off as well.
    cat >"$run/server.conf" <<-CONF
	log_line_prefix = '%m [%p] %q%a '
	log_checkpoints = on
	log_lock_waits = on
	max_prepared_transactions = 2
	synchronize_seqscans = off
	$(cat "$run/settings.conf")
	CONF
    chmod a+r "$run/server.conf"
    cluster create --conf "$run/server.conf" >"$run/initdb.log" 2>&1 || {
        tail -n 5 "$run/initdb.log" >&2
        problems+=("initdb failed")
        return 1
    }
    cluster start --seconds 120 >/dev/null 2>&1 || {
        tail -n 20 "$run/server.log" >&2
        problems+=("the server did not start")
        return 1
    }
}

stop_server() { # mode
    cluster stop --mode "$1" >/dev/null || {
        problems+=("the server did not stop")
        return 1
    }
}

# What the server answers through the library must be what lies in its files: without the library it
# has nothing else.
compare_bare() {
    local programs=$bin
    say "comparing with the bare server"
    inside pg_dumpall --no-sync -f "$run/served.sql" && stop_server fast || return 1
    if [ "$checksums" = on ] && ! inside pg_checksums --check >"$run/checksums.log" 2>&1; then
        problems+=("pg_checksums: $(tail -n 1 "$run/checksums.log")")
    fi
    if [ "$policy" = full ]; then
        # Pages are on flash alone, and a server without the library is refused.
        if cluster start --seconds 60 --log "$run/refused.log" --set shared_preload_libraries= >/dev/null 2>&1; then
            problems+=("the bare server started under policy full")
            return 1
        fi
        cluster start --set larder.policy=through >/dev/null &&
            stop_server fast || return 1
    fi
    cluster start --set shared_preload_libraries= >/dev/null &&
        inside pg_dumpall --no-sync -f "$run/bare.sql" || return 1
    # Each dump has a random key in its restrict lines.
    if ! inside diff -I '^\\\(un\)\?restrict ' "$run/served.sql" "$run/bare.sql" >"$run/other.diff"; then
        problems+=("the bare server has other data: other.diff")
    fi
}

# A hook of the caller's, which finds the server through PGHOST and so on. The recovery tests have
# stopped theirs by now: there are only their logs below SUITE_DIR.
run_after() {
    if [ -z "$after" ]; then return; fi
    inside bash -c "$after" >&2 || problems+=("--after failed: $after")
}

# Every server below the run's directory, the recovery tests' too.
stop_all() {
    local file
    find "$run" -name postmaster.pid 2>/dev/null | while read -r file; do
        inside "$bin/pg_ctl" -D "$(dirname "$file")" -w -t 30 -m immediate stop >/dev/null 2>&1 || true
    done
}

close_run() { # verdict
    stop_all
    if [ "$keep" = yes ] || [ "$1" != 0 ]; then
        say "kept: $run"
    else
        rm -rf "$run"
    fi
    run=''
}

# On the way out, however it is left: nothing goes on running.
abandon() {
    if [ -z "${run:-}" ]; then return; fi
    if [ -n "$watched" ]; then kill "$watched" 2>/dev/null && wait "$watched" || true; fi
    stop_all
    say "kept: $run"
}
