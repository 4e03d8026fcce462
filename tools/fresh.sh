#!/usr/bin/env bash
# Tries the README's commands in a new, minimal Debian system (a chroot made by debootstrap) and prints how long each took.
#   tools/fresh.sh SUITE [quickstart|test]...     SUITE: bookworm, trixie, ...; default: quickstart
# A normal user first runs the command without the Debian packages and must get their list. Then root runs it, and the user again, each
# in a checkout of their own; the two share ccache's cache. Takes the files that git tracks, with uncommitted changes. Exits with 77
# and a reason if it cannot run here.
#   FRESH_DIR=dir        folder of the system; default: a temporary folder, which is removed at the end
#   PIP_CACHE_DIR=dir    pip's download cache, also used in the system
#   QUICKSTART_STEPS=n   training steps of the quick start; default: 150, the fewest with which the model beats the bigram model
#   JOBS=n               parallel compilers; default: one per core
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:?usage: tools/fresh.sh SUITE [quickstart|test]...}
commands=("${@:2}")
[ ${#commands[@]} -gt 0 ] || commands=(quickstart)

skip() {
  echo "fresh: skipped: $1" >&2
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "creating a chroot requires root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
[ -e "/usr/share/debootstrap/scripts/$suite" ] || skip "debootstrap does not know the suite $suite"
# In a mount namespace of its own, so that no mount outlives this script.
if [ -z "${FRESH_NAMESPACE:-}" ]; then
  unshare -m true 2>/dev/null || skip "this system does not permit mount namespaces"
  FRESH_NAMESPACE=1 exec unshare -m "$0" "$@"
fi

system=${FRESH_DIR:-}
if [ -z "$system" ]; then
  system=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-fresh-XXXXXX")
  # --one-file-system keeps rm out of the mounted folders.
  trap 'umount --recursive --lazy "$system/proc" "$system/dev" "$system/sys" "$system/var/cache/pip" 2>/dev/null || true
        rm -rf --one-file-system "$system"' EXIT
fi
mkdir -p "$system"
chmod 755 "$system"
cache=$(realpath -m "${PIP_CACHE_DIR:-$HOME/.cache/pip}")
mkdir -p "$cache"

if [ ! -x "$system/usr/bin/apt-get" ]; then
  began=$SECONDS
  debootstrap --variant=minbase --include=make,ca-certificates "$suite" "$system" >"$system.log" 2>&1 ||
    { tail -n 5 "$system.log" >&2; skip "debootstrap failed; is the Debian mirror reachable?"; }
  rm -f "$system.log"
  echo "fresh: $suite installed in $((SECONDS - began)) s"
fi
mkdir -p "$system/var/cache/pip" "$system/var/cache/ccache"
chmod 1777 "$system/var/cache/ccache"
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"
mount --rbind /sys "$system/sys"
mount --bind "$cache" "$system/var/cache/pip"
cp -L /etc/resolv.conf "$system/etc/resolv.conf"
# Certificates of a proxy that this machine trusts.
cp -L /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/ca-certificates.crt"
chroot "$system" sh -c 'id tester >/dev/null 2>&1 || useradd --create-home tester'

# as USER COMMAND...: runs a command in the user's checkout. pip ignores its cache for the normal user, who does not own it.
as() {
  local user=$1 home=/home/tester
  [ "$user" = root ] && home=/root
  shift
  chroot --userspec="$user:$user" "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" USER="$user" LANG=C.UTF-8 \
    TERM=dumb CCACHE_DIR=/var/cache/ccache CCACHE_UMASK=000 CCACHE_BASEDIR="$home/lockstep" CCACHE_NOHASHDIR=1 \
    PIP_CACHE_DIR=/var/cache/pip PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    QUICKSTART_STEPS="${QUICKSTART_STEPS:-150}" ${JOBS:+JOBS="$JOBS"} \
    sh -c "cd $home/lockstep && exec \"\$@\"" sh "$@"
}

checkout() {
  local home=/home/tester
  [ "$1" = root ] && home=/root
  mkdir -p "$system$home/lockstep"
  git ls-files -z | tar --null -T - -c --ignore-failed-read | tar -x -C "$system$home/lockstep"
  chroot "$system" chown -R "$1:$1" "$home/lockstep"
}

failures=0
# attempt USER COMMAND: runs make COMMAND and prints the time and what the compiler or the command complained about.
attempt() {
  local began=$SECONDS log=$system/tmp/$1-$2.log
  if as "$1" make "$2" >"$log" 2>&1; then
    echo "fresh: $suite: make $2 as $1: passed in $((SECONDS - began)) s"
  else
    failures=$((failures + 1))
    echo "fresh: $suite: make $2 as $1: FAILED after $((SECONDS - began)) s"
    tail -n 30 "$log"
  fi
  grep -E 'warning: ' "$log" | sort | uniq -c || true
}

checkout tester
if chroot "$system" dpkg-query -W cmake >/dev/null 2>&1; then
  echo "fresh: $suite: the Debian packages are installed already"
else
  code=0
  said=$(as tester make "${commands[0]}" 2>&1) || code=$?
  if [ $code -ne 0 ] && grep -q 'sudo apt-get install .*cmake' <<<"$said"; then
    echo "fresh: $suite: without the Debian packages, a normal user gets their list"
  else
    failures=$((failures + 1))
    echo "fresh: $suite: FAILED: without the Debian packages make ended with $code:"$'\n'"$said"
  fi
fi
checkout root
for user in root tester; do
  for command in "${commands[@]}"; do
    attempt "$user" "$command"
  done
done
[ $failures -eq 0 ]
