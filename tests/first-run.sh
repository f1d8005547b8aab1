#!/bin/sh
# Builds Sluice and the demo, without tests and benchmarks. Checks first what the build and the components of the stack need.
# `tests/first-run.sh cost` prints the recorded time of a first run.
set -eu

root=$(dirname "$0")/..
built=${CARGO_TARGET_DIR:-$root/target}/release
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/stack
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
  echo "Nothing is built yet. On $(recorded cores) cores, the first run of the demo takes about $(minutes "$total") minutes:" \
    "$(minutes "$rust") for Sluice, $(minutes $((total - rust - demo))) for the components of the stack, and $demo seconds for the demo."
}

refuse() {
  echo "$*" >&2
  exit 1
}

has_components() {
  for complete in "$cache"/*/manifests/complete; do
    if [ -e "$complete" ]; then return 0; fi
  done
  return 1
}

# Fails unless the file system of $2 has $1 MB of free space.
has_space() {
  directory=$2
  while [ ! -d "$directory" ]; do directory=$(dirname "$directory"); done
  free=$(df -Pm "$directory" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$1" ] || refuse "missing: disk space: $2 has $free MB, the build needs $1 MB"
}

check() {
  [ "$(uname -s)" = Linux ] || refuse "missing: Linux, whose namespaces kapp-controller is started in"
  for program in cargo cc unshare; do
    command -v "$program" > /dev/null || refuse "missing: $program"
  done
  unshare -m true 2> /dev/null || unshare -Urm true 2> /dev/null ||
    refuse "missing: mount namespaces for kapp-controller, neither as root nor with user namespaces"
  available=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' "${MEMINFO:-/proc/meminfo}")
  [ "$available" -ge 4000 ] || refuse "missing: memory: $available MB are available, the build needs 4000 MB"
  has_space 4000 "$built"
  # Without network, cargo tries for half a minute.
  said=$(cargo fetch --quiet --locked --manifest-path "$root/Cargo.toml" 2>&1) ||
    refuse "cannot download crates: $(echo "$said" | tail -n 1)"
  has_components || check_go
}

check_go() {
  command -v go > /dev/null || refuse "missing: go (version 1.26 or newer), which builds the stack's programs"
  has_space 8000 "$(go env GOCACHE)"
  has_space 1000 "$cache"
  # One small module. The others are downloaded while components are built.
  said=$(cd "$root/tests/go/ytt" && GOTOOLCHAIN=local GOWORK=off go mod download carvel.dev/ytt 2>&1) ||
    refuse "cannot download Go modules: $(echo "$said" | tail -n 1)"
}

# Cargo prints nothing while it compiles one large crate.
show_progress() {
  cores=$(nproc)
  expected=$(($(recorded rust_s) * $(recorded cores) / cores))
  began=$(date +%s)
  while sleep 25; do
    left=$((expected - $(date +%s) + began))
    [ "$left" -ge 30 ] || left=30
    echo "first run: compiling Sluice; about $(minutes "$left") min left, then the components of the stack"
  done
}

if [ "${1:-}" = cost ]; then
  cost
  exit
fi
if [ ! -x "$built/demo" ]; then
  cost
  check
  show_progress &
  progress=$!
  trap 'kill "$progress" 2> /dev/null || true' EXIT
  trap 'exit 130' INT TERM
fi
# An example makes Cargo choose the features of dependencies as `make build` does, so that neither compiles for the other again.
cargo build --release --workspace --bin sluice --bin demo --example descriptors --manifest-path "$root/Cargo.toml"
