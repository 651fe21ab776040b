#!/usr/bin/env bash
# Install the programs that some tests start: PostgreSQL, sshd, a browser. Where that is not possible
# (not root, no apt-get, no network) say so and go on: those tests are then skipped with the reason.
set -uo pipefail

packages=(postgresql openssh-server chromium chromium-driver)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "coattail: not installed and left so: ${missing[*]} (needs root and apt-get)"
  exit 0
fi

echo "coattail: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # the tests start servers of their own; Debian's packages need not
log=$(mktemp)
if ! { timeout 300 apt-get update -qq && timeout 900 apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  echo "coattail: could not install them; tests that need them will be skipped"
  tail -n 3 "$log"
fi
rm -f "$log"
exit 0
