# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154 # the settings are run's
# Counts what a suite printed, and says it. Sourced by run.

lines=() objects=()

progress() { say "== $1 ($(conditions))"; }

conditions() {
    local name=bare sync
    if [ -n "$library" ]; then name="$policy, $loader"; fi
    sync=$(effective_fsync)
    echo "$version, $name, checksums $checksums, shared_buffers $buffers${sync:+, fsync $sync}"
}

# pg_regress up to 15 says "test NAME ... ok", later "ok 1 - NAME"; prove "t/NAME.pl .. ok".
names() { # ok|failed|ignored|skipped
    local old='^(test)? +([^ ]+) +\.\.\. ' new=' +[0-9]+ +[-+] ([^ ]+) .*'
    case $1 in
    ok) sed -nE "s,${old}ok( .*)?\$,\\2,p; s,^ok$new,\\1,p; s,^(t/[^ ]+) \.+ ok *\$,\\1,p" ;;
    failed) sed -nE "s,${old}FAILED.*,\\2,p; s,^not ok$new,\\1,p" ;;
    ignored) sed -nE "s,${old}failed \(ignored\).*,\\2,p" ;;
    skipped) sed -nE 's,^(t/[^ ]+) \.+ skipped:? ?(.*),\1 (\2),p' ;;
    esac <"$run/suite.out"
}

# Of prove's files those that neither passed nor were skipped: what it says of them has many forms.
recovery_failures() {
    sed -nE 's,^(t/[^ ]+\.pl) .*,\1,p' "$run/suite.out" | sort -u |
        grep -vxF -f <({ names ok && names skipped; } | sed 's/ .*//') || true
}

# A process of the server that ended itself. A recovery test kills some, with 9 and 3.
count_crashes() {
    local found
    found=$(server_logs 'PANIC: |terminated by signal (4|6|7|8|11):|TRAP: ' | head -n 20)
    if [ -n "$found" ]; then
        problems+=("a server crashed")
        say "--- server log" && say "$found"
    fi
}

server_logs() { # extended regular expression
    find "$run" -name '*.log' -exec grep -hE "$1" {} + || true
}

# With a library every server that came up must have it and our settings, each must have said that it
# caches, and none that it has given up: a cache that is off, or another policy, would pass every test.
check_servers() {
    local given_up
    with=$(grep -c '^with ' "$run/servers" || true)
    without=$(grep -c '^without ' "$run/servers" || true)
    caching=$(server_logs 'larder: caching: ' | wc -l)
    if [ -z "$library" ]; then return; fi
    if [ "$without" != 0 ]; then problems+=("$without servers ran without the library"); fi
    if [ "$caching" -lt "$with" ]; then
        problems+=("$with servers with the library, and $caching times it said that it caches")
    fi
    given_up=$(server_logs 'larder: .*nothing is cached|parameter "larder\.' | sort -u | head -n 5)
    if [ -n "$given_up" ]; then problems+=("$given_up"); fi
}

# Counts, notes the line and the object, and tells whether all is well.
judge() { # status of the suite's command
    local failures skips suite=${run##*/run.} verdict=0
    suite=${suite%%.*}
    mapfile -t failures < <(names failed)
    if [ "$suite" = recovery ]; then mapfile -t failures < <(recovery_failures); fi
    mapfile -t skips < <(names skipped && names ignored)
    passed=$(names ok | wc -l)
    check_servers
    if [ ${#failures[@]} = 0 ] && [ ${#problems[@]} = 0 ]; then
        if [ "$1" != 0 ]; then problems+=("its command failed ($1)"); fi
        if [ "$passed" = 0 ]; then problems+=("no test ran"); fi
    fi
    if [ ${#failures[@]} != 0 ] || [ ${#problems[@]} != 0 ]; then verdict=1; fi
    note_line "$suite" && note_object "$suite"
    return "$verdict"
}

note_line() { # suite
    local line text
    line="$1: $passed passed, ${#failures[@]} failed"
    if [ ${#skips[@]} != 0 ]; then line+=", ${#skips[@]} skipped or ignored"; fi
    line+=", $seconds s ($(conditions))"
    if [ ${#failures[@]} != 0 ]; then line+=$'\n'"  failed: ${failures[*]}"; fi
    for text in "${skips[@]}"; do line+=$'\n'"  skipped or ignored: $text"; done
    for text in "${problems[@]}"; do line+=$'\n'"  problem: $text"; done
    lines+=("$line")
    say "$line"
}

# A JSON array of strings.
strings() {
    local text sep=''
    printf '['
    for text; do
        text=${text//\\/\\\\}
        text=${text//\"/\\\"}
        printf '%s"%s"' "$sep" "${text//[$'\n\t']/ }"
        sep=,
    done
    printf ']'
}

note_object() { # suite
    local loaded=null
    if [ -n "$library" ]; then
        loaded=$(printf '{"loader":"%s","policy":"%s","flash_size":"%s"}' "$loader" "$policy" "$flash")
    fi
    objects+=("$(printf '{"suite":"%s","passed":%d,"failed":%d,"seconds":%d,"server":"%s",' \
        "$1" "$passed" ${#failures[@]} "$seconds" "$version"
        printf '"library":%s,"checksums":"%s","shared_buffers":"%s","fsync":"%s",' \
            "$loaded" "$checksums" "$buffers" "$(effective_fsync)"
        printf '"servers_with_library":%d,"servers_without":%d,"times_caching":%d,' \
            "$with" "$without" "$caching"
        printf '"failures":%s,"skipped":%s,"problems":%s}' "$(strings "${failures[@]}")" \
            "$(strings "${skips[@]}")" "$(strings "${problems[@]}")")")
}

show_results() { # command
    local line IFS
    if [ "$json" = yes ]; then
        IFS=,
        if [ "$1" = all ]; then echo "[${objects[*]}]"; else echo "${objects[0]}"; fi
        return
    fi
    for line in "${lines[@]}"; do echo "$line"; done
}
