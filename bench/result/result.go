// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Schema numbers the form of the JSON; a file with a higher number was written by a newer tool.
const Schema = 1

// Result is one run. Times are of the measured window: the warm-up is not in it.
type Result struct {
	Schema   int       `json:"schema"`
	Label    string    `json:"label"`             // what a curve is called
	Row      string    `json:"row,omitempty"`     // in a comparison: the work
	Subject  string    `json:"subject,omitempty"` // in a comparison: who did it
	Round    int       `json:"round,omitempty"`   // in a comparison: from 1; the subjects of a round ran one after the other
	Base     string    `json:"base,omitempty"`    // in a comparison: the row whose cost this one's is a multiple of
	Settings Settings  `json:"settings"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`

	Messages      int64            `json:"messages"` // acknowledged, or received
	BodyBytes     int64            `json:"body_bytes"`
	MessageRate   float64          `json:"messages_per_s"` // derived
	Errors        map[string]int64 `json:"errors,omitempty"`
	Latency       *Histogram       `json:"latency,omitempty"` // of a request, or from end to end
	Samples       []Sample         `json:"samples,omitempty"`
	Accounted     *Account         `json:"accounted,omitempty"`
	TookSeconds   float64          `json:"took_s,omitempty"`    // one duration that was asked for: recovery, start, catch-up
	LogBytes      int64            `json:"log_bytes,omitempty"` // of the commit log that recovery or catch-up met
	SyncedSeconds float64          `json:"synced_s,omitempty"`  // of a catch-up, until the copy was on the disk
	PumpSeconds   float64          `json:"pump_s,omitempty"`    // that a bare copy of the same log to another file took, just before
	PumpSynced    float64          `json:"pump_synced_s,omitempty"`
	Null          *Histogram       `json:"null_latency,omitempty"` // of a server that only answers, at the same rate at the same time
	Stalls        []Stall          `json:"stalls,omitempty"`
	Beside        int64            `json:"beside_messages,omitempty"` // that a consumer read meanwhile, warm-up included
	GeneratorCost *Usage           `json:"generator,omitempty"`       // this process, or the client in another one
	Servers       []Usage          `json:"servers,omitempty"`         // one for each process: master, slave
	Others        *Others          `json:"others,omitempty"`          // what else the machine did

	Tool   Build `json:"tool"`
	Server Build `json:"server"`
	Host   Host  `json:"host"`
}

// Sample is about one second of a run.
type Sample struct {
	At         float64 `json:"at_s"` // its end, in seconds since the window began
	Seconds    float64 `json:"seconds"`
	Messages   int64   `json:"messages"`
	Errors     int64   `json:"errors,omitempty"`
	P50        float64 `json:"p50_us,omitempty"`
	P99        float64 `json:"p99_us,omitempty"`
	Max        float64 `json:"max_us,omitempty"`
	LagBytes   int64   `json:"lag_bytes,omitempty"`
	LagSeconds float64 `json:"lag_s,omitempty"`
}

// NewSample is the second that h counted, ended at seconds after the window began.
func NewSample(at, seconds float64, messages, errors int64, h *Histogram) Sample {
	s := Sample{At: at, Seconds: seconds, Messages: messages, Errors: errors}
	if h != nil && h.Count() > 0 {
		s.P50, s.P99, s.Max = Micros(h.Percentile(50)), Micros(h.Percentile(99)), Micros(h.Max())
	}
	return s
}

// Stall is a time in which answers were late.
type Stall struct {
	At       float64 `json:"at_s"` // when the first late request was due, in seconds since the window began
	Millis   float64 `json:"ms"`   // the longest latency
	Messages int64   `json:"messages"`
	Cause    string  `json:"cause"`          // host or server
	Seen     string  `json:"seen,omitempty"` // who else stood still at that time
}

// Causes of a stall.
const (
	CauseHost   = "host"   // something stood still that has nothing to do with the server
	CauseServer = "server" // nothing else did
)

// Account is what became of the messages that were acknowledged.
type Account struct {
	Acknowledged int64 `json:"acknowledged"`
	Read         int64 `json:"read"`
	Lost         int64 `json:"lost"`
	Duplicated   int64 `json:"duplicated"`
	Reordered    int64 `json:"reordered"`
	Unconfirmed  int64 `json:"unconfirmed"`         // read, but never acknowledged: the answer was lost, not the message
	Corrupt      int64 `json:"corrupt,omitempty"`   // read with other bytes than were sent
	Misplaced    int64 `json:"misplaced,omitempty"` // not in the queue, or not at the offset, that the answer named
	Overtaken    int64 `json:"overtaken,omitempty"` // behind a later one that was sent before this one was answered: allowed
}

