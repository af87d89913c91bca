#!/usr/bin/env bash
# Print the path of a Python that has pytest, aiohttp and, where it can be had, the official OpenAI
# client; made once under build/. Tests that need the client say that they are skipped without it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
[ -e "$venv/bin/python" ] || /usr/bin/python3 -m venv --system-site-packages "$venv" >&2
if [ ! -e "$venv/ready" ]; then
    if "$venv/bin/pip" install -q --disable-pip-version-check openai >&2; then
        touch "$venv/ready"
    else
        echo "client: the OpenAI client could not be installed; its tests will be skipped" >&2
    fi
fi
echo "$PWD/$venv/bin/python"
