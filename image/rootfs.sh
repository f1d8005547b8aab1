#!/bin/sh
# Puts the file system of the image together: the binary, the libraries that it links, and its user. The Dockerfile runs this, and so does
# scenario `image`, which starts Sluice from what comes of it.
#
# Usage: image/rootfs.sh BINARY DIRECTORY
set -eu
if [ $# != 2 ] || [ ! -x "$1" ]; then
  echo "usage: $0 BINARY DIRECTORY, with an executable BINARY" >&2
  exit 2
fi
binary=$1
root=$2
if [ -e "$root" ]; then
  echo "$root is there already; name a directory that is not" >&2
  exit 2
fi

install -D -m 0755 "$binary" "$root/sluice"

# The loader, and each library, under the path that the binary finds it by. linux-vdso has none: the kernel brings it.
linked=$(ldd "$binary")
case $linked in
*"not found"*)
  echo "$binary links what this machine does not have: $linked" >&2
  exit 1
  ;;
esac
for file in $(printf '%s\n' "$linked" | grep -o '/[^ ]*'); do
  install -D -m 0755 "$file" "$root$file"
done

# Names of the user that the manifests run it as.
mkdir -p "$root/etc"
echo 'nonroot:x:65532:65532::/:/sbin/nologin' > "$root/etc/passwd"
echo 'nonroot:x:65532:' > "$root/etc/group"
# Names of Pods and of services come from the DNS of the cluster.
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# What is mounted into a file system that cannot be written.
mkdir -p "$root/proc" "$root/dev" "$root/sys" "$root/tmp/k8s-webhook-server/serving-certs" \
  "$root/var/run/secrets/kubernetes.io/serviceaccount"
