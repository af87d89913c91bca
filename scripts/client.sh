#!/usr/bin/env bash
# Print the path of a Python that has pytest, aiohttp and, where they can be had, the official clients
# of OpenAI and Anthropic, schemathesis, jsonschema and matplotlib; made once under build/. Tests that need
# one of these say that they are skipped without it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
[ -e "$venv/bin/python" ] || /usr/bin/python3 -m venv --system-site-packages "$venv" >&2
for client in openai anthropic==2.12.0 schemathesis "jsonschema[format-nongpl]" matplotlib; do
    [ -e "$venv/has-$client" ] && continue
    if "$venv/bin/pip" install -q --disable-pip-version-check "$client" >&2; then
        touch "$venv/has-$client"
    else
        echo "client: $client could not be installed; its tests will be skipped" >&2
    fi
done
echo "$PWD/$venv/bin/python"
