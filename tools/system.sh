#!/usr/bin/env bash
# Installs the system's programs that testbeds, tests and `make bench` use, where that needs no question: as root, with
# apt-get. Elsewhere it says what is missing and what will not work. `make` calls it once, before .venv is made.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

declare -A package=([unshare]=util-linux [ip]=iproute2 [tc]=iproute2 [nft]=nftables [ethtool]=ethtool [iperf3]=iperf3
    [ping]=iputils-ping
    [chromium]=chromium) # opens reports in a test
# Tests of `tweed launch` want sshd. It is a service, so it is installed only where nothing would start it.
[ -d /run/systemd/system ] || package[sshd]=openssh-server

missing() { # packages of the programs that are not there
    for program in "${!package[@]}"; do
        command -v "$program" >/dev/null || echo "${package[$program]}"
    done | sort -u | xargs
}

install() { DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends "$@" >/dev/null; }

wanted=$(missing)
if [ -n "$wanted" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing for networks of namespaces and for tests: $wanted"
    # shellcheck disable=SC2086  # one word per package
    install $wanted 2>/dev/null || { apt-get update --quiet=2 && install $wanted; } || true
fi
wanted=$(missing)
if [ -n "$wanted" ]; then
    echo "Missing: $wanted. tweed train --network, the figures between namespaces, and tests need it: apt install $wanted" >&2
fi
