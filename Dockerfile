# The static binary on an empty image:
#
#   docker build -t agentbox .
#   docker run --rm agentbox --version
#
# To take the binary out for a host or another image:
#
#   docker build --output . --target binary .

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN scripts/build-static.sh \
    && cp target/*-unknown-linux-gnu/release/agentbox /agentbox

FROM scratch AS binary
COPY --from=build /agentbox /agentbox

FROM binary
COPY LICENSE /LICENSE
ENTRYPOINT ["/agentbox"]
