#!/usr/bin/env bash
# Install what building and testing need, on Debian 12. Does nothing where all of it is there.
#   scripts/deps.sh        to build and test
#   scripts/deps.sh lint   also what `make lint` and `make format` use
set -euo pipefail

packages=(
    gcc g++ libc6-dev make cmake ninja-build pkg-config
    libmicrohttpd-dev libgnutls28-dev libjansson-dev libutf8proc-dev libxxhash-dev libssl-dev
    libedit-dev libcmocka-dev
    python3 python3-pytest python3-pytest-xdist python3-aiohttp python3-venv python3-jinja2
)
if [ "${1:-}" = lint ]; then
    packages+=(clang clang-format clang-tidy)
fi

missing=()
for p in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "deps: no apt-get here; please install: ${missing[*]}" >&2
        exit 1
    fi
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    echo "deps: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -q
    $sudo apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
