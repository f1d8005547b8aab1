# The image of Sluice: `docker build -t sluice:0.1.0 .`
# Build argument `--build-arg SLUICE_REVISION=$(git rev-parse HEAD)` sets label `revision` of metric `sluice_build_info`.
FROM rust:1.95-bookworm AS build
WORKDIR /src
ARG SLUICE_REVISION=unknown
COPY . .
RUN cargo build --release --locked --package sluice --bin sluice
RUN image/rootfs.sh target/release/sluice /rootfs

FROM scratch
COPY --from=build /rootfs /
USER 65532:65532
# Hooks, reviews, health and metrics.
EXPOSE 9443 9444 9440
ENTRYPOINT ["/sluice"]
CMD ["serve"]
