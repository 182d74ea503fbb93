#!/bin/sh
# Builds a release, and publishes it, from a clean checkout of its tag:
#   sh deploy/release.sh build FOLDER             package, chart, bill of materials and their digests, into an empty folder
#   sh deploy/release.sh publish FOLDER IMAGE     signs and publishes them, and the images as IMAGE:VERSION and
#                                                 IMAGE-console:VERSION
# `build` makes the same package and bill from the same sources wherever it runs, so that anyone can compare. `publish`
# wants docker, npm and helm that are logged in, and cosign, which signs with the identity of the workflow that runs it.
set -eu
umask 022
cd "$(dirname "$0")/.."

command=${1:-} folder=${2:?name a folder}
version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' package.json)

case $command in
build)
  mkdir -p "$folder/chart"
  npm pack --silent --pack-destination "$folder"
  npm run --silent sbom > "$folder/sluice-$version.cdx.json"
  npm run --silent sbom -- console > "$folder/sluice-console-$version.cdx.json"
  helm package deploy/helm/sluice --destination "$folder/chart"
  cd "$folder"
  sha256sum "sluice-$version.tgz" ./*.cdx.json "chart/sluice-$version.tgz" > SHA256SUMS
  ;;
publish)
  image=${3:?name the image, with its registry and without a tag}
  npm run --silent release:check -- "${TAG:-v$version}"
  cosign sign-blob --yes --bundle "$folder/SHA256SUMS.sigstore.json" "$folder/SHA256SUMS"

  for name in sluice sluice-console; do
    # The gateway's stage is the last one, which is built where none is named.
    target=${name#sluice} target=${target#-}
    named=$image${target:+-$target}
    docker buildx build ${target:+--target "$target"} --platform linux/amd64,linux/arm64 --provenance=mode=max \
      --sbom=true --tag "$named:$version" --push --metadata-file "$folder/$name.json" .
    digest=$(sed -n 's/.*"containerimage.digest": "\(sha256:[0-9a-f]\{64\}\)".*/\1/p' "$folder/$name.json")
    # By its digest: a tag may be moved between the push and the signature.
    cosign sign --yes "$named@${digest:?docker told no digest of the image}"
    cosign attest --yes --type cyclonedx --predicate "$folder/$name-$version.cdx.json" "$named@$digest"
  done

  charts=${image%/*}/charts
  pushed=$(helm push "$folder/chart/sluice-$version.tgz" "oci://$charts" 2>&1)
  digest=$(echo "$pushed" | sed -n 's/^Digest: \(sha256:[0-9a-f]\{64\}\)$/\1/p')
  cosign sign --yes "$charts/sluice@${digest:?helm told no digest of the chart: $pushed}"

  # Last, since a version on npm is for good.
  npm publish "$folder/sluice-$version.tgz" --provenance --access public
  ;;
*)
  echo "build or publish?" >&2
  exit 2
  ;;
esac
