// SPDX-License-Identifier: Apache-2.0

package peer

import "loopmq/bench/result"

// Broker is a release's broker with a heap of the given size, as its start script runs it.
type Broker struct {
	*Peer
	Heap string // 4g
}

func (b Broker) Build() result.Build { return result.Build{Name: "java", Version: b.Version} }

// Broker is the command of a broker with a file of settings.
func (b Broker) Broker(dir, conf string) (path string, arguments []string) {
	// The flags of runbroker.sh; without pre-touching the heap, and with the time of its first gigabytes' faults.
	flags := []string{
		"-server", "-Xms" + b.Heap, "-Xmx" + b.Heap, "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
		"-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
		"-XX:MaxDirectMemorySize=15g", "-XX:-UseLargePages", "-XX:+IgnoreUnrecognizedVMOptions", "-XX:-UseBiasedLocking",
	}
	return "java", b.Command(dir, flags, "org.apache.rocketmq.broker.BrokerStartup", "-c", conf)
}