// Usage is what a process used in the window. Memory and threads are those at its end.
type Usage struct {
	Name          string  `json:"name"`
	PID           int     `json:"pid,omitempty"`
	CPUSeconds    float64 `json:"cpu_s"`
	UserSeconds   float64 `json:"user_s"`
	SystemSeconds float64 `json:"system_s"`
	RSS           int64   `json:"rss_bytes"`
	RSSAnon       int64   `json:"rss_anon_bytes"`
	RSSAnonStart  int64   `json:"rss_anon_start_bytes"` // when the window began
	RSSAnonMax    int64   `json:"rss_anon_max_bytes"`   // of the samples
	Threads       int     `json:"threads"`
	Voluntary     int64   `json:"voluntary_switches"`      // context switches: it waited
	Involuntary   int64   `json:"involuntary_switches"`    // it was made to wait
	BytesWritten  int64   `json:"bytes_written"`           // handed to the disk
	BytesRead     int64   `json:"bytes_read"`              // fetched from the disk
	BytesUnknown  bool    `json:"bytes_unknown,omitempty"` // of another user's process: both are 0 because nobody may know
	MajorFaults   int64   `json:"major_faults"`
	MinorFaults   int64   `json:"minor_faults"`

	PerMillion *PerMillion `json:"per_million_messages,omitempty"` // derived
}

// PerMillion is a Usage by messages.
type PerMillion struct {
	CPUSeconds   float64 `json:"cpu_s"`
	Voluntary    float64 `json:"voluntary_switches"`
	Involuntary  float64 `json:"involuntary_switches"`
	BytesWritten float64 `json:"bytes_written"`
}

// Others tells whether the run was disturbed.
type Others struct {
	Seconds      float64 `json:"seconds"` // of the time that was looked at; it may be longer than the window
	CPUSeconds   float64 `json:"cpu_s"`   // of processes that are neither generator nor server
	StealSeconds float64 `json:"steal_s"` // taken by the hypervisor
}

// Build names a program.
type Build struct {
	Name    string `json:"name"` // loopmq, java
	Version string `json:"version,omitempty"`
	Commit  string `json:"commit,omitempty"`
}

// Host describes the machine without naming it.
type Host struct {
	CPU        string `json:"cpu,omitempty"`
	CPUs       int    `json:"cpus,omitempty"`
	Memory     int64  `json:"memory_bytes,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	FileSystem string `json:"file_system,omitempty"` // of the server's store
	PageCache  string `json:"page_cache,omitempty"`  // "full": no memory was left unused before the run
}

// Derive fills the figures that follow from others.
func (r *Result) Derive() {
	r.Schema = Schema
	r.MessageRate = 0
	if r.Seconds > 0 {
		r.MessageRate = float64(r.Messages) / r.Seconds
	}
	for i := range r.Servers {
		r.Servers[i].derive(r.Messages)
	}
	if r.GeneratorCost != nil {
		r.GeneratorCost.derive(r.Messages)
	}
}

func (u *Usage) derive(messages int64) {
	u.PerMillion = nil
	if messages <= 0 {
		return
	}
	millions := float64(messages) / 1e6
	u.PerMillion = &PerMillion{
		CPUSeconds:   u.CPUSeconds / millions,
		Voluntary:    float64(u.Voluntary) / millions,
		Involuntary:  float64(u.Involuntary) / millions,
		BytesWritten: float64(u.BytesWritten) / millions,
	}
}

// ErrorCount is how many requests or messages failed, of all kinds.
func (r *Result) ErrorCount() int64 {
	var n int64
	for _, k := range r.Errors {
		n += k
	}
	return n
}

// file is what lies on disk: one run or many.
type file struct {
	Schema  int       `json:"schema"`
	Results []*Result `json:"results"`
}

// Write writes results as one JSON document, each on a line of its own.
func Write(w io.Writer, results ...*Result) error {
	lines := make([][]byte, len(results))
	for i, r := range results {
		r.Derive()
		var err error
		if lines[i], err = json.Marshal(r); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "{\"schema\":%d,\"results\":[\n%s\n]}\n", Schema, bytes.Join(lines, []byte(",\n")))
	return err
}

// Read reads what Write wrote, or several such documents one after the other.
func Read(r io.Reader) ([]*Result, error) {
	var results []*Result
	for d := json.NewDecoder(r); ; {
		var f file
		if err := d.Decode(&f); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		if f.Schema != Schema {
			return nil, fmt.Errorf("results: form %d; this tool reads %d", f.Schema, Schema)
		}
		for i, one := range f.Results {
			if one == nil {
				return nil, fmt.Errorf("results: number %d is null", i)
			}
			one.Derive()
		}
		results = append(results, f.Results...)
	}
	return results, nil
}
