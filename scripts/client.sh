#!/usr/bin/env bash
# Print the path of a Python that has pytest, aiohttp and, where they can be had, the official OpenAI
# client and schemathesis; made once under build/. Tests that need these say that they are skipped
# without them.
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
if [ ! -e "$venv/schemathesis" ]; then
    if "$venv/bin/pip" install -q --disable-pip-version-check schemathesis >&2; then
        touch "$venv/schemathesis"
    else
        echo "client: schemathesis could not be installed; its test will be skipped" >&2
    fi
fi
echo "$PWD/$venv/bin/python"
