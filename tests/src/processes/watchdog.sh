# Outlives the process that owns a stack and cleans up behind it, however that process ended: it reads its
# standard input, whose other end only the owner holds, until that end is closed. Then it kills every process that
# carries the stack's mark in its environment and removes the stack's directory.
#
# usage: sh -c WATCHDOG watchdog MARK DIRECTORY
# input: a line `keep TARGET` makes it move DIRECTORY/logs to TARGET first, a line `drop` takes that back.
mark=$1
directory=$2
keep=
trap '' HUP INT TERM

while read -r verb target; do
    case $verb in
    keep) keep=$target ;;
    drop) keep= ;;
    esac
done

# Twice empty: a process may be just between fork and exec while the first look is taken.
marked() { grep -lsxzF -- "$mark" /proc/[0-9]*/environ; }
empty=0
tries=0
while [ "$empty" -lt 2 ] && [ "$tries" -lt 200 ]; do
    tries=$((tries + 1))
    found=$(marked)
    if [ -z "$found" ]; then
        empty=$((empty + 1))
    else
        empty=0
        for environ in $found; do
            process=${environ#/proc/}
            kill -KILL "${process%/environ}" 2>/dev/null
        done
        sleep 0.05
    fi
done

if [ -n "$keep" ]; then
    mkdir -p "$(dirname "$keep")" && rm -rf "$keep" && mv "$directory/logs" "$keep"
fi
rm -rf "$directory"
