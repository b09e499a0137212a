#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# recipe.sh VERSION   makes ../java-VERSION/{clean,killed}.tar.gz: the store of a real Java broker, small files, after a
# clean stop, and, with more messages, after kill -9. Beside the files of the store lies sent.tsv: what the client sent and
# what the broker answered. Needs a JDK, Maven, and on loopback ports $PORT and $PORT+9 to $PORT+12 (default 23876).
set -euo pipefail
version=${1:?version}
port=${PORT:-23876}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

if [ -z "${ROCKETMQ_CLASSPATH:-}" ]; then
  cat >"$work/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>$version</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>$version</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-client</artifactId><version>$version</version></dependency>
</dependencies></project>
POM
  mvn -q -B -f "$work/pom.xml" dependency:build-classpath "-Dmdep.outputFile=$work/classpath"
  ROCKETMQ_CLASSPATH=$(cat "$work/classpath")
fi
javac -nowarn -d "$work" -cp "$ROCKETMQ_CLASSPATH" "$here/Fixture.java"
opens="--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
 --add-exports=java.base/sun.nio.ch=ALL-UNNAMED --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED
 --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/jdk.internal.misc=ALL-UNNAMED"
mkdir -p "$work/home/conf"
for n in broker namesrv tools; do
  echo '<configuration><root level="ERROR"/></configuration>' >"$work/home/conf/logback_$n.xml"
done
run() { # run NAME CLASS args…
  local name=$1; shift
  # shellcheck disable=SC2086
  java -Xmx512m $opens "-Duser.home=$work" "-Drocketmq.home.dir=$work/home" -cp "$work:$ROCKETMQ_CLASSPATH" "$@" >"$work/$name.log" 2>&1 &
  echo $! >"$work/$name.pid"
}
up() { for _ in $(seq 600); do grep -q 'boot success' "$work/$1.log" && return; sleep 0.1; done; cat "$work/$1.log" >&2; exit 1; }
broker() {
  run broker -Drmq.broker.x=1 org.apache.rocketmq.broker.BrokerStartup -c "$work/broker.conf"
  up broker
}
stop() { local p; p=$(cat "$work/broker.pid"); kill "-$1" "$p"; while kill -0 "$p" 2>/dev/null; do sleep 0.1; done; }
send() { java "-Duser.home=$work" -cp "$work:$ROCKETMQ_CLASSPATH" Fixture 127.0.0.1:$port "$@" | grep -P '^(single|batch)\t' >>"$work/store/sent.tsv"; }
pack() {
  mkdir -p "$here/../java-$version"
  tar -C "$work/store" --sort=name --owner=0 --group=0 --numeric-owner -S -czf "$here/../java-$version/$1.tar.gz" --exclude=lock --exclude='config/timer*' --exclude='timer*' .
}

echo "listenPort=$port" >"$work/namesrv.conf"
cat >"$work/broker.conf" <<CONF
brokerName=fixture
brokerIP1=127.0.0.1
listenPort=$((port + 11))
namesrvAddr=127.0.0.1:$port
storePathRootDir=$work/store
storePathCommitLog=$work/store/commitlog
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=400
maxHashSlotNum=50
maxIndexNum=200
timerWheelEnable=false
CONF
run namesrv org.apache.rocketmq.namesrv.NamesrvStartup -c "$work/namesrv.conf"
up namesrv
broker
send 0 150
sleep 5 # the messages of delay level 1 are delivered, queues and checkpoint flushed
stop TERM
pack clean
broker
send 150 220
stop KILL
pack killed
kill "$(cat "$work/namesrv.pid")"
ls -l "$here/../java-$version"
