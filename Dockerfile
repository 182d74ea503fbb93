# Sluice, from its checkout: no build step. Runs as a plain user on a read-only root; /app/data is the one place that is written.
#   docker build -t sluice .
#   docker run --read-only --cap-drop ALL -p 8080:8080 -v sluice-data:/app/data sluice
# For both processors, without emulation: nothing runs in the last stage.
#   docker buildx build --platform linux/amd64,linux/arm64 -t sluice .

# The Node that package.json pins.
ARG NODE_VERSION=22.23.3

# Dependencies are JavaScript, and bring their binaries for every processor along: the builder's own one installs them.
FROM --platform=$BUILDPLATFORM node:${NODE_VERSION}-slim AS dependencies
WORKDIR /app
# The image's own Node is the right one: the packaged binaries (optional) stay out.
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional && npm cache clean --force && mkdir data

FROM node:${NODE_VERSION}-slim
ENV NODE_ENV=production
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY . .
# A volume takes owner and mode from here. 1000 is the image's user `node`; as a number, so that Kubernetes can tell that it is not root.
COPY --from=dependencies --chown=1000:1000 /app/data data
USER 1000:1000
VOLUME /app/data

# The quickstart listens on loopback by default; inside a container that would reach no one.
ENV SLUICE_LISTEN=0.0.0.0:8080
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9090/readyz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]

STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "bin/sluice.mjs"]
CMD ["start", "--config", "gateway.yaml"]
