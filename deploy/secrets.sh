#!/bin/sh
# Makes the secrets of a new gateway, as lines NAME=VALUE on standard output, and shows the first API key once on standard
# error. Run it once: another SLUICE_SECRET cannot open what the former has sealed.
#
#   Compose      (umask 077; sh deploy/secrets.sh > deploy/.env)
#   docker run   (umask 077; sh deploy/secrets.sh > sluice.env), then docker run --env-file sluice.env …
#   Kubernetes   sh deploy/secrets.sh | kubectl create secret generic sluice --from-env-file=/dev/stdin
#   systemd      (umask 077; sh deploy/secrets.sh > /etc/sluice/environment)
#
# SLUICE_STORE and the keys of providers are taken over from the environment, where they are set there.
set -eu

random() { od -An -v -tx1 -N "$1" /dev/urandom | tr -d ' \n'; }

key="sk-$(random 32)"
echo "SLUICE_SECRET=$(random 32)"
echo "SLUICE_ADMIN_TOKEN=$(random 24)"
echo "SLUICE_KEY_SHA256=$(printf %s "$key" | sha256sum | cut -d ' ' -f 1)"
for name in SLUICE_STORE OPENAI_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY; do
  eval "value=\${$name:-}"
  [ -z "$value" ] || echo "$name=$value"
done
echo "The first API key, shown only this once: $key" >&2
