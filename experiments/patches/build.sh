#!/usr/bin/env bash
# Builds a patch of a Scala class of Kafka's core into a jar: build.sh notice-skipped-epochs.patch 4.3.1
# Maven fetches Kafka's jars, the sources of its core and the Scala compiler of that release; nothing else of Kafka is built.
set -euo pipefail
cd "$(dirname "$0")"
patch=$PWD/$1 kafka=$2 jar=$PWD/${1%.patch}.jar
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
project() {
  printf '<project><modelVersion>4.0.0</modelVersion><groupId>patch</groupId><artifactId>patch</artifactId>'
  printf '<version>1</version><packaging>pom</packaging><dependencies>'
  while [ $# -gt 0 ]; do
    IFS=: read -r group artifact version classifier <<<"$1"
    printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>' "$group" "$artifact" "$version"
    [ -z "${classifier:-}" ] || printf '<classifier>%s</classifier>' "$classifier"
    printf '</dependency>'
    shift
  done
  printf '</dependencies></project>\n'
}
fetch() {  # folder artifact…: the artifacts and what they need, as jars
  local folder=$work/$1; shift
  mkdir -p "$folder" && project "$@" >"$folder/pom.xml"
  mvn -q -B -C -f "$folder/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$folder/jars"
}
fetch kafka "org.apache.kafka:kafka_2.13:$kafka" "org.apache.kafka:kafka_2.13:$kafka:sources"
scala=$(basename "$work"/kafka/jars/scala-library-*.jar .jar)
fetch scala "org.scala-lang:scala-compiler:${scala#scala-library-}"
mkdir -p "$work/core/src/main/scala" "$work/classes"
(cd "$work/core/src/main/scala" && jar xf "$work/kafka/jars/kafka_2.13-$kafka-sources.jar")
patch -s -p1 -d "$work" <"$patch"
sources=$(sed -n 's|^+++ b/||p' "$patch")
rm "$work/kafka/jars/kafka_2.13-$kafka-sources.jar"
(cd "$work" && java -cp "scala/jars/*" scala.tools.nsc.Main -release 17 -nowarn -classpath "$(echo kafka/jars/*.jar | tr ' ' :)" \
  -d classes $sources)
# Without times, so that the same sources give the same jar.
find "$work/classes" -exec touch -d @315532800 {} +
rm -f "$jar"
jar --create --file "$jar" --no-manifest --date 1980-01-01T00:00:02Z -C "$work/classes" .
echo "$(basename "$jar"): $(jar tf "$jar" | grep -c class) classes for Kafka $kafka"
