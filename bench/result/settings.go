// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/json"
	"fmt"
	"time"
)

// Settings are what a run was asked to do. A run's file holds them as JSON; flags set the same fields.
type Settings struct {
	Workload string `json:"workload"` // produce, consume, drain, latency; of servers started for the run: those of package suite
	Mode     string `json:"mode"`     // of producers: sync, pipelined, batch, oneway

	Broker  string   `json:"broker,omitempty"`  // host:port
	NameSrv string   `json:"namesrv,omitempty"` // host:port;…: finds the broker
	Topics  []string `json:"topics,omitempty"`
	Queues  int      `json:"queues,omitempty"` // of each topic

	Connections int     `json:"connections,omitempty"`
	Threads     int     `json:"threads,omitempty"`    // callers that wait for their answers, all connections together
	Window      int     `json:"window,omitempty"`     // requests in flight on each connection, pipelined
	Batch       int     `json:"batch,omitempty"`      // messages in a request
	Body        string  `json:"body,omitempty"`       // bytes: 1024, or a distribution
	Rate        float64 `json:"rate,omitempty"`       // messages a second, open loop; 0 is as fast as possible
	Groups      int     `json:"groups,omitempty"`     // consumer groups
	PullBatch   int     `json:"pull_batch,omitempty"` // messages asked for in a pull
	From        string  `json:"from,omitempty"`       // where consumers begin: first, last
	Serialize   string  `json:"serialize,omitempty"`  // JSON or ROCKETMQ
	Plain       bool    `json:"plain,omitempty"`      // messages without properties: no unique key, and no index entry

	Warmup   Duration `json:"warmup,omitempty"`
	Duration Duration `json:"duration,omitempty"`
	Count    int64    `json:"count,omitempty"` // stop after so many messages
	Timeout  Duration `json:"timeout,omitempty"`
	Hold     Duration `json:"hold,omitempty"`    // how long the broker may hold a pull that finds nothing
	Verify   bool     `json:"verify,omitempty"`  // read back and account for every acknowledged message
	Client   string   `json:"client,omitempty"`  // generator when it is not this tool: java:4.9.7
	Flush    string   `json:"flush,omitempty"`   // of a server started for the run: ASYNC_FLUSH, SYNC_FLUSH
	Role     string   `json:"role,omitempty"`    // of a server started for the run: ASYNC_MASTER, SYNC_MASTER
	Slaves   int      `json:"slaves,omitempty"`  // of a server started for the run
	Backlog  int64    `json:"backlog,omitempty"` // messages that a consumer beside the load reads from the first on
}

// Duration is written as people write it: 10s, 1m30s.
type Duration time.Duration

func (d Duration) String() string               { return time.Duration(d).String() }
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("duration %s: want a text such as \"10s\"", text)
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

// text is the settings as their file would say them, on one line.
func (s Settings) text() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: settings without a JSON form: " + err.Error())
	}
	return string(text)
}
