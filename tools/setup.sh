#!/usr/bin/env bash
# Installs the Debian packages that building and testing need, and nothing else. Does nothing when
# they are all here. Asks for root plainly where it is not root.
set -euo pipefail

packages=(gcc make cmake pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev
          libcmocka-dev libopenblas0-pthread)

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null; then
        echo "ssmscope needs these Debian packages: ${missing[*]} (installing them with sudo)" >&2
        sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive apt-get install -y "${missing[@]}"
        exit
    fi
    echo "ssmscope needs these Debian packages; as root, run:" >&2
    echo "  apt-get update && apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "installing: ${missing[*]}" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >&2
