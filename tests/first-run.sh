#!/bin/sh
# Builds Sluice and the demo, without tests and benchmark drivers. Before the first build it checks what this build and that of the
# components need. `tests/first-run.sh cost` prints the recorded time of a first run.
set -eu

root=$(dirname "$0")/..
cargo=${CARGO:-cargo}
built=${CARGO_TARGET_DIR:-$root/target}/release
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
record=$root/docs/performance/cold.json

# A number of the recorded first run.
recorded() {
  sed -n "s/^ *\"$1\": *\([0-9]*\).*/\1/p" "$record" | head -n 1
}

minutes() {
  echo $((($1 + 30) / 60))
}

cost() {
  rust=$(recorded rust_s) demo=$(recorded demo_s) total=$(recorded total_s)
  echo "On $(recorded cores) cores, the first run of the demo takes about $(minutes "$total") minutes:" \
    "$(minutes "$rust") for Sluice, $(minutes $((total - rust - demo))) for the components of the stack, and $demo seconds for the demo."
}

refuse() {
  echo "$*" >&2
  exit 1
}

# Pairs of MB and the directory that they are written to, added up by file system.
has_space() {
  while [ $# -gt 0 ]; do
    directory=$2
    while [ ! -d "$directory" ]; do directory=$(dirname "$directory"); done
    df -Pm "$directory" | awk -v needed="$1" 'NR == 2 { print $6, needed, $4 }'
    shift 2
  done | awk '{ needed[$1] += $2; free[$1] = $3 }
    END {
      for (mount in needed) if (free[mount] < needed[mount]) {
        print "missing: disk space: " mount " has " free[mount] " MB, the build needs " needed[mount] " MB"
        exit 1
      }
    }' >&2
}

# Whether version $2 of $1 is at least $3, a major and a minor version.
has_version() {
  echo "$2" | awk -F. -v least="$3" '{ split(least, wanted, "."); exit !($1 > wanted[1] || $1 == wanted[1] && $2 >= wanted[2]) }' ||
    refuse "missing: $1 $3 or newer; this one is ${2:-of unknown version}"
}

has_memory() {
  available=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' "${MEMINFO:-/proc/meminfo}")
  [ "$available" -ge 4000 ] || refuse "missing: memory: $available MB are available, the build needs 4000 MB"
}

# What the demo itself needs.
check_system() {
  [ "$(uname -s)" = Linux ] || refuse "missing: Linux, because kapp-controller needs mount namespaces"
  command -v unshare > /dev/null || refuse "missing: unshare"
  unshare -m true 2> /dev/null || unshare -Urm true 2> /dev/null ||
    refuse "missing: mount namespaces for kapp-controller, neither as root nor with user namespaces"
}

check_rust() {
  for program in "$cargo" rustc cc; do
    command -v "$program" > /dev/null || refuse "missing: $program"
  done
  has_version rustc "$(rustc --version | awk '{ print $2 }')" 1.95
  has_memory
}

check_go() {
  command -v go > /dev/null || refuse "missing: go (version 1.26 or newer), which builds the stack's programs"
  has_version go "$(GOTOOLCHAIN=local go version | sed -n 's/.* go\([0-9.]*\).*/\1/p')" 1.26
  has_memory
}

# Downloads what is missing, so that no network is noticed before minutes are spent.
check_go_network() {
  # One small module. The others are downloaded while components are built.
  said=$(cd "$root/tests/go/ytt" && GOTOOLCHAIN=local GOWORK=off go mod download carvel.dev/ytt 2>&1) ||
    refuse "cannot download Go modules: $(echo "$said" | tail -n 1)"
}

check_rust_network() {
  # Without network, Cargo tries for half a minute.
  said=$("$cargo" fetch --quiet --locked --target "$(rustc -vV | sed -n 's/^host: //p')" --manifest-path "$root/Cargo.toml" 2>&1) ||
    refuse "cannot download crates: $(echo "$said" | tail -n 1)"
}

# Cargo prints nothing while it compiles one large crate. The loop ends with this script, also when the script is killed.
show_progress() {
  began=$(date +%s)
  while sleep 25 > /dev/null 2>&1 && kill -0 $$ 2> /dev/null; do
    spent=$(($(date +%s) - began))
    if [ "$1" = 0 ]; then
      echo "demo: compiling for $spent s"
    elif [ $((spent + 30)) -lt "$1" ]; then
      echo "demo: compiling Sluice; about $(minutes $(($1 - spent))) min left, then the components of the stack"
    else
      echo "demo: compiling Sluice for $spent s; almost done, then the components of the stack"
    fi
  done
}

if [ "${1:-}" = cost ]; then
  cost
  exit
fi
expected=0
check_system
components=$(find "$cache/stack" -name kapp-controller -type f 2> /dev/null | head -n 1)
[ -x "$built/demo" ] || [ -n "$components" ] || echo "Nothing is built yet. $(cost)"
[ -x "$built/demo" ] || check_rust
[ -n "$components" ] || check_go
set --
[ -x "$built/demo" ] || set -- "$@" 3000 "$built"
[ -n "$components" ] || set -- "$@" 4000 "$(go env GOCACHE)" 2000 "$(go env GOMODCACHE)" 1000 "$cache"
[ $# = 0 ] || has_space "$@" || exit 1
[ -n "$components" ] || check_go_network
if [ ! -x "$built/demo" ]; then
  check_rust_network
  expected=$(($(recorded rust_s) * $(recorded cores) / $(nproc)))
fi
show_progress "$expected" &
progress=$!
trap 'kill "$progress" 2> /dev/null || true' EXIT
trap 'exit 130' INT TERM
# An example makes Cargo choose the features of dependencies as `make build` does, so that neither compiles for the other again.
"$cargo" build --release --workspace --bin sluice --bin demo --example descriptors --manifest-path "$root/Cargo.toml"
