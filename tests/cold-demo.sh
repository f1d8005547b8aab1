#!/bin/sh
# Runs the demo with nothing built and nothing downloaded, and writes target/demo/cold.json. Installed programs are used as in `make demo`.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
written=${CARGO_TARGET_DIR:-$root/target}/demo
cold=$(mktemp -d "${TMPDIR:-/tmp}/sluice-cold.XXXXXX")
# Go makes its module cache read-only.
finish() {
  if [ -d "$cold/target/sluice-logs" ]; then
    rm -rf "$written/cold-logs"
    cp -r "$cold/target/sluice-logs" "$written/cold-logs"
    echo "the logs are in $written/cold-logs"
  fi
  chmod -R u+w "$cold"
  rm -rf "$cold"
}
trap finish EXIT
trap 'exit 130' INT TERM

# The registries that this machine is configured with.
mkdir -p "$cold/cargo" "$written"
for config in config.toml config; do
  if [ -f "${CARGO_HOME:-$HOME/.cargo}/$config" ]; then
    cp "${CARGO_HOME:-$HOME/.cargo}/$config" "$cold/cargo/"
  fi
done
export CARGO_HOME="$cold/cargo" CARGO_TARGET_DIR="$cold/target" XDG_CACHE_HOME="$cold/cache"
# A cache of compiled crates would make the run warm.
export RUSTC_WRAPPER='' CARGO_BUILD_RUSTC_WRAPPER=''
export GOPATH="$cold/go" GOCACHE="$cold/go-build" GOMODCACHE="$cold/go/pkg/mod"
demo=$CARGO_TARGET_DIR/release/demo

start=$(date +%s)
"$root/tests/first-run.sh"
compiled=$(date +%s)
"$demo" prepare
prepared=$(date +%s)
components=$(cat "$CARGO_TARGET_DIR/demo/programs.json")
"$demo"
end=$(date +%s)

downloads=$(du -sm -c "$CARGO_HOME/registry/cache" "$GOMODCACHE/cache/download" | awk 'END { print $1 }')
cat > "$written/cold.json" << EOF
{
  "cores": $(nproc),
  "downloads_mb": $downloads,
  "rust_s": $((compiled - start)),
  "components": $components,
  "demo_s": $((end - prepared)),
  "total_s": $((end - start))
}
EOF
echo "$written/cold.json"
