# Sluice, from its checkout: no build step. Runs as a plain user on a read-only root; /app/data is the one place that is written.
#   docker build -t sluice .
#   docker run --read-only -p 8080:8080 -v sluice-data:/app/data sluice
FROM node:22-slim

ENV NODE_ENV=production
WORKDIR /app

# The image's own Node is the right one: the packaged binaries (optional) stay out.
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional && npm cache clean --force

COPY . .
RUN mkdir -p data && chown node:node data
USER node
VOLUME /app/data

# The quickstart listens on loopback by default; inside a container that would reach no one.
ENV SLUICE_LISTEN=0.0.0.0:8080
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9090/readyz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]

STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "bin/sluice.mjs"]
CMD ["start", "--config", "gateway.yaml"]
