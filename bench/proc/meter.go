// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"loopmq/bench/result"
)

// Target is a process to read.
type Target struct {
	Name string // master, slave
	PID  int
}

// Meter reads what servers, the generator and the rest of the machine use between Begin and End. One goroutine uses it.
type Meter struct {
	servers   []Target
	generator int
	watches   []*watch // servers, then the generator
	began     time.Time
	busy      machine
}

// NewMeter is a meter for servers and the generator's process; 0 is this one.
func NewMeter(servers []Target, generator int) *Meter {
	if generator == 0 {
		generator = os.Getpid()
	}
	return &Meter{servers: servers, generator: generator}
}

// Begin begins a window; again, it begins another one.
func (m *Meter) Begin() error {
	m.watches = m.watches[:0]
	for _, t := range append(m.servers[:len(m.servers):len(m.servers)], Target{"generator", m.generator}) {
		w, err := newWatch(t.Name, t.PID)
		if err != nil {
			return err
		}
		m.watches = append(m.watches, w)
	}
	m.began = time.Now()
	var err error
	m.busy, err = readMachine()
	return err
}

// Sample is for every second or so of a window: it sees threads before they end, and the most memory.
func (m *Meter) Sample() error {
	for _, w := range m.watches {
		if err := w.sample(); err != nil {
			return err
		}
	}
	return nil
}

// End puts what the window used into r.
func (m *Meter) End(r *result.Result) error {
	took := time.Since(m.began)
	now, err := readMachine()
	if err != nil {
		return err
	}
	r.Servers, r.GeneratorCost = nil, nil
	others := now.busy - m.busy.busy
	for i, w := range m.watches {
		u, err := w.usage()
		if err != nil {
			return err
		}
		others -= u.CPUSeconds
		if i < len(m.servers) {
			r.Servers = append(r.Servers, u)
		} else {
			r.GeneratorCost = &u
		}
	}
	r.Others = &result.Others{Seconds: took.Seconds(), CPUSeconds: max(others, 0), StealSeconds: now.steal - m.busy.steal}
	return nil
}

// machine is the time all processors together were busy, and were kept from being so by the hypervisor, in seconds.
type machine struct{ busy, steal float64 }

func readMachine() (machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}, err
	}
	return parseMachine(string(text))
}

func parseMachine(text string) (m machine, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	const (
		user, nice, system, irq, softirq, steal = 1, 2, 3, 6, 7, 8
	)
	if len(fields) <= steal || fields[0] != "cpu" {
		return m, fmt.Errorf("/proc/stat begins with %q", line)
	}
	seconds := func(field int) float64 {
		n, parseErr := strconv.ParseFloat(fields[field], 64)
		if parseErr != nil {
			err = fmt.Errorf("/proc/stat: field %d is %q", field, fields[field])
		}
		return n / ticksPerSecond
	}
	m.busy = seconds(user) + seconds(nice) + seconds(system) + seconds(irq) + seconds(softirq)
	m.steal = seconds(steal)
	return m, err
}
